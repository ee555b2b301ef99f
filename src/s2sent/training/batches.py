"""Batches of texts of similar length from a stream of examples: shuffled, reproducible, resumable at any batch.

A window of the corpus is read, shuffled, tokenised and sorted by length; batches are cut from it and come in random
order. What a batch has is a function of corpus, seed and position, so a run resumes from the position alone.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Self

from s2sent.data.corpus import Corpus, Example
from s2sent.untrusted import Table

Ids = list[list[int]]
Tokenize = Callable[[Sequence[str]], Ids]


@dataclass(frozen=True)
class Position:
    """Where a stream of batches is.

    Attributes:
        epoch: The pass over the corpus, from 0.
        read: How many examples of it came before this window.
        window: The window of the pass, from 0.
        batch: How many batches of the window are done.
        carried: Examples of earlier windows that did not fit into a batch there.
    """

    epoch: int = 0
    read: int = 0
    window: int = 0
    batch: int = 0
    carried: tuple[Example, ...] = ()

    @classmethod
    def from_table(cls, values: Table) -> Self:
        """Make it from the values of a json file, checked."""
        carried = values.list_of("carried", list)
        for place, example in enumerate(carried):
            if not example or not all(isinstance(text, str) for text in example):
                raise values.fail(f"carried[{place}]", "must be a list of texts")
        numbers = {name: count(values, name) for name in ("epoch", "read", "window", "batch")}
        return cls(carried=tuple(map(tuple, carried)), **numbers)


@dataclass
class Counts:
    """What was moved or left out so far.

    Attributes:
        duplicates: How often a text was moved to a later batch, because its batch had it already.
        leftover: How many examples filled no batch.
        no_text: How many examples have a text without a token.
    """

    duplicates: int = 0
    leftover: int = 0
    no_text: int = 0

    @classmethod
    def from_table(cls, values: Table) -> Self:
        """Make it from the values of a json file, checked."""
        return cls(**{option.name: count(values, option.name) for option in fields(cls)})


def count(values: Table, name: str) -> int:
    """Return a whole number of at least 0 from a json file."""
    number = values.get(name, int)
    if number < 0:
        raise values.fail(name, f"must be at least 0, got {number}")
    return number


@dataclass(frozen=True)
class Batch:
    """A batch of one rank.

    Attributes:
        columns: One list of token ids per text of an example.
        position: Where the stream continues after this batch.
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
        tokenize: From texts to token ids, cut to length; an example of which a text has no token is left out.
        size: How many examples a rank has in a batch.
        seed: Decides the order.
        window: How many examples are shuffled and sorted together.
        by_length: Whether a batch has examples of similar length; otherwise they come as shuffled.
        rank: This rank,
        world: of how many; together they have `size · world` examples in a step, and each takes every `world`-th.
        counts: What was moved or left out, added to as batches are drawn.
    """

    corpus: Corpus
    tokenize: Tokenize
    size: int
    seed: int = 42
    window: int = 65_536
    by_length: bool = True
    rank: int = 0
    world: int = 1
    counts: Counts = field(default_factory=Counts)

    def epoch(self, start: Position) -> Iterator[Batch]:
        """Yield the batches of one pass over the corpus, from `start` on."""
        examples = islice(iter(self.corpus), start.read, None)
        here = start
        while True:
            read = list(islice(examples, max(self.window, self.size * self.world)))
            if not read:
                self.counts.leftover += len(here.carried)
                return
            window = self._window([*here.carried, *read], here)
            if here.batch == 0:  # otherwise this window was counted before its position was saved
                self.counts.duplicates += window.moved
                self.counts.leftover += window.dropped
                self.counts.no_text += window.no_text
            for number, rows in enumerate(window.batches, start=1):
                if number > here.batch:
                    yield self._share(window, rows, replace(here, batch=number))
            here = Position(here.epoch, here.read + len(read), here.window + 1, carried=window.carried)

    def _window(self, examples: list[Example], here: Position) -> _Window:
        # Seeded by a text, which Python hashes with sha512: neighbouring seeds give unrelated orders.
        chance = random.Random(f"{self.seed} {here.epoch} {here.window}")
        chance.shuffle(examples)
        ids = [self.tokenize(column) for column in zip(*examples, strict=True)]
        order = [row for row in range(len(examples)) if all(column[row] for column in ids)]
        no_text = len(examples) - len(order)
        total = self.size * self.world
        # Which examples fill no batch is decided before sorting; after it, it would always be the longest.
        order, left = order[: len(order) // total * total], order[len(order) // total * total :]
        if self.by_length:
            order.sort(key=lambda row: max(len(column[row]) for column in ids))
        batches, moved, unplaced = _without_duplicates(order, ids, total)
        chance.shuffle(batches)
        # At most one batch is carried over: a corpus of few texts, many times over, must not accumulate.
        left = [*left, *unplaced]
        carried = tuple(examples[row] for row in left[:total])
        return _Window(ids, batches, carried, moved, len(left[total:]), no_text)

    def _share(self, window: _Window, rows: list[int], after: Position) -> Batch:
        own = rows[self.rank :: self.world]
        columns = [[column[row] for row in own] for column in window.ids]
        return Batch(columns, after, sum(len(ids) for column in columns for ids in column))


@dataclass(frozen=True)
class _Window:
    ids: list[Ids]
    batches: list[list[int]]
    carried: tuple[Example, ...]
    moved: int
    dropped: int
    no_text: int


def _without_duplicates(order: Sequence[int], columns: list[Ids], size: int) -> tuple[list[list[int]], int, list[int]]:
    """Cut `order` into batches without a repeated text, which would be its own false negative.

    Texts are the same if the model sees the same tokens: "Yes" and "yes" without case, two that differ after the cut.

    Returns:
        The batches, how many examples were moved to a later batch, and those that fit into none.
    """
    batches: list[list[int]] = []
    waiting: deque[int] = deque()
    moved = 0
    batch: list[int] = []
    texts: set[tuple[int, ...]] = set()

    def close_if_full() -> bool:
        nonlocal batch, texts
        if len(batch) < size:
            return False
        batches.append(batch)
        batch, texts = [], set()
        return True

    def add(row: int) -> bool:
        seen = [tuple(column[row]) for column in columns]
        if not texts.isdisjoint(seen):
            return False
        batch.append(row)
        texts.update(seen)
        return True

    for row in order:
        if not add(row):
            waiting.append(row)
            moved += 1
        if close_if_full():
            for _ in range(len(waiting)):
                late = waiting.popleft()
                if not add(late):
                    waiting.append(late)
                close_if_full()
    return batches, moved, [*batch, *waiting]
