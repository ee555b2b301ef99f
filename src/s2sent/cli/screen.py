"""What the commands share: the consoles, the progress bar, errors, and where results go."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from s2sent.errors import ConfigError, S2SentError
from s2sent.listener import Listener
from s2sent.untrusted import shown

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)
LINE_EVERY = 60.0
"""Seconds between lines where there is no terminal for a bar."""


@contextmanager
def errors_as_lines() -> Iterator[None]:
    """Print an error that a user can make as one line, without a traceback, and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a file's name may have bytes that are not text
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
    except (S2SentError, OSError) as error:
        text = str(error)
        if isinstance(error, OSError):  # of a file that nothing above knows by name
            text = f"{shown(str(error.filename or 'A file'))}: {error.strerror or error}."
        errors.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("[bold red]interrupted[/]")
        sys.exit(130)


class RateColumn(ProgressColumn):
    """Items per second."""

    def render(self, task: Task) -> Text:
        """Show the rate once there is one."""
        rate = task.finished_speed or task.speed
        digits = 0 if rate and rate >= 10 else 2  # a training step may take seconds
        return Text(f"{rate:,.{digits}f}/s" if rate else "", style="progress.data.speed")


def progress(**options: float | bool) -> Progress:
    """Return a progress bar on the error stream: count, loss if there is one, rate, time left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        RateColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=errors, **options)  # type: ignore[arg-type]


class ProgressBar(Listener):
    """Shows the progress of `train` and `adapt`: on a terminal a bar, elsewhere a line now and then."""

    def __init__(self) -> None:
        self.bar = progress(transient=True, speed_estimate_period=300)  # steps may take long, and validations longer
        self.task = self.bar.add_task("Starting", total=None, loss="")
        self.last_line = time.monotonic()
        self.training = False

    def __enter__(self) -> Self:
        if errors.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def note(self, text: str) -> None:
        """Print a line."""
        errors.print(escape(text), soft_wrap=True)

    def status(self, what: str) -> None:
        """Name the bar."""
        self.bar.update(self.task, description=escape(what))
        if not errors.is_terminal and not self.training:
            self.note(f"{what} …")

    def progress(self, done: int, total: int, loss: float | None = None) -> None:
        """Move the bar; in training, show the loss."""
        text = "" if loss is None else f"loss {loss:.4g}"
        if self.bar.tasks[0].total != total:  # what was done before does not count towards the rate
            self.bar.reset(self.task, total=total, completed=done, loss=text)
        self.bar.update(self.task, completed=done, loss=text)
        if loss is not None:
            self.training = True
            self.bar.update(self.task, description="Training")
        if not errors.is_terminal and time.monotonic() - self.last_line > LINE_EVERY:
            self.last_line = time.monotonic()
            self.note(f"{done:,} of {total:,}  {text}".rstrip())

    def evaluated(self, step: int, score: float, is_best: bool) -> None:
        """Print a line for every score."""
        self.note(f"step {step:>6}  {score:6.2f}{'  best' if is_best else ''}")


def open_model(path: str, device: str | None = None) -> SentenceTransformer:
    """Load a model without the progress bars of the libraries."""
    from transformers.utils import logging

    from s2sent.model.load import open_encoder

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return open_encoder(path, device=device)


def check_output(output: Path | None) -> None:
    """Raise unless the result can be written to `output`, before anything long is computed."""
    if output is None:
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        new = not output.exists()
        with output.open("ab"):
            pass
        if new:
            output.unlink()
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}.") from error


def deliver(result: str | RenderableType, output: Path | None) -> None:
    """Print a result, or write it to `output`. Except on a terminal, a table is as wide as it needs to be."""
    if output is None and isinstance(result, str):
        print(result)
    elif output is None:
        Console(width=None if Console().is_terminal else 240).print(result)
    else:
        if not isinstance(result, str):
            buffer = io.StringIO()
            Console(width=240, file=buffer).print(result)
            result = buffer.getvalue().rstrip("\n")
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(result + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{output} cannot be written: {error.strerror}.") from error
