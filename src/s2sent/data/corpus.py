"""A corpus to train on: sentences, pairs or triplets from files or the hub, cleaned and counted as they stream by.

Nothing is kept in memory: a corpus is read again for every pass, and may be larger than the machine.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from s2sent.data.text import COMPRESSIONS, FORMATS, Row, column_names, read_rows, row_of
from s2sent.errors import DataError
from s2sent.untrusted import exists, is_folder

Example = tuple[str, ...]
"""One sentence, a pair, or a triplet with its hard negative."""

LONGEST_TEXT = 10_000
"""In characters. Training looks at the first few dozen tokens; the rest is cut before it costs anything."""

# C0 but for tab, line feed and return (white space, which tokenizers deal with), DEL, C1, and the byte order mark.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff]")


@dataclass
class Corpus:
    """Examples from several sources, one after the other.

    Args:
        sources: Files (.txt, .csv, .tsv, .jsonl, .parquet, and .gz or .zst of these), or dataset ids on the hub.
        columns: Which columns have the texts: one for sentences, two for pairs, three for triplets. Empty: the one
            column that has the text.
        held_out: How many of 2³² hash values are kept out of `__iter__`, for `held_out_examples`.

    Attributes:
        counts: What the last pass met: `examples`, and everything that was left out or changed.
    """

    sources: Sequence[str]
    columns: Sequence[str] = ()
    held_out: int = 0
    counts: Counter[str] = field(default_factory=Counter, compare=False)

    def __iter__(self) -> Iterator[Example]:
        """Read the examples for training, in the sources' order."""
        self.counts = Counter()
        for example in self._clean():
            if zlib.crc32(example[0].encode()) < self.held_out:
                self.counts["held out"] += 1
            else:
                self.counts["examples"] += 1
                yield example

    def held_out_examples(self, most: int) -> list[Example]:
        """Return up to `most` of the examples that are kept out of training, each once."""
        found: dict[Example, None] = {}
        for example in self._clean(Counter()):
            if zlib.crc32(example[0].encode()) < self.held_out:
                found[example] = None
                if len(found) == most:
                    break
        return list(found)

    def check(self) -> None:
        """Raise a `DataError` if a source is missing, is no text, or has not the columns: before anything is loaded."""
        for source in self.sources:
            if next(iter(read_source(source, self.columns)), None) is None:
                raise DataError(f"{source} is empty.")

    def survey(self) -> Survey:
        """Read everything once, to know how much there is and what it is."""
        digest = 0
        for example in self:
            digest = zlib.crc32("\0".join(example).encode(), digest)
        if not self.counts["examples"]:
            raise DataError(f"{', '.join(self.sources)}: no line with text was left. {self.summary()}")
        return Survey(self.counts["examples"], digest, self.summary())

    def summary(self) -> str:
        """Say in one line what was read and what was left out or changed."""
        said = {
            "held out": "held out for validation",
            "empty": "empty left out",
            "unreadable": "not valid UTF-8 left out",
            "broken": "rows without a text left out",
            "control": "with control characters, which were removed",
            "long": f"cut to {LONGEST_TEXT:,} characters",
        }
        parts = [f"{self.counts[key]:,} {text}" for key, text in said.items() if self.counts[key]]
        return "; ".join([f"{self.counts['examples']:,} examples", *parts]) + "."

    def _clean(self, counts: Counter[str] | None = None) -> Iterator[Example]:
        counts = self.counts if counts is None else counts
        for source in self.sources:
            for row in read_source(source, self.columns):
                if row.problem is not None:
                    kind = {"is not valid UTF-8": "unreadable", "is empty": "empty"}.get(row.problem, "broken")
                    counts[kind] += 1
                    continue
                example = tuple(clean(text, counts) for text in row.texts)
                if all(example):
                    yield example
                else:
                    counts["empty"] += 1


@dataclass(frozen=True)
class Survey:
    """What one pass over a corpus found: how many examples, a checksum of them, and the summary."""

    examples: int
    checksum: int
    summary: str


def clean(text: str, counts: Counter[str]) -> str:
    """Strip a text, take control characters out and cut it if it is far too long; count what was done."""
    if not text.isprintable() and _CONTROL.search(text):
        text = _CONTROL.sub(" ", text)
        counts["control"] += 1
    text = text.strip()
    if len(text) > LONGEST_TEXT:
        text = text[:LONGEST_TEXT]
        counts["long"] += 1
    return text


def is_file_name(source: str) -> bool:
    """Whether a source is meant as a file, there or not, and not as a dataset's id on the hub."""
    path = Path(source)
    if exists(path) or path.suffix in (*FORMATS, *COMPRESSIONS):
        return True
    return source.startswith((".", "/", "~")) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source)


def read_source(source: str, columns: Sequence[str] = (), *, numbers: Sequence[str] = ()) -> Iterator[Row]:
    """Read a file, or a dataset of the hub, row by row.

    Args:
        source: The file, or the dataset's id.
        columns: The columns with the texts; none: the one that has the text.
        numbers: Those of the columns that may have numbers, which come as text.
    """
    if not is_file_name(source):
        return _hub_rows(source, columns, numbers)
    return read_rows(_file(source), columns or None, numbers=numbers)


def source_columns(source: str) -> list[str] | None:
    """Return the names of a source's columns; None for plain lines."""
    if is_file_name(source):
        return column_names(_file(source))
    row = next(iter(_hub_table(source)), None)
    return None if row is None else list(row)


def _file(source: str) -> Path:
    path = Path(source)
    if is_folder(path):
        raise DataError(f"{source} is a folder. Give its files, such as {path / '*.txt'}.")
    return path


def _hub_table(source: str) -> Iterable[dict[str, Any]]:
    """Stream a dataset's `train` split from the hub."""
    from datasets import load_dataset

    try:
        table: Iterable[dict[str, Any]] = load_dataset(source, split="train", streaming=True)
    except Exception as error:  # the hub's client raises a dozen unrelated kinds
        raise DataError(
            f"{source!r} is neither a file nor a dataset with a train split that could be fetched from the hub "
            f"({type(error).__name__}: {' '.join(str(error).split())}). Check the path; for a dataset, its id and the "
            "connection."
        ) from error
    return table


def _hub_rows(source: str, columns: Sequence[str], numbers: Sequence[str]) -> Iterator[Row]:
    for number, row in enumerate(_hub_table(source), start=1):
        if number == 1:
            columns = columns or _only_text(source, row)
            if missing := [column for column in columns if column not in row]:
                raise DataError(f"{source} has no column {missing[0]!r}. It has: {', '.join(row)}.")
        yield row_of(number, [row[column] for column in columns], columns, numbers=numbers)


def _only_text(source: str, row: dict[str, Any]) -> tuple[str]:
    texts = [name for name, value in row.items() if isinstance(value, str)]
    for name in ("text", "sentence", *(texts if len(texts) == 1 else ())):
        if name in texts:
            return (name,)
    raise DataError(f"{source} has several columns with text ({', '.join(texts)}). Say which one to use.")
