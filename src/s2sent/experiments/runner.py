"""Do all missing runs, on this machine or on a Ray cluster, together with other processes that share the store."""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from s2sent.atomic import DiskFullError
from s2sent.errors import ConfigError, S2SentError
from s2sent.experiments.plan import TRAINED, Run
from s2sent.experiments.run import Folders, failure_record, perform
from s2sent.experiments.store import Record, Store, to_text
from s2sent.listener import Listener

WAIT = 1.0
"""Seconds between two looks at runs that others are doing."""
RETRIES = 3
"""How often Ray starts a run again when its worker or node dies. A run that fails by itself is recorded instead."""


@dataclass
class Outcome:
    """What was done.

    Attributes:
        done: How many runs this process finished.
        failed: Keys of the runs that failed, here or meanwhile in another process, with their errors.
        out_of_time: Whether runs are missing because the time was up.
    """

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    out_of_time: bool = False


class RunListener(Listener):
    """Shows what one run does, with its name, as the status of all runs."""

    def __init__(self, whole: Listener, name: str) -> None:
        self.whole, self.name = whole, name

    def status(self, what: str) -> None:
        """Show it with the run's name."""
        self.whole.status(f"{self.name}: {what}")

    def note(self, text: str) -> None:
        """Show it until the next status."""
        self.status(text)

    def progress(self, done: int, total: int, loss: float | None = None) -> None:
        """Pass it on."""
        self.whole.progress(done, total, loss)


@dataclass
class Runner:
    """Does what is missing of some runs, in their order.

    A run that another process has claimed is left to it; should that process die, it is done here.

    Attributes:
        runs: The runs.
        store: The store.
        folders: Where runs may write.
        profile: Named in the records.
        budget: Seconds after which no run is started.
        listener: Receives the progress.
    """

    runs: Sequence[Run]
    store: Store
    folders: Folders
    profile: str
    budget: float | None = None
    listener: Listener = field(default_factory=Listener)
    outcome: Outcome = field(default_factory=Outcome)

    def run(self) -> Outcome:
        """Do the runs in this process."""
        start = time.monotonic()
        earlier = {run.key: self.store.failed_at(run.key) for run in self.runs}
        while missing := [run for run in self.runs if not self._is_settled(run)]:
            claimed = 0
            for run in missing:
                if self.store.has(run.key):
                    continue
                if self._is_over(start):
                    return self.outcome
                with self.store.claim(run.key) as ours:
                    if not ours:
                        claimed += 1
                    elif self.store.failed_at(run.key) not in (None, earlier[run.key]):  # elsewhere, as it would here
                        self.outcome.failed[run.key] = str((self.store.failure(run.key) or {}).get("error"))
                    elif not self.store.has(run.key):
                        number = len(self.runs) - self._left() + 1
                        part = RunListener(self.listener, f"{number}/{len(self.runs)} {run.name}")
                        self._report(run, *do(run, self.store, self.folders, self.profile, part))
            if claimed:
                self.listener.status(f"waiting for {claimed} runs that other processes are doing")
                time.sleep(WAIT)
        return self.outcome

    def run_on_ray(self) -> Outcome:
        """Do the runs as tasks of Ray: the cluster of RAY_ADDRESS, or one made on this machine.

        All nodes must see the store at the same path. A run takes a CPU, or a GPU where the cluster has any.
        """
        try:
            import ray
        except ImportError as error:
            raise ConfigError("--engine ray needs Ray, which is not installed: pip install 's2sent[ray]'.") from error
        owned = not ray.is_initialized()
        if owned:
            ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
        try:
            resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
            kind = "GPU" if resources.get("GPU") else "CPU"
            decorator: Any = ray.remote  # its overloads know no options from a dictionary
            remote = decorator(max_retries=RETRIES, **{f"num_{kind.lower()}s": 1})(ray_task)
            return self.submit(ray, remote, max(1, int(resources[kind])))
        finally:
            if owned:
                ray.shutdown()

    def submit(self, ray: Any, remote: Any, room: int) -> Outcome:
        """Keep as many tasks running as there is room for, so that a budget can still stop the rest."""
        start = time.monotonic()
        waiting = [run for run in self.runs if not self.store.has(run.key)]
        running: dict[Any, Run] = {}
        while waiting or running:
            if waiting and self._is_over(start):
                waiting = []
            while waiting and len(running) < room:
                run = waiting.pop(0)
                if not self.store.has(run.key):
                    running[remote.remote(run, str(self.store.folder.resolve()), self.folders, self.profile)] = run
            if not running:
                continue
            (reference,), _ = ray.wait(list(running), num_returns=1)
            run = running.pop(reference)
            record: Record | None = None
            error: str | None = None
            try:
                record, error = ray.get(reference)  # the worker's: a shared disk may not show the record here yet
            except ray.exceptions.RayTaskError as failure:  # not of the run, whose errors are recorded
                if isinstance(failure.cause, S2SentError):  # such as a full disk, which the others will meet, too
                    raise failure.cause from failure
                error = f"{type(failure.cause).__name__}: {failure.cause}"
                self._fail(run, failure_record(run, self.folders, failure.cause))
            except ray.exceptions.RayError as failure:
                error = f"{type(failure).__name__}: the worker died {RETRIES + 1} times"
                self._fail(run, {"run": run.name, "error": error})
            if record is None and error is None:
                waiting.append(run)
                self.listener.status("waiting for a run that another process is doing")
                time.sleep(WAIT)
            else:
                self._report(run, record, error)
        return self.outcome

    def _is_settled(self, run: Run) -> bool:
        return self.store.has(run.key) or run.key in self.outcome.failed

    def _is_over(self, start: float) -> bool:
        self.outcome.out_of_time = self.budget is not None and time.monotonic() - start >= self.budget
        return self.outcome.out_of_time

    def _left(self) -> int:
        return sum(not self.store.has(run.key) for run in self.runs)

    def _fail(self, run: Run, record: Record) -> None:
        self.store.put_failure(run.key, {"profile": self.profile, **record})

    def _report(self, run: Run, record: Record | None, error: str | None) -> None:
        if record is None or error is not None:
            self.outcome.failed[run.key] = str(error)
            self.listener.note(f"{run.name} failed: {error}")
            return
        self.outcome.done += 1
        seconds, left = status(self.runs, self.store).seconds_left, self._left()
        after = "" if seconds is None or not left else f", about {show_duration(seconds)} for {left} more"
        took = show_duration(record["seconds"]["total"])
        self.listener.note(f"{run.name}: {headline(record)} ({took}{after})")


