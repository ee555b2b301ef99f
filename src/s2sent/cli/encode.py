"""`s2sent encode`: files of texts in, a file of vectors out."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from s2sent.cli.engine import Engine
from s2sent.cli.screen import console, errors, progress
from s2sent.errors import ConfigError
from s2sent.vectors.precision import Precision

_ADVANCED = "Advanced"


def encode(
    model: Annotated[str, typer.Argument(help="A model's folder, or its name on the hub.")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...", help=".txt (a text a line), .csv, .tsv, .jsonl, .parquet; .gz, .zst; globs; - is stdin."
        ),
    ],
    output: Annotated[Path, typer.Argument(help="Vectors: .parquet, .npy, .safetensors or .jsonl.")],
    column: Annotated[str | None, typer.Option(help="The column with the text.")] = None,
    id_column: Annotated[str | None, typer.Option(help="The column with each row's id. Default: 0, 1, 2, …")] = None,
    precision: Annotated[Precision, typer.Option(help="Of the written vectors.")] = Precision.FLOAT32,
    dim: Annotated[int | None, typer.Option(help="Keep the first so many features.")] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Give vectors length 1.")] = False,
    with_text: Annotated[bool, typer.Option("--with-text", help="Keep the texts (.parquet, .jsonl).")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Remove what an interrupted run left; replace a finished output.")
    ] = False,
    long: Annotated[
        str, typer.Option(help="Too long texts: truncate, or mean (split and average).", rich_help_panel=_ADVANCED)
    ] = "truncate",
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 if a line has no vector.", rich_help_panel=_ADVANCED)
    ] = False,
    stdin_format: Annotated[str, typer.Option(help="txt, csv, tsv or jsonl.", rich_help_panel=_ADVANCED)] = "txt",
    device: Annotated[str | None, typer.Option(help="Default: the best there is.", rich_help_panel=_ADVANCED)] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Tokens to a batch. Default: by device.", rich_help_panel=_ADVANCED)
    ] = None,
    shard_lines: Annotated[int, typer.Option(help="Lines saved at a time.", rich_help_panel=_ADVANCED)] = 8192,
    engine: Annotated[
        Engine, typer.Option(help="This machine, or a Ray cluster.", rich_help_panel=_ADVANCED)
    ] = Engine.LOCAL,
    workers: Annotated[
        str | None, typer.Option(help="With ray: how many, such as 8, or 2:64 to scale.", rich_help_panel=_ADVANCED)
    ] = None,
) -> None:
    """Encode texts into vectors, in their order.

    Run an interrupted command again to continue it. Lines without a vector are listed in OUTPUT.bad.jsonl.
    """
    from s2sent.vectors.files import encode as encode_files

    if workers is not None and engine is not Engine.RAY:
        raise ConfigError("--workers is for --engine ray. On this machine all cores work on one batch after the other.")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with ExitStack() as screen:
        bar = progress()
        task = bar.add_task("Encoding", total=None, loss="")

        def show(lines: int, expected: int | None) -> None:
            if not bar.live.is_started:  # an error is printed without a bar above it
                screen.enter_context(bar)
            bar.update(task, completed=lines, total=expected)

        try:
            done = encode_files(
                model,
                inputs,
                output,
                column=column,
                id_column=id_column,
                precision=precision,
                dim=dim,
                normalize=normalize,
                with_text=with_text,
                restart=restart,
                long=long,
                stdin_format=stdin_format,
                device=device,
                batch_tokens=batch_tokens,
                shard_lines=shard_lines,
                engine=engine,
                workers=_pool(workers),
                on_progress=show,
            )
        except KeyboardInterrupt:
            errors.print("What is done is kept. Run the same command again to continue.")
            raise
    notes = [f"{done.lines:,} lines", f"{done.vectors:,} vectors of {done.width}"]
    if done.long:
        notes.append(f"{done.long:,} longer than the model takes, {'cut' if long == 'truncate' else 'averaged'}")
    if done.bad:
        notes.append(f"{done.bad:,} without a vector, listed in {done.bad_file}")
    if done.done_before:
        text = f"Done already: {', '.join(notes)} → {output}. To encode again: --restart"
    else:
        notes += [f"{done.resumed:,} done before"] if done.resumed else []
        text = f"{', '.join([*notes, f'{done.seconds:,.1f} s, {done.rate:,.0f} lines/s'])} → {output}"
    console.print(escape(text), soft_wrap=True)
    if strict and done.bad:
        raise typer.Exit(3)


def _pool(workers: str | None) -> tuple[int, int] | None:
    if workers is None:
        return None
    least, _, most = workers.partition(":")
    if not least.isdigit() or (most and not most.isdigit()) or not 1 <= int(least) <= int(most or least):
        raise ConfigError(f"--workers must be a number, such as 8, or two, such as 2:64, got {workers}.")
    return int(least), int(most or least)
