"""The log of a training run: a json object a line, TensorBoard files if it is installed, and a plot."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from s2sent.atomic import atomic_file
from s2sent.errors import S2SentError
from s2sent.figures import new_figure, save_figure
from s2sent.untrusted import Table, parse_json, read_bytes


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read a run's log, a dictionary a line; a line that was cut short by a crash is left out."""
    rows = []
    if path.exists():
        for line in read_bytes(path).split(b"\n"):
            with suppress(S2SentError):
                row = Table.of(parse_json(line, path), path)
                row.get("step", int)
                rows.append(row.values)
    return rows


class Log:
    """The log of a run: one json object a line, `step` in each.

    Args:
        folder: The folder of `log.jsonl` and of TensorBoard's files.
        upto: Lines of later steps are removed: a run that continues from a checkpoint takes those steps again.
        active: Whether this process writes the log.
    """

    def __init__(self, folder: Path, upto: int, active: bool = True) -> None:
        self.path = folder / "log.jsonl"
        self.active = active
        self.board: Any = None
        if not active:
            return
        folder.mkdir(parents=True, exist_ok=True)
        kept = [row for row in read_log(self.path) if row["step"] <= upto] if upto else []
        with atomic_file(self.path) as file:
            file.write("".join(json.dumps(row) + "\n" for row in kept).encode())
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self.board = SummaryWriter(str(folder), purge_step=upto + 1)

    def write(self, step: int, **values: float) -> None:
        """Add a line."""
        if not self.active:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush TensorBoard's writer."""
        if self.board is not None:
            self.board.close()

    def draw(self, path: Path, score_name: str) -> None:
        """Plot the loss and the score over the steps."""
        rows = read_log(self.path)
        figure = new_figure(7, 4)
        axes = figure.add_subplot()
        losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
        if losses:
            axes.plot(*zip(*losses, strict=True), color="0.6", linewidth=1)
            if max(loss for _, loss in losses) > 10 * min(loss for _, loss in losses) > 0:
                axes.set_yscale("log")
        axes.set_xlabel("step")
        axes.set_ylabel("loss", color="0.4")
        if scores := [(row["step"], row["score"]) for row in rows if "score" in row]:
            right = axes.twinx()
            right.plot(*zip(*scores, strict=True), color="C0", marker="o", markersize=3)
            right.set_ylabel(score_name, color="C0")
            best = max(scores, key=lambda pair: pair[1] if pair[0] else float("-inf"))
            right.plot(*best, marker="o", markersize=9, fillstyle="none", color="C0")
            axes.set_title(f"{score_name}: best {best[1]:.2f} at step {best[0]}", loc="left")
        save_figure(figure, path)
