"""Tables for people and for papers: terminal, markdown, LaTeX, csv, json."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from s2sent.evaluation.result import Aggregation, Report, TaskResult

if TYPE_CHECKING:
    from s2sent.evaluation.comparison import Comparison
    from s2sent.evaluation.geometry import Geometry

Blocks = dict[str, list[TaskResult]]
"""Results by the name of the block."""


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

    @property
    def marked(self) -> str:
        """With its marks as markdown has them, for wherever letters have no style."""
        text = f"**{self.text}**" if self.best else self.text
        return f"<u>{text}</u>" if self.significant else text


@dataclass(frozen=True)
class Grid:
    """Rows of entries under named columns, and what stands below. Rich can print it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    below: tuple[str, ...] = ()

    def render(self, style: Format) -> str | RenderableType:
        """The table in this format; json and csv have their own functions, for they hold more than the table shows."""
        if style is Format.MARKDOWN:
            return self._markdown()
        return self._latex() if style is Format.LATEX else self

    def _markdown(self) -> str:
        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

        lines = [line(["", *self.columns]), line(["---", *["---:"] * len(self.columns)])]
        lines += [line([name, *(entry.marked for entry in entries)]) for name, entries in self.rows]
        return "\n".join([*lines, *(f"\n{text}" for text in self.below)])

    def _latex(self) -> str:
        def marked(entry: Entry) -> str:
            text = re.sub(r" ± (\S+)", r"$_{\\pm \1}$", entry.text.translate(_IN_LATEX))
            text = f"\\textbf{{{text}}}" if entry.best else text
            return f"\\underline{{{text}}}" if entry.significant else text

        def line(cells: Sequence[str]) -> str:
            return " & ".join(cells) + r" \\"

        lines = [f"\\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\toprule"]
        lines += [line(["", *(column.translate(_IN_LATEX) for column in self.columns)]), r"\midrule"]
        lines += [line([name.translate(_IN_LATEX), *map(marked, entries)]) for name, entries in self.rows]
        lines += [r"\bottomrule", r"\end{tabular}", *(f"% {text}" for text in self.below)]
        return "\n".join(lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = console.color_system is None  # a pipe, a file, or a terminal that shows no styles

        def fits(grid: Grid) -> bool:
            return console.measure(grid._table(plain), options=options.update_width(9999)).maximum <= options.max_width

        for part in self._parts(fits):
            yield part._table(plain)
        for text in self.below:  # not as the table's caption, which would be as narrow as the table
            yield Text(text, style="dim italic")

    def _parts(self, fits: Callable[[Grid], bool]) -> list[Grid]:
        """This grid if it fits the screen, else turned on its side, else in halves: numbers are never cut."""
        turned = Grid(
            tuple(name for name, _ in self.rows),
            tuple((column, tuple(row[i] for _, row in self.rows)) for i, column in enumerate(self.columns)),
        )
        for grid in (self, turned):
            if fits(grid) or len(self.columns) == 1:
                return [grid]
        half = (len(self.columns) + 1) // 2
        return [
            part
            for some in (slice(half), slice(half, None))
            for part in Grid(self.columns[some], tuple((name, row[some]) for name, row in self.rows))._parts(fits)
        ]

    def _table(self, plain: bool) -> Table:
        def shown(entry: Entry) -> Text:
            marks = (("bold", entry.best), ("underline", entry.significant))
            return Text(entry.marked if plain else entry.text, " ".join(mark for mark, given in marks if given))

        cells = [[shown(entry) for entry in row] for _, row in self.rows]
        # A long name breaks, a number does not.
        widths = [max([LONGEST_NAME, *(len(row[i]) for row in cells)]) for i in range(len(self.columns))]
        table = Table()
        table.add_column("", overflow="fold", max_width=LONGEST_NAME)
        for column, width in zip(self.columns, widths, strict=True):
            table.add_column(Text(column), justify="right", overflow="fold", max_width=width)
        for (name, _), row in zip(self.rows, cells, strict=True):
            table.add_row(Text(name), *row)
        return table


LONGEST_NAME = 40
_IN_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"Δ": r"$\Delta$", "σ": r"$\sigma$", "τ": r"$\tau$", "²": r"$^2$", "·": r"$\cdot$", "×": r"$\times$"}
    | {"–": "--", "…": r"\dots{}", "−": "$-$", "†": r"$\dagger$"}
)

