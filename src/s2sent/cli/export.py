"""`s2sent export`: a model as an ONNX graph."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from s2sent.cli.evaluate import Data
from s2sent.cli.screen import console, errors
from s2sent.errors import DataError


class Precision(StrEnum):
    """What the exported model multiplies in."""

    fp32 = "fp32"
    int8 = "int8"


def export(
    model: Annotated[str, typer.Argument(help="A model's folder, or its name on the hub.")],
    output: Annotated[Path, typer.Argument(help="The folder to write.")],
    precision: Annotated[
        Precision, typer.Option(help="int8 is smaller and faster; its loss on STS-B is measured and printed.")
    ] = Precision.fp32,
    data: Data = None,
) -> None:
    """Export a model to ONNX: one graph and a tokenizer, which run without torch.

    s2sent.load, encode, evaluate and compare take the folder like any model; so do onnxruntime and fastembed.
    """
    from s2sent.model.load import no_bars
    from s2sent.runtime.export import export as write

    with no_bars(), errors.status("Exporting"):
        done = write(model, output, precision=precision.value)
    console.print(
        f"{escape(str(output))}: {done.precision}, {done.size / 1e6:,.1f} MB, cosine distance to torch at most "
        f"{max(done.distance, 0):.1e}"
    )
    for note in done.notes:
        console.print(escape(note), soft_wrap=True)
    if precision is Precision.int8:
        console.print(measured_loss(model, output, data), soft_wrap=True)


def measured_loss(model: str, output: Path, data: str | None) -> str:
    """Say how much STS-B loses in int8."""
    from s2sent.cli.progress import Bar
    from s2sent.evaluation.suite import evaluate

    source = data or os.environ.get("S2SENT_DATA") or "pypi"
    text = "raw" if source == "pypi" or source.endswith(".whl") else "file"
    scores = []
    try:
        for path, title in ((model, "torch"), (str(output), "int8")):
            with Bar(title) as bar:
                report = evaluate(path, "STS-B", data=source, text=text, listener=bar)
            scores.append(report["STS-B"].headline())
    except DataError as error:
        return escape(f"The loss was not measured: STS-B could not be read. {error}")
    before, after = scores
    return f"STS-B (test, Spearman × 100): {before:.2f} in torch, {after:.2f} in int8 ({after - before:+.2f})"
