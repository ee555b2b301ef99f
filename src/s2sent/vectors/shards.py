"""The working folder of an encoding: finished shards, each whole or not there, and what they were made with.

`OUTPUT.parts/` has `state.json` and a file `GROUP-WINDOW.arrow` for every window that is done. Any process may make a
shard, on any machine that sees the folder; which ones are missing is read off the folder alone.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from s2sent.atomic import atomic_file, write_error
from s2sent.errors import ConfigError, DataError, S2SentError
from s2sent.untrusted import Table, exists, parse_json
from s2sent.vectors.precision import Packed
from s2sent.vectors.sources import Problem, Window

VERSION = 1
_OPTIONS = {"window": "--shard-lines", "label": "--id", "with_text": "--with-text", "batch_tokens": "--batch-tokens"}
_META = b"s2sent"


@dataclass(frozen=True)
class Shard:
    """What is known of a finished window: see `Window`; `long` texts were more than the model takes."""

    group: int
    number: int
    rows: int
    checksum: int
    last: bool
    share: float
    vectors: int
    long: int
    problems: tuple[Problem, ...]

    @classmethod
    def parse(cls, content: bytes, source: Path) -> Shard:
        """Read what `commit` wrote into the file's metadata."""
        values = Table.of(parse_json(content, source), source)
        problems = []
        for item in values.list_of("problems", dict):
            of = Table.of(item, source)
            texts = {name: of.get(name, str) for name in ("file", "reason")}
            label = item.get("label")
            if not isinstance(label, str | int | None):
                raise of.fail("label", "must be a text or a whole number")
            problems.append(Problem(row=of.get("row", int), line=of.get("line", int), label=label, **texts))
        counts = {name: values.get(name, int) for name in ("group", "number", "rows", "checksum", "vectors", "long")}
        return cls(**counts, last=values.get("last", bool), share=values.get("share", float), problems=tuple(problems))

    def check(self, window: Window) -> None:
        """Raise unless a window that is read again is the one that this shard was made of."""
        if (window.rows, window.checksum, window.last) != (self.rows, self.checksum, self.last):
            lines = window.lines or [(problem.file, problem.line) for problem in window.problems]
            where = f"{lines[0][0]} from line {lines[0][1]} on" if lines else "the input's end"
            raise ConfigError(
                f"The input has changed since it was encoded in part: {where}. Give the input as it was, begin anew "
                "with --restart, or choose another output."
            )


