"""Figures of results: similarities by gold rating, and those of the paper, drawn from plain numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from s2sent.errors import ConfigError, DataError
from s2sent.evaluation.result import TaskResult
from s2sent.evaluation.statistics import summarize
from s2sent.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUPS = 5
"""Groups of gold ratings, each as wide as the next: 0-1, 1-2, ... 4-5."""
BIN = 0.025
"""Width of the bins of a histogram of cosines."""
COLOURS = ("#c6dbef", "#9ecae1", "#6baed6", "#3182bd", "#08519c")
"""Light for unrelated pairs to dark for equal ones: readable in grey and by the colour-blind."""
INK, ACCENT = "#333333", "#c2410c"


def group_of(gold: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the group of each rating from 0 to 5: 0 for [0, 1), ... 4 for [4, 5]."""
    return np.clip(np.floor(gold), 0, GROUPS - 1).astype(np.int64)


@dataclass(frozen=True)
class Panel:
    """The similarities that one model gives the pairs of a task."""

    name: str
    similarity: NDArray[np.float64]
    gold: NDArray[np.float64]
    spearman: float

    @property
    def title(self) -> str:
        """The panel's title."""
        name = "\n".join(textwrap.wrap(self.name, 34))  # as wide as a panel
        return f"{name}\nSpearman {self.spearman:.2f}, {len(self.gold):,} pairs"

    @classmethod
    def of(cls, name: str, result: TaskResult) -> Self:
        """Make a panel from a result, which keeps the similarity of every pair."""
        if "similarity" not in result.evidence:
            raise DataError(f"{result.task} has no sentence pairs to draw.")
        similarity, gold = (np.array(result.evidence[key]) for key in ("similarity", "gold"))
        return cls(name, similarity, gold, result.scores["all"])


def densities(panels: Sequence[Panel]) -> Figure:
    """Draw the density of cosine similarity in five groups of gold rating, one panel for each model.

    A good model has the groups climb from left to right with little overlap. All panels share an axis, so that a model
    whose cosines are all alike shows.
    """
    figure, axes = _canvas(len(panels), width=3.1, height=3.6)
    low = min(float(panel.similarity.min()) for panel in panels)
    grid = np.linspace(min(-0.1, low - 0.15), 1.15, 400)  # a cosine ends at 1, the tail of its density does not
    for panel, axis in zip(panels, axes, strict=True):
        group = group_of(panel.gold)
        for index in range(GROUPS):
            values = panel.similarity[group == index]
            if len(values) == 0:
                axis.text(grid[0], index + 0.1, "no pairs", color=INK, fontsize=7)
                continue
            _ridge(axis, grid, _density(values, grid), index)
            middle = float(np.median(values))
            axis.plot([middle, middle], [index, index + 0.3], color=INK, linewidth=1.2)
        axis.set_xlim(grid[0], grid[-1])
        axis.set_ylim(-0.05, GROUPS + 0.05)
        axis.set_xlabel("cosine similarity (stroke: median)")
        axis.set_title(panel.title, fontsize=9)
    axes[0].set_ylabel("gold rating")
    return figure


def scatters(panels: Sequence[Panel]) -> Figure:
    """Draw similarity against gold, pair by pair, with the mean similarity of every half point of rating."""
    figure, axes = _canvas(len(panels), width=3.4, height=3.4)
    low = min(-0.1, min(float(panel.similarity.min()) for panel in panels) - 0.05)
    for panel, axis in zip(panels, axes, strict=True):
        axis.scatter(panel.gold, panel.similarity, s=6, alpha=0.25, color=COLOURS[3], linewidths=0)
        bins = np.round(panel.gold * 2).astype(np.int64)
        found = np.unique(bins)
        means = [panel.similarity[bins == one].mean() for one in found]
        axis.plot(found / 2, means, color=INK, linewidth=1.5, label="mean")
        axis.set_ylim(low, 1.05)
        axis.set_xlabel("gold rating")
        axis.set_title(panel.title, fontsize=9)
    axes[0].set_ylabel("cosine similarity")
    axes[0].legend(loc="lower right", fontsize=7, frameon=False)
    return figure


