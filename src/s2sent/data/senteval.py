"""Where SentEval's folder is, and what it holds when it is whole."""

import os
from collections.abc import Iterable
from pathlib import Path

from s2sent.errors import DataError
from s2sent.untrusted import is_folder

STS_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
"""The seven tasks whose average the field reports, in its order."""

TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST-2", "TREC", "MRPC")
"""The seven transfer tasks, in the field's order."""

EXTRA_TASKS = ("STS-B-dev",)
"""Not part of any average; what models are selected on."""

OFFICIAL_COUNTS: dict[str, tuple[int, ...]] = {
    "STS12": (3108,),
    "STS13": (1500,),
    "STS14": (3750,),
    "STS15": (3000,),
    "STS16": (1186,),
    "STS-B": (1379,),
    "STS-B-dev": (1500,),
    "STS-B-train": (5749,),
    "SICK-R": (4927,),
    "MR": (10662,),
    "CR": (3775,),
    "SUBJ": (10000,),
    "MPQA": (10606,),
    "SST-2": (67349, 872, 1821),
    "TREC": (5452, 500),
    "MRPC": (4076, 1725),
}
"""Scored pairs, or sentences per split. A task with other counts is evaluated, and its report says so."""

HOW_TO_GET = (
    "SentEval's folder, as SimCSE ships it, is senteval.tar of the dataset princeton-nlp/datasets-for-simcse on the "
    "Hugging Face hub: unpack it and give its path with --data or in S2SENT_DATA, or let --data hub fetch it."
)


def find_folder(data: str | Path | None = None) -> Path:
    """The SentEval folder: ``data`` if given, else the environment variable ``S2SENT_DATA``.

    The folder itself may be given, or one that holds it as ``senteval``, ``downstream`` or ``data/downstream``
    (the layouts of this project, of SimCSE's archive and of SentEval's repository).

    Raises:
        DataError: neither is given, or there is no such folder.
    """
    origin = "--data" if data is not None else "S2SENT_DATA"
    value = data if data is not None else os.environ.get("S2SENT_DATA")
    if not value:
        raise DataError(f"No evaluation data: neither --data nor S2SENT_DATA is set. {HOW_TO_GET}")
    root = Path(value).expanduser()
    if not is_folder(root):
        raise DataError(f"{root} (from {origin}) is not a folder. {HOW_TO_GET}")
    for inner in ("", "senteval", "downstream", "data/downstream"):
        folder = root / inner
        if any(is_folder(folder / name) for name in ("STS", "SICK", "MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC")):
            return folder
    raise DataError(f"{root} (from {origin}) holds none of SentEval's task folders (STS, SICK, MR, ...). {HOW_TO_GET}")


def count_notes(task: str, counts: Iterable[int]) -> list[str]:
    """A note when a task does not have the official number of samples, so its score compares with no published one."""
    found, official = tuple(counts), OFFICIAL_COUNTS[task]
    if found == official:
        return []
    shown = " + ".join(f"{count:,}" for count in found)
    expected = " + ".join(f"{count:,}" for count in official)
    return [f"{task}: {shown} samples where SentEval has {expected}; not comparable with published scores"]
