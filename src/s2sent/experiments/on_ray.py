"""The same runs as tasks of a Ray cluster. Records go to the same store, which all nodes must see at the same path."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from s2sent.errors import ConfigError, S2SentError
from s2sent.experiments.perform import Places, failed
from s2sent.experiments.plan import Run
from s2sent.experiments.runner import WAIT, Outcome, Watcher, do
from s2sent.experiments.store import Record, Store
from s2sent.listener import Listener

RETRIES = 3
"""How often a run is begun again when its worker or node dies. A run that fails by itself is recorded, not retried."""


def task(run: Run, folder: str, places: Places, profile: str) -> tuple[str, Record]:
    """Do one run on a worker: `done` with its record, `claimed` by somebody else, or its error."""
    store = Store(folder)
    with store.claim(run.key) as ours:
        if not ours:
            return "claimed", {}
        outcome = Outcome()
        if not store.has(run.key):
            do(run, store, places, profile, outcome, Listener(), Watcher(), 0)
        return outcome.failed.get(run.key, "done"), store.get(run.key) or {}


def run_all_on_ray(
    runs: Sequence[Run],
    store: Store,
    places: Places,
    *,
    profile: str,
    budget: float | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Do what is missing of `runs` on Ray: the cluster RAY_ADDRESS names, or one made on this machine.

    A run takes a CPU, or a GPU where the cluster has any.

    Args:
        runs: The runs, in the order they are begun.
        store: The store.
        places: Where workers may write.
        profile: Named in the records.
        budget: Seconds after which no run is begun.
        watcher: Hears how it goes.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--engine ray needs Ray, which is not installed: pip install 's2sent[ray]'.") from error
    watcher = watcher or Watcher()
    owned = not ray.is_initialized()
    if owned:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    try:
        there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        kind = "GPU" if there.get("GPU") else "CPU"
        decorator: Any = ray.remote  # its overloads know no options from a dictionary
        remote = decorator(max_retries=RETRIES, **{f"num_{kind.lower()}s": 1})(task)
        return _submit(ray, remote, runs, store, places, profile, budget, watcher, max(1, int(there[kind])))
    finally:
        if owned:
            ray.shutdown()


def _submit(
    ray: Any,
    remote: Any,
    runs: Sequence[Run],
    store: Store,
    places: Places,
    profile: str,
    budget: float | None,
    watcher: Watcher,
    room: int,
) -> Outcome:
    """Keep as many tasks under way as there is room for, so that a budget can still stop the rest."""
    outcome, start = Outcome(), time.monotonic()
    waiting = [run for run in runs if not store.has(run.key)]
    under_way: dict[Any, Run] = {}
    while waiting or under_way:
        if budget is not None and time.monotonic() - start >= budget and waiting:
            outcome.out_of_time = True
            waiting = []
        while waiting and len(under_way) < room:
            run = waiting.pop(0)
            if not store.has(run.key):
                under_way[remote.remote(run, str(store.folder.resolve()), places, profile)] = run
        if not under_way:
            continue
        finished, _ = ray.wait(list(under_way), num_returns=1)
        for reference in finished:
            run, record = under_way.pop(reference), {}
            try:
                answer, record = ray.get(reference)
            except ray.exceptions.RayTaskError as error:  # not the run, whose errors are recorded: what is around it
                if isinstance(error.cause, S2SentError):  # such as a full disk, which the others will meet, too
                    raise error.cause from error
                answer = f"{type(error.cause).__name__}: {error.cause}"
                store.put_failure(run.key, {"profile": profile, **failed(run, places, error.cause)})
            except ray.exceptions.RayError as error:  # its worker died more often than it is retried
                answer = f"{type(error).__name__}: the worker died {RETRIES + 1} times"
                store.put_failure(run.key, {"profile": profile, "run": run.name, "error": answer})
            if answer == "claimed":
                waiting.append(run)
                watcher.waiting(1)
                time.sleep(WAIT)
            elif answer == "done":
                outcome.done += 1
                left = sum(not store.has(other.key) for other in runs)
                watcher.done(run, record, left)  # the worker's: a shared disk may not show it here yet
            else:
                outcome.failed[run.key] = answer
                watcher.failed(run, answer)
    return outcome
