"""`s2sent export`: a model out to onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from s2sent.cli.evaluate import Data
from s2sent.cli.screen import console, errors
from s2sent.errors import DataError


def export(
    model: Annotated[str, typer.Argument(help="A model's folder, or its name on the hub.")],
    output: Annotated[Path, typer.Argument(help="The folder to write.")],
    int8: Annotated[
        bool, typer.Option("--int8", help="Multiply in 8-bit integers; the loss on STS-B is measured and shown.")
    ] = False,
    data: Data = None,
) -> None:
    """Write a model as one ONNX graph with its tokenizer: it then runs without torch.

    `s2sent.load`, `encode`, `evaluate` and `compare` take the folder as they take a model's; so do bare onnxruntime
    and fastembed.
    """
    from transformers.utils import logging

    from s2sent.model.export import export as write

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with errors.status("Exporting"):
        done = write(model, output, int8=int8)
    console.print(
        f"{escape(str(output))}: {done.precision}, {done.size / 1e6:,.1f} MB, cosine distance to torch at most "
        f"{max(done.distance, 0):.1e}"
    )
    for note in done.notes:
        console.print(escape(note), soft_wrap=True)
    if int8:
        console.print(_loss(model, output, data), soft_wrap=True)


def _loss(model: str, output: Path, data: str | None) -> str:
    """Say what the integers cost, measured."""
    from s2sent.cli.progress import Bar
    from s2sent.evaluation.suite import evaluate

    scores = []
    try:
        for path, title in ((model, "torch"), (str(output), "int8")):
            with Bar(title) as bar:
                scores.append(evaluate(path, "STS-B", data=data, listener=bar)["STS-B"].headline())
    except DataError as error:
        return escape(f"The loss was not measured: there is no STS-B. {error}")
    before, after = scores
    return f"STS-B (test, Spearman × 100): {before:.2f} in torch, {after:.2f} in int8 ({after - before:+.2f})"
