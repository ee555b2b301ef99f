"""Results on disk: a finished task is never computed twice, and a killed run loses nothing that was finished."""

import hashlib
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from s2sent import __version__
from s2sent.atomic import atomic_file
from s2sent.data.senteval import STSTask, TransferTask
from s2sent.errors import ConfigError, S2SentError
from s2sent.evaluation.probes import ProbeConfig
from s2sent.evaluation.result import TaskResult
from s2sent.untrusted import Table

PROTOCOL = 2
"""Raised when a result holds other numbers from the same vectors."""


def task_key(task: STSTask | TransferTask, probes: ProbeConfig | None = None) -> str:
    """Return a digest of a task's own data (every sentence, every gold score or label) and of how it is scored."""
    digest = hashlib.sha256(json.dumps([PROTOCOL, __version__, task.name, probes and asdict(probes)]).encode())
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


class ResultCache:
    """A folder of one model's results, one file for each task; without a folder or a fingerprint it keeps nothing."""

    def __init__(self, folder: Path | None, fingerprint: str | None) -> None:
        self.folder: Path | None = None
        if folder is not None and fingerprint is not None:
            # By a digest: a fingerprint may be any text, and must not lead out of the folder.
            self.folder = folder / hashlib.sha256(fingerprint.encode("utf-8", "surrogatepass")).hexdigest()[:24]

    def check(self) -> None:
        """Raise a `ConfigError` unless results can be written, before anything long is computed for them."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise ConfigError(
                f"Results cannot be kept in {self.folder.parent}: {error.strerror}. Set S2SENT_CACHE to a folder that "
                "can be written, or do without: --no-cache, in Python cache=False."
            ) from error

    @property
    def vectors(self) -> Path | None:
        """The folder for the vectors of an unfinished evaluation; None if nothing is kept."""
        return None if self.folder is None else self.folder / "vectors"

    def get(self, key: str) -> TaskResult | None:
        """Return the stored result; None if there is none, or its file is damaged."""
        try:
            return None if self.folder is None else TaskResult.read(Table.read_json(self.folder / f"{key[:24]}.json"))
        except S2SentError:
            return None

    def put(self, key: str, result: TaskResult) -> None:
        """Store a result.

        Raises:
            DataError: it cannot be written.
        """
        if self.folder is not None:
            with atomic_file(self.folder / f"{key[:24]}.json") as file:
                file.write(json.dumps(result.to_dict()).encode())
