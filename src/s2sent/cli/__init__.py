"""The command line: one command, `s2sent`, with a verb for each thing the package does."""

from __future__ import annotations

from typing import Annotated

import typer

import s2sent
from s2sent.cli.adapt import adapt
from s2sent.cli.compare import compare
from s2sent.cli.encode import encode
from s2sent.cli.evaluate import evaluate
from s2sent.cli.export import export
from s2sent.cli.inspect import inspect
from s2sent.cli.reproduce import reproduce
from s2sent.cli.screen import errors_as_lines
from s2sent.cli.train import train

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


def main() -> None:
    """Run the command line."""
    with errors_as_lines():
        app()
