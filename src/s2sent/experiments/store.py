"""The store of runs: one small json file for each finished run, and claims that end with their process.

FOLDER/<key>.json          a finished run
FOLDER/failed/<key>.json   a run that failed, with its error; tried again when the command is given again
FOLDER/.claims/<key>       locked by whoever is doing this run; the kernel unlocks it when that process ends
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
        """The record of a finished run; None if it is not finished.

        Raises:
            DataError: the file is there but is no record of this run.
        """
        return _read(self.folder / f"{key}.json", key)

    def failure(self, key: str) -> Record | None:
        """What went wrong the last time; None if nothing did."""
        return _read(self.failures / f"{key}.json", key)

    def failed_at(self, key: str) -> int | None:
        """When it failed the last time, to be compared with another such time; None: it did not, or is done since."""
        try:
            return (self.failures / f"{key}.json").stat().st_mtime_ns
        except OSError:
            return None

    def has(self, key: str) -> bool:
        """Whether a run is finished."""
        return (self.folder / f"{key}.json").exists()

    def records(self) -> list[Record]:
        """Every finished run, in the order of keys."""
        found = [self.get(path.stem) for path in sorted(self.folder.glob("*.json"))]
        return [record for record in found if record is not None]

    def put(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep a finished run; only for whoever holds its claim."""
        _write(self.folder / f"{key}.json", {"key": key, **record})
        (self.failures / f"{key}.json").unlink(missing_ok=True)

    def put_failure(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep what went wrong."""
        _write(self.failures / f"{key}.json", {"key": key, **record})

    @contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Claim a run: whether it is ours. Nobody else gets it until we are done or dead."""
        with lock(self._claims / key, wait=False) as ours:
            if ours:
                for folder in (self.folder, self.failures):  # what a killed predecessor left half-written
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
    """Write it whole: a reader never meets half a file, nor does a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(to_text(record).encode())


def to_text(record: Mapping[str, Any]) -> str:
    """Json with a line for each key: short enough to read, and it makes small differences in a repository."""
    lines = [
        f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for name, value in record.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"
