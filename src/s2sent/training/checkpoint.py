"""Checkpoints that are whole or not there: written beside their place, forced to the disk, then renamed.

A checkpoint has the weights (train-only heads included), the optimizer's moments and the position in the data.
Random states are not in it, for there are none to keep: every step seeds itself (`process.seed_step`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from s2sent.atomic import sync, write_error
from s2sent.errors import DataError, S2SentError
from s2sent.model.weights import read_header
from s2sent.training.batches import Position
from s2sent.untrusted import Table

_STATE, _WEIGHTS, _OPTIMIZER = "state.json", "weights.safetensors", "optimizer.safetensors"
KEEP = 2
"""How many checkpoints stay: the newest, and one more should a disk lose the newest."""


@dataclass
class Progress:
    """How far a run has come.

    Attributes:
        step: How many steps are behind it.
        position: Where it is in the data.
        best_step: Which step had the best score so far, and
        best_score: what it was.
        before: The untrained model's score.
        done: Whether there is nothing left but to save the model.
        duplicates: How often a text was moved to a later batch, being in one already.
        leftover: How many examples found no place.
        no_text: How many the tokenizer found no text in.
    """

    step: int = 0
    position: Position = field(default_factory=Position)
    best_step: int = 0
    best_score: float | None = None
    before: float | None = None
    done: bool = False
    duplicates: int = 0
    leftover: int = 0
    no_text: int = 0

    @classmethod
    def from_table(cls, values: Table) -> Self:
        """Make it from plain values, as `dataclasses.asdict` gives them, checked."""
        values.only([option.name for option in fields(cls)])
        counts = {name: values.get(name, int, 0) for name in ("step", "best_step", "duplicates", "leftover", "no_text")}
        for name, count in counts.items():
            if count < 0:
                raise values.fail(name, f"must be at least 0, got {count}")

        def score(name: str) -> float | None:
            return None if values.values.get(name) is None else values.get(name, float)

        position, done = Position.from_table(values.table("position")), values.get("done", bool, False)
        return cls(position=position, done=done, best_score=score("best_score"), before=score("before"), **counts)


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint on the disk: how far the run was, and what run it is (`run`: its recipe, text and ranks)."""

    folder: Path
    progress: Progress
    run: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what a checkpoint says of itself; its weights are looked at elsewhere."""
        state = Table.read_json(folder / _STATE)
        run = state.table("run")
        run.get("recipe", dict)
        return cls(folder, Progress.from_table(state.table("progress")), run.values)

    def restore(self, loss: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Put weights and moments back in place."""
        load_weights(loss, self.folder / _WEIGHTS)
        moments = load_file(self.folder / _OPTIMIZER)
        by_name = dict(loss.named_parameters())
        optimizer.state.clear()
        for key, value in moments.items():
            kind, name = key.split(":", 1)
            # Fused and capturable AdamW want even the step count on the parameter's device.
            optimizer.state[by_name[name]][kind] = value.to(by_name[name].device)


class Checkpoints:
    """The checkpoints of one run, in one folder.

    Attributes:
        passed_over: What `newest` could not use, and why, a line each.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.passed_over: list[str] = []

    def newest(self) -> Checkpoint | None:
        """Return the newest whole checkpoint; one that is damaged, or whose best step is, is passed over."""
        self.passed_over.clear()
        for folder in sorted(self.folder.glob("step-*"), reverse=True):
            try:
                found = Checkpoint.read(folder)
                for path in (folder / _WEIGHTS, folder / _OPTIMIZER):
                    read_header(path)
                if found.progress.best_score is not None:
                    read_header(self._best(found.progress.best_step) / _WEIGHTS)
                return found
            except (OSError, S2SentError) as error:
                self.passed_over.append(f"Passed over the checkpoint {folder}, which cannot be used: {error}")
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
        with whole_folder(target) as folder:
            save_file(weights_of(loss), folder / _WEIGHTS)
            save_file(moments, folder / _OPTIMIZER)
            state = {"progress": asdict(progress), "run": run}
            (folder / _STATE).write_text(json.dumps(state), encoding="utf-8")
        steps = sorted(self.folder.glob("step-*"))
        kept = [step for step in steps if step <= target][-KEEP:]  # those beyond it were passed over
        for step in set(steps) - set(kept):
            shutil.rmtree(step, ignore_errors=True)
        self._forget_best(keep=progress.best_step)

    def write_best(self, loss: nn.Module, step: int) -> None:
        """Keep the weights of the best step so far. The checkpoint that knows of it is written later."""
        with whole_folder(self._best(step)) as folder:
            save_file(weights_of(loss), folder / _WEIGHTS)
        self._forget_best(keep=step)

    def restore_best(self, loss: nn.Module, step: int) -> None:
        """Put the weights of the best step in place."""
        load_weights(loss, self._best(step) / _WEIGHTS)

    def _best(self, step: int) -> Path:
        return self.folder / f"best-{step:09d}"

    def _forget_best(self, keep: int) -> None:
        # Older checkpoints may still name an older best: those of the checkpoints that stay are kept.
        kept = {keep}
        for folder in self.folder.glob("step-*"):
            with suppress(S2SentError):
                kept.add(Checkpoint.read(folder).progress.best_step)
        for folder in set(self.folder.glob("best-*")) - set(map(self._best, kept)):
            shutil.rmtree(folder, ignore_errors=True)

    def clear(self) -> None:
        """Remove them all: at once as anybody sees it, for half of them would be a run that cannot go on."""
        gone = self.folder.with_name(".checkpoints-removed")
        shutil.rmtree(gone, ignore_errors=True)  # of a run that was killed right here
        if self.folder.exists():
            self.folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Give a folder to write into that becomes `target` when all is written, and vanishes when that fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for cut_short in target.parent.glob(".writing-*"):
        shutil.rmtree(cut_short, ignore_errors=True)
    writing = target.parent / f".writing-{target.name}"
    try:
        writing.mkdir()
        yield writing
        for path in writing.rglob("*"):
            if path.is_file():
                sync(path)
        sync(writing)
        if target.exists():
            shutil.rmtree(target)
        writing.rename(target)
        sync(target.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(writing, ignore_errors=True)
        raise write_error(target, error) from error
    except BaseException:
        shutil.rmtree(writing, ignore_errors=True)
        raise


def weights_of(loss: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers, each once though several modules may share it."""
    seen: dict[int, str] = {}
    weights: dict[str, Tensor] = {}
    for name, tensor in loss.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen[id(tensor)] = name
            weights[name] = tensor.detach().cpu().contiguous().clone()
    return weights


@torch.no_grad()
def load_weights(loss: nn.Module, path: Path) -> None:
    """Copy weights that `weights_of` gave back to where they came from."""
    saved = load_file(path)
    current = loss.state_dict()
    if missing := sorted(set(saved) - set(current)):
        raise DataError(f"{path} has weights the model does not have ({missing[0]}, …). It is of another recipe.")
    for name, tensor in saved.items():
        current[name].copy_(tensor)