@dataclass(frozen=True)
class Plot:
    """The numbers of one panel of an experiment's figure.

    Attributes:
        title: The panel's title.
        column: The score it shows.
        base: The name of the base row.
        base_score: Its mean; None if it is not there yet.
        values: The numbers by row. `bars`: differences to the base, one per seed. `boxes` and `line`: the means of the
            seeds, and their deviation. `gradients`: `direct` and `total`, by block.
        places: `boxes` and `line`: by the name of an option, its value in each row.
    """

    title: str
    column: str = ""
    base: str = ""
    base_score: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def bars(plots: Sequence[Plot]) -> Figure:
    """Draw a bar for each row: its difference to the base, with the deviation, and a dot for each seed.

    Differences, because they compare also where one row has more seeds than another.
    """
    rows = max(len(plot.values) for plot in plots)
    figure = new_figure(7.4, (0.32 * rows + 1.0) * len(plots))
    for axes, plot in _panels(figure, plots):
        for place, values in enumerate(list(plot.values.values())[::-1]):
            summary = summarize(values)
            axes.barh(place, summary.mean, color=COLOURS[2] if summary.mean >= 0 else "#fdba74", height=0.7)
            axes.errorbar(summary.mean, place, xerr=summary.std or 0.0, color=INK, capsize=2, linewidth=1)
            axes.plot(values, [place] * len(values), "o", color=INK, markersize=2.5, alpha=0.6)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_yticks(range(len(plot.values)), list(plot.values)[::-1], fontsize=8)
        axes.set_xlabel(f"{plot.column}: difference to “{plot.base}” ({plot.base_score:.2f}), seed by seed")
    return figure


def boxes(plots: Sequence[Plot]) -> Figure:
    """Draw box plots of a grid both ways; a box holds the means over seeds of its cells."""
    figure = new_figure(7.4, 3.2 * len(plots))
    grid = figure.subplots(len(plots), 2, squeeze=False, sharey="row")
    labels = {"blocks": "n: last blocks", "frequencies": "m: frequencies"}
    for pair, plot in zip(grid, plots, strict=True):
        for axes, (name, label) in zip(pair, labels.items(), strict=True):
            found: dict[int, list[float]] = {}
            for row, value in plot.places[name].items():
                found.setdefault(value, []).append(plot.values[row][0])
            if found:  # a store that has just begun has none yet
                _box(axes, found)
            _base_line(axes, plot)
            if plot.base_score is not None:
                axes.legend(frameon=False, fontsize=8)
            axes.set_xlabel(label)
            axes.set_title(plot.title, fontsize=9, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
        pair[0].set_ylabel(plot.column)
    return figure


def _box(axes: Axes, found: Mapping[int, list[float]]) -> None:
    places = range(len(found))
    drawn = axes.boxplot(list(found.values()), positions=list(places), widths=0.5, patch_artist=True)
    for patch in drawn["boxes"]:
        patch.set(facecolor=COLOURS[0], edgecolor=INK)
    for median in drawn["medians"]:
        median.set(color=INK)
    for place, means in zip(places, found.values(), strict=True):
        axes.plot([place] * len(means), means, "o", color=COLOURS[4], markersize=3)
    axes.set_xticks(list(places), [str(value) for value in found])


def line(plots: Sequence[Plot], letters: Mapping[str, str]) -> Figure:
    """Draw the score over the one number that the grid varied, on a logarithmic axis."""
    figure = new_figure(6.2, 3.2 * len(plots))
    for axes, plot in _panels(figure, plots):
        ((name, numbers),) = plot.places.items()
        values: list[Any] = list(numbers.values())
        means, spreads = ([plot.values[row][index] for row in numbers] for index in (0, 1))
        axes.errorbar(values, means, yerr=spreads, marker="o", color=COLOURS[4], capsize=3, label="2D SS")
        _base_line(axes, plot)
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, [str(value) for value in values])
        axes.minorticks_off()
        axes.set_xlabel(f"{letters[name]}: {name}")
        axes.set_ylabel(plot.column)
        axes.legend(frameon=False, fontsize=8)
    return figure


def _base_line(axes: Axes, plot: Plot) -> None:
    if plot.base_score is not None:
        axes.axhline(plot.base_score, color=ACCENT, linestyle="--", linewidth=1, label="base")


@dataclass(frozen=True)
class Histogram:
    """Counts of cosines for one row of an experiment: one histogram per seed, all of bins of width `BIN`.

    Attributes:
        whose: Backbone and objective.
        row: The row.
        score: The mean STS-B score.
        seeds: By seed: `low`, where the bins begin, and `counts`, by group of gold rating.
    """

    whose: str
    row: str
    score: float
    seeds: Sequence[Mapping[str, Any]]


