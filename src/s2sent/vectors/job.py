"""From windows of texts to shards of vectors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from threading import Thread
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from s2sent.data.text import Label
from s2sent.errors import ConfigError, DataError, ModelError
from s2sent.texts import texts_of
from s2sent.vectors.batches import CPU_TOKENS, GPU_TOKENS, encode_tokens
from s2sent.vectors.encoder import TextEncoder
from s2sent.vectors.precision import Form
from s2sent.vectors.shards import Shard, Shards
from s2sent.vectors.sources import WINDOW, Window

T = TypeVar("T")
_LARGEST = (1 << 63) - 1

Progress = Callable[[int, int | None], None]
"""Told how many lines are done, and how many there will be, as far as one can tell."""


def expect(lines: int, share: float) -> int | None:
    """Guess how many lines there are from how many are in a share of all bytes."""
    return max(lines, round(lines / share)) if share > 0 else None


@dataclass(frozen=True)
class Options:
    """What is made of a text, besides the model.

    Args:
        form: Precision, features, length.
        long: A text that is longer than the model takes is cut (`truncate`), or split at the limit and its pieces'
            vectors averaged by their length (`mean`).
        with_text: Keep the texts beside the vectors (parquet, jsonl).
        batch_tokens: Tokens to a batch, padding included. None: what suits the device.
    """

    form: Form = field(default_factory=Form)
    long: str = "truncate"
    with_text: bool = False
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.long not in ("truncate", "mean"):
            raise ConfigError(f"long={self.long!r} is not known. Legal: 'truncate', 'mean'.")
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens must be at least one token, got {self.batch_tokens}.")

    def budget(self, encoder: TextEncoder) -> int:
        """Tokens to a batch."""
        on_cpu = str(getattr(encoder, "device", "cpu")) == "cpu"
        return self.batch_tokens or (CPU_TOKENS if on_cpu else GPU_TOKENS)

    def identity(self) -> dict[str, Any]:
        """Return what decides the vectors; how they are batched does not, but for the rounding of an int8 export."""
        return {**asdict(self.form), "long": self.long, "with_text": self.with_text}


class Job:
    """Makes shards of windows: on one machine of all, on a cluster each worker of some."""

    def __init__(self, encoder: TextEncoder, options: Options, shards: Shards) -> None:
        self.encoder, self.options, self.shards = encoder, options, shards

    def run(
        self, windows: Iterator[Window], done: Mapping[tuple[int, int], Shard], on_progress: Progress | None = None
    ) -> None:
        """Make the shards that are missing, in order; the windows that are done are read and checked."""
        lines, share = 0, 0.0

        def tell(texts: int) -> None:
            nonlocal lines
            lines += texts
            if on_progress is not None:
                on_progress(lines, expected)

        def tokenized() -> Iterator[tuple[Window, list[list[int]] | None]]:
            for window in windows:
                shard = done.get((window.group, window.number))
                if shard is not None:
                    shard.check(window)
                yield window, self.encoder.tokenize(window.texts) if shard is None else None

        for window, tokens in ahead(tokenized()):
            end = lines + window.rows
            share += window.share
            expected = expect(end, share)
            if tokens is not None:
                self.encode(window, tokens, tell)
            tell(end - lines)

    def encode(
        self, window: Window, tokens: Sequence[list[int]], on_texts: Callable[[int], None] | None = None
    ) -> Shard:
        """Encode one window and commit its shard."""
        if self.shards.output.suffix == ".safetensors":
            window.labels[:] = map(_whole_number, window.labels)
        encoded = encode_tokens(
            self.encoder,
            tokens,
            average_long=self.options.long == "mean",
            budget=self.options.budget(self.encoder),
            on_texts=on_texts,
        )
        packed = self.options.form.pack(encoded.vectors)
        for index in packed.bad.nonzero()[0].tolist():
            encoded.problems.setdefault(index, f"has no finite vector in {self.options.form.precision}")
        if len(tokens) and packed.bad.all():
            file, line = window.lines[0]
            raise ModelError(
                f"{file}, line {line}: the model gives NaN or infinity for it, and for all {len(tokens)} texts of this "
                f"shard, in {self.options.form.precision}. Nothing of it is written. Its weights are damaged, or too "
                "large for the precision: load the model anew, or use --precision float32."
            )
        kept = [index for index in range(len(tokens)) if index not in encoded.problems]
        problems = [*window.problems, *(window.problem(*problem) for problem in encoded.problems.items())]
        problems.sort(key=lambda problem: problem.row)
        return self.shards.commit(window, packed, kept, problems, encoded.long, self.options.with_text)


def encode_texts(
    encoder: TextEncoder, texts: str | Collection[str], *, long: str = "truncate", batch_tokens: int | None = None
) -> NDArray[np.floating]:
    """Encode texts that are in memory: (b, dimension), in their order; of a single text, (dimension,).

    Args:
        encoder: The model, such as `TorchEncoder(model)` or an exported one.
        texts: The texts, as `model.encode` takes them.
        long: As of `Options`.
        batch_tokens: As of `Options`.

    Raises:
        DataError: a text has nothing to encode; the message says which.
    """
    options = Options(long=long, batch_tokens=batch_tokens)
    single, texts = isinstance(texts, str), texts_of(texts)
    if not texts:
        return np.array([])  # without a dimension, as sentence-transformers does
    vectors = np.empty((len(texts), encoder.dimension), dtype=np.float32)
    starts = range(0, len(texts), WINDOW)
    for start, tokens in ahead((start, encoder.tokenize(texts[start : start + WINDOW])) for start in starts):
        encoded = encode_tokens(encoder, tokens, average_long=options.long == "mean", budget=options.budget(encoder))
        for place in np.flatnonzero(~np.isfinite(encoded.vectors).all(axis=1)).tolist():
            encoded.problems.setdefault(place, "has no finite vector")
        if encoded.problems:
            place, reason = min(encoded.problems.items())
            raise DataError(
                f"Input {start + place + 1} of {len(texts)}, {texts[start + place][:60]!r}, {reason}. Leave it out."
            )
        vectors[start : start + len(tokens)] = encoded.vectors
    return vectors[0] if single else vectors


def _whole_number(label: Label) -> int:
    try:
        number = int(label)
    except ValueError:
        number = _LARGEST + 1
    if not -_LARGEST <= number <= _LARGEST:
        raise ConfigError(
            f"safetensors has no place for ids that are not whole numbers of 64 bits, such as {label!r}. Write "
            ".parquet or .jsonl."
        )
    return number


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Make the next item in a thread while the present one is used: reading and tokenising beside computing."""
    end = object()

    def begin() -> Future[T | object]:
        coming: Future[T | object] = Future()

        def work() -> None:
            try:
                coming.set_result(next(items, end))
            except BaseException as error:
                coming.set_exception(error)

        # A daemon: somebody who interrupts must not wait until a silent standard input says something.
        Thread(target=work, daemon=True).start()
        return coming

    coming = begin()
    while (item := coming.result()) is not end:
        coming = begin()
        yield item  # type: ignore[misc]
