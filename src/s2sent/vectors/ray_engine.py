"""The same encoding as a Ray Data pipeline: tasks read windows, a pool of actors makes shards of them.

Windows, shards and rules are those of one machine; only who does the work differs. No vector goes through the driver:
actors commit their shards to the working folder, which, like the inputs, must be on a file system that every machine
sees. A worker that dies loses at most the windows it was at: Ray gives them to another.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from s2sent.errors import ConfigError, ModelError, S2SentError
from s2sent.model.folder import is_export
from s2sent.vectors.encoder import text_encoder
from s2sent.vectors.job import Job, Options, Progress, expect
from s2sent.vectors.shards import Shard, Shards
from s2sent.vectors.sources import STANDARD_INPUT, Source

_BLOCK = 1
"""Bytes to a block of Ray's: so few that every window is a block of its own, and windows spread over the workers."""


def run_on_ray(
    model: str | Path,
    fingerprint: str,
    source: Source,
    options: Options,
    shards: Shards,
    done: Mapping[tuple[int, int], Shard],
    workers: tuple[int, int] | None,
    device: str | None,
    on_progress: Progress | None,
) -> None:
    """Make the shards that are missing, on the cluster that is running or, without one, on this machine.

    Args:
        model: The model's folder or name; every worker loads it.
        fingerprint: Its fingerprint: a worker that finds another model refuses to work.
        source: The texts.
        options: What is made of them.
        shards: Where the shards go.
        done: The shards that are there.
        workers: At least and at most so many; by default from 1 to as many as the cluster has room for.
        device: Where each worker runs. By default a GPU of its own if the cluster has any.
        on_progress: Told how many lines are done.
    """
    ray = _ray()
    if STANDARD_INPUT in source.files:
        raise ConfigError("Ray's workers cannot read this machine's standard input. Give files, or --engine local.")
    if Path(model).is_dir():
        model = str(Path(model).absolute())
    started = not ray.is_initialized()
    if started:
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars, context.target_max_block_size
    context.enable_progress_bars, context.target_max_block_size = False, _BLOCK
    log = logging.getLogger("ray.data")
    level = log.level
    log.setLevel(logging.CRITICAL)  # what a user must know is in the error
    try:
        on_gpus = not is_export(Path(model)) and (device is None or device.startswith("cuda"))
        gpus = int(ray.cluster_resources().get("GPU", 0)) if on_gpus else 0
        cpus = int(ray.cluster_resources().get("CPU", 1))
        least, most = workers or (1, max(gpus or cpus, 1))
        groups = ray.data.from_items(
            [{"group": group} for group in range(len(source.groups()))], override_num_blocks=len(source.groups())
        )
        # Readers need next to nothing, and must run though workers have taken every processor.
        windows = groups.map_batches(_read, fn_args=(source, dict(done)), batch_size=1, num_cpus=0)
        encoded = windows.map_batches(
            _Worker,
            fn_constructor_args=(str(model), fingerprint, options, Shards(shards.output.absolute()), device),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(min_size=least, max_size=most),
            num_gpus=1 if gpus else None,
            num_cpus=None if gpus else 1,
        )
        lines = sum(shard.rows for shard in done.values())
        share = sum(shard.share for shard in done.values())
        for row in encoded.iter_rows():
            lines, share = lines + int(row["rows"]), share + float(row["share"])
            if on_progress is not None:
                on_progress(lines, expect(lines, share))
    except ray.exceptions.RayError as error:
        raise _first_cause(error) from error
    finally:
        context.enable_progress_bars, context.target_max_block_size = before
        log.setLevel(level)
        if started:
            ray.shutdown()


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigError("--engine ray needs Ray: pip install 's2sent[ray]'.") from error
    return ray


def _read(batch: dict[str, Any], source: Source, done: Mapping[tuple[int, int], Shard]) -> Iterator[dict[str, Any]]:
    """Read the windows of a group that are not done; the others are checked."""
    for group in batch["group"]:
        for window in source.windows(int(group)):
            shard = done.get((window.group, window.number))
            if shard is None:
                yield {"window": [pickle.dumps(window)]}
            else:
                shard.check(window)


class _Worker:
    """Loads the model once, then makes shards."""

    def __init__(self, model: str, fingerprint: str, options: Options, shards: Shards, device: str | None) -> None:
        encoder = text_encoder(model, device, threads=1)  # Ray has given it one processor
        if encoder.fingerprint != fingerprint:
            raise ModelError(f"{model} on a worker is not the model that it is where the command was given.")
        self.job = Job(encoder, options, shards)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        rows, shares = [], []
        for pickled in batch["window"]:
            window = pickle.loads(pickled)
            if not self.job.shards.path(window.group, window.number).exists():  # a worker may have died right behind it
                self.job.encode(window, self.job.encoder.pipeline.tokenize(window.texts))
            rows.append(window.rows)
            shares.append(window.share)
        return {"rows": rows, "share": shares}


def _first_cause(error: BaseException) -> BaseException:
    """Find the user's mistake among what Ray wraps around it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, S2SentError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error
