"""How far a plan is: done, failed, missing, and the time left from the runs so far."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from s2sent.errors import ConfigError
from s2sent.experiments.plan import TRAINED, Run
from s2sent.experiments.store import Store


@dataclass(frozen=True)
class Progress:
    """Runs by state, and the seconds that the missing ones take at the pace of the finished ones.

    Attributes:
        done, failed, missing: The runs; a failed one is missing, too.
        seconds_left: None if no run is finished that could tell. What does not train takes no time to speak of.
    """

    done: tuple[Run, ...]
    failed: tuple[Run, ...]
    missing: tuple[Run, ...]
    seconds_left: float | None


def progress_of(runs: Sequence[Run], store: Store) -> Progress:
    """Look the runs up in the store."""
    records = {run.key: store.get(run.key) for run in runs}
    done = tuple(run for run in runs if records[run.key] is not None)
    missing = tuple(run for run in runs if records[run.key] is None)
    spent: dict[object, list[float]] = defaultdict(list)
    for run in done:
        for alike in _alike(run):
            spent[alike].append(float((records[run.key] or {})["seconds"]["total"]))
    left: float | None = 0.0
    for run in missing:
        known = next((spent[alike] for alike in _alike(run) if alike in spent), [] if run.kind in TRAINED else [0.0])
        left = None if left is None or not known else left + fmean(known)
    failed = tuple(run for run in missing if store.failure(run.key) is not None)
    return Progress(done, failed, missing, left)


def _alike(run: Run) -> list[object]:
    """What tells how long a run takes, from the runs most like it to any of its kind."""
    recipe = run.recipe
    return [(run.kind, recipe.objective, recipe.steps, recipe.batch_size), (run.kind, recipe.objective), run.kind]


def parse_duration(text: str) -> float:
    """Seconds from a time such as `2h`, `90m` or `1h30m`; a bare number is minutes.

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
    """A time for a person.

    >>> show_duration(5400), show_duration(75)
    ('1 h 30 min', '1 min 15 s')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
