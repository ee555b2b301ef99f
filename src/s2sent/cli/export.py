"""`s2sent export`: a model as one graph."""

from __future__ import annotations

import os
from enum import StrEnum
from itertools import islice
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
    bf16 = "bf16"
    int8 = "int8"


class Runtime(StrEnum):
    """What runs the exported model."""

    onnxruntime = "onnxruntime"
    openvino = "openvino"


def export(
    model: Annotated[str, typer.Argument(help="A model's folder, or its name on the hub.")],
    output: Annotated[Path, typer.Argument(help="The folder to write.")],
    runtime: Annotated[
        Runtime, typer.Option(help="openvino is faster; other programs run onnxruntime's graph, too.")
    ] = Runtime.onnxruntime,
    precision: Annotated[
        Precision,
        typer.Option(help="bf16 (openvino) and int8 are faster; their loss on STS-B is measured and printed."),
    ] = Precision.fp32,
    calibration: Annotated[
        Path | None, typer.Option(help="For int8 in openvino: a file with lines like those that will be encoded.")
    ] = None,
    data: Data = None,
) -> None:
    """Export a model to onnxruntime or OpenVINO: one graph and a tokenizer, which run without torch.

    s2sent.load, encode, evaluate and compare take the folder like any model.
    """
    from s2sent.data.corpus import Corpus
    from s2sent.model.load import no_bars
    from s2sent.runtime.export import export as write

    texts = None if calibration is None else [text for text, *_ in islice(Corpus([str(calibration)]), 100_000)]
    with no_bars(), errors.status("Exporting"):
        done = write(
            model,
            output,
            runtime=runtime.value,
            precision=precision.value,
            calibration=texts,
        )
    console.print(
        f"{escape(str(output))}: {done.runtime}, {done.precision}, {done.size / 1e6:,.1f} MB, "
        f"cosine distance to torch at most {max(done.distance, 0):.1e}"
    )
    for note in done.notes:
        console.print(escape(note), soft_wrap=True)
    if precision is not Precision.fp32:
        console.print(measured_loss(model, output, data, precision.value), soft_wrap=True)


def measured_loss(model: str, output: Path, data: str | None, precision: str) -> str:
    """Say how much STS-B loses in bf16 or int8."""
    from s2sent.cli.progress import Bar
    from s2sent.evaluation.suite import evaluate

    source = data or os.environ.get("S2SENT_DATA") or "pypi"
    text = "raw" if source == "pypi" or source.endswith(".whl") else "file"
    scores = []
    try:
        for path, title in ((model, "torch"), (str(output), precision)):
            with Bar(title) as bar:
                report = evaluate(path, "STS-B", data=source, text=text, listener=bar)
            scores.append(report["STS-B"].headline())
    except DataError as error:
        return escape(f"The loss was not measured: STS-B could not be read. {error}")
    before, after = scores
    return f"STS-B (test, Spearman × 100): {before:.2f} in torch, {after:.2f} in {precision} ({after - before:+.2f})"
