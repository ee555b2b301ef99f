"""Examples to adapt a frozen encoder with: triplets, pairs, scored pairs or plain text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from s2sent.data.corpus import clean
from s2sent.data.rows import column_names, read_rows
from s2sent.errors import DataError

LEAST = 50
"""Fewest examples: a held-out part of fewer could not tell two forms apart."""

ANCHORS = ("anchor", "sent0", "sentence1", "query", "question", "text1")
POSITIVES = ("positive", "sent1", "sentence2", "answer", "passage", "text2")
NEGATIVES = ("negative", "hard_neg", "hard_negative")
SCORES = ("score", "similarity", "similarity_score")


class Kind(StrEnum):
    """What an example is."""

    TRIPLETS = "triplets"
    PAIRS = "pairs"
    SCORED = "scored pairs"
    TEXT = "lines of text"


@dataclass(frozen=True)
class Columns:
    """Which columns have the texts, and which the score."""

    texts: tuple[str, ...] = ()
    score: str | None = None


@dataclass
class Examples:
    """Examples as rows of numbers of texts.

    Attributes:
        kind: What they are.
        texts: Every text once.
        rows: (examples, 1 to 3) which texts an example has: anchor, positive, hard negative.
        scores: (examples,) of scored pairs.
        counts: What was read, left out or changed.
    """

    kind: Kind
    texts: list[str]
    rows: NDArray[np.int64]
    scores: NDArray[np.float64] | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.rows)

    def summary(self) -> str:
        """Return in one line what was read and what was left out."""
        labels = {
            "empty": "with an empty text left out",
            "broken": "rows that cannot be read left out",
            "unscored": "without a score left out",
            "short": f"lines of fewer than {SHORTEST} words left out",
        }
        parts = [f"{self.counts[key]:,} {text}" for key, text in labels.items() if self.counts[key]]
        return "; ".join([f"{len(self):,} {self.kind} with {len(self.texts):,} different texts", *parts]) + "."


def read_examples(sources: Sequence[str], columns: Columns | None = None) -> Examples:
    """Read examples from files or datasets of the hub.

    Args:
        sources: As of `Corpus`: .txt, .csv, .tsv, .jsonl, .parquet, .gz or .zst of these, or dataset ids on the hub.
        columns: Which columns to use. By default they are found by their names, in each source: (anchor, positive,
            negative), (sentence1, sentence2, score), (anchor, positive), or a column of text.

    Raises:
        DataError: a source cannot be read, its columns are not known, the sources are of different kinds, or they
            have too few examples, or nothing to learn from.
    """
    columns = columns or Columns()
    chosen = [columns if columns.texts else find_columns(source, columns.score) for source in sources]
    kinds = {_kind(one) for one in chosen}
    if len(kinds) > 1:
        raise DataError(f"{', '.join(sources)}: these are {' and '.join(sorted(kinds))}. Give files of one kind.")
    kind = kinds.pop()
    counts: Counter[str] = Counter()
    numbers: dict[str, int] = {}
    rows: list[list[int]] = []
    scores: list[float] = []
    for source, one in zip(sources, chosen, strict=True):
        for texts, score in _read(source, one, counts):
            rows.append([numbers.setdefault(text, len(numbers)) for text in texts])
            if score is not None:
                scores.append(score)
    if not rows:
        raise DataError(f"{', '.join(sources)}: no example was left.")
    found = Examples(kind, list(numbers), np.array(rows), np.array(scores) if scores else None, counts)
    _check(found, ", ".join(sources))
    return found


def find_columns(source: str, score: str | None = None) -> Columns:
    """Find the columns of a source by their names; the score's can be given."""
    names = column_names(source)
    if names is None:  # plain lines
        if score is not None:
            raise DataError(f"{source} has a text a line and no columns, but the score column {score!r} was given.")
        return Columns()
    low = {name.lower(): name for name in reversed(names)}

    def first(known: Sequence[str]) -> str | None:
        return next((low[name] for name in known if name in low), None)

    anchor, positive, negative = map(first, (ANCHORS, POSITIVES, NEGATIVES))
    if score is not None and (score not in names or not (anchor and positive)):
        raise DataError(
            f"{source} has the columns {', '.join(names)}: with the score {score!r}, name the two columns of text."
        )
    score = score or first(SCORES)
    if anchor and positive and score is None and "label" in low:
        raise DataError(
            f"{source} has a column {low['label']!r} beside two texts. If it is a score, give it as the score column "
            "(--score-column); if it is not, name the columns of text (--columns A,B)."
        )
    if anchor and positive:
        return Columns((anchor, positive), score) if score else Columns((anchor, positive, *filter(None, [negative])))
    if len(names) == 1 or "text" in low or "sentence" in low:
        return Columns((low.get("text") or low.get("sentence") or names[0],))
    raise DataError(
        f"{source} has the columns {', '.join(names)}, and which of them have the texts is not clear. Name them with "
        "--columns: one for plain text, two for pairs, three for triplets; and --score-column for the score."
    )


