"""`s2sent train`: text and a backbone in, a model folder out."""

from __future__ import annotations

import os
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from s2sent.cli.screen import console, errors
from s2sent.errors import ConfigError, S2SentError


class Objective(StrEnum):
    """What is trained on."""

    SIMCSE = "simcse"
    SUPERVISED = "supervised"
    PROMPTCSE = "promptcse"
    WHITENED = "whitened"


class Preset(StrEnum):
    """Whose values are the defaults."""

    PAPER = "paper"
    ORIGINAL = "original"


_MODEL, _RUN, _MORE = "The model", "The run", "Of single objectives"


def train(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text: .txt (a sentence a line), .csv, .tsv, .jsonl, .parquet, also .gz or .zst; or a dataset's id "
            "on the hub."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The folder for the model.")] = None,
    backbone: Annotated[str | None, typer.Option("--backbone", "-b", help="A folder, or a name on the hub.")] = None,
    objective: Annotated[Objective | None, typer.Option(help="Default: simcse.")] = None,
    recipe: Annotated[Path | None, typer.Option(help="A recipe.toml; what is given besides goes on top.")] = None,
    preset: Annotated[
        Preset | None,
        typer.Option(help="Published values as a whole: the S²Sent paper's, or those of the method's own authors."),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="The column with the text; two or three times for pairs and triplets.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Throw away what an earlier run left in OUTPUT.")] = False,
    blocks: Annotated[
        int | None, typer.Option(help="Select from the last so many blocks. Default: 3.", rich_help_panel=_MODEL)
    ] = (None),
    frequencies: Annotated[
        int | None, typer.Option(help="DCT frequencies. Default: 4.", rich_help_panel=_MODEL)
    ] = None,
    reduction: Annotated[
        int | None, typer.Option(help="Of the bottleneck. Default: 12.", rich_help_panel=_MODEL)
    ] = None,
    squeeze: Annotated[str | None, typer.Option(help="dct, gap or none.", rich_help_panel=_MODEL)] = None,
    scale: Annotated[str | None, typer.Option(help="mean, orthonormal or sum.", rich_help_panel=_MODEL)] = None,
    fusion: Annotated[str | None, typer.Option(help="stack, average or last.", rich_help_panel=_MODEL)] = None,
    activation: Annotated[str | None, typer.Option(help="relu or tanh.", rich_help_panel=_MODEL)] = None,
    gate: Annotated[
        str | None, typer.Option(help="sigmoid, linear (the default), static or none.", rich_help_panel=_MODEL)
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="Start from uniform shares or from the last block (the default).", rich_help_panel=_MODEL),
    ] = None,
    pooling: Annotated[str | None, typer.Option(help="mean, cls or mask.", rich_help_panel=_MODEL)] = None,
    head: Annotated[str | None, typer.Option(help="none or mlp (only in training).", rich_help_panel=_MODEL)] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the text. Default: 1; supervised: 3.", rich_help_panel=_RUN)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="At most so many steps.", rich_help_panel=_RUN)] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Examples per step and device. Default: 64; supervised: 32.", rich_help_panel=_RUN),
    ] = None,
    mini_batch_size: Annotated[
        int | None, typer.Option(help="GradCache: so many in memory at a time.", rich_help_panel=_RUN)
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Default: 3e-5; promptcse: 1e-5; supervised: 5e-5.", rich_help_panel=_RUN)
    ] = None,
    selector_learning_rate: Annotated[
        float | None, typer.Option(help="Default: the same.", rich_help_panel=_RUN)
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Default: 0.05.", rich_help_panel=_RUN)] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens per text in training. Default: 32.", rich_help_panel=_RUN)
    ] = None,
    by_length: Annotated[
        bool | None,
        typer.Option("--by-length/--shuffled", help="Batches of like lengths (the default).", rich_help_panel=_RUN),
    ] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Steps. Default: 125.", rich_help_panel=_RUN)] = None,
    dev: Annotated[
        str | None,
        typer.Option(
            help="What decides the best step: auto, stsb, heldout, none, or a csv with sentence1, sentence2, score.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Default: 42.", rich_help_panel=_RUN)] = None,
    precision: Annotated[str | None, typer.Option(help="fp32 (the default) or bf16.", rich_help_panel=_RUN)] = None,
    gradient_checkpointing: Annotated[
        bool | None, typer.Option("--gradient-checkpointing", help="Less memory, more time.", rich_help_panel=_RUN)
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Steps. Default: every five minutes.", rich_help_panel=_RUN)
    ] = None,
    device: Annotated[str | None, typer.Option(help="Default: the best there is.", rich_help_panel=_RUN)] = None,
    template: Annotated[
        str | None, typer.Option(help="promptcse: a text with {sentence} and {mask}.", rich_help_panel=_MORE)
    ] = None,
    other_template: Annotated[
        str | None, typer.Option(help="promptcse: the second view's.", rich_help_panel=_MORE)
    ] = None,
    denoise: Annotated[
        bool | None, typer.Option(help="promptcse: take the template's share out.", rich_help_panel=_MORE)
    ] = None,
    groups: Annotated[
        int | None, typer.Option(help="whitened: groups of features. Default: pairs.", rich_help_panel=_MORE)
    ] = None,
    views: Annotated[
        int | None, typer.Option(help="whitened: views per sentence, the anchor too.", rich_help_panel=_MORE)
    ] = None,
    mlm_weight: Annotated[
        float | None, typer.Option(help="simcse: share of a masked-language loss.", rich_help_panel=_MORE)
    ] = None,
) -> None:
    """Train a sentence encoder on your own text.

    Interrupted, even by a power cut, the same command goes on from the last checkpoint and ends with the very same
    model. With several devices: `torchrun --nproc-per-node 2 -m s2sent train …`.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    selection = {name: given.pop(name) for name in _SELECTION if name in given}
    run = {
        name: given.pop(name, None) for name in ("output", "recipe", "preset", "restart", "checkpoint_every", "device")
    }
    if output is None:
        raise ConfigError("Say where the model shall go: --output FOLDER.")
    is_main = os.environ.get("RANK", "0") == "0"  # of several processes, one speaks
    with errors.status("Starting") if is_main else nullcontext():  # the imports alone take seconds
        from transformers.utils import logging

        from s2sent.cli import screen
        from s2sent.training.loop import train as go
        from s2sent.training.output import AlreadyTrainedError

        chosen = _recipe(given, selection, run["recipe"], run["preset"])
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with screen.ProgressBar() if is_main else nullcontext() as bar:
            done = go(
                chosen,
                output,
                restart=restart,
                checkpoint_every=checkpoint_every,
                device=device,
                listener=bar,
            )
    except AlreadyTrainedError as said:  # the same command again, as after an interruption: nothing is left to do
        if is_main:
            console.print(escape(str(said)))
        return
    if not done.is_main:
        return
    console.print(escape(done.data), soft_wrap=True)
    for name, score in done.scores.items():
        console.print(f"{escape(name)}: {score:.2f}")
    console.print(f"Step {done.best_step} of {done.steps} → {escape(str(output))}", soft_wrap=True)


_SELECTION = ("blocks", "frequencies", "reduction", "squeeze", "scale", "fusion", "activation", "gate", "prior")


def _recipe(given: dict[str, Any], selection: dict[str, Any], file: Path | None, preset: Preset | None) -> Any:
    """Put the recipe together: the file's or the preset's values, and on top what was given."""
    from s2sent.data.corpus import Corpus
    from s2sent.training.recipes import Recipe, recipe_class
    from s2sent.untrusted import Table, read_toml

    if "column" in given:
        given["columns"] = tuple(given.pop("column"))
    if file is not None:
        if preset is not None:
            raise ConfigError("--recipe has all values already: --preset goes without it.")
        values = read_toml(file)
        if "objective" in given and given["objective"] != values.get("objective"):
            raise ConfigError(f"{file} is for the objective {values.get('objective')!r}, not {given['objective']!s}.")
        given.pop("objective", None)
        values["selection"] = {**Table(values, file, ConfigError).get("selection", dict, {}), **selection}
        return Recipe.in_file(file, {**values, **given})
    if missing := [
        f"--{name}" if name == "backbone" else "the text's files"
        for name in ("corpus", "backbone")
        if name not in given
    ]:
        raise ConfigError(f"Give {' and '.join(missing)}, or a --recipe that has them.")
    kind = recipe_class(str(given.pop("objective", "simcse")))
    columns = given.get("columns", getattr(kind, "columns", ()))
    Corpus(given["corpus"], columns).check()  # before the hub is asked for a backbone
    options = {"selection": selection, **_known(kind, given)}
    return kind(**options) if preset is None else kind.preset(str(preset), _family(given["backbone"]), **options)


def _known(kind: Any, given: dict[str, Any]) -> dict[str, Any]:
    from dataclasses import fields

    if foreign := sorted(set(given) - {field.name for field in fields(kind)}):
        raise ConfigError(f"--{foreign[0].replace('_', '-')} is not an option of the objective {kind.objective!r}.")
    return given


def _family(backbone: str) -> Any:
    """Which preset fits a backbone: RoBERTa's kin, or everybody else."""
    from s2sent.model.folder import check_model, locate
    from s2sent.untrusted import Table

    try:
        encoder = check_model(locate(backbone)).modules[0]
        kind = Table.read_json(encoder / "config.json").get("model_type", str, "")
    except S2SentError:  # loading it will say what is wrong, if anything is
        return "bert"
    return "roberta" if "roberta" in kind else "bert"
