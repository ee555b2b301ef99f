"""The texts to encode: from files and standard input, in windows that are the same whenever they are read."""

from __future__ import annotations

import glob
import io
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from s2sent.data.text import FORMATS, LONGEST_LINE, Label, Row, format_of, read_rows
from s2sent.errors import ConfigError, DataError
from s2sent.untrusted import exists, is_folder, lone_surrogate, open_file, readable

STANDARD_INPUT = "-"
WINDOW = 8192
"""Rows that are sorted by length among themselves, and saved at a time."""
GROUP_BYTES = 256 << 20
"""Files are read side by side in groups of about this size, so that many small ones still fill windows."""


@dataclass(frozen=True)
class Problem:
    """A line without a vector: its place in the window, its file, its number there (from 1), and why."""

    row: int
    file: str
    line: int
    reason: str
    label: Label | None = None


@dataclass
class Window:
    """Consecutive rows of one group of files, of which one shard is made.

    Attributes:
        group: Which group.
        number: Which window of the group, from 0.
        rows: How many rows there are, bad ones included.
        places: Which of them, from 0, have a text: one for each of
        texts,
        lines (file and number), and
        labels, if a column for them was named.
        problems: What is wrong with the other rows.
        checksum: Of all that was read: the same rows have the same.
        last: Whether the group ends here.
        share: Of all input, from 0 to 1, in bytes on the disk; 0 if nobody knows.
    """

    group: int
    number: int
    rows: int = 0
    places: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    lines: list[tuple[str, int]] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    checksum: int = 0
    last: bool = False
    share: float = 0.0

    def add(self, file: str, row: Row) -> int:
        """Take in a row and return its size in characters."""
        text = row.texts[0] if row.texts else ""
        label = row.label if isinstance(row.label, str) and lone_surrogate(row.label) else None
        problem = row.problem or _problem(text) or (f"has an id, {label!r}, that is no text" if label else None)
        if problem is None:
            self.places.append(self.rows)
            self.texts.append(text)
            self.lines.append((file, row.number))
            if row.label is not None:
                self.labels.append(row.label)
        else:
            self.problems.append(Problem(self.rows, file, row.number, problem, row.label))
        self.checksum = zlib.crc32(f"{text}\0{row.label}\0{problem}\0".encode("utf-8", "replace"), self.checksum)
        self.rows += 1
        return len(text)

    def problem(self, index: int, reason: str) -> Problem:
        """Make a problem of the text at an index among the texts."""
        file, line = self.lines[index]
        return Problem(self.places[index], file, line, reason, self.labels[index] if self.labels else None)


def _problem(text: str) -> str | None:
    if not text or text.isspace():
        return "is empty"
    if "\0" in text:
        return "has a zero byte"
    return f"is longer than {LONGEST_LINE:,} characters" if len(text) >= LONGEST_LINE else None


