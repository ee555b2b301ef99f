"""Checkpoints of a training run, written atomically.

A checkpoint has the weights (train-only heads included), the optimizer's moments and the position in the data. It has
no random states: every step seeds itself (`distributed.seed_step`).
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from s2sent.atomic import atomic_folder, remove_folder
from s2sent.errors import DataError, S2SentError
from s2sent.model.weights import read_header
from s2sent.training.batches import Counts, Position, count
from s2sent.untrusted import Table

_STATE, _WEIGHTS, _OPTIMIZER = "state.json", "weights.safetensors", "optimizer.safetensors"
KEEP = 2
"""How many checkpoints are kept: the newest, and one more in case a disk loses the newest."""


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        step: How many steps were taken.
        position: Where it is in the data.
        best_step: The step with the best score so far.
        best_score: That score.
        before: The score before training.
        done: Whether only the model is left to save.
        counts: What was moved or left out of batches.
    """

    step: int = 0
    position: Position = field(default_factory=Position)
    best_step: int = 0
    best_score: float | None = None
    before: float | None = None
    done: bool = False
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def from_table(cls, values: Table) -> Self:
        """Make it from the values of a json file, checked."""
        values.only([option.name for option in fields(cls)])

        def score(name: str) -> float | None:
            return None if values.values.get(name) is None else values.get(name, float)

        return cls(
            step=count(values, "step"),
            position=Position.from_table(values.table("position")),
            best_step=count(values, "best_step"),
            best_score=score("best_score"),
            before=score("before"),
            done=values.get("done", bool),
            counts=Counts.from_table(values.table("counts")),
        )


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on the disk: how far the run was, and which run it is (`run`: its recipe, text and ranks)."""

    folder: Path
    progress: Progress
    run: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the state of a checkpoint, without its weights."""
        state = Table.read_json(folder / _STATE)
        run = state.table("run")
        run.get("recipe", dict)
        return cls(folder, Progress.from_table(state.table("progress")), run.values)

    def restore(self, loss: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Load weights and moments."""
        _load_weights(loss, self.folder / _WEIGHTS)
        parameters = dict(loss.named_parameters())
        optimizer.state.clear()
        for key, value in load_file(self.folder / _OPTIMIZER).items():
            kind, name = key.split(":", 1)
            # Fused and capturable AdamW want even the step count on the parameter's device.
            optimizer.state[parameters[name]][kind] = value.to(parameters[name].device)


class Checkpoints:
    """The checkpoints of one run, in one folder.

    Attributes:
        skipped: What `newest` could not use, and why, a line each.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.skipped: list[str] = []

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint; one that is damaged, or whose best step is, is skipped."""
        self.skipped.clear()
        for folder in sorted(self.folder.glob("step-*"), reverse=True):
            try:
                found = Checkpoint.read(folder)
                for path in (folder / _WEIGHTS, folder / _OPTIMIZER):
                    read_header(path)
                if found.progress.best_score is not None:
                    read_header(self._best(found.progress.best_step) / _WEIGHTS)
                return found
            except (OSError, S2SentError) as error:
                self.skipped.append(f"Skipped the checkpoint {folder}, which cannot be used: {error}")
        return None

    def write(self, loss: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, run: dict[str, Any]) -> None:
        """Write a checkpoint, then remove those that are no longer needed."""
        names: dict[Tensor, str] = {parameter: name for name, parameter in loss.named_parameters()}
        moments = {
            f"{kind}:{names[parameter]}": value.detach().cpu().contiguous()
            for parameter, moment in optimizer.state.items()
            for kind, value in moment.items()
        }
        target = self.folder / f"step-{progress.step:09d}"
        with atomic_folder(target, replace=True) as folder:
            save_file(_weights(loss), folder / _WEIGHTS)
            save_file(moments, folder / _OPTIMIZER)
            state = {"progress": asdict(progress), "run": run}
            (folder / _STATE).write_text(json.dumps(state), encoding="utf-8")
        steps = sorted(self.folder.glob("step-*"))
        kept = [step for step in steps if step <= target][-KEEP:]  # later ones were skipped as damaged
        for step in set(steps) - set(kept):
            shutil.rmtree(step, ignore_errors=True)
        self._remove_best(keep=progress.best_step)

    def write_best(self, loss: nn.Module, step: int) -> None:
        """Write the weights of the best step so far; the checkpoint that refers to it is written later."""
        with atomic_folder(self._best(step), replace=True) as folder:
            save_file(_weights(loss), folder / _WEIGHTS)
        self._remove_best(keep=step)

    def restore_best(self, loss: nn.Module, step: int) -> None:
        """Load the weights of the best step."""
        _load_weights(loss, self._best(step) / _WEIGHTS)

    def _best(self, step: int) -> Path:
        return self.folder / f"best-{step:09d}"

    def _remove_best(self, keep: int) -> None:
        # An older checkpoint that is kept may refer to an older best step.
        kept = {keep}
        for folder in self.folder.glob("step-*"):
            with suppress(S2SentError):
                kept.add(Checkpoint.read(folder).progress.best_step)
        for folder in set(self.folder.glob("best-*")) - set(map(self._best, kept)):
            shutil.rmtree(folder, ignore_errors=True)

    def clear(self) -> None:
        """Remove all checkpoints."""
        remove_folder(self.folder)


def _weights(loss: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers; one that several modules share is there once."""
    seen: set[int] = set()
    weights: dict[str, Tensor] = {}
    for name, tensor in loss.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            weights[name] = tensor.detach().cpu().contiguous().clone()
    return weights


@torch.no_grad()
def _load_weights(loss: nn.Module, path: Path) -> None:
    saved = load_file(path)
    current = loss.state_dict()
    if missing := sorted(set(saved) - set(current)):
        raise DataError(f"{path} has weights the model does not have ({missing[0]}, …). It is of another recipe.")
    for name, tensor in saved.items():
        current[name].copy_(tensor)
