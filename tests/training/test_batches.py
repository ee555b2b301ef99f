"""Batches: everything once, nothing twice in a batch, like lengths, the same again from any position."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sent.data.corpus import Corpus
from s2sent.training.batches import Batch, Batches, Ids, Position
from s2sent.untrusted import Table
from training.runs import make_lines


class Lines(Corpus):
    """A corpus in memory."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(["memory"])
        self.lines = lines

    def __iter__(self):  # noqa: ANN204
        return iter([(line,) for line in self.lines])


def tokenize(texts: object) -> Ids:
    return [[zlib.crc32(word.encode()) for word in text.split()][:12] for text in texts]  # type: ignore[attr-defined]


def rows(batches: list[Batch]) -> list[tuple[int, ...]]:
    return [tuple(row) for batch in batches for row in batch.columns[0]]


@pytest.mark.parametrize("by_length", [True, False])
def test_every_sentence_once_and_like_lengths_together(by_length: bool) -> None:
    lines = make_lines(1000)
    batches = list(Batches(Lines(lines), tokenize, 16, window=300, by_length=by_length).epoch(Position()))
    assert len(batches) == 1000 // 16
    found = rows(batches)
    assert len(set(found)) >= len(found) * 0.9
    padding = sum(max(map(len, b.columns[0])) * 16 - b.tokens for b in batches) / sum(b.tokens for b in batches)
    assert (padding < 0.05) == by_length


def test_examples_without_a_token_are_left_out_and_the_others_come_once() -> None:
    lines = [f"word {number}" if number % 7 else " " * number for number in range(600)]
    batches = Batches(Lines(lines), tokenize, 16, window=100)
    found = rows(list(batches.epoch(Position())))
    assert all(found)
    assert len(set(found)) == len(found)
    assert batches.counts.no_text == len(range(0, 600, 7))
    assert len(found) + batches.counts.leftover + batches.counts.no_text == 600


def test_the_order_is_the_seeds() -> None:
    def drawn(**options: int) -> list[tuple[int, ...]]:
        return rows(list(Batches(Lines(make_lines(300)), tokenize, 8, **options).epoch(Position())))

    assert drawn(seed=1) == drawn(seed=1)
    assert drawn(seed=1) != drawn(seed=2)
    first = list(Batches(Lines(make_lines(300)), tokenize, 8).epoch(Position()))
    second = list(Batches(Lines(make_lines(300)), tokenize, 8).epoch(Position(epoch=1)))
    assert rows(first) != rows(second)


@given(st.lists(st.integers(0, 30), min_size=8, max_size=200), st.integers(2, 8), st.integers(4, 64))
def test_no_text_is_twice_in_a_batch_and_any_position_resumes(numbers: list[int], size: int, window: int) -> None:
    # Every other line is the one before it to the model, though not to a person.
    lines = [f"{'w ' * (number % 5)}{number}" for number in numbers]
    ids = {line: [n // 2] * (1 + n // 2 % 5) for n, line in enumerate(sorted(set(lines)))}
    batches = Batches(Lines(lines), lambda texts: [ids[text] for text in texts], size, window=window)
    drawn = list(batches.epoch(Position()))
    for batch in drawn:
        assert len(batch.columns[0]) == size
        assert len({row[0] for row in batch.columns[0]}) == size
    assert len(drawn) * size + batches.counts.leftover == len(lines)
    fresh = Batches(Lines(lines), lambda texts: [ids[text] for text in texts], size, window=window)
    for number, batch in enumerate(fresh.epoch(Position())):
        again = Position.from_table(Table(json.loads(json.dumps(asdict(batch.position))), Path("state.json")))
        resumed = Batches(Lines(lines), lambda texts: [ids[text] for text in texts], size, window=window)
        resumed.counts.duplicates, resumed.counts.leftover = fresh.counts.duplicates, fresh.counts.leftover
        assert [b.columns for b in resumed.epoch(again)] == [b.columns for b in drawn[number + 1 :]]
        assert (resumed.counts.duplicates, resumed.counts.leftover) == (
            batches.counts.duplicates,
            batches.counts.leftover,
        )


def test_ranks_share_a_batch() -> None:
    lines = make_lines(200)
    one = list(Batches(Lines(lines), tokenize, 16).epoch(Position()))
    two = [list(Batches(Lines(lines), tokenize, 8, rank=r, world=2).epoch(Position())) for r in range(2)]
    for whole, left, right in zip(one, *two, strict=True):
        assert sorted(whole.columns[0]) == sorted(left.columns[0] + right.columns[0])


def test_pairs_share_no_text(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("a,b\n" + "\n".join(f"premise {n // 3},answer {n}" for n in range(60)))
    batches = Batches(Corpus([str(path)], ["a", "b"]), tokenize, 10)
    for batch in batches.epoch(Position()):
        premises = [tuple(row) for row in batch.columns[0]]
        assert len(set(premises)) == 10
    assert batches.counts.duplicates
