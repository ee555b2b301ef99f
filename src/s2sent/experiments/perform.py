"""Do one run: what its description says, as a record."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import s2sent
from s2sent.atomic import atomic_file, lock
from s2sent.data.corpus import Corpus, is_file_name
from s2sent.data.senteval import Pairs, STSTask
from s2sent.errors import ConfigError, DataError
from s2sent.experiments.inputs import DEV
from s2sent.experiments.plan import Run
from s2sent.listener import Listener
from s2sent.training.recipes import Recipe
from s2sent.untrusted import read_json

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

    from s2sent.evaluation.encoder import Vectors

LOOKED_AT = 256
"""Sentences of STS-B over which the spread of the weights is taken."""
TIMED = 32
"""Sentences in the batch that is timed."""
DIGITS = 4
"""Of a score in a record: tables show two, but what is tested must not be rounded to the size of small differences."""


@dataclass(frozen=True)
class Places:
    """Where a run may write. None of it decides a result, or is in a record.

    Attributes:
        work: For what is thrown away afterwards: an unfinished run's checkpoints.
        models: Trained models are kept here and used again by runs that differ only in what they are scored on.
        device: Where to run; None: the best there is.
    """

    work: Path
    models: Path | None = None
    device: str | None = None


def perform(run: Run, places: Places, listener: Listener | None = None) -> dict[str, Any]:
    """Do the run and return its record, without the key."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    start, cpu = time.perf_counter(), time.process_time()
    kinds = {"train": _train, "frozen": _frozen, "gradients": _gradients, "cost": _cost}
    found = kinds[run.kind](run, places, listener or Listener())
    gc.collect()  # models have cycles, and the next one should not have to share the memory with this one
    seconds = found.setdefault("seconds", {})
    seconds["total"], seconds["cpu"] = round(time.perf_counter() - start, 1), round(time.process_time() - cpu, 1)
    return {
        "run": run.name,
        "description": run.description,
        "backbone": {"name": run.backbone.name, "depth": run.backbone.depth},
        "corpus": [Path(source).name if is_file_name(source) else source for source in run.recipe.corpus],
        **found,
        **circumstances(),
    }


