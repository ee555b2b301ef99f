"""`s2sent train`: text and a backbone in, a model folder out."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from s2sent.cli import screen
from s2sent.cli.options import options_of, parse, selection_options, split_selection, with_options
from s2sent.errors import ConfigError
from s2sent.options import help_texts
from s2sent.selection.config import SelectionConfig
from s2sent.training.recipes import DEFAULT_SELECTION, PRESETS, RECIPES, Recipe, recipe_class
from s2sent.untrusted import Table, read_toml

_RUN = "Run"


@with_options(
    [
        *selection_options(DEFAULT_SELECTION.to_dict()),
        *options_of(tuple(RECIPES.values()), skip=("corpus", "selection"), short={"backbone": "b"}),
    ]
)
def train(
    corpus: Annotated[list[str] | None, typer.Argument(help=help_texts(Recipe)["corpus"])] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The folder for the model.")] = None,
    objective: Annotated[
        str | None, typer.Option(metavar="|".join(RECIPES), help="What is trained. Default: simcse.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe.toml; options that are given as well go on top.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(PRESETS),
            help="Published values: the S²Sent paper's, or those of each method's own authors.",
        ),
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Remove what an earlier run wrote to the output.")] = False,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Steps between checkpoints. Default: every five minutes.", rich_help_panel=_RUN)
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where to train. Default: the best device there is.", rich_help_panel=_RUN)
    ] = None,
    **options: Any,
) -> None:
    """Train a sentence encoder on your own text.

    After an interruption, even a power cut, the same command continues from the last checkpoint and ends with the same
    model, bit for bit. With several devices: `torchrun --nproc-per-node 2 -m s2sent train …`.
    """
    if output is None:
        raise ConfigError("Say where the model goes: --output FOLDER.")
    selection, given = split_selection(parse((*RECIPES.values(), SelectionConfig), options))
    given |= {"corpus": corpus} if corpus else {}
    is_main = os.environ.get("RANK", "0") == "0"  # of several processes, one reports
    with screen.errors.status("Starting") if is_main else nullcontext():  # the imports take seconds
        from transformers.utils import logging

        from s2sent.training.loop import train as run
        from s2sent.training.output import AlreadyTrainedError

        chosen = _recipe(given, selection, objective, recipe, preset)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with screen.ProgressBar() if is_main else nullcontext() as bar:
            result = run(
                chosen, output, restart=restart, checkpoint_every=checkpoint_every, device=device, listener=bar
            )
    except AlreadyTrainedError as done:  # the same command again: nothing is left to do
        if is_main:
            screen.console.print(escape(str(done)))
        return
    if not result.is_main:
        return
    screen.console.print(escape(result.data), soft_wrap=True)
    for name, score in result.scores.items():
        screen.console.print(f"{escape(name)}: {score:.2f}")
    screen.console.print(f"Step {result.best_step} of {result.steps} → {escape(str(output))}", soft_wrap=True)


def _recipe(
    given: dict[str, Any], selection: dict[str, Any], objective: str | None, file: Path | None, preset: str | None
) -> Recipe:
    """Return the recipe: the values of the file or the preset, with what was given on top."""
    from s2sent.data.corpus import Corpus
    from s2sent.training.setup import family_of

    if file is not None:
        if preset is not None:
            raise ConfigError("--recipe has all values already: give it without --preset.")
        values = read_toml(file)
        if objective is not None and objective != values.get("objective"):
            raise ConfigError(f"{file} is for the objective {values.get('objective')!r}, not {objective!r}.")
        values["selection"] = {**Table(values, file, ConfigError).get("selection", dict, {}), **selection}
        return Recipe.in_file(file, {**values, **given})
    names = {"corpus": "the text's files", "backbone": "--backbone"}
    if missing := [text for name, text in names.items() if name not in given]:
        raise ConfigError(f"Give {' and '.join(missing)}, or a --recipe that has them.")
    kind = recipe_class("simcse" if objective is None else objective)
    known = {one.name: one.default for one in fields(kind)}
    if foreign := sorted(set(given) - set(known)):
        raise ConfigError(f"--{foreign[0].replace('_', '-')} is not an option of the objective {kind.objective!r}.")
    Corpus(given["corpus"], given.get("columns", known["columns"])).check()  # before the hub is asked for a backbone
    if preset is None:
        return kind(selection=selection, **given)  # type: ignore[arg-type]
    return kind.preset(preset, family_of(given["backbone"]), selection=selection, **given)
