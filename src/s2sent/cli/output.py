"""Where the answer goes: to the screen, or to a file."""

import io
from pathlib import Path

from rich.console import Console, RenderableType

from s2sent.errors import ConfigError


def check_output(output: Path | None) -> None:
    """Raise unless the answer can be written to ``output``, before anything long is computed for it."""
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


def deliver(answer: str | RenderableType, output: Path | None) -> None:
    """Print to standard output, or write to ``output`` when it is given.

    A table on a pipe is as wide as it needs to be: cut columns help nobody who greps.
    """
    if output is None and isinstance(answer, str):
        print(answer)
        return
    if output is None:
        console = Console()
        Console(width=None if console.is_terminal else 240).print(answer)
        return
    if isinstance(answer, str):
        text = answer
    else:
        buffer = io.StringIO()
        Console(width=240, file=buffer).print(answer)
        text = buffer.getvalue().rstrip("\n")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}.") from error