def do(run: Run, store: Store, folders: Folders, profile: str, listener: Listener) -> tuple[Record | None, str | None]:
    """Do one claimed run and store its record, or its failure; return the record or the error."""
    try:
        record = {"profile": profile, **perform(run, folders, listener)}
        to_text(record)  # a score that is not a number is a failed run
    except DiskFullError:  # so will be the next one
        raise
    except Exception as error:
        store.put_failure(run.key, {"profile": profile, **failure_record(run, folders, error)})
        return None, str(error) if isinstance(error, S2SentError) else f"{type(error).__name__}: {error}"
    store.put(run.key, record)
    return record, None


def ray_task(run: Run, folder: str, folders: Folders, profile: str) -> tuple[Record | None, str | None]:
    """Do one run on a worker; return its record, its error, or neither if another process has claimed it."""
    store = Store(folder)
    with store.claim(run.key) as ours:
        if not ours:
            return None, None
        if (record := store.get(run.key)) is not None:
            return record, None
        return do(run, store, folders, profile, Listener())


def headline(record: Record) -> str:
    """Return the numbers of a record that a reader looks for first."""
    if "scores" in record:
        scores = record["scores"]
        name = next(name for name in ("STS-B", "Transfer avg", *scores) if name in scores)
        if "dev" not in record:
            loss = f", held-out loss {record['held_out']['loss']:.3f}" if "held_out" in record else ""
            return f"{name} {scores[name]:.2f}{loss}"
        return f"{name} {scores[name]:.2f}, dev {record['dev'][0][1]:.2f} → {scores['STS-B-dev']:.2f}"
    if "cost" in record:
        return f"{record['cost']['added']:,} parameters more, {record['cost']['latency']:+.1f} % time"
    return "gradients by block " + " ".join(f"{value:.2g}" for value in record["gradients"]["direct"])


@dataclass(frozen=True)
class Status:
    """Runs by state, and the seconds that the missing ones take at the pace of the finished ones.

    Attributes:
        done: The finished runs.
        failed: Those that failed the last time; they are missing, too.
        missing: Those that are not finished.
        seconds_left: None if no run is finished that could tell. What does not train takes no time worth counting.
    """

    done: tuple[Run, ...]
    failed: tuple[Run, ...]
    missing: tuple[Run, ...]
    seconds_left: float | None


def status(runs: Sequence[Run], store: Store) -> Status:
    """Look the runs up in the store."""
    records = {run.key: store.get(run.key) for run in runs}
    done = tuple(run for run in runs if records[run.key] is not None)
    missing = tuple(run for run in runs if records[run.key] is None)
    spent: dict[object, list[float]] = defaultdict(list)
    for run in done:
        for group in _similar(run):
            spent[group].append(float((records[run.key] or {})["seconds"]["total"]))
    left: float | None = 0.0
    for run in missing:
        known = next((spent[group] for group in _similar(run) if group in spent), [] if run.kind in TRAINED else [0.0])
        left = None if left is None or not known else left + fmean(known)
    failed = tuple(run for run in missing if store.failure(run.key) is not None)
    return Status(done, failed, missing, left)


def _similar(run: Run) -> list[object]:
    """Return groups of runs that take as long, from the most similar ones to any of the kind."""
    recipe = run.recipe
    return [(run.kind, recipe.objective, recipe.steps, recipe.batch_size), (run.kind, recipe.objective), run.kind]


def parse_duration(text: str) -> float:
    """Return the seconds of a time such as `2h`, `90m` or `1h30m`; a bare number is minutes.

    >>> parse_duration("1h30m"), parse_duration("45")
    (5400.0, 2700.0)
    """
    if re.fullmatch(r"\d+(\.\d+)?", text.strip()):
        return 60 * float(text)
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower())
    if parts is None or not any(parts.groups()):
        raise ConfigError(f"{text!r} is not a time. Write 2h, 90m or 1h30m.")
    hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return 3600 * hours + 60 * minutes + seconds


def show_duration(seconds: float) -> str:
    """Return a time for people.

    >>> show_duration(5400), show_duration(75)
    ('1 h 30 min', '1 min 15 s')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
