"""What a selector costs: parameters, latency, memory."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def count_parameters(module: nn.Module) -> int:
    """Return the number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def interleaved_seconds(
    runs: Mapping[str, Callable[[], Any]],
    rounds: int,
    around: Callable[[str], AbstractContextManager[Any]] = nullcontext,
) -> dict[str, list[float]]:
    """Time several runs side by side, every one once a round, so that what disturbs the machine disturbs all of them.

    Every other round goes backwards, so that none always has the same neighbour before it.

    Args:
        runs: What to time, by name. Each is run once before, untimed.
        rounds: How often.
        around: What each run, by its name, needs around it that is not to be timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(-1, rounds):
        for name in list(runs)[:: 1 if number % 2 == 0 else -1]:
            with around(name):
                start = time.perf_counter()
                runs[name]()
                elapsed = time.perf_counter() - start
            if number >= 0:
                seconds[name].append(elapsed)
    return seconds


def paired_ratios(seconds: Sequence[float], base_seconds: Sequence[float]) -> list[float]:
    """Return the ratio to the base, round by round."""
    return [own / base for own, base in zip(seconds, base_seconds, strict=True)]


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the half-width of its 95 % interval.

    From the spread of the middle half: a neighbour's burst is not noise of ours.
    """
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float(middle), float(1.96 * 1.2533 * (high - low) / 1.349 / np.sqrt(len(values)))


class _LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the memory of the tensors that are made while it is on, from birth to death."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._watched: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {
            leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        }
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().data_ptr() not in given:  # else a view
                self._watch(leaf.untyped_storage())
        return out

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key, size = storage.data_ptr(), storage.nbytes()
        if key in self._watched or size == 0:
            return

        def died(_: Any) -> None:
            self.live -= size
            del self._watched[key]

        self._watched[key] = weakref.ref(storage, died)
        self.live += size
        self.peak = max(self.peak, self.live)


def peak_memory(run: Callable[[], Any]) -> int:
    """Return how many bytes of new tensors are alive at the same time, at most, during `run`.

    Counts tensors, not the scratch space inside one operation. Repeatable to the byte, unlike a process's size.
    """
    tracker = _LiveBytes()
    with tracker:
        run()
    return tracker.peak