class Shards:
    """The working folder beside an output."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.with_name(f"{output.name}.parts")

    def path(self, group: int, number: int) -> Path:
        """Where a shard is."""
        return self.folder / f"{group:05d}-{number:07d}.arrow"

    def commit(
        self, window: Window, packed: Packed, kept: list[int], problems: list[Problem], long: int, with_text: bool
    ) -> Shard:
        """Write a window's vectors, and wait until they are on the disk.

        Args:
            window: The window.
            packed: The vectors of all its texts.
            kept: The indices of the texts whose vectors are good.
            problems: What is wrong with all other rows, by row.
            long: How many texts were too long.
            with_text: Whether the texts are kept, too.
        """
        values = np.ascontiguousarray(packed.values[kept])
        flat = pa.array(values.reshape(-1))
        columns: dict[str, Any] = {"row": pa.array([window.places[index] for index in kept], pa.int32())}
        if window.labels:
            columns["id"] = _label_array([window.labels[index] for index in kept])
        if with_text:
            columns["text"] = pa.array([window.texts[index] for index in kept], pa.string())
        columns["embedding"] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        if packed.scale is not None:
            columns["scale"] = pa.array(packed.scale[kept])
        shard = Shard(
            group=window.group,
            number=window.number,
            rows=window.rows,
            checksum=window.checksum,
            last=window.last,
            share=window.share,
            vectors=len(kept),
            long=long,
            problems=tuple(problems),
        )
        table = pa.table(columns).replace_schema_metadata({_META: json.dumps(asdict(shard))})
        with atomic_file(self.path(window.group, window.number)) as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return shard

    def read(self, path: Path) -> tuple[Shard, pa.Table]:
        """Read a shard; its vectors stay on the disk until they are used."""
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        table.validate(full=True)  # or bytes that a disk has changed could crash whoever uses it
        shard = Shard.parse(table.schema.metadata[_META], path)
        if path != self.path(shard.group, shard.number) or shard.vectors != len(table):
            raise DataError(f"{path} is damaged: it is not the shard that its name says.")
        return shard, table

    def done(self) -> dict[tuple[int, int], Shard]:
        """Return the finished shards by group and number. A damaged one counts as missing and is removed."""
        found = {}
        for path in sorted(self.folder.glob("*.arrow")):
            try:
                shard, _ = self.read(path)
            except (pa.ArrowException, OSError, ValueError, TypeError, LookupError):  # S2SentError is a ValueError
                path.unlink()
            else:
                found[shard.group, shard.number] = replace(shard, problems=())  # there may be millions
        return found

    def any(self) -> bool:
        """Whether there is a finished shard."""
        return next(self.folder.glob("*.arrow"), None) is not None

    def tables(self) -> Iterator[tuple[Shard, pa.Table]]:
        """Read all shards in order."""
        for path in sorted(self.folder.glob("*.arrow")):
            yield self.read(path)

    def remove(self) -> None:
        """Remove the folder. Renamed first: a folder that has lost half its shards must never be found."""
        self.remove_leavings()
        if self.folder.exists():
            self.folder.rename(self._gone)
            self.remove_leavings()

    def remove_leavings(self) -> None:
        """Remove what a process that was killed while it removed the folder has left."""
        shutil.rmtree(self._gone, ignore_errors=True)

    @property
    def _gone(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.done")


class ExistsError(ConfigError):
    """The output is there already, and no run of ours is at work on it."""

    def __init__(self, output: Path, why: str = "") -> None:
        super().__init__(
            f"{output} exists already{why}. Choose another output, or encode anew and write over it with --restart."
        )


@dataclass(frozen=True)
class Record:
    """What a finished output was made of, in a hidden file beside it: the same command again has nothing to do.

    Attributes:
        identity: As of `State`.
        content: A checksum of all that was read.
        lines: All lines of the input.
        vectors: How many have a vector.
        long: How many were longer than the model takes.
    """

    identity: Mapping[str, Any]
    content: int
    lines: int
    vectors: int
    long: int

    @classmethod
    def of(cls, identity: Mapping[str, Any], shards: Iterable[Shard]) -> Record:
        """Sum up the shards of an output."""
        shards = list(shards)
        lines, vectors, long = (sum(getattr(shard, name) for shard in shards) for name in ("rows", "vectors", "long"))
        return cls(_plain(identity), content_checksum(shards), lines, vectors, long)

    def write(self, shards: Shards) -> None:
        """Write the record of an output that is in its place."""
        stat = shards.output.stat()
        values = {"version": VERSION, "size": stat.st_size, "modified": stat.st_mtime_ns, **asdict(self)}
        with atomic_file(_record_file(shards.output), shards.folder) as file:
            file.write(json.dumps(values, indent=1).encode())

    @classmethod
    def read(cls, output: Path) -> Record | None:
        """Read the record of an output; None if there is none, or if the output has changed since."""
        try:
            values = Table.read_json(_record_file(output))
            stat = output.stat()
            made = [values.get(name, int) for name in ("version", "size", "modified")]
            if made != [VERSION, stat.st_size, stat.st_mtime_ns]:
                return None
            numbers = {name: values.get(name, int) for name in ("content", "lines", "vectors", "long")}
            return cls(values.get("identity", dict), **numbers)
        except (S2SentError, OSError):
            return None

    def check(self, output: Path, identity: Mapping[str, Any], windows: Iterable[Window]) -> None:
        """Raise unless the output is what this command would make: of the same texts, in the same way."""
        if changed := _differences(self.identity, _plain(identity)):
            raise ExistsError(output, f" and was made with other settings ({'; '.join(changed)})")
        if content_checksum(windows) != self.content:
            raise ExistsError(output, ", and the input has changed since it was made")


def _record_file(output: Path) -> Path:
    return output.with_name(f".{output.name}.made.json")


def content_checksum(parts: Iterable[Window | Shard]) -> int:
    """Sum up what was read, window by window."""
    lines = ((part.group, part.number, part.rows, part.checksum) for part in parts)
    return zlib.crc32("\n".join(map(str, sorted(lines))).encode())


def _plain(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity as it comes back from a file."""
    return dict(json.loads(json.dumps(identity)))


