"""The figures: bars, boxes, a line, densities, gradients; one panel for each backbone and objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sent.evaluation.figures import COLOURS, INK
from s2sent.evaluation.statistics import summarize
from s2sent.experiments.catalogue import GRID_LETTERS
from s2sent.experiments.measures import BIN
from s2sent.experiments.tables import Results, relative
from s2sent.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACCENT = "#c2410c"


def draw(tables: Sequence[Results]) -> Figure | None:
    """The figure of one experiment from its tables; None if it has none, or nothing is finished."""
    tables = [results for results in tables if results.finished]
    if not tables or not tables[0].experiment.figure:
        return None
    return _FIGURES[tables[0].experiment.figure](tables)


def headline(results: Results) -> str:
    """The score a figure shows: the average of a suite where all of it was scored, else STS-B."""
    return next(name for name in ("STS avg", "Transfer avg", "STS-B", *results.columns) if name in results.columns)


def _means(results: Results, column: str) -> dict[str, tuple[float, float]]:
    """By row: mean and deviation (0 for one seed) over the seeds that all of these rows have."""
    rows = {row: set(seeds) for row, seeds in results.records.items() if seeds}
    common = set.intersection(*rows.values())
    found = {}
    for row in rows if common else ():
        summary = summarize([score for seed, score in results.scores(row, column).items() if seed in common])
        found[row] = (summary.mean, summary.std or 0.0)
    return found


def _differences(results: Results, column: str) -> dict[str, list[float]]:
    """By row: the differences to the base, seed by seed."""
    base = results.scores(results.experiment.base, column)
    rows = {row: results.scores(row, column) for row in results.records if row != results.experiment.base}
    found = {row: [score - base[seed] for seed, score in ours.items() if seed in base] for row, ours in rows.items()}
    return {row: values for row, values in found.items() if values}


def _bars(tables: Sequence[Results]) -> Figure | None:
    """A bar for each row: how far it is from the base, with the deviation, and a dot for each seed.

    Differences, because they compare also where one row has more seeds than another.
    """
    tables = [results for results in tables if _differences(results, headline(results))]
    if not tables:
        return None
    rows = max(len(_differences(results, headline(results))) for results in tables)
    figure = new_figure(7.4, (0.32 * rows + 1.0) * len(tables))
    for axes, results in _panels(figure, tables):
        column, base = headline(results), results.experiment.base
        found = _differences(results, column)
        for place, values in enumerate(reversed(found.values())):
            summary = summarize(values)
            axes.barh(place, summary.mean, color=COLOURS[2] if summary.mean >= 0 else "#fdba74", height=0.7)
            axes.errorbar(summary.mean, place, xerr=summary.std or 0.0, color=INK, capsize=2, linewidth=1)
            axes.plot(values, [place] * len(values), "o", color=INK, markersize=2.5, alpha=0.6)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_yticks(range(len(found)), list(found)[::-1], fontsize=8)
        start = summarize(list(results.scores(base, column).values())).mean
        axes.set_xlabel(f"{column}: difference to “{base}” ({start:.2f}), seed by seed")
    return figure


def _boxes(tables: Sequence[Results]) -> Figure:
    """Box plots both ways: over m for each n, over n for each m; a box holds the means over seeds of its cells."""
    figure = new_figure(7.4, 3.2 * len(tables))
    grid = figure.subplots(len(tables), 2, squeeze=False, sharey="row")
    for pair, results in zip(grid, tables, strict=True):
        column = headline(results)
        found = {row: mean for row, (mean, _) in _means(results, column).items()}
        numbers = {row.name: dict(row.changes) for row in results.experiment.rows}
        for axes, name in zip(pair, ("blocks", "frequencies"), strict=True):
            values = results.experiment.grid.get(name, ())
            boxes = {
                value: [
                    mean
                    for row, mean in found.items()
                    if row != results.experiment.base and numbers[row].get(name) == value
                ]
                for value in values
            }
            boxes = {value: means for value, means in boxes.items() if means}
            if boxes:  # a store that has just begun has none yet
                _box(axes, boxes)
            if results.experiment.base in found:
                axes.axhline(found[results.experiment.base], color=ACCENT, linestyle="--", linewidth=1, label="base")
                axes.legend(frameon=False, fontsize=8)
            axes.set_xlabel({"blocks": "n: last blocks", "frequencies": "m: frequencies"}[name])
            axes.set_title(results.name, fontsize=9, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
        pair[0].set_ylabel(column)
    return figure


def _box(axes: Axes, boxes: Mapping[int, list[float]]) -> None:
    places = range(len(boxes))
    drawn = axes.boxplot(list(boxes.values()), positions=list(places), widths=0.5, patch_artist=True)
    for patch in drawn["boxes"]:
        patch.set(facecolor=COLOURS[0], edgecolor=INK)
    for median in drawn["medians"]:
        median.set(color=INK)
    for place, means in zip(places, boxes.values(), strict=True):
        axes.plot([place] * len(means), means, "o", color=COLOURS[4], markersize=3)
    axes.set_xticks(list(places), [str(value) for value in boxes])


def _line(tables: Sequence[Results]) -> Figure:
    """The score over the one number that the grid varied, on a logarithmic axis."""
    figure = new_figure(6.2, 3.2 * len(tables))
    for axes, results in _panels(figure, tables):
        (name,) = results.experiment.grid
        column = headline(results)
        found = _means(results, column)
        numbers = {row.name: row.changes.get(name) for row in results.experiment.rows if row.name in found}
        rows = [row for row in found if row != results.experiment.base and numbers[row] is not None]
        means, spreads = ([found[row][index] for row in rows] for index in (0, 1))
        values: list[Any] = [numbers[row] for row in rows]
        axes.errorbar(values, means, yerr=spreads, marker="o", color=COLOURS[4], capsize=3, label="2D SS")
        if results.experiment.base in found:
            axes.axhline(found[results.experiment.base][0], color=ACCENT, linestyle="--", linewidth=1, label="base")
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, [str(value) for value in values])
        axes.minorticks_off()
        axes.set_xlabel(f"{GRID_LETTERS[name]}: {name}")
        axes.set_ylabel(column)
        axes.legend(frameon=False, fontsize=8)
    return figure


def _densities(tables: Sequence[Results]) -> Figure:
    """The paper's ridges: cosines of STS-B pairs in five groups of gold rating, all seeds together."""
    panels = [
        (results, row, [record for record in seeds.values() if "density" in record])
        for results in tables
        for row, seeds in results.records.items()
    ]
    panels = [panel for panel in panels if panel[2]]
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure = new_figure(2.5 * columns + 0.4, 3.0 * lines)
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    low = min(record["density"]["low"] for _, _, records in panels for record in records)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    several = len({results.name for results, _, _ in panels}) > 1
    for axes, (results, row, records) in zip(grid.flat, panels, strict=False):
        for group in range(len(COLOURS)):
            x, curve = _ridge(records, group, low)
            top = 0.92 * curve / curve.max() if curve.max() else curve
            axes.fill_between(x, group, group + top, color=COLOURS[group], linewidth=0)
            axes.plot(x, group + top, color=INK, linewidth=0.6)
        score = fmean(record["scores"]["STS-B"] for record in records)
        whose = f"{results.name}\n" if several else ""
        axes.set_title(f"{whose}{row}\nSTS-B {score:.2f}", fontsize=8.5)
        axes.set_yticks(np.arange(5) + 0.4, [f"{n}–{n + 1}" for n in range(5)])
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("gold rating")
    for axes in grid.flat[max(0, len(panels) - columns) : len(panels)]:
        axes.set_xlabel("cosine similarity")
    if not several:
        figure.suptitle(panels[0][0].name, fontsize=9, x=0.02, ha="left")
    return figure


