"""`s2sent adapt`: an encoder and some examples in, a better model out, in seconds after one pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from s2sent.cli.screen import ProgressBar, console, errors
from s2sent.errors import ConfigError

if TYPE_CHECKING:
    from s2sent.training.adapt import AdaptResult

_FORM, _TRAINING, _RUN = "The form", "The training", "The run"
_SELECTION = ("blocks", "gate", "frequencies", "reduction", "squeeze", "scale", "prior", "bias")


def adapt(
    model: Annotated[str | None, typer.Argument(help="The model: a folder, or a name on the hub.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Triplets, pairs, scored pairs or plain text: .csv, .tsv, .jsonl, .parquet, .txt, also .gz or .zst; "
            "or a dataset's id on the hub."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The folder for the adapted model.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="A column with text, again for each: one, a pair, a triplet. Default: by their names."),
    ] = None,
    score_column: Annotated[str | None, typer.Option(help="The column with the score of a pair.")] = None,
    form: Annotated[
        list[str] | None,
        typer.Option(
            help="as-is, blocks, features or gate, each also with +map; again for several. Default: a short list.",
            rich_help_panel=_FORM,
        ),
    ] = None,
    depth: Annotated[
        str | None,
        typer.Option(
            help="Keep so many of the encoder's blocks, or auto: the fewest that lose nothing.", rich_help_panel=_FORM
        ),
    ] = None,
    blocks: Annotated[
        str | None,
        typer.Option(help="The last so many (6), or their numbers (0,1,2; 0: embeddings).", rich_help_panel=_FORM),
    ] = None,
    gate: Annotated[str | None, typer.Option(help="linear or sigmoid (the paper's).", rich_help_panel=_FORM)] = None,
    bias: Annotated[
        bool | None, typer.Option("--bias/--no-bias", help="One logit per block.", rich_help_panel=_FORM)
    ] = None,
    frequencies: Annotated[int | None, typer.Option(help="DCT bases of the gate.", rich_help_panel=_FORM)] = None,
    reduction: Annotated[int | None, typer.Option(help="Of the gate's bottleneck.", rich_help_panel=_FORM)] = None,
    squeeze: Annotated[str | None, typer.Option(help="dct, gap or none.", rich_help_panel=_FORM)] = None,
    scale: Annotated[str | None, typer.Option(help="mean, orthonormal or sum.", rich_help_panel=_FORM)] = None,
    prior: Annotated[
        str | None, typer.Option(help="Start from uniform weights or the last block.", rich_help_panel=_FORM)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Of each form.", rich_help_panel=_TRAINING)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples to a step.", rich_help_panel=_TRAINING)] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the loss.", rich_help_panel=_TRAINING)] = None,
    gate_learning_rate: Annotated[float | None, typer.Option(rich_help_panel=_TRAINING)] = None,
    bias_learning_rate: Annotated[float | None, typer.Option(rich_help_panel=_TRAINING)] = None,
    map_learning_rate: Annotated[
        list[float] | None, typer.Option(help="Again for several: the best is kept.", rich_help_panel=_TRAINING)
    ] = None,
    held_out: Annotated[
        float | None, typer.Option(help="Share of the examples to judge by.", rich_help_panel=_TRAINING)
    ] = None,
    seed: Annotated[int | None, typer.Option(rich_help_panel=_TRAINING)] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(help="Everything from a recipe.toml; what is given besides wins.", rich_help_panel=_RUN),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Replace the adapted model in the output.", rich_help_panel=_RUN)
    ] = False,
    states: Annotated[
        Path | None, typer.Option(help="Keep the encoder's states here. Default: in the cache.", rich_help_panel=_RUN)
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, or bf16 for the pass through the encoder.", rich_help_panel=_RUN)
    ] = None,
    device: Annotated[str | None, typer.Option(help="Default: the best there is.", rich_help_panel=_RUN)] = None,
) -> None:
    """Adapt a frozen encoder to your examples: one pass over the texts, then seconds for every form of selection.

    The form that is best on held-out examples is kept; the model stays as it is where none is better. The encoder's
    weights do not change. Interrupted, the same command goes on.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    if output is None:
        raise ConfigError("Say where the adapted model goes: --output FOLDER.")
    with errors.status("Starting"):  # the imports alone take seconds
        from transformers.utils import logging

        from s2sent.training.adapt import adapt as run

        chosen = _recipe(given, recipe)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with ProgressBar() as bar:
            result = run(recipe=chosen, output=output, restart=restart, states=states, device=device, listener=bar)
    except KeyboardInterrupt:
        errors.print("What was encoded is kept. Run the same command again to go on.")
        raise
    _show(result, output)


