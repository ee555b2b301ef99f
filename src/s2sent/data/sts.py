"""Sentence pairs with a gold similarity: STS12-16, STS-B and SICK-R from SentEval's folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s2sent.data.lines import Lines, counted, damage_notes, read_lines, words
from s2sent.data.senteval import HOW_TO_GET, count_notes
from s2sent.errors import ConfigError, DataError

SUBSETS: dict[str, tuple[str, ...]] = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),  # without SMT, whose licence keeps it out of SentEval
    "STS14": ("deft-forum", "deft-news", "headlines", "OnWN", "images", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}


class Text(StrEnum):
    """Which text of a task is read. It moves scores by points, so every report names it.

    ``file``: as SentEval's files have it (Moses-tokenised; lower-cased but for SICK); what published scores use.
    ``raw``: as people wrote it, from the hub's copies or the STS-B wheel; what MTEB uses.
    """

    FILE = "file"
    RAW = "raw"

    @classmethod
    def of(cls, value: str) -> "Text":
        """The member of this name, or an error that lists them."""
        try:
            return cls(value)
        except ValueError:
            raise ConfigError(f"text must be one of {', '.join(cls)}, not {value!r}.") from None


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs of one subset, each with its gold score."""

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    gold: NDArray[np.float64]

    def __post_init__(self) -> None:
        if not len(self.first) == len(self.second) == len(self.gold):
            raise DataError(
                f"{self.name}: {len(self.first)} first sentences, {len(self.second)} second ones and "
                f"{len(self.gold)} gold scores; they must be as many."
            )
        if not self.first:
            raise DataError(f"{self.name}: no scored pair.")

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class STSTask:
    """One task: its subsets, which text they hold, and what a reader of the score should know about them."""

    name: str
    subsets: tuple[Pairs, ...]
    text: Text
    source: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return sum(len(subset) for subset in self.subsets)

    def sentences(self) -> Iterator[str]:
        """Every sentence, with repetitions."""
        for subset in self.subsets:
            yield from subset.first
            yield from subset.second


def read_sts(folder: Path, task: str) -> STSTask:
    """Read one task from SentEval's folder: ``STS12`` ... ``STS16``, ``STS-B``, ``STS-B-dev`` or ``SICK-R``.

    Raises:
        DataError: a file is missing, two files that belong together differ in length, or a line is not what it should
            be (columns, score, range, text).
    """
    notes: list[str] = []
    subsets: tuple[Pairs, ...]
    if task in SUBSETS:
        year = folder / "STS" / f"{task}-en-test"
        subsets, unscored = zip(*(_read_year_subset(year, name) for name in SUBSETS[task]), strict=True)
        if sum(unscored):
            notes.append(f"{task}: {counted(sum(unscored), 'pair')} without a gold score dropped, as SentEval does")
    elif task in ("STS-B", "STS-B-dev"):
        path = folder / "STS" / "STSBenchmark" / ("sts-test.csv" if task == "STS-B" else "sts-dev.csv")
        subsets = (read_table(read_lines(path, hint=HOW_TO_GET), task, columns=(5, 6), gold=4, width=7),)
    elif task == "SICK-R":
        lines = read_lines(folder / "SICK" / "SICK_test_annotated.txt", hint=HOW_TO_GET)
        subsets = (read_table(lines, task, columns=(1, 2), gold=3, width=5, header=True, lowest=1.0),)
    else:
        raise ConfigError(
            f"{task!r} is no STS task; there are {', '.join([*SUBSETS, 'STS-B', 'STS-B-dev', 'SICK-R'])}."
        )
    return describe(task, subsets, Text.FILE, str(folder), notes)


def describe(task: str, subsets: tuple[Pairs, ...], text: Text, source: str, notes: list[str]) -> STSTask:
    """Put a task together with the notes its counts and its text call for."""
    notes = [*count_notes(task, [sum(len(subset) for subset in subsets)]), *notes]
    for subset in subsets:
        where = task if len(subsets) == 1 else f"{task} {subset.name}"
        notes += damage_notes(where, [*subset.first, *subset.second])
    return STSTask(task, subsets, text, source, tuple(notes))


def _read_year_subset(folder: Path, name: str) -> tuple[Pairs, int]:
    """One subset of STS12-16, and how many of its pairs have no score: pairs and scores are two files, line by line."""
    text = read_lines(folder / f"STS.input.{name}.txt", hint=HOW_TO_GET)
    scores = read_lines(folder / f"STS.gs.{name}.txt", hint=HOW_TO_GET)
    if len(text) != len(scores):
        raise DataError(
            f"{text.path} has {counted(len(text), 'line')} but {scores.path} has {len(scores):,}: every pair needs its "
            "line of gold (empty where it was not scored). One of the two is cut short: take both again."
        )
    rows = [index for index, score in enumerate(scores.rows) if score.strip()]
    if not rows:
        raise DataError(f"{scores.path}: no line has a gold score.")
    first, second, gold = [], [], []
    for index in rows:
        columns = text.rows[index].split("\t")
        if len(columns) < 2:
            raise text.fail(index, "two sentences with a tab between them were expected")
        first.append(_sentence(text, index, columns[0]))
        second.append(_sentence(text, index, columns[1]))
        gold.append(parse_score(scores, index, scores.rows[index]))
    return Pairs(name, tuple(first), tuple(second), np.array(gold)), len(scores) - len(rows)


def read_table(
    lines: Lines,
    name: str,
    *,
    columns: tuple[int, int],
    gold: int,
    width: int,
    header: bool = False,
    lowest: float = 0.0,
) -> Pairs:
    """Pairs from a tab-separated table with at least ``width`` columns (some copies of STS-B add licence columns)."""
    first, second, scores = [], [], []
    for index in range(int(header), len(lines)):
        fields = lines.rows[index].split("\t")
        if len(fields) < width:
            raise lines.fail(index, f"{width} tab-separated columns were expected, here are {len(fields)}")
        first.append(_sentence(lines, index, fields[columns[0]]))
        second.append(_sentence(lines, index, fields[columns[1]]))
        scores.append(parse_score(lines, index, fields[gold], lowest))
    return Pairs(name, tuple(first), tuple(second), np.array(scores))


def parse_score(lines: Lines, index: int, text: str, lowest: float = 0.0, highest: float = 5.0) -> float:
    """A gold score in its range; anything else is an error, for one wrong column would make every score plausible."""
    try:
        score = float(text)
    except ValueError:
        raise lines.fail(index, f"the gold score {text!r} is not a number") from None
    if not lowest <= score <= highest:  # NaN fails this too
        raise lines.fail(index, f"the gold score {text} is outside {lowest:g} to {highest:g}")
    return score


def _sentence(lines: Lines, index: int, text: str) -> str:
    sentence = words(text)
    if not sentence:
        raise lines.fail(index, "a gold score without text")
    return sentence
