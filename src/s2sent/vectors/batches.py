"""Batches of like length under a budget of tokens, so that padding is rare whatever the mix of lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from s2sent.errors import DataError
from s2sent.vectors.encoder import TextEncoder
from s2sent.vectors.precision import unit

CPU_TOKENS = 1024
"""Tokens to a batch on a CPU: a small encoder's states stay in the cache, and what goes around a batch is little."""
GPU_TOKENS = 32_768


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Put places together into batches of at most `budget` tokens, padding included; the longest come first.

    A sequence that is longer than the budget is a batch of its own.

    >>> list(token_batches([2, 9, 3, 3], budget=8))
    [[1], [2, 3], [0]]
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


@dataclass
class Encoded:
    """The vectors of some texts.

    Attributes:
        vectors: (b, dimension), a row for every text; meaningless where there is a problem.
        problems: Why a text has no vector, by its place.
        long: How many texts were longer than the model takes.
    """

    vectors: NDArray[np.float32]
    problems: dict[int, str] = field(default_factory=dict)
    long: int = 0


def encode_tokens(
    encoder: TextEncoder,
    tokens: Sequence[list[int]],
    *,
    average_long: bool = False,
    budget: int = CPU_TOKENS,
    on_texts: Callable[[int], None] | None = None,
) -> Encoded:
    """Encode texts that are tokenised already.

    Args:
        encoder: The model.
        tokens: Each text's content tokens, as `encoder.tokenize` gives them.
        average_long: Split a text that is too long at the model's limit, and average its pieces' vectors by length;
            otherwise it is cut.
        budget: Tokens to a batch.
        on_texts: Told how many more texts are done.
    """
    done = Encoded(np.zeros((len(tokens), encoder.dimension), dtype=np.float32))
    pieces: list[tuple[int, list[int]]] = []  # the text's place, and content tokens that fit
    split: set[int] = set()
    for place, content in enumerate(tokens):
        if not content:
            done.problems[place] = "has nothing in it that the model's tokenizer can read"
        elif average_long and len(content) > encoder.room:
            split.add(place)
            starts = range(0, len(content), encoder.room)
            pieces += [(place, content[start : start + encoder.room]) for start in starts]
        else:
            pieces.append((place, content))
        done.long += len(content) > encoder.room

    sequences = [encoder.frame(content) for _, content in pieces]
    for batch in token_batches([len(sequence) for sequence in sequences], budget):
        for index, vector in _embed(encoder, sequences, batch, done.problems, pieces):
            place, content = pieces[index]
            if place in split:
                done.vectors[place] += vector * np.float32(len(content) / len(tokens[place]))
            else:
                done.vectors[place] = vector
        if on_texts is not None:
            on_texts(sum(pieces[index][0] not in split for index in batch))
    if split:
        places = sorted(split)
        if encoder.normalizes:
            done.vectors[places] = unit(done.vectors[places])
        if on_texts is not None:
            on_texts(len(places))
    return done


def _embed(
    encoder: TextEncoder,
    sequences: Sequence[list[int]],
    batch: list[int],
    problems: dict[int, str],
    pieces: Sequence[tuple[int, list[int]]],
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield the batch's vectors by their index; what the model refuses becomes its text's problem."""
    try:
        yield from zip(batch, encoder.embed([sequences[index] for index in batch]), strict=True)
    except DataError as error:
        if len(batch) == 1:
            problems[pieces[batch[0]][0]] = f"is refused by the model: {error}"
            return
        for index in batch:  # one by one the text is found
            yield from _embed(encoder, sequences, [index], problems, pieces)