@dataclass(frozen=True)
class Source:
    """Where the texts come from.

    Args:
        files: The files in order, standard input as `-`.
        column: Which column or field has the text. By default the only one, or `text`, or `sentence`.
        label: Which column or field has each row's id.
        stdin_format: `txt`, `csv`, `tsv` or `jsonl`.
        window: Rows to a window, at most. A window also ends when it has 512 times as many characters.
        group_bytes: Bytes to a group of files, about.
    """

    files: tuple[str, ...]
    column: str | None = None
    label: str | None = None
    stdin_format: str = "txt"
    window: int = WINDOW
    group_bytes: int = field(default_factory=lambda: GROUP_BYTES)

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigError(f"shard_lines must be at least one line, got {self.window}.")
        legal = [kind.removeprefix(".") for kind in FORMATS if kind != ".parquet"]
        if self.stdin_format not in legal:
            raise ConfigError(f"stdin_format={self.stdin_format!r} cannot be read. Legal: {', '.join(legal)}.")
        if self.files.count(STANDARD_INPUT) > 1:
            raise ConfigError("Standard input (-) can be read only once.")

    @classmethod
    def of(cls, inputs: Iterable[str | Path], *, leave_out: Path | None = None, **options: Any) -> Source:
        """Find the files, globs included (sorted; a file to `leave_out` is no match), and check that each can be read.

        Raises:
            DataError: a file is missing, is a folder, or does not end in a format that can be read.
        """
        files = tuple(chain.from_iterable(_expand(str(name), leave_out) for name in inputs))
        if not files:
            raise DataError("There is nothing to encode. Give at least one file, or - for standard input.")
        return cls(files, **options)

    def identity(self) -> dict[str, Any]:
        """Return what must not change until a run that goes on. Content is checked as it is read again."""
        sizes = [None if file == STANDARD_INPUT else _size(file) for file in self.files]
        return {**asdict(self), "files": list(map(list, zip(self.files, sizes, strict=True)))}

    def groups(self) -> list[tuple[str, ...]]:
        """Return the files in groups that can be read side by side."""
        groups: list[list[str]] = []
        room = 0
        for file in self.files:
            size = self.group_bytes if file == STANDARD_INPUT else _size(file)
            if not groups or size > room:
                groups.append([])
                room = self.group_bytes
            groups[-1].append(file)
            room -= size
        return [tuple(group) for group in groups]

    def windows(self, group: int) -> Iterator[Window]:
        """Read one group of files. Even an empty one gives a window: its last."""
        total = 0 if STANDARD_INPUT in self.files else sum(map(_size, self.files))
        position = _Position()
        window, size, start = Window(group, 0), 0, 0
        for file, row in self._rows(self.groups()[group], position):
            if window.rows == self.window or size > 512 * self.window:
                window.share = (position.bytes - start) / total if total else 0.0
                yield window
                window, size, start = Window(group, window.number + 1), 0, position.bytes
            size += window.add(file, row)
        window.share = (position.bytes - start) / total if total else 0.0
        window.last = True
        yield window

    def _rows(self, files: Sequence[str], position: _Position) -> Iterator[tuple[str, Row]]:
        columns = None if self.column is None else (self.column,)
        for name in files:
            with ExitStack() as stack:
                file: IO[bytes]
                if name == STANDARD_INPUT:
                    path, file = Path(f"stdin.{self.stdin_format}"), _standard_input()
                else:
                    path = Path(name)
                    file = stack.enter_context(_open(path))
                position.file, position.size = file, _size(name)
                for row in read_rows(path, columns, label=self.label, file=file):
                    yield name, row
                position.file = None
                position.before += position.size


def _standard_input() -> IO[bytes]:
    """Standard input, past Python's own reader: a thread that waits in that one would block the end of the process."""
    try:
        return cast(IO[bytes], io.FileIO(sys.stdin.fileno(), closefd=False))
    except (OSError, ValueError, AttributeError):  # somebody has put something else in its place
        return sys.stdin.buffer


class _Position:
    """How far the reading of a group has come, in bytes on the disk."""

    def __init__(self) -> None:
        self.before = self.size = 0
        self.file: IO[bytes] | None = None

    @property
    def bytes(self) -> int:
        if self.file is None:
            return self.before
        if self.file.closed:  # read to its end: pyarrow closes what it has read
            return self.before + self.size
        return self.before + (self.file.tell() if self.file.seekable() else 0)


def _open(path: Path) -> IO[bytes]:
    """Open a file, or a FIFO, whose writer whoever names one wants to wait for. A device, which never ends, is refused.

    Each is read once; training, which reads its text several times, takes files alone.
    """
    with readable(path):
        if stat.S_ISFIFO(path.stat().st_mode):
            return path.open("rb")
    return open_file(path)


def _size(file: str) -> int:
    with readable(Path(file)):
        return 0 if file == STANDARD_INPUT else Path(file).stat().st_size


def _expand(name: str, leave_out: Path | None) -> list[str]:
    if name == STANDARD_INPUT:
        return [name]
    path = Path(name).expanduser()
    if not exists(path) and glob.has_magic(name):
        files = sorted(glob.glob(str(path.absolute()), recursive=True))  # noqa: PTH207
        files = [file for file in files if leave_out is None or Path(file) != leave_out.absolute()]
        if not files:
            raise DataError(f"No file matches {name}.")
    else:
        files = [str(path.absolute())]
    for file in map(Path, files):
        if is_folder(file):
            raise DataError(f"{file} is a folder. Give its files, such as '{file / '*.txt'}'.")
        with readable(file):
            is_fifo = stat.S_ISFIFO(file.stat().st_mode)
        if not is_fifo:  # opening one waits for its writer
            open_file(file).close()
        format_of(file)
    return files
