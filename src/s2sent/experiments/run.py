"""Do one run as its description says, and return its record."""

from __future__ import annotations

import csv
import gc
import hashlib
import json
import os
import platform
import shutil
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import s2sent
from s2sent.atomic import atomic_file, lock
from s2sent.data.corpus import Corpus
from s2sent.data.rows import is_file_name
from s2sent.data.senteval import Pairs, Task
from s2sent.errors import ConfigError, DataError
from s2sent.experiments.inputs import DEV
from s2sent.experiments.plan import Run
from s2sent.listener import Listener
from s2sent.training.log import read_log
from s2sent.training.recipes import Recipe
from s2sent.untrusted import read_json

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

    from s2sent.evaluation.encoder import Encoder

WEIGHTS_FROM = 256
"""Sentences over which the spread of the weights is taken."""
TIMED = 32
"""Sentences in the batch that is timed."""
DIGITS = 4
"""Of a score in a record: tables show two, but what is tested must not be rounded to the size of small differences."""


@dataclass(frozen=True)
class Folders:
    """Where a run may write, and where it is computed. None of it decides a result, or is in a record.

    Attributes:
        work: For what is thrown away afterwards: an unfinished run's checkpoints.
        models: Trained models are kept here and used again by runs that differ only in what they are scored on.
        device: Where to run; None: the best there is.
    """

    work: Path
    models: Path | None = None
    device: str | None = None


def perform(run: Run, folders: Folders, listener: Listener | None = None) -> dict[str, Any]:
    """Do the run and return its record, without the key."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    start, cpu = time.perf_counter(), time.process_time()
    kinds = {"train": _train, "frozen": _frozen, "gradients": _gradients, "cost": _cost}
    found = kinds[run.kind](run, folders, listener or Listener())
    gc.collect()  # models have cycles, and the next one should not have to share the memory with this one
    seconds = found.setdefault("seconds", {})
    seconds["total"], seconds["cpu"] = round(time.perf_counter() - start, 1), round(time.process_time() - cpu, 1)
    corpus = [Path(source).name if is_file_name(source) else source for source in run.recipe.corpus]
    return {**_identity(run), "corpus": corpus, **found, **environment()}


def failure_record(run: Run, folders: Folders, error: BaseException) -> dict[str, Any]:
    """Return the record of a run that failed: the error and where it was raised, without paths of this machine."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    trace = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    message = str(error)
    inputs = {run.backbone.path, *run.recipe.corpus, run.evaluation.data, folders.work, folders.models, Path.cwd()}
    for place in sorted({str(place) for place in inputs if place}, key=len, reverse=True):
        message = message.replace(place, Path(place).name if len(place) > 1 else place)
    home = str(Path.home())
    message = message.replace(home, "~") if len(home) > 1 else message
    return {**_identity(run), "error": f"{type(error).__name__}: {message}", "trace": trace, **environment()}


def _identity(run: Run) -> dict[str, Any]:
    backbone = {"name": run.backbone.name, "depth": run.backbone.depth, "family": run.backbone.family}
    return {"run": run.name, "description": run.description, "backbone": backbone}


