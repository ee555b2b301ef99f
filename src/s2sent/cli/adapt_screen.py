"""What a person sees while a model is adapted."""

from __future__ import annotations

import time

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from s2sent.cli.screen import RateColumn, errors
from s2sent.cli.train_screen import LINE_EVERY
from s2sent.training.adapt import AdaptListener


class Screen(AdaptListener):
    """A bar for the pass, a line for what is done now."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn())
        self.bar = Progress(*columns, TimeRemainingColumn(), console=errors, transient=True)
        self.task = self.bar.add_task("Starting", total=None)
        self.spoke = time.monotonic()

    def note(self, text: str) -> None:
        """A line."""
        errors.print(escape(text), soft_wrap=True)

    def doing(self, what: str) -> None:
        """The bar's name."""
        self.bar.update(self.task, description=escape(what))
        if not errors.is_terminal:
            self.note(f"{what} …")

    def encoding(self, done: int, texts: int) -> None:
        """Move the bar; where there is none, a line now and then."""
        self.bar.update(self.task, completed=done, total=texts)
        if not errors.is_terminal and time.monotonic() - self.spoke > LINE_EVERY:
            self.spoke = time.monotonic()
            self.note(f"{done:,} of {texts:,} texts")