Intervals = dict[str, tuple[float, float]]
"""Low and high by column."""


def report_grid(report: Report, intervals: Intervals | None = None, shape: Geometry | None = None) -> Grid:
    """One model's scores as a table of one row, or two with ``intervals``; below it how they were computed."""
    scores = report.headlines()
    rows = [(report.model, tuple(Entry(f"{value:.2f}") for value in scores.values()))]
    if intervals is not None:
        shown = [intervals[column] for column in scores]
        rows.append(("95 % interval", tuple(Entry(f"{low:.1f}–{high:.1f}") for low, high in shown)))
    samples = ", ".join(f"{result.task} {result.samples:,}" for result in report.results)
    below = [f"{report.how} Samples: {samples}.", *([] if shape is None else [f"{shape}."]), *report.notes]
    return Grid(tuple(scores), tuple(rows), tuple(below))


def blocks_grid(model: str, blocks: Blocks, aggregation: Aggregation) -> Grid:
    """STS scores by block, the best block of every task marked."""
    results = next(iter(blocks.values()))
    table = {name: [result.headline(aggregation) for result in found] for name, found in blocks.items()}
    best = [max(column) for column in zip(*table.values(), strict=True)]
    rows = tuple(
        (name, tuple(Entry(f"{value:.2f}", best=value == top) for value, top in zip(values, best, strict=True)))
        for name, values in table.items()
    )
    how = Report(model, tuple(results), aggregation, text=results[0].details["text"]).how
    how = f"{model}: mean over tokens of each block's states. {how} Bold: best of the task."
    notes = [note for result in results for note in result.notes]
    return Grid(tuple(result.task for result in results), rows, (how, *notes))


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


def report_csv(report: Report, intervals: Intervals | None = None, shape: Geometry | None = None) -> str:
    """One line for each task, and one for each number about the shape of the space."""
    how = [report.aggregation.value, report.text, report.probes]
    rows = [
        [report.model, task, value, *how, *(intervals or {}).get(task, ())]
        for task, value in report.headlines().items()
    ]
    if shape is not None:
        rows += [[report.model, name, getattr(shape, name), "", report.text, ""] for name in shape.MEASURES]
    header = ["model", "task", "score", "aggregation", "text", "probes"]
    return _csv(header if intervals is None else [*header, "low", "high"], rows)


def blocks_csv(model: str, blocks: Blocks, aggregation: Aggregation) -> str:
    """One line for each block and task."""
    rows = [
        [model, name, result.task, result.headline(aggregation), aggregation.value, result.details["text"]]
        for name, results in blocks.items()
        for result in results
    ]
    return _csv(["model", "block", "task", "score", "aggregation", "text"], rows)


def comparison_csv(comparison: Comparison, said: Mapping[str, str] | None = None) -> str:
    """One line for each method and task, with everything that was tested; `said` stands in front of every line."""
    said = said or {}
    fields = ["mean", "std", "runs", "low", "high", "difference", "p", "wilcoxon", "p_holm", "best", "significant"]
    rows = [
        [*said.values(), name, column, *(getattr(cell, field) for field in fields)]
        for name, cells in comparison.rows.items()
        for column, cell in cells.items()
    ]
    return _csv([*said, "method", "task", *fields], rows)


def to_json(value: object) -> str:
    """Indented json; a NaN is an error, for no reader agrees on what it means."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def _csv(header: list[str], rows: Sequence[Sequence[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
    return buffer.getvalue().rstrip("\n")
