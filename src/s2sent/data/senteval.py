"""SentEval's STS and transfer tasks: what they are, and how they are read from its folder."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s2sent.data.lines import Lines, counted, damage_notes, read_lines, words
from s2sent.errors import ConfigError, DataError
from s2sent.untrusted import is_folder

STS_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
"""The seven STS tasks whose average papers report, in their order."""
TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST-2", "TREC", "MRPC")
"""The seven transfer tasks, in the papers' order."""
EXTRA_TASKS = ("STS-B-dev",)
"""Not part of an average: what models are selected on."""
SUITES: dict[str, tuple[str, ...]] = {
    "sts": (*STS_TASKS, *EXTRA_TASKS),
    "transfer": TRANSFER_TASKS,
    "all": (*STS_TASKS, *EXTRA_TASKS, *TRANSFER_TASKS),
}
ALIASES = {
    "stsb": "STS-B",
    "stsb-dev": "STS-B-dev",
    "sickr": "SICK-R",
    "sick": "SICK-R",
    "sst2": "SST-2",
    "sst": "SST-2",
}
OFFICIAL_COUNTS: dict[str, tuple[int, ...]] = {
    "STS12": (3108,),
    "STS13": (1500,),
    "STS14": (3750,),
    "STS15": (3000,),
    "STS16": (1186,),
    "STS-B": (1379,),
    "STS-B-dev": (1500,),
    "STS-B-train": (5749,),
    "SICK-R": (4927,),
    "MR": (10662,),
    "CR": (3775,),
    "SUBJ": (10000,),
    "MPQA": (10606,),
    "SST-2": (67349, 872, 1821),
    "TREC": (5452, 500),
    "MRPC": (4076, 1725),
}
"""Scored pairs, or sentences per split. A task with other counts is evaluated, and its report says so."""
HOW_TO_GET = (
    "SentEval's folder, as SimCSE ships it, is senteval.tar of the dataset princeton-nlp/datasets-for-simcse on the "
    "Hugging Face hub: unpack it and give its path with --data or in S2SENT_DATA, or let --data hub fetch it."
)


class Text(StrEnum):
    """Which text of a task is read. It moves scores by points, so every report names it.

    `file`: as SentEval's files have it (Moses-tokenised; lower-cased except for SICK), which published scores use.
    `raw`: as people wrote it, from the hub's copies or the STS-B wheel, which MTEB uses.
    """

    FILE = "file"
    RAW = "raw"

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ConfigError(f"text must be one of {', '.join(cls)}, got {value!r}.")


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
                f"{len(self.gold)} gold scores; the numbers must be equal."
            )
        if not self.first:
            raise DataError(f"{self.name}: no scored pair.")

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class STSTask:
    """An STS task: its subsets, which text they hold, and notes for readers of the score."""

    name: str
    subsets: tuple[Pairs, ...]
    text: Text
    source: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return sum(len(subset) for subset in self.subsets)

    def sentences(self) -> Iterator[str]:
        """Yield every sentence, with repetitions."""
        for subset in self.subsets:
            yield from subset.first
            yield from subset.second


class Driver(StrEnum):
    """How a transfer task is turned into one accuracy (see `s2sent.evaluation.transfer`)."""

    NESTED = "nested"
    """No test set: ten folds, and within each training part ten folds again to choose the regulariser."""
    KFOLD = "kfold"
    """Ten folds of the training set choose the regulariser; one test set."""
    SPLIT = "split"
    """A development set chooses; one test set."""


@dataclass(frozen=True)
class Samples:
    """Sentences (or pairs) and their classes, in SentEval's order."""

    first: tuple[str, ...]
    labels: NDArray[np.int64]
    second: tuple[str, ...] | None = None
    """The other sentences of a pair task."""

    def __len__(self) -> int:
        return len(self.first)

    def sentences(self) -> Iterator[str]:
        """Yield every sentence, with repetitions."""
        yield from self.first
        yield from self.second or ()


@dataclass(frozen=True)
class TransferTask:
    """A transfer task: `train` alone for nested tasks, also `test` and perhaps `dev` for the others."""

    name: str
    driver: Driver
    classes: int
    splits: dict[str, Samples]
    source: str
    notes: tuple[str, ...] = ()

    def sentences(self) -> Iterator[str]:
        """Yield every sentence of every split, with repetitions."""
        for samples in self.splits.values():
            yield from samples.sentences()


Task = STSTask | TransferTask


