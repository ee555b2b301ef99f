"""Sentences without end, and processes that can be killed."""

from __future__ import annotations

import os
import random
import time
import traceback
from collections.abc import Callable

WORDS = tuple("the cat sat on a warm window sill while rain fell over old bridges and cars".split())  # noqa: SIM905


def make_lines(count: int, seed: int = 0) -> list[str]:
    """Different sentences of 1 to 20 words."""
    chance = random.Random(seed)
    lines = [f"{' '.join(chance.choices(WORDS, k=chance.randint(1, 20)))} {number}" for number in range(count)]
    return lines


def start(task: Callable[[], object]) -> int:
    """Run a task in a process of its own, forked so that it need not import everything again; return its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        task()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int, within: float = 120) -> int:
    """Wait for a process; its exit code, negative for a signal."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise TimeoutError(f"process {pid} did not end")
