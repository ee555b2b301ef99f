"""What a person sees while a run lasts: a bar on the error stream, with scores and notes as lines above it."""

from __future__ import annotations

import time
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from s2sent.cli.screen import RateColumn, errors
from s2sent.training.log import Listener

LINE_EVERY = 60.0
"""Seconds between lines where there is no terminal to draw a bar on."""


class Screen(Listener):
    """On a terminal: what is being done, and in training loss, rate and time left. Elsewhere: a line now and then."""

    def __init__(self) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}"),
            RateColumn(),
            TimeRemainingColumn(),
            console=errors,
            transient=True,
            speed_estimate_period=300,  # steps may take long, and validations take longer
        )
        self.task = self.bar.add_task("Starting", total=None, loss="")
        self.total = 0
        self.spoke = time.monotonic()

    def __enter__(self) -> Self:
        if errors.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def note(self, text: str) -> None:
        """A line."""
        errors.print(escape(text), soft_wrap=True)

    def doing(self, what: str) -> None:
        """The bar's name; its length stays unknown until training starts."""
        if errors.is_terminal:
            self.bar.update(self.task, description=escape(what))
        elif not self.total:
            self.note(f"{what} …")

    def start(self, done: int, total: int) -> None:
        """Now the length is known."""
        self.total = total
        self.bar.reset(self.task, total=total, completed=done, description="Training")

    def step(self, step: int, loss: float) -> None:
        """Move the bar."""
        self.bar.update(self.task, completed=step, description="Training", loss=f"loss {loss:.4g}")
        if not errors.is_terminal and time.monotonic() - self.spoke > LINE_EVERY:
            self.spoke = time.monotonic()
            self.note(f"step {step:>6} of {self.total}  loss {loss:.4g}")

    def evaluated(self, step: int, score: float, is_best: bool) -> None:
        """A line for every score."""
        self.note(f"step {step:>6}  {score:6.2f}{'  best' if is_best else ''}")