def _ridge(records: Sequence[Mapping[str, Any]], group: int, low: float) -> tuple[Any, Any]:
    """The counts of all seeds, smoothed over about two bins."""
    kernel = np.exp(-0.5 * (np.arange(-4, 5) / 1.5) ** 2)
    bins = max(round((1 - low) / BIN) + 1, len(kernel))  # of fewer, "same" below is the kernel's size
    counts = np.zeros(bins)
    for record in records:
        first = round((record["density"]["low"] - low) / BIN)
        row = record["density"]["counts"][group]
        counts[first : first + len(row)] += row
    return low + BIN * (np.arange(bins) + 0.5), np.convolve(counts, kernel / kernel.sum(), mode="same")


def _gradients(tables: Sequence[Results]) -> Figure:
    """By block: the gradient through the fusion alone, and that of the block's own weights."""
    figure = new_figure(7.4, 3.4 * len(tables))
    grid = figure.subplots(len(tables), 2, squeeze=False)
    markers = ("o", "s", "^", "D", "v", "x")
    for pair, results in zip(grid, tables, strict=True):
        for axes, name, title in zip(
            pair, ("direct", "total"), ("through the fusion alone", "of the block's own weights"), strict=True
        ):
            for number, (row, seeds) in enumerate(results.records.items()):
                if not seeds:
                    continue
                values = np.mean([relative(record["gradients"][name]) for record in seeds.values()], axis=0)
                place = range(1, len(values) + 1)
                axes.plot(place, values, marker=markers[number % 6], markersize=4, linewidth=1, label=row)
            axes.set_title(f"{results.name}\n{title}", fontsize=8.5, loc="left")
            axes.set_xlabel("block")
            axes.set_ylim(bottom=0)
            axes.spines[["top", "right"]].set_visible(False)
        pair[0].set_ylabel("gradient's norm, largest block = 1")
        pair[1].legend(frameon=False, fontsize=7)
    return figure


def _panels(figure: Figure, tables: Sequence[Results]) -> list[tuple[Axes, Results]]:
    grid = figure.subplots(len(tables), 1, squeeze=False)
    for axes, results in zip(grid.flat, tables, strict=True):
        axes.set_title(results.name, fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    return list(zip(grid.flat, tables, strict=True))


_FIGURES: dict[str, Callable[[Sequence[Results]], Figure | None]] = {
    "bars": _bars,
    "boxes": _boxes,
    "line": _line,
    "densities": _densities,
    "gradients": _gradients,
}
