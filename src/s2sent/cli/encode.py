"""`s2sent encode`: text in, vectors out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from s2sent.cli.screen import console, open_model, progress
from s2sent.errors import DataError


def encode(
    model: Annotated[str, typer.Argument(help="A model's folder, or its name on the hub.")],
    input: Annotated[Path, typer.Argument(help="Text: .txt (a sentence a line), .csv, .tsv, .jsonl or .parquet.")],
    output: Annotated[Path, typer.Argument(help="Vectors: .npy, or .parquet with the texts beside them.")],
    column: Annotated[
        str | None, typer.Option(help="The column with the text. Default: the only one, or text, or sentence.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="How many sentences go through the model at once.")] = 32,
) -> None:
    """Encode the sentences of a file into vectors, in the file's order."""
    from s2sent.data.text import read_texts
    from s2sent.encoding.files import check_output, encode_file

    if output.exists() and output.samefile(input):
        raise DataError(f"{output} is the input itself. Give the vectors a file of their own.")
    check_output(output)
    texts = read_texts(input, column)
    encoder = open_model(model)
    start = time.perf_counter()
    with progress() as bar:
        task = bar.add_task("Encoding", total=len(texts))
        vectors = encode_file(
            encoder, texts, output, batch_size=batch_size, on_progress=lambda done: bar.advance(task, done)
        )
    rate = len(texts) / (time.perf_counter() - start)
    console.print(f"{len(texts):,} vectors of {vectors.shape[1]} → {escape(str(output))} ({rate:,.0f}/s)")
