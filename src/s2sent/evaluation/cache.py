"""Results on disk: a finished task is never computed twice, and a killed run loses nothing that was finished."""

import dataclasses
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from s2sent import __version__
from s2sent.data.sts import STSTask
from s2sent.data.transfer import TransferTask
from s2sent.evaluation.result import TaskResult

PROTOCOL = 1
"""Raised when the code computes other numbers from the same vectors."""


def task_key(task: STSTask | TransferTask, options: object = None) -> str:
    """A digest of a task's own data (every sentence, every gold score or label) and of how it is scored."""
    digest = hashlib.sha256(json.dumps([PROTOCOL, __version__, task.name, _plain(options)]).encode())
    for sentence in task.sentences():
        digest.update(sentence.encode("utf-8", "surrogatepass") + b"\0")
    if isinstance(task, STSTask):
        digest.update(repr([(subset.name, len(subset)) for subset in task.subsets]).encode())
        arrays = [subset.gold for subset in task.subsets]
    else:
        arrays = [samples.labels.astype(np.float64) for samples in task.splits.values()]
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes() + b"\0")
    return digest.hexdigest()


def _plain(options: object) -> Any:
    if dataclasses.is_dataclass(options) and not isinstance(options, type):
        return dataclasses.asdict(options)
    return options


class ResultCache:
    """A folder of results, one file for each model and task; ``None`` keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def get(self, fingerprint: str | None, key: str) -> TaskResult | None:
        """The stored result, or ``None``; a file that was damaged counts as none."""
        path = self._path(fingerprint, key)
        if path is None:
            return None
        try:
            return TaskResult.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def put(self, fingerprint: str | None, key: str, result: TaskResult) -> None:
        """Store a result: written beside its place and moved there whole, so no reader ever meets half a file."""
        path = self._path(fingerprint, key)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(result.to_dict(), file)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _path(self, fingerprint: str | None, key: str) -> Path | None:
        if self.folder is None or fingerprint is None:
            return None
        return self.folder / fingerprint[:24] / f"{key[:24]}.json"
