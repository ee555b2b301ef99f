"""The store of runs: one small json file for each finished run, and claims that end with their process.

FOLDER/<key>.json          a finished run
FOLDER/failed/<key>.json   a run that failed, with its error; tried again when the command is given again
FOLDER/.claims/<key>       locked by the process that does this run; the lock ends with it
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from s2sent.atomic import atomic_file, lock
from s2sent.errors import ConfigError
from s2sent.untrusted import Table, exists

Record = dict[str, Any]


class Store:
    """A folder of finished runs, shared by any number of processes."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.failures = self.folder / "failed"
        self._claims = self.folder / ".claims"
        try:
            self._claims.mkdir(parents=True, exist_ok=True)
            ignored = self._claims / ".gitignore"
            if not ignored.exists():
                ignored.write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"The store {folder} cannot be written: {error.strerror}.") from error

    def get(self, key: str) -> Record | None:
        """Return the record of a finished run; None if it is not finished.

        Raises:
            DataError: the file is there but is no record of this run.
        """
        return _read(self.folder / f"{key}.json", key)

    def failure(self, key: str) -> Record | None:
        """Return the record of a failed run; None if it did not fail."""
        return _read(self.failures / f"{key}.json", key)

    def failed_at(self, key: str) -> int | None:
        """Return when it failed the last time, to compare with another such time; None if it did not."""
        try:
            return (self.failures / f"{key}.json").stat().st_mtime_ns
        except OSError:
            return None

    def has(self, key: str) -> bool:
        """Return whether a run is finished."""
        return (self.folder / f"{key}.json").exists()

    def records(self) -> list[Record]:
        """Return every finished run, in the order of keys."""
        found = [self.get(path.stem) for path in sorted(self.folder.glob("*.json"))]
        return [record for record in found if record is not None]

    def put(self, key: str, record: Mapping[str, Any]) -> None:
        """Store a finished run. The caller must hold its claim."""
        _write(self.folder / f"{key}.json", {"key": key, **record})
        (self.failures / f"{key}.json").unlink(missing_ok=True)

    def put_failure(self, key: str, record: Mapping[str, Any]) -> None:
        """Store a failure."""
        _write(self.failures / f"{key}.json", {"key": key, **record})

    @contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Claim a run and return whether that worked. No other process gets it until this one is done or ends."""
        with lock(self._claims / key, wait=False) as ours:
            if ours:
                for folder in (self.folder, self.failures):  # of a process that was killed
                    for leftover in folder.glob(f".{key}.json.*.writing"):
                        leftover.unlink(missing_ok=True)
            yield ours


def _read(path: Path, key: str) -> Record | None:
    if not exists(path):
        return None
    record = Table.read_json(path, hint="Delete it to have the run done again.")
    if record.get("key", str) != key:
        raise record.fail("key", "is of another run")
    return record.values


def _write(path: Path, record: Mapping[str, Any]) -> None:
    """Write it atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(to_text(record).encode())


def to_text(record: Mapping[str, Any]) -> str:
    """Return json with a line for each key: readable, and with small differences in a repository."""
    lines = [
        f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for name, value in record.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"