@cache
def environment() -> dict[str, Any]:
    """Return the versions and the machine that numbers were computed with."""
    import torch

    packages = ("torch", "transformers", "sentence-transformers")
    return {
        "versions": {"s2sent": s2sent.__version__, "python": platform.python_version()}
        | {name: version(name) for name in packages},
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
        | ({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _device(folders: Folders) -> torch.device:
    import torch

    from s2sent.training.distributed import best_device

    return torch.device(folders.device or best_device())


@cache
def bf16_problem(device: torch.device) -> str | None:
    """Return why bf16 cannot be used on a device; None if it can. It is tried once in a process."""
    from s2sent.training import distributed

    return distributed.bf16_problem(device)


def check_precision(precision: str | None, folders: Folders) -> None:
    """Raise unless this machine can compute in it: training would use fp32 instead, and its record say bf16."""
    if precision == "bf16" and (problem := bf16_problem(_device(folders))):
        raise ConfigError(f"precision bf16 cannot be used here: {problem}. Leave it out, or give another --device.")


def _train(run: Run, folders: Folders, listener: Listener) -> dict[str, Any]:
    from s2sent.evaluation.cost import count_parameters
    from s2sent.experiments.measures import selector_of

    work = folders.work / run.key
    tasks = run.evaluation.read()  # a missing file is an error before the training
    check_precision(run.recipe.precision, folders)
    if folders.models is None:
        output = work / "model"
        model, seconds = _trained(run, output, work, folders, listener)
    else:
        output = folders.models / training_key(run.description)
        folders.models.mkdir(parents=True, exist_ok=True)
        with lock(folders.models / f".{output.name}.lock"):  # another run may want the same model
            model, seconds = _trained(run, output, work, folders, listener)
    start = time.perf_counter()
    found = _scores(run, _encoder(run, model), tasks, listener)
    added, total = count_parameters(selector_of(model)), count_parameters(model)
    found |= {"parameters": {"added": added, "backbone": total - added}, "weights": _weights(run, model, tasks)}
    found["seconds"] = {"training": seconds, "evaluation": round(time.perf_counter() - start, 1)}
    history = _history(output)
    found["scores"][DEV] = max(score for step, score in history["dev"] if step)
    shutil.rmtree(work, ignore_errors=True)
    return {**found, **history}


def training_key(description: Mapping[str, Any]) -> str:
    """Return the name of a trained model: a digest of what decides its weights, which is all but the scoring."""
    weights = {name: value for name, value in description.items() if name != "evaluation"}
    weights["dev"] = description["evaluation"]["dev"]
    return hashlib.sha256(json.dumps(weights, sort_keys=True).encode()).hexdigest()[:20]


def _trained(
    run: Run, output: Path, work: Path, folders: Folders, listener: Listener
) -> tuple[SentenceTransformer, float]:
    """Return the trained model and the seconds it took; one that is there already is loaded instead."""
    from s2sent.model.load import open_encoder
    from s2sent.training.loop import train

    timing = output / "training" / "seconds.json"
    if (output / "modules.json").exists() and timing.exists():
        return open_encoder(output, device=folders.device), read_json(timing)
    dev = work / "dev.csv"
    _write_dev(dev, run.evaluation.read_dev())
    recipe = replace(run.recipe, dev=str(dev))
    if output.exists() and not _is_resumable(output, recipe):
        shutil.rmtree(output)
    start = time.perf_counter()
    model = train(recipe, output, device=folders.device, listener=listener).model
    seconds = round(time.perf_counter() - start, 1)
    with atomic_file(timing) as file:
        file.write(json.dumps(seconds).encode())
    return model, seconds


def _is_resumable(output: Path, recipe: Recipe) -> bool:
    """Return whether a killed process left the very same run, unfinished."""
    try:
        return (
            not (output / "modules.json").exists()
            and Recipe.load(output / "recipe.toml") == recipe.with_absolute_paths()
        )
    except ValueError:
        return False


def _write_dev(path: Path, pairs: Pairs) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["sentence1", "sentence2", "score"])
        rows.writerows(zip(pairs.first, pairs.second, pairs.gold.tolist(), strict=True))


def _history(output: Path) -> dict[str, Any]:
    """Return the dev curve, step 0 being before training, and the first and last loss."""
    rows = read_log(output / "training" / "log.jsonl")
    losses = [row["loss"] for row in rows if "loss" in row]
    return {
        "dev": [[row["step"], round(row["score"], DIGITS)] for row in rows if "score" in row],
        "loss": {"first": round(losses[0], 5), "last": round(losses[-1], 5)},
    }


def _encoder(run: Run, model: SentenceTransformer) -> Encoder:
    """Return the model as an encoder in the run's precision; what is computed from the vectors is not in bf16."""
    import torch

    from s2sent.evaluation.encoder import Encoder, as_encoder

    model.eval()
    plain = as_encoder(model)

    def encode(sentences: list[str]) -> Any:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=run.recipe.precision == "bf16"):
            return plain.encode(sentences)

    return Encoder(run.name, encode)


def _weights(run: Run, model: SentenceTransformer, tasks: list[Task]) -> dict[str, Any]:
    """Return how far the weights of the selected blocks spread, over some of the tasks' sentences."""
    import torch

    from s2sent.experiments.measures import block_weights, spread

    sentences = sorted({sentence for task in tasks for sentence in task.sentences()})
    some = [one for one in sentences[:: max(1, len(sentences) // WEIGHTS_FROM)] if one][:WEIGHTS_FROM]
    with torch.autocast(model.device.type, torch.bfloat16, enabled=run.recipe.precision == "bf16"):
        return spread(block_weights(model, some))


def _scores(run: Run, encoder: Encoder, tasks: list[Task], listener: Listener) -> dict[str, Any]:
    """Return scores and numbers of samples; of STS-B also its geometry and densities."""
    from s2sent.evaluation.sts import Geometry
    from s2sent.evaluation.suite import evaluate
    from s2sent.experiments.measures import histogram

    options = {"probes": run.evaluation.probes, "text": run.evaluation.text}
    report = evaluate(encoder, tasks, cache=False, listener=listener, **options)
    found: dict[str, Any] = {
        "scores": {column: round(report.score(column), DIGITS) for column in report.headlines()},
        "samples": {result.task: result.samples for result in report.results},
    }
    for result in report.results:
        if result.task == "STS-B":
            shape = Geometry.of(result)
            found["geometry"] = {name: round(getattr(shape, name), 4) for name in shape.MEASURES}
            found["density"] = histogram(result)
    return found


def _frozen(run: Run, folders: Folders, listener: Listener) -> dict[str, Any]:
    from s2sent.experiments.frozen import train_frozen

    tasks = run.evaluation.read()
    sentences = {sentence for task in tasks for sentence in task.sentences()}
    vectors, found = train_frozen(run, folders.work, sentences, listener)
    return {**_scores(run, vectors.encoder, tasks, listener), **found}


def _gradients(run: Run, folders: Folders, listener: Listener) -> dict[str, Any]:
    """Measure the gradient per block before the first step, on a batch of the text: the n-th for the n-th seed."""
    from s2sent.experiments.measures import block_gradients
    from s2sent.model.prompts import padded, pipeline_of
    from s2sent.training.distributed import seed_step
    from s2sent.training.setup import encoder_of, make_loss, make_model

    recipe, device = run.recipe, _device(folders)
    seed_step(recipe.seed, 0, 0)
    loss = make_loss(recipe, make_model(recipe, device)).to(device)
    start = recipe.seed * recipe.batch_size
    examples = islice(iter(Corpus(recipe.corpus, recipe.columns)), start, start + recipe.batch_size)
    texts = [example[0] for example in examples]
    if len(texts) < recipe.batch_size:
        raise DataError(
            f"Seed {recipe.seed} takes lines {start + 1} to {start + recipe.batch_size} of the text, which has fewer. "
            "Give more text, a smaller --batch-size, or fewer --seeds."
        )
    seed_step(recipe.seed, 1, 0)
    encoder = encoder_of(loss.model)
    rows = pipeline_of(encoder, recipe.max_length).token_ids(texts)
    ids = [row for row in rows if row]  # a line may have no text for it
    features = {key: value.to(device) for key, value in padded(encoder, ids).items()}
    listener.status("one batch")
    return {"gradients": block_gradients(loss, features)}


def _cost(run: Run, folders: Folders, listener: Listener) -> dict[str, Any]:
    """Measure what the selector costs beside the plain encoder, untrained: training does not change it."""
    from s2sent.experiments.measures import cost
    from s2sent.model.build import build
    from s2sent.selection import SelectionConfig

    recipe = run.recipe
    listener.status("timing")
    model, plain = (
        build(recipe.backbone, selection=selection, pooling=recipe.pooling, device=folders.device)
        for selection in (recipe.selection, SelectionConfig(blocks=1, fusion="last", gate="none"))
    )
    return {"cost": cost(model, plain, run.evaluation.read_dev().first[:TIMED])}
