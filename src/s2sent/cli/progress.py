"""The progress bar of `evaluate`, `compare` and `reproduce`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.markup import escape

from s2sent.cli.screen import errors, progress
from s2sent.listener import Listener


class Bar(Listener):
    """A bar on a terminal, gone when it is done, and a line for every result.

    Args:
        name: Printed before everything.
        stopped: Printed when the user stops the command.
    """

    def __init__(self, name: str = "", stopped: str = "Stopped. Finished tasks are kept for the next time.") -> None:
        self.name, self.stopped = name, stopped
        self.bar = progress(transient=True, speed_estimate_period=600)  # a batch may take long
        self.task = self.bar.add_task(escape(name), total=None, loss="")

    def __enter__(self) -> Self:
        if errors.is_terminal:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
        if kind is KeyboardInterrupt:
            errors.print(self.stopped, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a line: should the command be killed, people know what is saved."""
        errors.print(escape(f"{self.name} {text}".lstrip()), soft_wrap=True)

    def status(self, what: str) -> None:
        """Start a new bar."""
        self.bar.remove_task(self.task)
        self.task = self.bar.add_task(escape(f"{self.name} {what}".lstrip()), total=None, loss="")

    def progress(self, done: int, total: int, loss: float | None = None) -> None:
        """Move the bar; in training, show the loss."""
        self.bar.update(self.task, completed=done, total=total, loss="" if loss is None else f"loss {loss:.4g}")
