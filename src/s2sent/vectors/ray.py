"""The same encoding as a Ray Data pipeline: tasks read windows, a pool of actors makes parts of them.

Windows, parts and rules are those of one machine; only who does the work differs. No vector goes through the driver:
actors write their parts to the working folder, which, like the inputs, must be on a file system that every machine
sees. A worker that dies loses at most the windows it was at: Ray gives them to another.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s2sent.errors import ConfigError, ModelError, S2SentError
from s2sent.model.folder import is_export
from s2sent.vectors.encoder import text_encoder
from s2sent.vectors.files import Job, OnProgress, expect
from s2sent.vectors.parts import Part, Parts
from s2sent.vectors.sources import STDIN, Source

_BLOCK = 1
"""Bytes to a block of Ray's: so few that every window is a block of its own, and windows spread over the workers."""


@dataclass
class RayJob:
    """Makes parts on the cluster that is running or, without one, on this machine.

    Attributes:
        job: What is made, with the driver's own encoder.
        model: The model's folder or name; every worker loads it.
        device: Where each worker runs. By default a GPU of its own if the cluster has any.
        workers: At least and at most so many; by default from 1 to as many as the cluster has room for.
    """

    job: Job
    model: str
    device: str | None = None
    workers: tuple[int, int] | None = None

    def run(self, source: Source, done: Mapping[tuple[int, int], Part], on_progress: OnProgress | None = None) -> None:
        """Make the parts that are missing; a worker that finds another model than the driver's refuses to work."""
        ray = _ray()
        if STDIN in source.files:
            raise ConfigError("Ray's workers cannot read this machine's standard input. Give files, or --engine local.")
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
            lines = sum(part.rows for part in done.values())
            share = sum(part.share for part in done.values())
            for row in self._pipeline(ray, source, done).iter_rows():
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

    def _pipeline(self, ray: Any, source: Source, done: Mapping[tuple[int, int], Part]) -> Any:
        folder = Path(self.model)
        model = str(folder.absolute()) if folder.is_dir() else self.model
        on_gpus = not is_export(folder) and (self.device is None or self.device.startswith("cuda"))
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if on_gpus else 0
        least, most = self.workers or (1, max(gpus or int(resources.get("CPU", 1)), 1))
        count = len(source.groups())
        groups = ray.data.from_items([{"group": group} for group in range(count)], override_num_blocks=count)
        # Readers need next to nothing, and must run though workers have taken every processor.
        windows = groups.map_batches(_read, fn_args=(source, dict(done)), batch_size=1, num_cpus=0)
        job, output = self.job, self.job.parts.output.absolute()
        arguments = (model, job.encoder.fingerprint, self.device, output, (job.form, job.options, job.with_text))
        return windows.map_batches(
            _Worker,
            fn_constructor_args=arguments,
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(min_size=least, max_size=most),
            num_gpus=1 if gpus else None,
            num_cpus=None if gpus else 1,
        )


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigError("--engine ray needs Ray: pip install 's2sent[ray]'.") from error
    return ray


def _read(batch: dict[str, Any], source: Source, done: Mapping[tuple[int, int], Part]) -> Iterator[dict[str, Any]]:
    """Read the windows of a group that are not done; the others are checked."""
    for group in batch["group"]:
        for window in source.windows(int(group)):
            part = done.get((window.group, window.number))
            if part is None:
                yield {"window": [pickle.dumps(window)]}
            else:
                part.check(window)


class _Worker:
    """Loads the model once, then makes parts."""

    def __init__(
        self, model: str, fingerprint: str, device: str | None, output: Path, options: tuple[Any, ...]
    ) -> None:
        encoder = text_encoder(model, device, threads=1)  # Ray has given it one processor
        if encoder.fingerprint != fingerprint:
            raise ModelError(f"{model} on a worker is not the model that it is where the command was given.")
        self.job = Job(encoder, Parts(output), *options)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        rows, shares = [], []
        for pickled in batch["window"]:
            window = pickle.loads(pickled)
            if not self.job.parts.path(window.group, window.number).exists():  # a worker may have died right behind it
                self.job.encode(window, self.job.tokenize(window))
            rows.append(window.rows)
            shares.append(window.share)
        return {"rows": rows, "share": shares}


def _first_cause(error: BaseException) -> BaseException:
    """Find the error of ours among what Ray wraps around it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, S2SentError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error
