"""The whole of it: a model, some tasks, a report."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from s2sent.data.cache import cache_folder
from s2sent.data.senteval import STSTask, Text, TransferTask, task_names
from s2sent.data.sources import Source
from s2sent.errors import ConfigError, S2SentError
from s2sent.evaluation.cache import ResultCache, task_key
from s2sent.evaluation.encoder import Vectors, as_encoder
from s2sent.evaluation.geometry import geometry
from s2sent.evaluation.listener import Listener
from s2sent.evaluation.probes import DEFAULT, FAST, ProbeConfig
from s2sent.evaluation.result import Aggregation, Report, TaskResult
from s2sent.evaluation.sts import score_sts
from s2sent.evaluation.transfer import score_transfer

PROBES = {"default": DEFAULT, "fast": FAST}


def evaluate(
    model: Any,
    tasks: str | list[str] | tuple[str, ...] = "sts",
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
        model: a model folder, a hub id, a SentenceTransformer, or a function ``list[str] -> array``.
        tasks: ``sts``, ``transfer``, ``all`` or names of tasks such as ``STS-B``.
        data: SentEval's folder (default: ``S2SENT_DATA``), ``hub``, ``pypi`` or the path of the STS-B wheel.
        text: ``file`` (tokenised and lower-cased, what papers use) or ``raw``.
        aggregation: ``all`` (what papers since SimCSE use), ``mean`` or ``wmean``.
        probes: ``default``, ``fast``, or a configuration of your own.
        cache: whether finished tasks are kept and used again, or the folder to keep them in. Functions are not cached
            unless they have an attribute ``fingerprint``.
        name: what the report calls the model.
        listener: hears about progress.

    Example:
        >>> from s2sent.evaluation import evaluate
        >>> report = evaluate("out/my-model", "sts", data="senteval")  # doctest: +SKIP
        >>> report.headlines()["STS avg"]  # doctest: +SKIP
        78.87
    """
    listener = listener or Listener()
    source = Source(data, Text.of(text))
    config = probe_config(probes)
    chosen = Aggregation.of(aggregation)
    names = task_names(tasks)
    loaded = [source.read(task) for task in names]  # all of them first: a missing file is said before an hour of work
    encoder = as_encoder(model, name)
    folder = cache_folder() / "results" if cache is True else Path(cache) if cache else None
    store = ResultCache(folder, encoder.fingerprint)
    keys = [task_key(task, None if isinstance(task, STSTask) else config) for task in loaded]
    results = {task.name: store.get(key) for task, key in zip(loaded, keys, strict=True)}
    if None in results.values():
        store.check()
    vectors = Vectors(encoder, store.begin_vectors())
    # One pass over the sentences of all STS tasks, then one over what transfer adds: the quick suite is safe on disk
    # before the slow one begins.
    for kind in (STSTask, TransferTask):
        missing = [
            (task, key)
            for task, key in zip(loaded, keys, strict=True)
            if isinstance(task, kind) and results[task.name] is None
        ]
        sentences = [sentence for task, _ in missing for sentence in task.sentences()]
        count = len(vectors.missing(sentences))
        if count:
            listener.encoding(count)
            vectors.add(sentences, listener.encoded)
        for task, key in missing:
            listener.scoring(task.name)
            start = time.perf_counter()
            scored = _scored(task, vectors, config)
            result = replace(scored, seconds=round(time.perf_counter() - start, 3), key=key)
            results[task.name] = result
            try:
                store.put(key, result)
            except S2SentError as error:  # a full disk costs the next run time, not this one its result
                listener.trouble(f"The result of {task.name} is not kept for another run. {error}")
            listener.scored(result)
    store.drop_vectors()
    return Report(
        encoder.name,
        tuple(result for result in (results[task.name] for task in loaded) if result is not None),
        aggregation=chosen,
        text=source.text.value,
        source=loaded[0].source if loaded else "",
        fingerprint=encoder.fingerprint,
        probes=probes if isinstance(probes, str) else "custom",
    )


def _scored(task: STSTask | TransferTask, vectors: Vectors, config: ProbeConfig) -> TaskResult:
    if isinstance(task, TransferTask):
        return score_transfer(task, vectors, config)
    result = score_sts(task, vectors)
    if task.name == "STS-B":  # while its vectors are at hand: nobody has to encode them again to look at their shape
        try:
            result.details["geometry"] = asdict(geometry(task, vectors))
        except S2SentError as error:
            result.details["geometry"] = str(error)
    return result


def probe_config(probes: str | ProbeConfig) -> ProbeConfig:
    """The configuration of this name; one that is a configuration already is returned as it is."""
    if isinstance(probes, ProbeConfig):
        return probes
    if probes not in PROBES:
        raise ConfigError(f"probes must be {' or '.join(PROBES)} (from Python also a ProbeConfig), not {probes!r}.")
    return PROBES[probes]
