"""What a run asks of its process: chance that is a function of the step, and a stop between two steps."""

from __future__ import annotations

import hashlib
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed_step(seed: int, step: int, rank: int) -> None:
    """Make a step's dropout a function of (seed, step, rank): there is no random state to save or to restore."""
    digest = hashlib.sha256(f"{seed} {step} {rank}".encode()).digest()
    number = int.from_bytes(digest[:8], "little") >> 1
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)


def minutes_since(since: float) -> float:
    """Minutes on the monotonic clock."""
    return (time.monotonic() - since) / 60


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into a wish that is granted between two steps."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def heard(number: int, _: Any) -> None:
        if stop.is_set():  # asked twice: now
            raise KeyboardInterrupt
        stop.set()

    for number in before:
        signal.signal(number, heard)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