def missing(done: Mapping[tuple[int, int], Shard], groups: int) -> str | None:
    """Say which shard is not there though others or the end of the input say that it must be; None if all are."""
    for group in range(groups):
        number = 0
        while (shard := done.get((group, number))) is not None and not shard.last:
            number += 1
        if shard is None:
            return f"shard {number} of group {group}"
    return None


class State:
    """`state.json`: what decides the vectors, so that two kinds are never mixed in one output; and the folder's lock.

    Args:
        shards: The working folder.
        identity: All that decides the vectors. Only what JSON can hold.
        restart: Throw away what an earlier run left, and write over a finished output.

    Raises:
        ExistsError: the output is finished.
        ConfigError: another process is at work on it, or it was begun with another identity.
    """

    def __init__(self, shards: Shards, identity: Mapping[str, Any], *, restart: bool) -> None:
        self.path = shards.folder / "state.json"
        identity = _plain(identity)
        try:
            shards.output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(shards.output, error) from error
        if restart and shards.folder.exists():
            with self._locked(shards.folder):  # not under the hands of a running process
                shards.remove()
        if shards.output.exists() and not restart and not shards.folder.exists():
            shards.remove_leavings()
            raise ExistsError(shards.output)
        try:
            shards.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise write_error(shards.output, error) from error
        self._lock = self._locked(shards.folder)
        try:
            # Only now: a process that had the lock a moment ago may have finished the output.
            begun = self._read()
            if shards.output.exists() and not restart and not (begun and (begun["overwrite"] or begun["complete"])):
                if begun is None:
                    shards.remove()
                raise ExistsError(shards.output)
            self.content = begun or {"identity": identity, "overwrite": restart, "complete": False}
            if not shards.any():  # nothing was made with other settings, so there is nothing to mix with
                self.content = {**self.content, "identity": identity, "complete": False}
            if changed := _differences(self.content["identity"], identity):
                raise ConfigError(
                    f"{shards.output} was begun with other settings ({'; '.join(changed)}). Give the same again to go "
                    "on, begin anew with --restart, or choose another output."
                )
            for cut_short in shards.folder.glob(".*.writing"):
                cut_short.unlink()
            self._write()
        except BaseException:
            self._lock.close()
            raise

    def completed(self) -> None:
        """Note that all shards have been there: from now on the output may appear at any instant."""
        self.content["complete"] = True
        self._write()

    def close(self) -> None:
        """Let others at the folder."""
        self._lock.close()

    def _write(self) -> None:
        with atomic_file(self.path) as file:
            file.write(json.dumps({"version": VERSION, **self.content}, indent=1).encode())

    def _read(self) -> dict[str, Any] | None:
        if not exists(self.path):
            return None
        values = Table.read_json(self.path, hint="Begin anew with --restart.")
        if values.get("version", int) != VERSION:
            raise ConfigError(f"{self.path} is of another version of s2sent. Begin anew with --restart.")
        flags = {name: values.get(name, bool) for name in ("overwrite", "complete")}
        return {"identity": values.get("identity", dict), **flags}

    @staticmethod
    def _locked(folder: Path) -> IO[bytes]:
        try:
            file = (folder / "lock").open("wb")
        except OSError as error:
            raise write_error(folder, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise ConfigError(
                f"Another process is at work in {folder}. Wait for it, or choose another output."
            ) from error
        return file


def _label_array(labels: list[Any]) -> pa.Array:
    """Whole numbers as such, unless there is a text among them."""
    if all(isinstance(label, int) for label in labels):
        try:
            return pa.array(labels, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            pass
    return pa.array([str(label) for label in labels], pa.string())


def _sizes(files: Any) -> dict[str, Any]:
    """The sizes of an identity's files by name, in order; nothing if they are not as they were written."""
    pairs = files if isinstance(files, list) else []
    return {str(pair[0]): pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2}


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, by the name a user gave it."""
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    said = []
    for key in changed:
        name, then, today = _OPTIONS.get(key, key), before.get(key), now.get(key)
        if key == "files":
            sizes = _sizes(then), _sizes(today)
            odd = [file for file in {**sizes[0], **sizes[1]} if sizes[0].get(file, -1) != sizes[1].get(file, -1)]
            odd = odd or ["their order"]
            said.append(f"other files, or of other sizes: {', '.join(odd[:3])}{', …' if len(odd) > 3 else ''}")
        elif len(f"{then}{today}") < 60:
            said.append(f"{name}: {then} then, {today} now")
        else:
            said.append(f"another {name}")
    return said
