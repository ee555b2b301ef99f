"""Try one changed file: a result or an `S2SentError`, soon, and no line lost or doubled. And count what was tried."""

from __future__ import annotations

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

from fuzz import readers
from s2sent.errors import S2SentError

LIMIT = 5.0
"""Seconds for one file. What takes longer hangs, as far as a user can tell."""


class HangError(BaseException):
    """Not an `Exception`, which a reader might catch."""


@contextmanager
def _in_time() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise HangError(f"not done after {LIMIT} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Figures:
    """What was tried, and what came of it."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = {}
        self.lines = 0
        self.slowest = (0.0, "")

    def add(self, name: str, outcome: str, seconds: float) -> None:
        self.outcomes.setdefault(name, Counter())[outcome] += 1
        self.slowest = max(self.slowest, (seconds, name))

    def __str__(self) -> str:
        kinds = sorted({kind for counts in self.outcomes.values() for kind in counts})
        rows = [f"{'file':<42}{'inputs':>8}" + "".join(f"{kind:>14}" for kind in kinds)]
        total: Counter[str] = Counter()
        for name, counts in self.outcomes.items():
            total += counts
            rows.append(f"{name:<42}{counts.total():>8}" + "".join(f"{counts[kind]:>14}" for kind in kinds))
        rows.append(f"{'all':<42}{total.total():>8}" + "".join(f"{total[kind]:>14}" for kind in kinds))
        seconds, name = self.slowest
        rows.append(f"{self.lines:,} lines counted by another way, 0 lost or doubled; other exceptions: 0; hangs: 0")
        rows.append(f"slowest: {seconds:.2f} s ({name})")
        return "\n".join(rows)


def try_reader(name: str, reader: readers.Reader, examples: int, figures: Figures) -> None:
    """Give a reader changed files; whatever else than a result or an `S2SentError` comes of one is raised."""
    valid = reader.path.read_bytes() if reader.path.exists() else None

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data=reader.inputs)
    def attempt(data: bytes) -> None:
        reader.path.write_bytes(data)
        started = time.perf_counter()
        try:
            with _in_time():
                found = reader.read()
            outcome = "result"
            expected = reader.count(data)
            if found is not None and expected is not None:
                assert found == expected, f"{found} lines, and there are {expected}"
                figures.lines += expected
        except S2SentError as error:
            if not str(error).replace("\n", " ").isprintable():
                raise AssertionError(f"a message that no terminal can show: {error!a}") from error
            outcome = type(error).__name__
        figures.add(name, outcome, time.perf_counter() - started)

    try:
        attempt()
    finally:
        if valid is not None:
            reader.path.write_bytes(valid)


GROUPS = {
    "tables": readers.tables,
    "SentEval": readers.senteval,
    "settings": readers.settings_files,
    "models": readers.models,
    "states": readers.states,
}
SHARES = {"tables": 0.4, "SentEval": 0.15, "settings": 0.15, "models": 0.15, "states": 0.15}
"""Of all inputs; a model takes a thousand times as long to load as a line to read."""


def try_all(inputs: int, groups: list[str] | None = None) -> Figures:
    """Try about so many changed files, shared among the readers."""
    figures = Figures()
    with ExitStack() as stack:
        for group in groups or list(GROUPS):
            root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            found = GROUPS[group](root)
            for name, reader in found.items():
                try_reader(name, reader, -(-round(inputs * SHARES[group]) // len(found)), figures)
    return figures
