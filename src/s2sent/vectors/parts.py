"""The working folder of an encoding: finished parts, each whole or not there, and what they are made of.

`OUTPUT.parts/` has `state.json` and a file `GROUP-WINDOW.arrow` for every window that is done. Any process may make a
part, on any machine that sees the folder; which ones are missing is read off the folder alone. `.OUTPUT.made.json`
beside a finished output says what it was made of.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from s2sent.atomic import atomic_file, lock, remove_folder, write_error
from s2sent.errors import ConfigError, DataError, S2SentError
from s2sent.untrusted import Table, exists, parse_json
from s2sent.vectors.sources import Window

VERSION = 1
_META = b"s2sent"
_OPTIONS = {"window": "--shard-lines", "label": "--id-column", "with_text": "--with-text"}


@dataclass(frozen=True)
class Part:
    """A finished window: see `Window`. `vectors` of its rows have a vector, `long` ones were too long for the model."""

    group: int
    number: int
    rows: int
    checksum: int
    last: bool
    share: float
    vectors: int
    long: int

    def check(self, window: Window) -> None:
        """Raise unless a window that is read again is the one that this part was made of."""
        if (window.rows, window.checksum, window.last) != (self.rows, self.checksum, self.last):
            where = f"{window.lines[0][0]} from line {window.lines[0][1]} on" if window.lines else "the input's end"
            raise ConfigError(
                f"The input has changed since it was encoded in part: {where}. Give the input as it was, begin again "
                "with --restart, or choose another output."
            )


class Parts:
    """The working folder beside an output."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.with_name(f"{output.name}.parts")
        self.finished = False

    def path(self, group: int, number: int) -> Path:
        """Where a part is."""
        return self.folder / f"{group:05d}-{number:07d}.arrow"

    def write(self, part: Part, table: pa.Table) -> None:
        """Write a part, and wait until it is on the disk."""
        table = table.replace_schema_metadata({_META: json.dumps(asdict(part))})
        with atomic_file(self.path(part.group, part.number)) as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    def read(self, path: Path) -> tuple[Part, pa.Table]:
        """Read a part; its vectors stay on the disk until they are used."""
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        table.validate(full=True)  # or bytes that a disk has changed could crash whoever uses it
        part = Table.of(parse_json(table.schema.metadata[_META], path), path).to(Part)
        vectors = table.column("problem").null_count
        if path != self.path(part.group, part.number) or (part.rows, part.vectors) != (len(table), vectors):
            raise DataError(f"{path} is damaged: it is not the part that its name says.")
        return part, table

    def done(self) -> dict[tuple[int, int], Part]:
        """Return the finished parts by group and number. A damaged one counts as missing and is removed."""
        found = {}
        for path in self._files():
            try:
                part, _ = self.read(path)
            except (pa.ArrowException, OSError, ValueError, TypeError, LookupError):  # S2SentError is a ValueError
                path.unlink()
            else:
                found[part.group, part.number] = part
        return found

    def tables(self) -> Iterator[tuple[Part, pa.Table]]:
        """Read all parts in order."""
        return map(self.read, self._files())

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.arrow"))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and lock it. In the end it is removed if it has no parts, or `finished` is set.

        Raises:
            ConfigError: another process is at work on the same output.
        """
        with ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                held = stack.enter_context(lock(self.folder / "lock", wait=False))
            except OSError as error:
                raise write_error(self.output, error) from error
            if not held:
                raise ConfigError(
                    f"Another process is at work in {self.folder}. Wait for it, or choose another output."
                )
            try:
                yield
            finally:
                if self.finished or not self._files():
                    remove_folder(self.folder)

    @property
    def overwrites(self) -> bool:
        """Whether an unfinished run is allowed to replace the output."""
        state = self._state()
        return state is not None and state.get("overwrite", bool)

    @property
    def _state_file(self) -> Path:
        return self.folder / "state.json"

    def _state(self) -> Table | None:
        if not exists(self._state_file):
            return None
        state = Table.read_json(self._state_file, hint="Begin again with --restart.")
        if state.get("version", int) != VERSION:
            raise state.fail("version", "is of another version of s2sent")
        return state

    def begin(self, identity: Mapping[str, Any], *, restart: bool) -> None:
        """Begin, or continue what was begun with the same identity. The folder must be locked.

        Args:
            identity: All that decides the vectors, so that two kinds are never mixed in one output.
            restart: Remove what an earlier run left, and allow to replace a finished output.

        Raises:
            ExistsError: the output exists, and replacing it is not allowed.
            ConfigError: it was begun with another identity.
        """
        before = None if restart else self._state()
        if before is None:  # or parts would be found without what they were made with
            self._state_file.unlink(missing_ok=True)
            for path in self._files():
                path.unlink()
        overwrite = restart or self.overwrites
        if self.output.exists() and not overwrite:
            raise ExistsError(self.output)
        changed = _differences(before.get("identity", dict), identity) if before is not None and self._files() else []
        if changed:
            raise ConfigError(
                f"{self.output} was begun with other settings ({'; '.join(changed)}). Give the same again to continue, "
                "begin again with --restart, or choose another output."
            )
        for unfinished in self.folder.glob(".*.writing"):
            unfinished.unlink()
        with atomic_file(self._state_file) as file:
            values = {"version": VERSION, "identity": identity, "overwrite": overwrite}
            file.write(json.dumps(values, indent=1).encode())


def missing(done: Mapping[tuple[int, int], Part], groups: int) -> str | None:
    """Return which part is not there though others or the end of the input say that it must be; None if all are."""
    for group in range(groups):
        number = 0
        while (part := done.get((group, number))) is not None and not part.last:
            number += 1
        if part is None:
            return f"part {number} of group {group}"
    return None


class ExistsError(ConfigError):
    """The output exists already, and it is not the one that this call would make."""

    def __init__(self, output: Path, why: str = "") -> None:
        super().__init__(
            f"{output} exists already{why}. Choose another output, or encode again and replace it with --restart."
        )


@dataclass(frozen=True)
class Record:
    """What a finished output was made of, in a hidden file beside it.

    Attributes:
        version: Of this file.
        size: Of the output.
        modified: When the output was written.
        identity: As of `Parts.begin`.
        content: A checksum of all that was read.
        lines: All lines of the input.
        vectors: How many have a vector.
        long: How many were longer than the model takes.
    """

    version: int
    size: int
    modified: int
    identity: dict[str, Any]
    content: int
    lines: int
    vectors: int
    long: int

    @classmethod
    def write(cls, parts: Parts, written: Path, identity: Mapping[str, Any], done: Iterable[Part]) -> Record:
        """Write the record of an output that is `written` under another name."""
        done, stat = list(done), written.stat()
        lines, vectors, long = (sum(getattr(part, name) for part in done) for name in ("rows", "vectors", "long"))
        content = content_checksum(done)
        record = cls(VERSION, stat.st_size, stat.st_mtime_ns, dict(identity), content, lines, vectors, long)
        with atomic_file(_record_file(parts.output), parts.folder) as file:
            file.write(json.dumps(asdict(record), indent=1).encode())
        return record

    @classmethod
    def read(cls, output: Path) -> Record | None:
        """Read the record of an output; None if there is none, or if the output has changed since."""
        try:
            values, stat = Table.read_json(_record_file(output)), output.stat()
            names = ("version", "size", "modified", "content", "lines", "vectors", "long")
            record = cls(identity=values.get("identity", dict), **{name: values.get(name, int) for name in names})
        except (S2SentError, OSError):
            return None
        is_of = (record.version, record.size, record.modified) == (VERSION, stat.st_size, stat.st_mtime_ns)
        return record if is_of else None

    def check(self, output: Path, identity: Mapping[str, Any], windows: Iterable[Window]) -> None:
        """Raise an `ExistsError` unless the output is what this call would make: of the same texts, in the same way."""
        if changed := _differences(self.identity, identity):
            raise ExistsError(output, f" and was made with other settings ({'; '.join(changed)})")
        if content_checksum(windows) != self.content:
            raise ExistsError(output, ", and the input has changed since it was made")


def _record_file(output: Path) -> Path:
    return output.with_name(f".{output.name}.made.json")


def content_checksum(parts: Iterable[Window | Part]) -> int:
    """Return a checksum of all that was read, window by window."""
    lines = ((part.group, part.number, part.rows, part.checksum) for part in parts)
    return zlib.crc32("\n".join(map(str, sorted(lines))).encode())


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say what differs, by the name a user gave it."""
    found = []
    for key in sorted({*before, *now}):
        then, today = before.get(key), now.get(key)
        if then == today:
            continue
        if key == "files":
            sizes = _sizes(then), _sizes(today)
            odd = [file for file in {**sizes[0], **sizes[1]} if sizes[0].get(file, -1) != sizes[1].get(file, -1)]
            odd = odd or ["their order"]
            found.append(f"other files, or of other sizes: {', '.join(odd[:3])}{', …' if len(odd) > 3 else ''}")
        elif len(f"{then}{today}") < 60:
            found.append(f"{_OPTIONS.get(key, key)}: {then} then, {today} now")
        else:
            found.append(f"another {_OPTIONS.get(key, key)}")
    return found


def _sizes(files: Any) -> dict[str, Any]:
    """The sizes of an identity's files by name, in order; nothing if they are not as they were written."""
    pairs = files if isinstance(files, list) else []
    return {str(pair[0]): pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2}
