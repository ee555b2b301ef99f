"""Tables for people and for papers: terminal, markdown, LaTeX, csv, json."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from s2sent.evaluation.result import Report, TaskResult

if TYPE_CHECKING:
    from s2sent.evaluation.comparison import Comparison


class Format(StrEnum):
    """How a table is written."""

    TABLE = "table"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"
    JSON = "json"


@dataclass(frozen=True)
class Entry:
    """A number as text, and its marks."""

    text: str
    best: bool = False
    significant: bool = False


@dataclass(frozen=True)
class Grid:
    """Rows of entries under named columns, and what stands below."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    below: tuple[str, ...] = ()

    def render(self, style: Format) -> str | RenderableType:
        """The table in this format; json and csv have their own functions, for they hold more than the table shows."""
        if style is Format.MARKDOWN:
            return self._markdown()
        return self._latex() if style is Format.LATEX else self._rich()

    def _markdown(self) -> str:
        def marked(entry: Entry) -> str:
            text = f"**{entry.text}**" if entry.best else entry.text
            return f"<u>{text}</u>" if entry.significant else text

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

        lines = [line(["", *self.columns]), line(["---", *["---:"] * len(self.columns)])]
        lines += [line([name, *map(marked, entries)]) for name, entries in self.rows]
        return "\n".join([*lines, *(f"\n{text}" for text in self.below)])

    def _latex(self) -> str:
        def marked(entry: Entry) -> str:
            text = entry.text.replace(" ± ", "$_{\\pm ") + "}$" if " ± " in entry.text else entry.text
            text = f"\\textbf{{{text}}}" if entry.best else text
            return f"\\underline{{{text}}}" if entry.significant else text

        def line(cells: Sequence[str]) -> str:
            return " & ".join(cells) + r" \\"

        lines = [f"\\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\toprule"]
        lines += [line(["", *map(_latex_text, self.columns)]), r"\midrule"]
        lines += [line([_latex_text(name), *map(marked, entries)]) for name, entries in self.rows]
        lines += [r"\bottomrule", r"\end{tabular}", *(f"% {text}" for text in self.below)]
        return "\n".join(lines)

    def _rich(self) -> RenderableType:
        table = Table()
        table.add_column("")
        for column in self.columns:
            table.add_column(column, justify="right", no_wrap=True)
        for name, entries in self.rows:
            cells = []
            for entry in entries:
                style = " ".join([*(["bold"] if entry.best else []), *(["underline"] if entry.significant else [])])
                cells.append(f"[{style}]{entry.text}[/]" if style else entry.text)
            table.add_row(escape(name), *cells)
        # Not as the table's caption, which would be as narrow as the table.
        return Group(table, *(Text(text, style="dim italic") for text in self.below))


def report_grid(report: Report, intervals: dict[str, tuple[float, float]] | None = None) -> Grid:
    """One model's scores as a table of one row, or two with ``intervals`` (low and high by column)."""
    scores = report.headlines()
    rows = [(report.model, tuple(Entry(f"{value:.2f}") for value in scores.values()))]
    if intervals is not None:
        shown = [intervals.get(column) for column in scores]
        rows.append(("95 % interval", tuple(Entry("" if it is None else f"{it[0]:.1f}–{it[1]:.1f}") for it in shown)))
    return Grid(tuple(scores), tuple(rows), tuple(report.notes))


def blocks_grid(blocks: dict[str, list[TaskResult]]) -> Grid:
    """STS scores by block, the best block of every task marked."""
    tasks = tuple(result.task for result in next(iter(blocks.values())))
    table = {name: [result.headline() for result in results] for name, results in blocks.items()}
    best = [max(values[column] for values in table.values()) for column in range(len(tasks))]
    rows = tuple(
        (name, tuple(Entry(f"{value:.2f}", best=value == best[column]) for column, value in enumerate(values)))
        for name, values in table.items()
    )
    notes = [note for result in next(iter(blocks.values())) for note in result.notes]
    return Grid(tasks, rows, ("Mean over tokens of each block's states; Spearman × 100.", *notes))


def comparison_grid(comparison: Comparison) -> Grid:
    """Methods by tasks with the paper's marks: bold for the best, underlined for significantly better."""
    rows = []
    for name, cells in comparison.rows.items():
        entries = []
        for column in comparison.columns:
            cell = cells[column]
            text = f"{cell.mean:.2f}" + ("" if cell.std is None else f" ± {cell.std:.2f}")
            entries.append(Entry(text, cell.best and len(comparison.rows) > 1, cell.significant))
        rows.append((name, tuple(entries)))
    return Grid(comparison.columns, tuple(rows), (comparison.how, *comparison.notes))


def report_csv(reports: Sequence[Report]) -> str:
    """One line for each model and task."""
    rows = [
        [report.model, task, value, report.aggregation.value, report.text, report.probes]
        for report in reports
        for task, value in report.headlines().items()
    ]
    return _csv(["model", "task", "score", "aggregation", "text", "probes"], rows)


def comparison_csv(comparison: Comparison) -> str:
    """One line for each method and task, with everything that was tested."""
    fields = ["mean", "std", "runs", "low", "high", "difference", "p", "wilcoxon", "p_holm", "best", "significant"]
    rows = [
        [name, column, *(getattr(cell, field) for field in fields)]
        for name, cells in comparison.rows.items()
        for column, cell in cells.items()
    ]
    return _csv(["method", "task", *fields], rows)


def to_json(value: object) -> str:
    """Indented json; a NaN is an error, for no reader agrees on what it means."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def _csv(header: list[str], rows: Sequence[Sequence[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
    return buffer.getvalue().rstrip("\n")


def _latex_text(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, f"\\{character}")
    return text