def failed(run: Run, places: Places, error: BaseException) -> dict[str, Any]:
    """The record of a run that failed: the error and where it was raised, without places of this machine."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    trace = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    message = str(error)
    inputs = {run.backbone.path, *run.recipe.corpus, run.evaluation.data, places.work, places.models, Path.cwd()}
    for place in sorted({str(place) for place in inputs if place}, key=len, reverse=True):
        message = message.replace(place, Path(place).name if len(place) > 1 else place)
    home = str(Path.home())
    message = message.replace(home, "~") if len(home) > 1 else message
    found = {"error": f"{type(error).__name__}: {message}", "trace": trace}
    return {
        "run": run.name,
        "description": run.description,
        "backbone": {"name": run.backbone.name, "depth": run.backbone.depth},
        **found,
        **circumstances(),
    }


@cache
def _bf16_problem(device: torch.device) -> str | None:
    from s2sent.training.distributed import bf16_problem

    return bf16_problem(device)


@cache
def circumstances() -> dict[str, Any]:
    """What the numbers were computed with."""
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


def training_key(description: Mapping[str, Any]) -> str:
    """Names a trained model: what decides its weights, which is all but what it is scored on."""
    weights = {name: value for name, value in description.items() if name != "evaluation"}
    weights["dev"] = description["evaluation"]["dev"]
    return hashlib.sha256(json.dumps(weights, sort_keys=True).encode()).hexdigest()[:20]


def _train(run: Run, places: Places, listener: Listener) -> dict[str, Any]:
    import torch

    from s2sent.training.distributed import best_device

    work = places.work / run.key
    tasks = run.evaluation.read()  # a missing file is said before the training
    if run.recipe.precision == "bf16" and (problem := _bf16_problem(torch.device(places.device or best_device()))):
        raise ConfigError(f"A run in bf16 must not be done in fp32, but {problem}.")
    if places.models is None:
        output = work / "model"
        model, seconds = _trained(run, output, work, places.device, listener)
    else:
        output = places.models / training_key(run.description)
        places.models.mkdir(parents=True, exist_ok=True)
        with lock(places.models / f".{output.name}.lock"):  # another run may want the same model
            model, seconds = _trained(run, output, work, places.device, listener)
    listener.note("scoring")
    start = time.perf_counter()
    found = _scored(run, model, tasks)
    found["seconds"] = {"training": seconds, "evaluation": round(time.perf_counter() - start, 1)}
    history = _history(output)
    found["scores"][DEV] = max(score for step, score in history["dev"] if step)
    shutil.rmtree(work, ignore_errors=True)
    return {**found, **history}


def _trained(
    run: Run, output: Path, work: Path, device: str | None, listener: Listener
) -> tuple[SentenceTransformer, float]:
    """The trained model and the seconds it took; one that is in its place already is opened instead."""
    from s2sent.model.load import load_in_torch
    from s2sent.training.loop import train

    facts = output / "training" / "seconds.json"
    if (output / "modules.json").exists() and facts.exists():
        return load_in_torch(output, device=device), read_json(facts)
    dev = work / "dev.csv"
    _write_dev(dev, run.evaluation.read_dev())
    recipe = replace(run.recipe, dev=str(dev))
    if output.exists() and not _may_go_on(output, recipe):
        shutil.rmtree(output)
    start = time.perf_counter()
    model = train(recipe, output, device=device, listener=listener).model
    seconds = round(time.perf_counter() - start, 1)
    with atomic_file(facts) as file:
        file.write(json.dumps(seconds).encode())
    return model, seconds


def _may_go_on(output: Path, recipe: Recipe) -> bool:
    """Whether what a killed process left is the very same run, unfinished."""
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
    """The dev curve, step 0 being before training, and the loss at the end."""
    from s2sent.training.log import read_log

    rows = read_log(output / "training" / "log.jsonl")
    losses = [row["loss"] for row in rows if "loss" in row]
    return {
        "dev": [[row["step"], round(row["score"], DIGITS)] for row in rows if "score" in row],
        "loss": {"first": round(losses[0], 5), "last": round(losses[-1], 5)},
    }


def _scored(run: Run, model: SentenceTransformer, tasks: list[Any]) -> dict[str, Any]:
    import torch

    from s2sent.evaluation.cost import count_parameters
    from s2sent.evaluation.encoder import Vectors, as_encoder
    from s2sent.experiments.measures import block_weights, selector_of, spread

    model.eval()
    vectors = Vectors(as_encoder(model))
    sentences = sorted({sentence for task in tasks for sentence in task.sentences()})
    looked_at = [one for one in sentences[:: max(1, len(sentences) // LOOKED_AT)] if one][:LOOKED_AT]
    # What is computed from the vectors, probes above all, is not done in bf16.
    with torch.autocast(model.device.type, torch.bfloat16, enabled=run.recipe.precision == "bf16"):
        vectors.add(sentence for task in tasks for sentence in task.sentences())
        weights = spread(block_weights(model, looked_at))
    added, total = count_parameters(selector_of(model)), count_parameters(model)
    scores = _scores(run, vectors, tasks)
    return {
        **{name: scores.pop(name) for name in ("scores", "samples")},
        "parameters": {"added": added, "backbone": total - added},
        "weights": weights,
        **scores,
    }


def _scores(run: Run, vectors: Vectors, tasks: list[Any]) -> dict[str, Any]:
    """What a record says of vectors: scores and numbers of samples; of STS-B also its geometry and densities."""
    from s2sent.evaluation.geometry import geometry
    from s2sent.evaluation.result import Report
    from s2sent.evaluation.sts import score_sts
    from s2sent.evaluation.suite import probe_config
    from s2sent.evaluation.transfer import score_transfer
    from s2sent.experiments.measures import histogram

    vectors.add(sentence for task in tasks for sentence in task.sentences())
    probes = probe_config(run.evaluation.probes)
    results = [
        score_sts(task, vectors) if isinstance(task, STSTask) else score_transfer(task, vectors, probes)
        for task in tasks
    ]
    report = Report(run.name, tuple(results), text=run.evaluation.text)
    found: dict[str, Any] = {
        "scores": {column: round(report.score(column), DIGITS) for column in report.headlines()},
        "samples": {result.task: result.samples for result in results},
    }
    for task, result in zip(tasks, results, strict=True):
        if task.name == "STS-B":
            shape = geometry(task, vectors)
            found["geometry"] = {
                "alignment": round(shape.alignment, 4),
                "uniformity": round(shape.uniformity, 4),
                "anisotropy": round(shape.anisotropy, 4),
            }
            found["density"] = histogram(result)
    return found


def _frozen(run: Run, places: Places, listener: Listener) -> dict[str, Any]:
    from s2sent.experiments.frozen import train_frozen

    tasks = run.evaluation.read()
    sentences = {sentence for task in tasks for sentence in task.sentences()}
    vectors, found = train_frozen(run, places.work, sentences, listener)
    return {**_scores(run, vectors, tasks), **found}


def _gradients(run: Run, places: Places, listener: Listener) -> dict[str, Any]:
    """The gradient per block before the first step, on a batch of the text: the n-th for the n-th seed."""
    from itertools import islice

    import torch

    from s2sent.experiments.gradients import block_gradients
    from s2sent.model.prompts import padded, pipeline_of
    from s2sent.training.distributed import best_device, seed_step
    from s2sent.training.setup import encoder_of, make_loss, make_model

    recipe = run.recipe
    device = torch.device(places.device or best_device())
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
    listener.note("one batch")
    return {"gradients": block_gradients(loss, features)}


def _cost(run: Run, places: Places, listener: Listener) -> dict[str, Any]:
    """What the selector costs beside the plain encoder, untrained: training does not change it."""
    from s2sent.experiments.measures import cost
    from s2sent.model.build import build
    from s2sent.selection import SelectionConfig

    recipe = run.recipe
    listener.note("timing")
    model, plain = (
        build(recipe.backbone, selection=selection, pooling=recipe.pooling, device=places.device)
        for selection in (recipe.selection, SelectionConfig(blocks=1, fusion="last", gate="none"))
    )
    sentences = run.evaluation.read_dev().first[:TIMED]
    return {"cost": cost(model, plain, sentences)}
