"""A corpus to train on: sentences, pairs or triplets from files or the hub, cleaned and counted as they are read.

Nothing is kept in memory: a corpus is read again for every pass, and may be larger than the machine's memory.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from s2sent.data.rows import read_rows
from s2sent.errors import DataError

Example = tuple[str, ...]
"""One sentence, a pair, or a triplet with its hard negative."""

LONGEST_TEXT = 10_000
"""In characters. Training uses the first few dozen tokens; the rest is cut first, which saves time."""

# C0 except tab, line feed and return (white space, which tokenizers handle), DEL, C1, and the byte order mark.
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
        counts: What the last pass found: `examples`, and everything that was left out or changed.
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
        """Raise a `DataError` if a source is missing, is not text, or lacks the columns."""
        for source in self.sources:
            if next(iter(read_rows(source, self.columns)), None) is None:
                raise DataError(f"{source} is empty.")

    def survey(self) -> Survey:
        """Read everything once: how much there is, and a checksum of it."""
        digest = 0
        for example in self:
            digest = zlib.crc32("\0".join(example).encode(), digest)
        if not self.counts["examples"]:
            raise DataError(f"{', '.join(self.sources)}: no line with text was left. {self.summary()}")
        return Survey(self.counts["examples"], digest, self.summary())

    def summary(self) -> str:
        """Return in one line what was read and what was left out or changed."""
        labels = {
            "held out": "held out for validation",
            "empty": "empty left out",
            "unreadable": "not valid UTF-8 left out",
            "broken": "rows without a text left out",
            "control": "with control characters, which were removed",
            "long": f"cut to {LONGEST_TEXT:,} characters",
        }
        parts = [f"{self.counts[key]:,} {text}" for key, text in labels.items() if self.counts[key]]
        return "; ".join([f"{self.counts['examples']:,} examples", *parts]) + "."

    def _clean(self, counts: Counter[str] | None = None) -> Iterator[Example]:
        counts = self.counts if counts is None else counts
        for source in self.sources:
            for row in read_rows(source, self.columns):
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
    """The number of examples of a corpus, a checksum of them, and the summary."""

    examples: int
    checksum: int
    summary: str


def clean(text: str, counts: Counter[str]) -> str:
    """Strip a text, remove control characters and cut it if it is far too long; count what was done."""
    if not text.isprintable() and _CONTROL.search(text):
        text = _CONTROL.sub(" ", text)
        counts["control"] += 1
    text = text.strip()
    if len(text) > LONGEST_TEXT:
        text = text[:LONGEST_TEXT]
        counts["long"] += 1
    return text