def histograms(panels: Sequence[Histogram]) -> Figure:
    """Draw the paper's ridges: cosines of STS-B pairs in five groups of gold rating, all seeds together."""
    figure, axes = _canvas(len(panels), width=2.5, height=3.0, most=3)
    low = min(seed["low"] for panel in panels for seed in panel.seeds)
    several = len({panel.whose for panel in panels}) > 1
    for axis, panel in zip(axes, panels, strict=True):
        for group in range(GROUPS):
            _ridge(axis, *smoothed(panel.seeds, group, low), group)
        whose = f"{panel.whose}\n" if several else ""
        axis.set_title(f"{whose}{panel.row}\nSTS-B {panel.score:.2f}", fontsize=8.5)
    columns = min(3, len(panels))
    for axis in axes[::columns]:
        axis.set_ylabel("gold rating")
    for axis in axes[-columns:]:
        axis.set_xlabel("cosine similarity")
    if not several:
        figure.suptitle(panels[0].whose, fontsize=9, x=0.02, ha="left")
    return figure


def smoothed(seeds: Sequence[Mapping[str, Any]], group: int, low: float) -> tuple[Any, Any]:
    """Return the counts of all seeds, smoothed over about two bins, and where they are."""
    kernel = np.exp(-0.5 * (np.arange(-4, 5) / 1.5) ** 2)
    bins = max(round((1 - low) / BIN) + 1, len(kernel))  # of fewer, "same" below is the kernel's size
    counts = np.zeros(bins)
    for seed in seeds:
        first = round((seed["low"] - low) / BIN)
        row = seed["counts"][group]
        counts[first : first + len(row)] += row
    return low + BIN * (np.arange(bins) + 0.5), np.convolve(counts, kernel / kernel.sum(), mode="same")


def gradients(plots: Sequence[Plot]) -> Figure:
    """Draw, by block, the gradient through the fusion alone, and that of the block's own weights."""
    figure = new_figure(7.4, 3.4 * len(plots))
    grid = figure.subplots(len(plots), 2, squeeze=False)
    markers = ("o", "s", "^", "D", "v", "x")
    titles = {"direct": "through the fusion alone", "total": "of the block's own weights"}
    for pair, plot in zip(grid, plots, strict=True):
        for axes, (name, title) in zip(pair, titles.items(), strict=True):
            for number, (row, values) in enumerate(plot.values.items()):
                if not values:  # not finished; its marker stays free
                    continue
                place = range(1, len(values[name]) + 1)
                axes.plot(place, values[name], marker=markers[number % 6], markersize=4, linewidth=1, label=row)
            axes.set_title(f"{plot.title}\n{title}", fontsize=8.5, loc="left")
            axes.set_xlabel("block")
            axes.set_ylim(bottom=0)
            axes.spines[["top", "right"]].set_visible(False)
        pair[0].set_ylabel("gradient's norm, largest block = 1")
        pair[1].legend(frameon=False, fontsize=7)
    return figure


def _ridge(axes: Axes, x: Any, curve: Any, group: int) -> None:
    """Draw one density above the line of its group."""
    top = 0.92 * curve / curve.max() if curve.max() else curve
    axes.fill_between(x, group, group + top, color=COLOURS[group], linewidth=0)
    axes.plot(x, group + top, color=INK, linewidth=0.6)
    axes.set_yticks(np.arange(GROUPS) + 0.4, [f"{index}–{index + 1}" for index in range(GROUPS)])
    axes.tick_params(axis="y", length=0)


def _density(values: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a Gaussian kernel density with Scott's width; values without spread get a narrow bump, not an error."""
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    width = max(spread * len(values) ** -0.2, 0.01)
    kernels = np.exp(-0.5 * ((grid[:, None] - values[None]) / width) ** 2)
    return np.asarray(kernels.sum(axis=1) / (len(values) * width * np.sqrt(2 * np.pi)))


def _canvas(panels: int, width: float, height: float, most: int = 4) -> tuple[Figure, list[Axes]]:
    if not panels:
        raise ConfigError("A figure needs at least one model.")
    columns = min(panels, most)
    rows = -(-panels // columns)
    figure = new_figure(width * columns + 0.4, height * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    axes: list[Axes] = list(grid.flat)
    for axis in axes[panels:]:
        axis.set_visible(False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[:panels]


def _panels(figure: Figure, plots: Sequence[Plot]) -> list[tuple[Axes, Plot]]:
    grid = figure.subplots(len(plots), 1, squeeze=False)
    for axes, plot in zip(grid.flat, plots, strict=True):
        axes.set_title(plot.title, fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    return list(zip(grid.flat, plots, strict=True))