def _recipe(given: dict[str, Any], file: Path | None) -> Any:
    """Put the recipe together: the file's values, and what was given on top."""
    from dataclasses import fields

    from s2sent.training.adapt_recipe import AdaptRecipe
    from s2sent.untrusted import read_toml

    values: dict[str, Any] = read_toml(file) if file is not None else {}
    selection = {name: given[name] for name in _SELECTION if name in given}
    if "blocks" in selection:
        selection["blocks"] = _blocks(selection["blocks"])
    renamed = {"column": "columns", "form": "forms", "map_learning_rate": "map_learning_rates"}
    options = {renamed.get(name, name): value for name, value in given.items()}
    known = {option.name for option in fields(AdaptRecipe)} - {"selection"}
    values.update({name: value for name, value in options.items() if name in known})
    if isinstance(values.get("depth"), str) and values["depth"].isdecimal() and values["depth"].isascii():
        values["depth"] = int(values["depth"])
    if selection:
        before = values.get("selection", {})
        if not isinstance(before, dict):
            raise ConfigError(f"{file}: selection must be a table of options, got {before!r}.")
        values["selection"] = {**before, **selection}
        # Options of the gate mean the gate, where no form is named.
        if "forms" not in values and set(selection) - {"blocks"}:
            values["forms"] = ["gate"]
    if missing := [what for name, what in (("model", "a model"), ("data", "examples")) if not values.get(name)]:
        raise ConfigError(f"Give {' and '.join(missing)}, or a --recipe that has them.")
    return AdaptRecipe.from_dict(values) if file is None else AdaptRecipe.in_file(file, values)


def _blocks(text: str) -> int | tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--blocks must be a number (6) or numbers (0,1,2), got {text!r}.") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _show(result: AdaptResult, output: Path) -> None:
    """The forms as a table, the depths as another, and what was kept."""
    from s2sent.training.adapt import share_text

    if result.kept is None:
        console.print(escape(" ".join(result.notes)), soft_wrap=True)
        return
    base = result.forms[0]
    table = Table(box=None, pad_edge=False)
    for name in ("form", "held-out loss", "lower by", "parameters", "share of embeddings and blocks, %"):
        table.add_column(name, justify="left" if name.startswith(("form", "share")) else "right")
    for one in result.forms:
        gain, error = one.gain(base)
        style = "bold" if one is result.kept else ""
        cells = (
            one.form.name,
            f"{one.loss:.4f} ± {one.error:.4f}",
            "" if one is base else f"{gain:+.4f} ± {error:.4f}",
            f"{one.parameters:,}",
            share_text(one.shares),
        )
        table.add_row(*map(escape, cells), style=style)
    console.print(table)
    if result.depths:
        depths = Table(box=None, pad_edge=False)
        for name in ("blocks", "held-out loss", "relative cost"):
            depths.add_column(name, justify="right")
        for depth in result.depths:
            style = "bold" if depth.result is result.kept else ""
            loss = f"{depth.result.loss:.4f} ± {depth.result.error:.4f}"
            depths.add_row(str(depth.depth), loss, f"{depth.cost:.2f}", style=style)
        console.print(depths)
    said = f"{result.kept.form.name} is kept"
    if result.speedup is not None:
        said += f", and the upper blocks are removed: {result.speedup:.1f} times as fast"
    spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in result.seconds.items())
    console.print(escape(f"{said} ({spent}) → {output}"), soft_wrap=True)
    console.print(escape(f"The encoder's states are kept in {result.states}, for another run."), soft_wrap=True)
