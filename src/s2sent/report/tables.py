"""Tables of a frame of results: terminal, markdown, LaTeX, csv, json."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from s2sent.evaluation.comparison import marked
from s2sent.evaluation.result import Aggregation, Frame, Report, Score, TaskResult
from s2sent.evaluation.sts import Geometry


class Format(StrEnum):
    """How results are written."""

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
        """The text with its marks as markdown has them, also for terminals without styles."""
        text = f"**{self.text}**" if self.best else self.text
        return f"<u>{text}</u>" if self.significant else text


@dataclass(frozen=True)
class Table:
    """Rows of entries under named columns, and notes below. Rich can print it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    notes: tuple[str, ...] = ()

    def render(self, style: Format) -> str | RenderableType:
        """Return markdown or LaTeX as text, or this table for rich. csv and json are made from the frame itself."""
        if style is Format.MARKDOWN:
            return self.markdown()
        return self.latex() if style is Format.LATEX else self

    def markdown(self) -> str:
        """Return the table as markdown."""

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

        lines = [line(["", *self.columns]), line(["---", *["---:"] * len(self.columns)])]
        lines += [line([name, *(entry.marked for entry in entries)]) for name, entries in self.rows]
        return "\n".join([*lines, *(f"\n{text}" for text in self.notes)])

    def latex(self) -> str:
        """Return the table as a LaTeX tabular, for the package booktabs."""

        def cell(entry: Entry) -> str:
            text = re.sub(r" ± (\S+)", r"$_{\\pm \1}$", entry.text.translate(_IN_LATEX))
            text = f"\\textbf{{{text}}}" if entry.best else text
            return f"\\underline{{{text}}}" if entry.significant else text

        def line(cells: Sequence[str]) -> str:
            return " & ".join(cells) + r" \\"

        lines = [f"\\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\toprule"]
        lines += [line(["", *(column.translate(_IN_LATEX) for column in self.columns)]), r"\midrule"]
        lines += [line([name.translate(_IN_LATEX), *map(cell, entries)]) for name, entries in self.rows]
        lines += [r"\bottomrule", r"\end{tabular}", *(f"% {text}" for text in self.notes)]
        return "\n".join(lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = console.color_system is None  # a pipe, a file, or a terminal that shows no styles

        def fits(table: Table) -> bool:
            return console.measure(table._rich(plain), options=options.update_width(9999)).maximum <= options.max_width

        for part in self._parts(fits):
            yield part._rich(plain)
        for text in self.notes:  # not as the table's caption, which would be as narrow as the table
            yield Text(text, style="dim italic")

    def _parts(self, fits: Callable[[Table], bool]) -> list[Table]:
        """Return this table if it fits the screen, else its transpose, else halves: numbers are never cut."""
        turned = Table(
            tuple(name for name, _ in self.rows),
            tuple((column, tuple(row[i] for _, row in self.rows)) for i, column in enumerate(self.columns)),
        )
        for table in (self, turned):
            if fits(table) or len(self.columns) == 1:
                return [table]
        half = (len(self.columns) + 1) // 2
        return [
            part
            for some in (slice(half), slice(half, None))
            for part in Table(self.columns[some], tuple((name, row[some]) for name, row in self.rows))._parts(fits)
        ]

    def _rich(self, plain: bool) -> RichTable:
        def shown(entry: Entry) -> Text:
            marks = (("bold", entry.best), ("underline", entry.significant))
            return Text(entry.marked if plain else entry.text, " ".join(mark for mark, given in marks if given))

        cells = [[shown(entry) for entry in row] for _, row in self.rows]
        # A long name breaks, a number does not.
        widths = [max([LONGEST_NAME, *(len(row[i]) for row in cells)]) for i in range(len(self.columns))]
        table = RichTable()
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


def entry_of(score: Score, several: bool = True) -> Entry:
    """Return a score with its marks: bold for the best of several methods, underlined for significantly better."""
    text = f"{score.mean:.2f}" + ("" if score.std is None else f" ± {score.std:.2f}")
    return Entry(text, score.best and several, score.significant)


def table_of(frame: Frame) -> Table:
    """Return a frame as a table of methods by tasks."""
    several = len(frame.methods) > 1
    rows = [(name, tuple(entry_of(frame[name, task], several) for task in frame.tasks)) for name in frame.methods]
    return Table(frame.tasks, tuple(rows), (frame.how, *frame.notes))


def report_table(frame: Frame, geometry: Geometry | None = None) -> Table:
    """Return one model's scores as a table of one row, with a second row for the intervals if the frame has them."""
    table = table_of(frame)
    rows = list(table.rows)
    if all(score.low is not None for score in frame):
        rows.append(("95 % interval", tuple(Entry(f"{score.low:.1f}–{score.high:.1f}") for score in frame)))
    shape = [] if geometry is None else [f"{geometry}."]
    return replace(table, rows=tuple(rows), notes=(frame.how, *shape, *frame.notes))


def report_rows(report: Report, frame: Frame, geometry: Geometry | None = None) -> list[dict[str, Any]]:
    """Return a row for each task, and one for each number of the geometry, for csv."""
    how = {"aggregation": report.aggregation.value, "text": report.text, "probes": report.probes}
    rows: list[dict[str, Any]] = []
    for score in frame:
        interval = {} if score.low is None else {"low": score.low, "high": score.high}
        rows.append({"model": report.model, "task": score.task, "score": score.mean, **how, **interval})
    if geometry is not None:
        for name in geometry.MEASURES:
            rows.append({"model": report.model, "task": name, "score": getattr(geometry, name), "text": report.text})
    return rows


def blocks_frame(model: str, blocks: Mapping[str, Sequence[TaskResult]], aggregation: Aggregation) -> Frame:
    """Return the STS scores of every block of a model; the methods are the blocks."""
    results = next(iter(blocks.values()))
    rows = [Score(name, one.task, one.headline(aggregation)) for name, found in blocks.items() for one in found]
    how = Report(model, tuple(results), aggregation, text=results[0].details["text"]).how
    how = f"{model}: mean over tokens of each block's states. {how} Bold: best of the task."
    return Frame(marked(rows), how, tuple(note for result in results for note in result.notes))


def frame_csv(frame: Frame, extra: Mapping[str, str] | None = None) -> str:
    """Return a line for each method and task, with everything that was tested; `extra` columns come first."""
    columns = [*(extra or {}), *(field.name for field in fields(Score))]
    return to_csv([{**(extra or {}), **asdict(row)} for row in frame], columns)


def to_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """Return rows as csv. Without `columns`, they are those of the first row."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns or list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().rstrip("\n")


def to_json(value: object) -> str:
    """Return indented json. NaN is an error, because readers do not agree on what it means."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
