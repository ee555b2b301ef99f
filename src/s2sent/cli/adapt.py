"""`s2sent adapt`: an encoder and some examples in, a better model out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from s2sent.cli.options import options_of, parse, selection_options, split_selection, with_options
from s2sent.cli.screen import ProgressBar, console, errors
from s2sent.errors import ConfigError
from s2sent.options import help_texts
from s2sent.selection.config import SelectionConfig
from s2sent.training.adapt_recipe import AdaptRecipe
from s2sent.untrusted import read_toml

if TYPE_CHECKING:
    from s2sent.training.adapt import AdaptResult

_RUN = "Run"


@with_options(
    [
        *options_of([AdaptRecipe], skip=("model", "data", "selection")),
        *selection_options({"blocks": "all, embeddings included", "gate": "linear", "bias": True}, skip=("fusion",)),
    ]
)
def adapt(
    model: Annotated[str | None, typer.Argument(help=help_texts(AdaptRecipe)["model"])] = None,
    data: Annotated[list[str] | None, typer.Argument(help=help_texts(AdaptRecipe)["data"])] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The folder for the adapted model.")] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe.toml; options that are given as well go on top.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Replace the adapted model in the output.")] = False,
    states: Annotated[
        Path | None,
        typer.Option(help="The folder for the encoder's states. Default: in the cache.", rich_help_panel=_RUN),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where to run. Default: the best device there is.", rich_help_panel=_RUN)
    ] = None,
    **options: Any,
) -> None:
    """Adapt a frozen encoder to your examples: one pass over the texts, then seconds for every form of selection.

    The form that is best on held-out examples is kept; where none is better than the model as it is, that is kept. The
    encoder's weights do not change. After an interruption, the same command continues.
    """
    if output is None:
        raise ConfigError("Say where the adapted model goes: --output FOLDER.")
    selection, given = split_selection(parse([AdaptRecipe, SelectionConfig], options))
    given |= ({"model": model} if model else {}) | ({"data": data} if data else {})
    chosen = _recipe(given, selection, recipe)
    with errors.status("Starting"):  # the imports take seconds
        from transformers.utils import logging

        from s2sent.training.adapt import adapt as run
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with ProgressBar() as bar:
            result = run(recipe=chosen, output=output, restart=restart, states=states, device=device, listener=bar)
    except KeyboardInterrupt:
        errors.print("What was encoded is kept. The same command continues.")
        raise
    _show(result, output)


def _recipe(given: dict[str, Any], selection: dict[str, Any], file: Path | None) -> AdaptRecipe:
    """Return the recipe: the values of the file, with what was given on top."""
    values: dict[str, Any] = read_toml(file) if file is not None else {}
    values.update(given)
    if selection:
        before = values.get("selection", {})
        if not isinstance(before, dict):
            raise ConfigError(f"{file}: selection must be a table of options, got {before!r}.")
        values["selection"] = {**before, **selection}
        if "forms" not in values and set(selection) - {"blocks"}:  # options of the gate mean the gate
            values["forms"] = ["gate"]
    if missing := [what for name, what in (("model", "a model"), ("data", "examples")) if not values.get(name)]:
        raise ConfigError(f"Give {' and '.join(missing)}, or a --recipe that has them.")
    return AdaptRecipe.from_dict(values) if file is None else AdaptRecipe.in_file(file, values)


def _show(result: AdaptResult, output: Path) -> None:
    """Print the forms as a table, the depths as another, and what was kept."""
    from s2sent.training.adapt import share_text

    if result.kept is None:
        console.print(escape(" ".join(result.notes)), soft_wrap=True)
        return
    base = result.forms[0]
    rows = []
    for one in result.forms:
        gain, error = one.gain(base)
        lower = "" if one is base else f"{gain:+.4f} ± {error:.4f}"
        loss = f"{one.loss:.4f} ± {one.error:.4f}"
        rows.append((one, (one.form.name, loss, lower, f"{one.parameters:,}", share_text(one.shares))))
    columns = ("form", "held-out loss", "lower by", "parameters", "share of embeddings and blocks, %")
    console.print(_table(columns, rows, result.kept))
    if result.depths:
        depths = [
            (one.result, (str(one.depth), f"{one.result.loss:.4f} ± {one.result.error:.4f}", f"{one.cost:.2f}"))
            for one in result.depths
        ]
        console.print(_table(("blocks", "held-out loss", "relative cost"), depths, result.kept))
    said = f"{result.kept.form.name} is kept"
    if result.speedup is not None:
        said += f", and the upper blocks are removed: {result.speedup:.1f} times as fast"
    spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in result.seconds.items())
    console.print(escape(f"{said} ({spent}) → {output}"), soft_wrap=True)
    console.print(escape(f"The encoder's states are kept in {result.states}, for another run."), soft_wrap=True)


def _table(columns: Sequence[str], rows: Iterable[tuple[object, Sequence[str]]], kept: object) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name.startswith(("form", "share")) else "right")
    for one, cells in rows:
        table.add_row(*map(escape, cells), style="bold" if one is kept else "")
    return table
