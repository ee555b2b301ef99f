"""What every verb of the command line shares: the screen, and opening a model without chatter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


class RateColumn(ProgressColumn):
    """Things per second, from what has been done so far."""

    def render(self, task: Task) -> Text:
        """Show the rate once there is one."""
        rate = task.finished_speed or task.speed
        digits = 0 if rate and rate >= 10 else 2  # a training step may take seconds
        return Text(f"{rate:,.{digits}f}/s" if rate else "", style="progress.data.speed")


def progress() -> Progress:
    """Return a progress bar on the error stream: count, rate, time left."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn(), TimeRemainingColumn())
    return Progress(*columns, console=errors)


def open_model(path: str, device: str | None = None) -> SentenceTransformer:
    """Load a model for a command: its own bars and notes would only get in the way of ours."""
    from transformers.utils import logging

    from s2sent.model.load import load_in_torch

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return load_in_torch(path, device=device)
