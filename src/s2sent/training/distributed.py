"""The processes that train together, as `torchrun` and `accelerate launch` start them: ranks, devices, seeds."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from s2sent.errors import ConfigError


def best_device() -> str:
    """Return the default device: this machine's accelerator, if there is one."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if accelerator is None else str(accelerator.type)


_BF16_TRIAL = """
import torch
layer = torch.nn.Linear(64, 64)
with torch.autocast("cpu", torch.bfloat16):
    loss = torch.nn.functional.scaled_dot_product_attention(*[layer(torch.randn(2, 4, 16, 64))] * 3).sum()
loss.backward()
"""
_SPEED_TRIAL = """
import time, torch
x, seconds = torch.randn(1024, 768), {}
for dtype in (torch.float32, torch.bfloat16) * 4:
    y = x.to(dtype)
    start = time.perf_counter()
    y @ y.T
    seconds[dtype] = min(seconds.get(dtype, 9), time.perf_counter() - start)
print(seconds[torch.float32] / seconds[torch.bfloat16])
"""


def bf16_problem(device: torch.device) -> str | None:
    """Return why bf16 cannot be used on a device; None if it can.

    Some CPUs report AMX and then fail with an illegal instruction, which no process can catch. So it is tried in
    another.
    """
    if device.type == "cuda":
        return None if torch.cuda.is_bf16_supported() else "this GPU has no bfloat16"
    if device.type != "cpu":
        return None
    trial = subprocess.run([sys.executable, "-c", _BF16_TRIAL], capture_output=True, check=False)
    if trial.returncode == 0:
        return None
    why = f"signal {-trial.returncode}" if trial.returncode < 0 else f"exit code {trial.returncode}"
    return f"bfloat16 arithmetic kills a process on this CPU ({why})"


@cache
def fastest_precision(device: torch.device) -> Literal["fp32", "bf16"]:
    """Return `bf16` where a device computes clearly faster in it, else `fp32`."""
    if device.type != "cpu":
        return "fp32" if bf16_problem(device) else "bf16"
    trial = subprocess.run([sys.executable, "-c", _SPEED_TRIAL], capture_output=True, text=True, check=False)
    return "bf16" if trial.returncode == 0 and float(trial.stdout) > 1.3 else "fp32"


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together."""

    rank: int
    world: int
    device: torch.device

    @classmethod
    def join(cls, device: str | None = None) -> Self:
        """Join the process group that the environment describes, if any."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        device = device or best_device()
        try:
            where = torch.device(device, local) if device == "cuda" and world > 1 else torch.device(device)
            torch.empty(1, device=where)  # torch may know the name of a device that is not there
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(
                f"device={device!r} cannot be used here ({str(error).partition('. ')[0]}). Leave it out to train on "
                f"{best_device()!r}."
            ) from error
        if world > 1 and not dist.is_initialized():
            # Used by sentence-transformers' gather with gradient; its replacement is not public yet.
            warnings.filterwarnings("ignore", r"torch\.distributed\.nn\.functional\.all_gather is deprecated")
            dist.init_process_group("nccl" if where.type == "cuda" else "gloo")
        if where.type == "cuda" and world > 1:
            torch.cuda.set_device(where)
        return cls(int(os.environ.get("RANK", "0")) if world > 1 else 0, world, where)

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self.rank == 0

    def leave(self) -> None:
        """Leave the process group."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world > 1:
            dist.barrier()

    def any_rank(self, *flags: bool) -> list[bool]:
        """Return for each flag whether any rank has set it."""
        if self.world == 1:
            return list(flags)
        found = torch.tensor(flags, dtype=torch.int32, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return [bool(flag) for flag in found.tolist()]

    def mean(self, value: Tensor) -> Tensor:
        """Average a number over the ranks."""
        if self.world > 1:
            value = value.clone()
            dist.all_reduce(value)
            value = value / self.world
        return value

    def broadcast(self, value: float) -> float:
        """Return the number that rank 0 has."""
        if self.world > 1:
            sent = torch.tensor(value, dtype=torch.float64, device=self.device)
            dist.broadcast(sent, src=0)
            value = sent.item()
        return value

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average the gradients over the ranks, in one message.

        Unlike DDP, this works for losses that run the encoder twice (GradCache) and for parameters without a gradient.
        """
        if self.world == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = _flatten_dense_tensors(gradients)  # type: ignore[no-untyped-call]
        dist.all_reduce(flat)
        flat /= self.world
        for gradient, averaged in zip(gradients, _unflatten_dense_tensors(flat, gradients), strict=True):  # type: ignore[no-untyped-call]
            gradient.copy_(averaged)

    def broadcast_weights(self, module: nn.Module) -> None:
        """Copy the weights of rank 0 to all ranks."""
        if self.world > 1:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)


def seed_step(seed: int, step: int, rank: int) -> None:
    """Make a step's dropout a function of (seed, step, rank), so that there is no random state to save."""
    digest = hashlib.sha256(f"{seed} {step} {rank}".encode()).digest()
    number = int.from_bytes(digest[:8], "little") >> 1
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into an event that is read between two steps; the second signal interrupts at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def request(number: int, _: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    for number in before:
        signal.signal(number, request)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
