"""The texts to encode: from files and standard input, in windows that are the same whenever they are read."""

from __future__ import annotations

import glob
import io
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from s2sent.data.rows import FORMATS, LONGEST_LINE, Label, Row, format_of, read_rows
from s2sent.errors import ConfigError, DataError
from s2sent.untrusted import exists, is_folder, lone_surrogate, open_file, readable
from s2sent.vectors.encoder import WINDOW

STDIN = "-"
STDIN_FORMATS = tuple(kind.removeprefix(".") for kind in FORMATS if kind != ".parquet")
GROUP_BYTES = 256 << 20
"""Files are read side by side in groups of about this size, so that many small ones still fill windows."""


@dataclass
class Window:
    """Consecutive rows of one group of files, of which one part is made.

    Attributes:
        group: Which group.
        number: Which window of the group, from 0.
        texts: The text of every row, also of one with a problem.
        ids: The id of every row; None where there is none.
        lines: The file and the line number, from 1, of every row.
        problems: Why a row cannot be encoded, by its place.
        checksum: Of all that was read: the same rows have the same.
        last: Whether the group ends here.
        share: Of all input, from 0 to 1, in bytes on the disk; 0 if it is not known.
    """

    group: int
    number: int
    texts: list[str] = field(default_factory=list)
    ids: list[Label | None] = field(default_factory=list)
    lines: list[tuple[str, int]] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)
    checksum: int = 0
    last: bool = False
    share: float = 0.0

    @property
    def rows(self) -> int:
        """How many rows there are, with those that have a problem."""
        return len(self.texts)

    @property
    def readable(self) -> list[int]:
        """The places of the rows without a problem."""
        return [place for place in range(self.rows) if place not in self.problems]

    def add(self, file: str, row: Row) -> None:
        """Take in a row."""
        text = row.texts[0] if row.texts else ""
        problem = row.problem or _problem(text)
        if problem is None and isinstance(row.label, str) and lone_surrogate(row.label):
            problem = f"has an id, {row.label!r}, that is no text"
        if problem is not None:
            self.problems[self.rows] = problem
        self.texts.append(text)
        self.ids.append(row.label)
        self.lines.append((file, row.number))
        self.checksum = zlib.crc32(f"{text}\0{row.label}\0{problem}\0".encode("utf-8", "replace"), self.checksum)


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
        id_column: Which column or field has each row's id.
        stdin_format: `txt`, `csv`, `tsv` or `jsonl`.
        shard_lines: Rows to a window, at most. A window also ends when it has 512 times as many characters.
        group_bytes: Bytes to a group of files, about.
    """

    files: tuple[str, ...]
    column: str | None = None
    id_column: str | None = None
    stdin_format: str = "txt"
    shard_lines: int = WINDOW
    group_bytes: int = field(default_factory=lambda: GROUP_BYTES)

    def __post_init__(self) -> None:
        if self.shard_lines < 1:
            raise ConfigError(f"shard_lines must be at least 1, got {self.shard_lines}.")
        if self.stdin_format not in STDIN_FORMATS:
            raise ConfigError(f"stdin_format must be {', '.join(STDIN_FORMATS)}, got {self.stdin_format!r}.")
        if self.files.count(STDIN) > 1:
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
        """Return what must not change between a run and its continuation. Content is checked as it is read again."""
        return {
            "files": [[file, None if file == STDIN else _size(file)] for file in self.files],
            "column": self.column,
            "label": self.id_column,
            "stdin_format": self.stdin_format,
            "window": self.shard_lines,
            "group_bytes": self.group_bytes,
        }

    def groups(self) -> list[tuple[str, ...]]:
        """Return the files in groups that can be read side by side."""
        groups: list[list[str]] = []
        room = 0
        for file in self.files:
            size = self.group_bytes if file == STDIN else _size(file)
            if not groups or size > room:
                groups.append([])
                room = self.group_bytes
            groups[-1].append(file)
            room -= size
        return [tuple(group) for group in groups]

    def windows(self, group: int | None = None) -> Iterator[Window]:
        """Read one group of files, or all groups in order. Even an empty group gives a window: its last."""
        if group is None:
            yield from chain.from_iterable(map(self.windows, range(len(self.groups()))))
            return
        total = 0 if STDIN in self.files else sum(map(_size, self.files))
        position = _Position()
        window, size, start = Window(group, 0), 0, 0
        for file, row in self._rows(self.groups()[group], position):
            if window.rows == self.shard_lines or size > 512 * self.shard_lines:
                window.share = (position.bytes - start) / total if total else 0.0
                yield window
                window, size, start = Window(group, window.number + 1), 0, position.bytes
            window.add(file, row)
            size += len(window.texts[-1])
        window.share = (position.bytes - start) / total if total else 0.0
        window.last = True
        yield window

    def _rows(self, files: Sequence[str], position: _Position) -> Iterator[tuple[str, Row]]:
        columns = None if self.column is None else (self.column,)
        for name in files:
            with ExitStack() as stack:
                path = Path(f"stdin.{self.stdin_format}" if name == STDIN else name)
                file = _standard_input() if name == STDIN else stack.enter_context(_open(path))
                position.file, position.size = file, _size(name)
                for row in read_rows(path, columns, label=self.id_column, file=file):
                    yield name, row
                position.file = None
                position.before += position.size


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


def _standard_input() -> IO[bytes]:
    """Standard input, past Python's own reader: a thread that waits in that one would block the end of the process."""
    try:
        return cast(IO[bytes], io.FileIO(sys.stdin.fileno(), closefd=False))
    except (OSError, ValueError, AttributeError):  # somebody has put something else in its place
        return sys.stdin.buffer


def _is_fifo(path: Path) -> bool:
    with readable(path):
        return stat.S_ISFIFO(path.stat().st_mode)


def _open(path: Path) -> IO[bytes]:
    """Open a file, or a FIFO, which waits for its writer. A device, which never ends, is refused."""
    if _is_fifo(path):
        with readable(path):
            return path.open("rb")
    return open_file(path)


def _size(file: str) -> int:
    with readable(Path(file)):
        return 0 if file == STDIN else Path(file).stat().st_size


def _expand(name: str, leave_out: Path | None) -> list[str]:
    if name == STDIN:
        return [name]
    path = Path(name).expanduser()
    files = [str(path.absolute())]
    if not exists(path) and glob.has_magic(name):
        files = sorted(glob.glob(files[0], recursive=True))  # noqa: PTH207
        files = [file for file in files if leave_out is None or Path(file) != leave_out.absolute()]
        if not files:
            raise DataError(f"No file matches {name}.")
    for file in map(Path, files):
        if is_folder(file):
            raise DataError(f"{file} is a folder. Give its files, such as '{file / '*.txt'}'.")
        if not _is_fifo(file):  # opening one waits for its writer
            open_file(file).close()
        format_of(file)
    return files
