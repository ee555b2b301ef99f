"""Batches of like lengths from a stream of examples: shuffled, reproducible, and resumable in the middle.

A window of the corpus is read, shuffled, tokenised and sorted by length; batches are cut from it and come in random
order. What a batch holds is a pure function of corpus, seed and position, so a run goes on where it stopped without
anything but the position being saved.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Self

from s2sent.data.corpus import Corpus, Example
from s2sent.model.framing import in_chunks
from s2sent.untrusted import Table

Ids = list[list[int]]
Tokenize = Callable[[Sequence[str]], Ids]


@dataclass(frozen=True)
class Position:
    """Where a stream of batches is: in which pass, behind how many examples, in which window, behind which batch.

    Attributes:
        epoch: The pass over the corpus, from 0.
        read: How many examples of it came before this window.
        window: Which window of the pass it is, from 0.
        batch: How many batches of the window are done.
        carried: Examples of earlier windows that found no place there.
    """

    epoch: int = 0
    read: int = 0
    window: int = 0
    batch: int = 0
    carried: tuple[Example, ...] = ()

    @classmethod
    def from_table(cls, values: Table) -> Self:
        """Make it from plain values, as `dataclasses.asdict` gives them, checked."""
        numbers = {name: values.get(name, int) for name in ("epoch", "read", "window", "batch")}
        for name, number in numbers.items():
            if number < 0:
                raise values.fail(name, f"must be at least 0, got {number}")
        carried = values.list_of("carried", list)
        for place, example in enumerate(carried):
            if not example or not all(isinstance(text, str) for text in example):
                raise values.fail(f"carried[{place}]", "must be a list of texts")
        return cls(carried=tuple(map(tuple, carried)), **numbers)


@dataclass(frozen=True)
class Batch:
    """A batch of one rank: token ids by column, and where the stream stands behind it.

    Attributes:
        columns: One list of token ids per text of an example.
        position: Where to go on behind this batch.
        tokens: How many tokens it has, without padding.
    """

    columns: list[Ids]
    position: Position
    tokens: int


@dataclass
class Batches:
    """Batches from a corpus, pass after pass.

    Args:
        corpus: The examples.
        tokenize: From texts to token ids, cut to length; none for a text that has no token. Its example is left out.
        size: How many examples a rank has in a batch.
        seed: Decides the order.
        window: How many examples are shuffled and sorted together.
        by_length: Whether a batch has examples of like length; otherwise they come as shuffled.
        rank, world: Which rank this is of how many; together they have `size · world` examples in a step, and each
            takes every `world`-th of them.
    """

    corpus: Corpus
    tokenize: Tokenize
    size: int
    seed: int = 42
    window: int = 65_536
    by_length: bool = True
    rank: int = 0
    world: int = 1
    duplicates: int = field(default=0, init=False)
    leftover: int = field(default=0, init=False)
    no_text: int = field(default=0, init=False)

    def epoch(self, start: Position) -> Iterator[Batch]:
        """Go through the rest of one pass over the corpus, from `start`."""
        examples = islice(iter(self.corpus), start.read, None)
        total = self.size * self.world
        here = start
        while True:
            fresh = list(islice(examples, max(self.window, total)))
            if not fresh:
                self.leftover += len(here.carried)
                return
            behind = replace(here, read=here.read + len(fresh), window=here.window + 1, batch=0)
            drawn = self._window([*here.carried, *fresh], here)
            if here.batch == 0:  # else who saved the position has counted this window already
                self.duplicates += drawn.moved
                self.leftover += drawn.given_up
                self.no_text += drawn.no_text
            for number, batch in enumerate(drawn.batches, start=1):
                if number > here.batch:
                    after = replace(here, batch=number)
                    yield self._share(drawn, batch, after)
            here = replace(behind, carried=drawn.left)

    def _window(self, examples: list[Example], here: Position) -> _Window:
        # Seeded by a text, which Python hashes with sha512: neighbouring seeds give unrelated orders.
        chance = random.Random(f"{self.seed} {here.epoch} {here.window}")
        chance.shuffle(examples)
        ids = [
            [row for chunk in in_chunks(column) for row in self.tokenize(chunk)]
            for column in zip(*examples, strict=True)
        ]
        order = [row for row in range(len(examples)) if all(column[row] for column in ids)]
        no_text = len(examples) - len(order)
        total = self.size * self.world
        # Who fills no batch is left to chance; sorted, it would always be the longest.
        order, left = order[: len(order) // total * total], order[len(order) // total * total :]
        if self.by_length:
            order.sort(key=lambda row: max(len(column[row]) for column in ids))
        batches, moved, without_place = _no_duplicates(order, ids, total)
        chance.shuffle(batches)
        # A corpus of few texts many times over must not be carried along whole: what a batch cannot hold is given up.
        left = [*left, *without_place]
        carried = tuple(examples[row] for row in left[:total])
        return _Window(ids, batches, carried, moved, len(left[total:]), no_text)

    def _share(self, drawn: _Window, rows: list[int], after: Position) -> Batch:
        own = rows[self.rank :: self.world]
        columns = [[column[row] for row in own] for column in drawn.ids]
        return Batch(columns, after, sum(len(ids) for column in columns for ids in column))


@dataclass(frozen=True)
class _Window:
    ids: list[Ids]
    batches: list[list[int]]
    left: tuple[Example, ...]
    moved: int
    given_up: int
    no_text: int


def _no_duplicates(order: Sequence[int], columns: list[Ids], size: int) -> tuple[list[list[int]], int, list[int]]:
    """Cut `order` into batches in which no text occurs twice: a repeated one would be its own false negative.

    Texts are the same if the model sees the same: "Yes" and "yes" without case, two that differ beyond the longest.
    Returns the batches, how many examples were moved to a later batch, and those that found no place.
    """
    batches: list[list[int]] = []
    waiting: deque[int] = deque()
    moved = 0
    batch: list[int] = []
    texts: set[tuple[int, ...]] = set()

    def full() -> bool:
        nonlocal batch, texts
        if len(batch) < size:
            return False
        batches.append(batch)
        batch, texts = [], set()
        return True

    def place(row: int) -> bool:
        seen = [tuple(column[row]) for column in columns]
        if not texts.isdisjoint(seen):
            return False
        batch.append(row)
        texts.update(seen)
        return True

    for row in order:
        if not place(row):
            waiting.append(row)
            moved += 1
        if full():
            for _ in range(len(waiting)):
                late = waiting.popleft()
                if not place(late):
                    waiting.append(late)
                full()
    return batches, moved, [*batch, *waiting]
