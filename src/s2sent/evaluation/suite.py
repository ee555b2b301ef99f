"""Evaluate a model on tasks: `evaluate`."""

import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from s2sent.data.cache import cache_folder
from s2sent.data.senteval import STSTask, Task, Text, TransferTask, task_names
from s2sent.data.sources import Source
from s2sent.errors import ConfigError, S2SentError
from s2sent.evaluation.cache import ResultCache, task_key
from s2sent.evaluation.encoder import Vectors, as_encoder
from s2sent.evaluation.probes import DEFAULT, FAST, ProbeConfig
from s2sent.evaluation.result import Aggregation, Report, TaskResult
from s2sent.evaluation.sts import geometry, score_sts
from s2sent.evaluation.transfer import score_transfer
from s2sent.listener import Listener

PROBES = {"default": DEFAULT, "fast": FAST}


def evaluate(
    model: Any,
    tasks: str | Sequence[str] | Sequence[Task] = "sts",
    *,
    data: str | Path | None = None,
    text: str = "file",
    aggregation: str = "all",
    probes: str | ProbeConfig = "default",
    cache: bool | str | Path = True,
    name: str | None = None,
    listener: Listener | None = None,
) -> Report:
    """Evaluate a model on STS and transfer tasks as SentEval does.

    Args:
        model: A model folder, a hub id, a SentenceTransformer, or a function `list[str] -> array`.
        tasks: `sts`, `transfer`, `all`, names of tasks such as `STS-B`, or tasks of your own (`STSTask`,
            `TransferTask`).
        data: SentEval's folder (default: `S2SENT_DATA`), `hub`, `pypi` or the path of the STS-B wheel.
        text: `file` (tokenised and lower-cased, what papers use) or `raw`.
        aggregation: `all` (what papers since SimCSE use), `mean` or `wmean`.
        probes: `default`, `fast`, or a configuration of your own.
        cache: Whether finished tasks are kept and used again, or the folder to keep them in. Functions are not cached
            unless they have an attribute `fingerprint`.
        name: What the report calls the model.
        listener: Receives the progress.

    Example:
        >>> from s2sent.evaluation import evaluate
        >>> report = evaluate("out/my-model", "sts", data="senteval")  # doctest: +SKIP
        >>> report.headlines()["STS avg"]  # doctest: +SKIP
        78.87
    """
    warn = warnings.warn if listener is None else listener.note
    listener = listener or Listener()
    source = Source(data, Text(text))
    config = probe_config(probes)
    chosen = Aggregation(aggregation)
    loaded = _load(tasks, source)  # all of them first: a missing file is an error before an hour of work
    encoder = as_encoder(model, name)
    folder = cache_folder() / "results" if cache is True else Path(cache) if cache else None
    store = ResultCache(folder, encoder.fingerprint)
    keys = {task.name: task_key(task, None if isinstance(task, STSTask) else config) for task in loaded}
    results = {name: store.get(key) for name, key in keys.items()}
    if None in results.values():
        store.check()
    vectors = Vectors(encoder, store.vectors)
    # One pass over the sentences of all STS tasks, then one over what transfer adds: the quick suite is on disk before
    # the slow one begins.
    for kind in (STSTask, TransferTask):
        missing = [task for task in loaded if isinstance(task, kind) and results[task.name] is None]
        sentences = [sentence for task in missing for sentence in task.sentences()]
        if count := len(vectors.missing(sentences)):
            listener.status("encoding")
            vectors.add(sentences, counter(listener, count))
        for task in missing:
            listener.status(task.name)
            start = time.perf_counter()
            scored = _score(task, vectors, config)
            result = replace(scored, seconds=round(time.perf_counter() - start, 3), key=keys[task.name])
            results[task.name] = result
            try:
                store.put(result.key, result)
            except S2SentError as error:  # a full disk costs the next run time, not this one its result
                warn(f"The result of {task.name} is not kept for another run. {error}")
            listener.note(f"{task.name} {result.headline(chosen):.2f}")
    if store.vectors is not None:
        shutil.rmtree(store.vectors, ignore_errors=True)
    return Report(
        encoder.name,
        tuple(result for result in results.values() if result is not None),
        aggregation=chosen,
        text=source.text.value,
        source=loaded[0].source if loaded else "",
        fingerprint=encoder.fingerprint,
        probes=probes if isinstance(probes, str) else "custom",
    )


def counter(listener: Listener, total: int) -> Callable[[int], None]:
    """Return a function that adds up counts and tells the listener the sum."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        listener.progress(done, total)

    return add


def _load(tasks: str | Sequence[str] | Sequence[Task], source: Source) -> list[Task]:
    given = tasks.split(",") if isinstance(tasks, str) else tasks
    names = [task for task in given if isinstance(task, str)]
    loaded = [source.read(name) for name in (task_names(names) if names else ())]
    loaded += [task for task in given if not isinstance(task, str)]
    repeated = [name for name, count in Counter(task.name for task in loaded).items() if count > 1]
    if repeated:
        raise ConfigError(f"There are several tasks with the name {repeated[0]!r}. Give each a name of its own.")
    return loaded


def _score(task: Task, vectors: Vectors, config: ProbeConfig) -> TaskResult:
    if isinstance(task, TransferTask):
        return score_transfer(task, vectors, config)
    result = score_sts(task, vectors)
    if task.name == "STS-B":  # while its vectors are there
        try:
            result.details["geometry"] = asdict(geometry(task, vectors))
        except S2SentError as error:
            result.details["geometry"] = str(error)
    return result


def probe_config(probes: str | ProbeConfig) -> ProbeConfig:
    """Return the configuration of this name; a configuration is returned as it is."""
    if isinstance(probes, ProbeConfig):
        return probes
    if probes not in PROBES:
        raise ConfigError(f"probes must be {' or '.join(PROBES)} (from Python also a ProbeConfig), got {probes!r}.")
    return PROBES[probes]
