"""Labelled sentences: SentEval's seven transfer tasks, in the very order its classifiers see them.

The order is part of the protocol: samples are sorted by their number of words, then by label, and stay so, which
decides who is in which fold and what every permutation of the training loop means.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s2sent.data.lines import Lines, damage_notes, read_lines, words
from s2sent.data.senteval import HOW_TO_GET, TRANSFER_TASKS, count_notes
from s2sent.errors import ConfigError, DataError

TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


class Driver(StrEnum):
    """How a task is turned into one accuracy (see ``s2sent.evaluation.transfer``)."""

    NESTED = "nested"
    """No test set: ten folds, and within each training part ten folds again to choose the regulariser."""
    KFOLD = "kfold"
    """Ten folds of the training set choose the regulariser; one test set."""
    SPLIT = "split"
    """A development set chooses; one test set."""


@dataclass(frozen=True)
class Samples:
    """Sentences (or pairs) and their classes, sorted by number of words and class."""

    first: tuple[str, ...]
    labels: NDArray[np.int64]
    second: tuple[str, ...] | None = None
    """The other sentences of a pair task."""

    def __len__(self) -> int:
        return len(self.first)

    def sentences(self) -> Iterator[str]:
        """Every sentence, with repetitions."""
        yield from self.first
        yield from self.second or ()


@dataclass(frozen=True)
class TransferTask:
    """One task with its splits: ``train`` alone for nested tasks, ``test`` and perhaps ``dev`` for the others."""

    name: str
    driver: Driver
    classes: int
    splits: dict[str, Samples]
    source: str
    notes: tuple[str, ...] = ()

    def sentences(self) -> Iterator[str]:
        """Every sentence of every split, with repetitions."""
        for samples in self.splits.values():
            yield from samples.sentences()


def read_transfer(folder: Path, task: str) -> TransferTask:
    """Read one task from SentEval's folder: ``MR``, ``CR``, ``SUBJ``, ``MPQA``, ``SST-2``, ``TREC`` or ``MRPC``.

    Raises:
        DataError: a file is missing, or a line has no label, an unknown one, or the wrong columns.
    """
    if task not in _READERS:
        raise ConfigError(f"{task!r} is no transfer task; there are {', '.join(TRANSFER_TASKS)}.")
    driver, classes, read = _READERS[task]
    splits = read(folder)
    for name, samples in splits.items():
        found = np.unique(samples.labels)
        if len(found) < 2:
            raise DataError(f"{task}: every sample of the {name} split has the class {found}; nothing can be learned.")
    notes = count_notes(task, [len(samples) for samples in splits.values()])
    for name, samples in splits.items():
        notes += damage_notes(task if len(splits) == 1 else f"{task} {name}", samples.sentences())
    return TransferTask(task, driver, classes, splits, str(folder), tuple(notes))


def in_order(first: list[str], labels: list[int], second: list[str] | None = None) -> Samples:
    """Sort as SentEval does: by number of words (of both sentences), then class; equals stay as they came."""

    def key(index: int) -> tuple[int, ...]:
        lengths = (
            (len(first[index].split()),) if second is None else (len(first[index].split()), len(second[index].split()))
        )
        return (*lengths, labels[index])

    order = sorted(range(len(first)), key=key)
    return Samples(
        tuple(first[index] for index in order),
        np.array([labels[index] for index in order], dtype=np.int64),
        None if second is None else tuple(second[index] for index in order),
    )


def _polarity(positive: str, negative: str) -> Callable[[Path], dict[str, Samples]]:
    """Two files, one sentence a line, empty lines included; the first file is class 1."""

    def read(folder: Path) -> dict[str, Samples]:
        ones, zeros = (read_lines(folder / name, "latin-1", hint=HOW_TO_GET) for name in (positive, negative))
        sentences = [words(row) for row in (*ones.rows, *zeros.rows)]
        return {"train": in_order(sentences, [1] * len(ones) + [0] * len(zeros))}

    return read


def _sst2(folder: Path) -> dict[str, Samples]:
    splits = {}
    for split in ("train", "dev", "test"):
        lines = read_lines(folder / "SST" / "binary" / f"sentiment-{split}", hint=HOW_TO_GET)
        sentences, labels = [], []
        for index, row in enumerate(lines.rows):
            sentence, tab, label = row.strip().rpartition("\t")
            if not tab:
                raise lines.fail(index, "a sentence, a tab and a label were expected")
            sentences.append(words(sentence))
            labels.append(_binary(lines, index, label))
        splits[split] = in_order(sentences, labels)
    return splits


def _trec(folder: Path) -> dict[str, Samples]:
    splits = {}
    for split, name in (("train", "train_5500.label"), ("test", "TREC_10.label")):
        lines = read_lines(folder / "TREC" / name, "latin-1", hint=HOW_TO_GET)
        sentences, labels = [], []
        for index, row in enumerate(lines.rows):
            label, colon, rest = row.strip().partition(":")
            if not colon or label not in TREC_CLASSES:
                raise lines.fail(index, f"a question type of {', '.join(TREC_CLASSES)} and a colon were expected first")
            sentences.append(words(rest.partition(" ")[2]))  # what stands before the blank is the fine type
            labels.append(TREC_CLASSES.index(label))
        splits[split] = in_order(sentences, labels)
    return splits


def _mrpc(folder: Path) -> dict[str, Samples]:
    splits = {}
    for split in ("train", "test"):
        lines = read_lines(folder / "MRPC" / f"msr_paraphrase_{split}.txt", hint=HOW_TO_GET)
        first, second, labels = [], [], []
        for index in range(1, len(lines)):  # the first line names the columns
            fields = lines.rows[index].strip().split("\t")
            if len(fields) != 5:
                raise lines.fail(index, f"5 tab-separated columns were expected, here are {len(fields)}")
            labels.append(_binary(lines, index, fields[0]))
            first.append(words(fields[3]))
            second.append(words(fields[4]))
        splits[split] = in_order(first, labels, second)
    return splits


def _binary(lines: Lines, index: int, label: str) -> int:
    if label not in ("0", "1"):
        raise lines.fail(index, f"the label {label!r} is neither 0 nor 1")
    return int(label)


_READERS: dict[str, tuple[Driver, int, Callable[[Path], dict[str, Samples]]]] = {
    "MR": (Driver.NESTED, 2, _polarity("MR/rt-polarity.pos", "MR/rt-polarity.neg")),
    "CR": (Driver.NESTED, 2, _polarity("CR/custrev.pos", "CR/custrev.neg")),
    "SUBJ": (Driver.NESTED, 2, _polarity("SUBJ/subj.objective", "SUBJ/subj.subjective")),
    "MPQA": (Driver.NESTED, 2, _polarity("MPQA/mpqa.pos", "MPQA/mpqa.neg")),
    "SST-2": (Driver.SPLIT, 2, _sst2),
    "TREC": (Driver.KFOLD, len(TREC_CLASSES), _trec),
    "MRPC": (Driver.KFOLD, 2, _mrpc),
}
