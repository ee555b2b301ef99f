"""Do runs until none is missing, together with whoever else works on the same store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from s2sent.atomic import DiskFullError
from s2sent.errors import S2SentError
from s2sent.experiments.perform import Places, failed, perform
from s2sent.experiments.plan import Run
from s2sent.experiments.store import Store, to_text
from s2sent.listener import Listener

WAIT = 1.0
"""Seconds between two looks at runs that others are doing."""


class Watcher:
    """Hears how the runs go. This one keeps silent."""

    def listener(self, run: Run, number: int, total: int) -> Listener:
        """A run begins; what is returned hears of its steps."""
        return Listener()

    def done(self, run: Run, record: dict[str, Any], left: int) -> None:
        """A run is finished and safe."""

    def failed(self, run: Run, error: str) -> None:
        """A run failed; the others go on."""

    def waiting(self, runs: int) -> None:
        """So many runs are being done by others."""


@dataclass
class Outcome:
    """What became of the runs.

    Attributes:
        done: How many this process finished.
        failed: Keys of the runs that failed, here or meanwhile in another process, with their errors.
        out_of_time: Whether runs are missing because the time was up.
    """

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    out_of_time: bool = False


def run_all(
    runs: Sequence[Run],
    store: Store,
    places: Places,
    *,
    profile: str,
    budget: float | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Do what is missing of `runs`, in their order. No run is begun when `budget` seconds are over.

    A run that another process has claimed is left to it; should that process die, it is done here.
    """
    watcher = watcher or Watcher()
    outcome = Outcome()
    start = time.monotonic()
    earlier = {run.key: store.failed_at(run.key) for run in runs}
    while True:
        missing = [run for run in runs if not store.has(run.key) and run.key not in outcome.failed]
        if not missing:
            return outcome
        claimed = 0
        for run in missing:
            if store.has(run.key):
                continue
            if budget is not None and time.monotonic() - start >= budget:
                outcome.out_of_time = True
                return outcome
            with store.claim(run.key) as ours:
                if not ours:
                    claimed += 1
                elif store.failed_at(run.key) not in (None, earlier[run.key]):  # elsewhere, as it would here
                    outcome.failed[run.key] = str((store.failure(run.key) or {}).get("error"))
                elif not store.has(run.key):
                    left = sum(not store.has(other.key) for other in runs)
                    listener = watcher.listener(run, len(runs) - left + 1, len(runs))
                    do(run, store, places, profile, outcome, listener, watcher, left - 1)
        if claimed:
            watcher.waiting(claimed)
            time.sleep(WAIT)


def do(
    run: Run,
    store: Store,
    places: Places,
    profile: str,
    outcome: Outcome,
    listener: Listener,
    watcher: Watcher,
    left: int,
) -> None:
    """Do one claimed run and keep its record, or its error."""
    try:
        record = {"profile": profile, **perform(run, places, listener)}
        to_text(record)  # a score that is not a number is a failed run
    except DiskFullError:  # so will be the next one
        raise
    except Exception as error:
        store.put_failure(run.key, {"profile": profile, **failed(run, places, error)})
        outcome.failed[run.key] = str(error) if isinstance(error, S2SentError) else f"{type(error).__name__}: {error}"
        watcher.failed(run, outcome.failed[run.key])
    else:
        store.put(run.key, record)
        outcome.done += 1
        watcher.done(run, record, left)
