"""`s2sent inspect`: which blocks a model takes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from s2sent.cli.screen import console, open_model
from s2sent.figures import check_figure_path, save_figure

if TYPE_CHECKING:
    from s2sent.model.inspection import Inspection


def inspect(
    model: Annotated[str, typer.Argument(help="A model's folder, or its name on the hub.")],
    sentences: Annotated[list[str], typer.Argument(help="One or more sentences.")],
    plot: Annotated[
        Path | None, typer.Option(help="Also draw blocks × feature groups and the spectra: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Show the share of every block in each sentence's vector."""
    if plot is not None:
        check_figure_path(plot)
    from s2sent.model.inspection import draw
    from s2sent.model.inspection import inspect as look

    inspection = look(open_model(model), sentences)
    console.print(shares_table(inspection))
    if plot is not None:
        save_figure(draw(inspection), plot)
        console.print(f"Drawn to {escape(str(plot))}")


def shares_table(inspection: Inspection) -> Table:
    """Return the table of an inspection: a row per sentence, a column per block, shares in percent."""
    title = f"{inspection.what} of each block, % (mean over features)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    room = console.width - 7 * len(inspection.blocks) - 4
    table.add_column("sentence", width=max(12, min(room, max(map(len, inspection.sentences)))), no_wrap=True)
    for block in inspection.blocks:
        table.add_column(str(block) if block else "emb", justify="right", min_width=4)
    for sentence, shares in zip(inspection.sentences, inspection.shares.tolist(), strict=True):
        table.add_row(escape(" ".join(sentence.split())), *(f"{100 * share:.1f}" for share in shares))
    return table
