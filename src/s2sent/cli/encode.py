"""`s2sent encode`: text in, vectors out."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from s2sent.cli.engine import Engine
from s2sent.cli.screen import console, errors, progress
from s2sent.errors import ConfigError
from s2sent.vectors.precision import Precision


class Long(StrEnum):
    """What becomes of a text that is longer than the model takes."""

    TRUNCATE = "truncate"
    MEAN = "mean"


class StdinFormat(StrEnum):
    """What standard input may be."""

    TXT = "txt"
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"


_VECTORS, _RUN = "The vectors", "The run"


def encode(
    model: Annotated[str, typer.Argument(help="A model's folder, or its name on the hub.")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Texts: .txt (a text a line), .csv, .tsv, .jsonl, .parquet, also .gz or .zst; globs; - for standard "
            "input.",
        ),
    ],
    output: Annotated[Path, typer.Argument(help="Vectors: .parquet, .npy, .safetensors or .jsonl.")],
    column: Annotated[
        str | None, typer.Option(help="The column with the text. Default: the only one, or text, or sentence.")
    ] = None,
    id: Annotated[
        str | None, typer.Option(help="The column with each row's id. Default: rows counted over all inputs, from 0.")
    ] = None,
    stdin_format: Annotated[StdinFormat, typer.Option(help="What comes from standard input.")] = StdinFormat.TXT,
    precision: Annotated[Precision, typer.Option(help="How they are kept.", rich_help_panel=_VECTORS)] = (
        Precision.FLOAT32
    ),
    dim: Annotated[int | None, typer.Option(help="Keep the first so many features.", rich_help_panel=_VECTORS)] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="To length 1.", rich_help_panel=_VECTORS)] = False,
    long: Annotated[
        Long,
        typer.Option(
            help="Texts beyond the model's limit: cut, or split there and averaged by length.",
            rich_help_panel=_VECTORS,
        ),
    ] = Long.TRUNCATE,
    with_text: Annotated[
        bool, typer.Option("--with-text", help="Keep the texts, too (parquet, jsonl).", rich_help_panel=_VECTORS)
    ] = False,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Throw away what an interrupted run left; write over a finished output.",
            rich_help_panel=_RUN,
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 if a line has no vector.", rich_help_panel=_RUN)
    ] = False,
    engine: Annotated[Engine, typer.Option(help="This machine, or a Ray cluster.", rich_help_panel=_RUN)] = (
        Engine.LOCAL
    ),
    workers: Annotated[
        str | None, typer.Option(help="With ray: how many, such as 8, or 2:64 to scale.", rich_help_panel=_RUN)
    ] = None,
    device: Annotated[str | None, typer.Option(help="Default: the best there is.", rich_help_panel=_RUN)] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Tokens to a batch. Default: by device.", rich_help_panel=_RUN)
    ] = None,
    shard_lines: Annotated[int, typer.Option(help="Lines that are saved at a time.", rich_help_panel=_RUN)] = 8192,
) -> None:
    """Encode texts into vectors, in their order.

    Interrupted at any instant, the same command goes on where it stopped; finished, it has nothing to do. A line that
    cannot be encoded (empty, not UTF-8, without the field) has no vector and is listed in OUTPUT.bad.jsonl.
    """
    from s2sent.vectors.files import encode as encode_files

    if workers is not None and engine is not Engine.RAY:
        raise ConfigError("--workers is for --engine ray. On this machine all cores work on one batch after the other.")
    _be_quiet()
    with ExitStack() as screen:
        bar = progress()
        task = bar.add_task("Encoding", total=None, loss="")

        def show(lines: int, expected: int | None) -> None:
            if not bar.live.is_started:  # a mistake is said without a bar above it
                screen.enter_context(bar)
            bar.update(task, completed=lines, total=expected)

        try:
            done = encode_files(
                model,
                inputs,
                output,
                column=column,
                id_column=id,
                stdin_format=stdin_format,
                precision=precision,
                dim=dim,
                normalize=normalize,
                long=long,
                with_text=with_text,
                shard_lines=shard_lines,
                batch_tokens=batch_tokens,
                device=device,
                restart=restart,
                engine=engine,
                workers=_pool(workers),
                on_progress=show,
            )
        except KeyboardInterrupt:
            errors.print("What is done is kept. Run the same command again to go on.")
            raise
    notes = [f"{done.lines:,} lines", f"{done.vectors:,} vectors of {done.width}"]
    if done.long:
        notes.append(f"{done.long:,} longer than the model takes, {'cut' if long == Long.TRUNCATE else 'averaged'}")
    if done.bad:
        notes.append(f"{done.bad:,} without a vector, listed in {done.bad_file}")
    if done.done_before:
        said = f"Done already: {', '.join(notes)} → {output}. To encode again: --restart"
    else:
        notes += [f"{done.resumed:,} done before"] if done.resumed else []
        said = f"{', '.join([*notes, f'{done.seconds:,.1f} s, {done.rate:,.0f} lines/s'])} → {output}"
    console.print(escape(said), soft_wrap=True)
    if strict and done.bad:
        raise typer.Exit(3)


def _pool(workers: str | None) -> tuple[int, int] | None:
    if workers is None:
        return None
    least, _, most = workers.partition(":")
    if not least.isdigit() or (most and not most.isdigit()) or not 1 <= int(least) <= int(most or least):
        raise ConfigError(f"--workers {workers} is not legal. Give a number, such as 8, or two, such as 2:64.")
    return int(least), int(most or least)


def _be_quiet() -> None:
    """The host's bars and notes would only get in the way of ours; an exported model comes without it."""
    import os

    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
