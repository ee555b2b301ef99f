"""The command line: one command, `s2sent`, with a verb for each thing the package does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Annotated

import typer
from rich.markup import escape

import s2sent
from s2sent.cli.adapt import adapt
from s2sent.cli.compare import compare
from s2sent.cli.encode import encode
from s2sent.cli.evaluate import evaluate
from s2sent.cli.export import export
from s2sent.cli.inspect import inspect
from s2sent.cli.reproduce import reproduce
from s2sent.cli.screen import errors
from s2sent.cli.train import train
from s2sent.errors import S2SentError
from s2sent.untrusted import shown

app = typer.Typer(
    name="s2sent",
    help="Sentence vectors that select, per feature, what each block of a Transformer knows.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (adapt, train, encode, evaluate, compare, inspect, export, reproduce):
    app.command()(verb)


def _version(wanted: bool) -> None:
    if wanted:
        print(s2sent.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version


def _say(error: str) -> None:
    errors.print(f"[bold red]error:[/] {escape(error)}", soft_wrap=True)
    sys.exit(1)


@contextmanager
def mistakes_in_a_line() -> Iterator[None]:
    """A mistake of the user's is said in a line, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a file's name may have bytes that are no text
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
    except S2SentError as error:
        _say(str(error))
    except OSError as error:  # of a file that nothing above knows by name
        _say(f"{shown(str(error.filename or 'A file'))}: {error.strerror or error}.")
    except KeyboardInterrupt:
        errors.print("[bold red]interrupted[/]")
        sys.exit(130)


def main() -> None:
    """Run the command line."""
    with mistakes_in_a_line():
        app()