def task_names(wanted: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return task names from suites (`sts`, `transfer`, `all`) and single tasks, in the papers' order, each once.

    >>> task_names("TREC,sts-b")
    ('STS-B', 'TREC')
    """
    known: dict[str, tuple[str, ...]] = {name.lower(): (name,) for name in SUITES["all"]}
    known |= {alias: (name,) for alias, name in ALIASES.items()} | SUITES
    chosen: set[str] = set()
    for item in wanted.split(",") if isinstance(wanted, str) else wanted:
        if item.strip().lower() not in known:
            raise ConfigError(
                f"There is no task {item.strip()!r}. Suites: {', '.join(SUITES)}; tasks: {', '.join(SUITES['all'])}."
            )
        chosen.update(known[item.strip().lower()])
    return tuple(name for name in SUITES["all"] if name in chosen)


def find_folder(data: str | Path | None = None) -> Path:
    """Return the SentEval folder: `data` if given, else the environment variable `S2SENT_DATA`.

    The folder itself may be given, or one that holds it as `senteval`, `downstream` or `data/downstream` (the layouts
    of this project, of SimCSE's archive and of SentEval's repository).

    Raises:
        DataError: neither is given, or there is no such folder.
    """
    origin = "--data" if data is not None else "S2SENT_DATA"
    value = data if data is not None else os.environ.get("S2SENT_DATA")
    if not value:
        raise DataError(f"No evaluation data: neither --data nor S2SENT_DATA is set. {HOW_TO_GET}")
    root = Path(value).expanduser()
    if not is_folder(root):
        raise DataError(f"{root} (from {origin}) is not a folder. {HOW_TO_GET}")
    for inner in ("", "senteval", "downstream", "data/downstream"):
        folder = root / inner
        if any(is_folder(folder / name) for name in ("STS", "SICK", "MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC")):
            return folder
    raise DataError(f"{root} (from {origin}) holds none of SentEval's task folders (STS, SICK, MR, ...). {HOW_TO_GET}")


def _count_notes(task: str, counts: Iterable[int]) -> list[str]:
    found, official = tuple(counts), OFFICIAL_COUNTS[task]
    if found == official:
        return []
    shown, expected = (" + ".join(f"{count:,}" for count in numbers) for numbers in (found, official))
    return [f"{task}: {shown} samples where SentEval has {expected}; not comparable with published scores"]


# STS: subsets of a year are pairs of files (text and gold, line by line); the others are one table.

SUBSETS: dict[str, tuple[str, ...]] = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),  # without SMT, whose licence keeps it out of SentEval
    "STS14": ("deft-forum", "deft-news", "headlines", "OnWN", "images", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}


@dataclass(frozen=True)
class Columns:
    """Where a tab-separated table has its pairs, in columns counted from 0.

    Some copies of STS-B have more columns (licences), so `width` is the least number of them.
    """

    first: int
    second: int
    gold: int
    width: int
    header: bool = False
    lowest: float = 0.0


STSB_COLUMNS = Columns(first=5, second=6, gold=4, width=7)
_TABLES: dict[str, tuple[str, Columns]] = {
    "STS-B": ("STS/STSBenchmark/sts-test.csv", STSB_COLUMNS),
    "STS-B-dev": ("STS/STSBenchmark/sts-dev.csv", STSB_COLUMNS),
    "SICK-R": ("SICK/SICK_test_annotated.txt", Columns(1, 2, 3, width=5, header=True, lowest=1.0)),
}


def read_sts(folder: Path, task: str) -> STSTask:
    """Read one STS task from SentEval's folder.

    Raises:
        DataError: a file is missing, two files that belong together differ in length, or a line is wrong (columns,
            score, range, text).
    """
    notes: list[str] = []
    subsets: tuple[Pairs, ...]
    if task in SUBSETS:
        year = folder / "STS" / f"{task}-en-test"
        subsets, unscored = zip(*(_read_year_subset(year, name) for name in SUBSETS[task]), strict=True)
        if sum(unscored):
            notes.append(f"{task}: {counted(sum(unscored), 'pair')} without a gold score dropped, as SentEval does")
    elif task in _TABLES:
        name, columns = _TABLES[task]
        subsets = (read_pairs(read_lines(folder / name, hint=HOW_TO_GET), task, columns),)
    else:
        raise ConfigError(f"{task!r} is not an STS task. There are {', '.join([*SUBSETS, *_TABLES])}.")
    return sts_task(task, subsets, Text.FILE, str(folder), notes)


def sts_task(task: str, subsets: tuple[Pairs, ...], text: Text, source: str, notes: Iterable[str] = ()) -> STSTask:
    """Make a task, with notes about its counts and damaged text."""
    found = [*_count_notes(task, [sum(len(subset) for subset in subsets)]), *notes]
    for subset in subsets:
        where = task if len(subsets) == 1 else f"{task} {subset.name}"
        found += damage_notes(where, [*subset.first, *subset.second])
    return STSTask(task, subsets, text, source, tuple(found))


def _read_year_subset(folder: Path, name: str) -> tuple[Pairs, int]:
    """Read one subset of STS12-16; also return how many of its pairs have no score."""
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
        gold.append(_gold(scores, index, scores.rows[index]))
    return Pairs(name, tuple(first), tuple(second), np.array(gold)), len(scores) - len(rows)


def read_pairs(lines: Lines, name: str, columns: Columns) -> Pairs:
    """Read pairs from the lines of a tab-separated table."""
    first, second, gold = [], [], []
    for index in range(int(columns.header), len(lines)):
        fields = lines.rows[index].split("\t")
        if len(fields) < columns.width:
            raise lines.fail(index, f"{columns.width} tab-separated columns were expected, here are {len(fields)}")
        first.append(_sentence(lines, index, fields[columns.first]))
        second.append(_sentence(lines, index, fields[columns.second]))
        gold.append(_gold(lines, index, fields[columns.gold], columns.lowest))
    return Pairs(name, tuple(first), tuple(second), np.array(gold))


def _gold(lines: Lines, index: int, text: str, lowest: float = 0.0, highest: float = 5.0) -> float:
    """Read a gold score. Out of range it is an error: with a wrong column every score would still look plausible."""
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


# Transfer: the order of samples is part of the protocol. They are sorted by their number of words, then by label, which
# decides who is in which fold and what every permutation of the training loop means.

TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
Sample = tuple[int, str, str | None]
"""Class, sentence, and the second sentence of a pair."""


def _polarity(lines: Lines, index: int, file: int) -> Sample:
    """Read a sentence a line; the first of two files is class 1. Empty lines count."""
    return 1 - file, words(lines.rows[index]), None


def _sst2(lines: Lines, index: int, _: int) -> Sample:
    sentence, tab, label = lines.rows[index].strip().rpartition("\t")
    if not tab:
        raise lines.fail(index, "a sentence, a tab and a label were expected")
    return _binary(lines, index, label), words(sentence), None


def _trec(lines: Lines, index: int, _: int) -> Sample:
    label, colon, rest = lines.rows[index].strip().partition(":")
    if not colon or label not in TREC_CLASSES:
        raise lines.fail(index, f"a question type of {', '.join(TREC_CLASSES)} and a colon were expected first")
    return TREC_CLASSES.index(label), words(rest.partition(" ")[2]), None  # before the blank is the fine type


def _mrpc(lines: Lines, index: int, _: int) -> Sample:
    fields = lines.rows[index].strip().split("\t")
    if len(fields) != 5:
        raise lines.fail(index, f"5 tab-separated columns were expected, here are {len(fields)}")
    return _binary(lines, index, fields[0]), words(fields[3]), words(fields[4])


def _binary(lines: Lines, index: int, label: str) -> int:
    if label not in ("0", "1"):
        raise lines.fail(index, f"the label {label!r} is neither 0 nor 1")
    return int(label)


@dataclass(frozen=True)
class Labelled:
    """How a transfer task is stored: the files of each split, and how a line is read."""

    driver: Driver
    files: dict[str, tuple[str, ...]]
    line: Callable[[Lines, int, int], Sample]
    classes: int = 2
    encoding: str = "utf-8"
    header: bool = False


def _nested(positive: str, negative: str) -> Labelled:
    return Labelled(Driver.NESTED, {"train": (positive, negative)}, _polarity, encoding="latin-1")


_LABELLED: dict[str, Labelled] = {
    "MR": _nested("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": _nested("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": _nested("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": _nested("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
    "SST-2": Labelled(
        Driver.SPLIT, {split: (f"SST/binary/sentiment-{split}",) for split in ("train", "dev", "test")}, _sst2
    ),
    "TREC": Labelled(
        Driver.KFOLD,
        {"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)},
        _trec,
        classes=len(TREC_CLASSES),
        encoding="latin-1",
    ),
    "MRPC": Labelled(
        Driver.KFOLD, {split: (f"MRPC/msr_paraphrase_{split}.txt",) for split in ("train", "test")}, _mrpc, header=True
    ),
}


def read_transfer(folder: Path, task: str) -> TransferTask:
    """Read one transfer task from SentEval's folder.

    Raises:
        DataError: a file is missing, or a line has no label, an unknown one, or the wrong columns.
    """
    if task not in _LABELLED:
        raise ConfigError(f"{task!r} is not a transfer task. There are {', '.join(TRANSFER_TASKS)}.")
    stored = _LABELLED[task]
    splits: dict[str, Samples] = {}
    for split, files in stored.files.items():
        rows: list[Sample] = []
        for number, name in enumerate(files):
            lines = read_lines(folder / name, stored.encoding, hint=HOW_TO_GET)
            rows += [stored.line(lines, index, number) for index in range(int(stored.header), len(lines))]
        splits[split] = in_order(rows)
        found = np.unique(splits[split].labels)
        if len(found) < 2:
            raise DataError(f"{task}: every sample of the {split} split has the class {found}; nothing can be learned.")
    notes = _count_notes(task, [len(samples) for samples in splits.values()])
    for split, samples in splits.items():
        notes += damage_notes(task if len(splits) == 1 else f"{task} {split}", samples.sentences())
    return TransferTask(task, stored.driver, stored.classes, splits, str(folder), tuple(notes))


def in_order(samples: list[Sample]) -> Samples:
    """Sort samples as SentEval does: by number of words (of both sentences), then class; the sort is stable."""
    ordered = sorted(samples, key=lambda s: (len(s[1].split()), len((s[2] or "").split()), s[0]))
    labels = np.array([label for label, _, _ in ordered], dtype=np.int64)
    seconds = tuple(second for _, _, second in ordered if second is not None)
    return Samples(tuple(first for _, first, _ in ordered), labels, seconds or None)
