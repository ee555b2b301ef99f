"""Several processes that train together, as `torchrun` and `accelerate launch` start them; or just this one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from s2sent.errors import ConfigError


def best_device() -> str:
    """Return where to train if nobody says: this machine's accelerator, if there is one."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if accelerator is None else str(accelerator.type)


@dataclass(frozen=True)
class Ranks:
    """Who this process is among those that train together."""

    rank: int
    world: int
    device: torch.device

    @classmethod
    def join(cls, device: str | None = None) -> Self:
        """Find the others, if the environment says there are any."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        device = device or best_device()
        try:
            where = torch.device(device, local) if device == "cuda" and world > 1 else torch.device(device)
            torch.empty(1, device=where)  # it may be known by name alone
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(
                f"device={device!r} cannot be used here ({str(error).partition('. ')[0]}). Leave it out to train on "
                f"{best_device()!r}."
            ) from error
        if world > 1 and not dist.is_initialized():
            # The host's gather with gradient; its replacement is not public yet.
            warnings.filterwarnings("ignore", r"torch\.distributed\.nn\.functional\.all_gather is deprecated")
            dist.init_process_group("nccl" if where.type == "cuda" else "gloo")
        if where.type == "cuda" and world > 1:
            torch.cuda.set_device(where)
        return cls(int(os.environ.get("RANK", "0")) if world > 1 else 0, world, where)

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def leave(self) -> None:
        """Part from the others."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def wait(self) -> None:
        """Wait for the others."""
        if self.world > 1:
            dist.barrier()

    def agree(self, *wishes: bool) -> list[bool]:
        """Do what any of the ranks wishes, all of them."""
        if self.world == 1:
            return list(wishes)
        flags = torch.tensor(wishes, dtype=torch.int32, device=self.device)
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return [bool(flag) for flag in flags.tolist()]

    def mean(self, value: Tensor) -> Tensor:
        """Average a number over the ranks."""
        if self.world > 1:
            value = value.clone()
            dist.all_reduce(value)
            value = value / self.world
        return value

    def from_leader(self, value: float) -> float:
        """Tell everybody the leader's number."""
        if self.world > 1:
            told = torch.tensor(value, dtype=torch.float64, device=self.device)
            dist.broadcast(told, src=0)
            value = told.item()
        return value

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average the gradients over the ranks, in one message.

        By hand, not by DDP: losses that replay the encoder (GradCache), or run it for more than the loss, are no
        different here, and neither are parameters without a gradient.
        """
        if self.world == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = _flatten_dense_tensors(gradients)  # type: ignore[no-untyped-call]
        dist.all_reduce(flat)
        flat /= self.world
        for gradient, averaged in zip(gradients, _unflatten_dense_tensors(flat, gradients), strict=True):  # type: ignore[no-untyped-call]
            gradient.copy_(averaged)

    def share_weights(self, module: nn.Module) -> None:
        """Give everybody the weights of rank 0."""
        if self.world > 1:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)