def _kind(columns: Columns) -> Kind:
    if columns.score is not None:
        if len(columns.texts) != 2:
            raise DataError(f"A score goes with two columns of text, and here are {len(columns.texts)}.")
        return Kind.SCORED
    return (Kind.TEXT, Kind.TEXT, Kind.PAIRS, Kind.TRIPLETS)[len(columns.texts)]


def _read(source: str, columns: Columns, counts: Counter[str]) -> Iterator[tuple[tuple[str, ...], float | None]]:
    numbers = () if columns.score is None else (columns.score,)
    for row in read_rows(source, (*columns.texts, *numbers), numbers=numbers):
        if row.problem is not None:
            counts["empty" if row.problem == "is empty" else "broken"] += 1
            continue
        texts = tuple(clean(text, counts) for text in row.texts[: max(len(columns.texts), 1)])
        score = None if columns.score is None else _number(row.texts[-1])
        if not all(texts):
            counts["empty"] += 1
        elif score is not None and math.isnan(score):
            counts["unscored"] += 1
        else:
            yield texts, score


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _check(examples: Examples, where: str) -> None:
    """Raise for examples that nothing can be learned from, before an encoder is run over them."""
    if len(examples) < LEAST:
        raise DataError(
            f"{where}: {examples.summary()} At least {LEAST} examples are needed, of which a part is held out to "
            "choose the form by."
        )
    if examples.scores is not None and np.ptp(examples.scores) == 0:
        raise DataError(f"{where}: every score is {examples.scores[0]:g}, so there is no order to learn.")
    first = examples.rows[0]
    if examples.kind is not Kind.TEXT and (examples.rows == first).all():
        raise DataError(f"{where}: all {len(examples):,} examples are the same, so there is nothing to learn.")
    if examples.kind is Kind.PAIRS and (examples.rows[:, 0] == examples.rows[:, 1]).all():
        raise DataError(
            f"{where}: both texts of every pair are the same, so there is nothing to learn from the pairs. To adapt "
            "with plain text, name one column."
        )
    if len(examples.texts) < LEAST // 2:
        raise DataError(f"{where}: only {len(examples.texts)} texts are different: too few to tell one from another.")


SHORTEST = 6
"""Words below which two pieces of a line would be nearly the same."""


def crop_pairs(examples: Examples, seed: int) -> Examples:
    """Make pairs of plain text: two pieces of every line, each 50 to 90 % of its words, at random places."""
    random = np.random.default_rng(seed)
    numbers: dict[str, int] = {}
    rows: list[list[int]] = []
    counts = Counter(examples.counts)
    for line in dict.fromkeys(examples.texts[row] for row in examples.rows[:, 0].tolist()):
        words = line.split()
        if len(words) < SHORTEST:
            counts["short"] += 1
            continue
        pieces = []
        for share in random.uniform(0.5, 0.9, size=2):
            size = round(share * len(words))
            start = int(random.integers(0, len(words) - size + 1))
            pieces.append(" ".join(words[start : start + size]))
        rows.append([numbers.setdefault(piece, len(numbers)) for piece in pieces])
    if len(rows) < LEAST:
        raise DataError(
            f"Of {len(examples):,} lines {len(rows)} have {SHORTEST} words or more, and at least {LEAST} are needed: "
            "two pieces of every line are compared."
        )
    return Examples(Kind.TEXT, list(numbers), np.array(rows), None, counts)
