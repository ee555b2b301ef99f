"""Pictures of how a model's similarities follow people's ratings."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from s2sent.errors import ConfigError, DataError
from s2sent.evaluation.result import TaskResult
from s2sent.figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUPS = 5
"""Groups of gold ratings, each as wide as the next: 0-1, 1-2, ... 4-5."""
COLOURS = ("#c6dbef", "#9ecae1", "#6baed6", "#3182bd", "#08519c")
"""Light for unrelated pairs to dark for equal ones: readable in grey and by the colour-blind."""
INK = "#333333"


@dataclass(frozen=True)
class Panel:
    """What one model says about the pairs of a task."""

    name: str
    similarity: NDArray[np.float64]
    gold: NDArray[np.float64]
    spearman: float

    @property
    def title(self) -> str:
        """What stands above it."""
        name = "\n".join(textwrap.wrap(self.name, 34))  # as wide as a panel
        return f"{name}\nSpearman {self.spearman:.2f}, {len(self.gold):,} pairs"

    @classmethod
    def of(cls, name: str, result: TaskResult) -> "Panel":
        """From a result, which keeps the similarity of every pair."""
        if "similarity" not in result.evidence:
            raise DataError(f"{result.task} has no sentence pairs to draw.")
        similarity, gold = (np.array(result.evidence[key]) for key in ("similarity", "gold"))
        return cls(name, similarity, gold, result.scores["all"])


def group_of(gold: NDArray[np.float64]) -> NDArray[np.int64]:
    """The group of each rating from 0 to 5: 0 for [0, 1), ... 4 for [4, 5]."""
    return np.clip(np.floor(gold), 0, GROUPS - 1).astype(np.int64)


def density_figure(panels: Sequence[Panel], path: Path) -> None:
    """Write what `densities` draws."""
    save_figure(densities(panels), path)


def densities(panels: Sequence[Panel]) -> "Figure":
    """The paper's figure: density of cosine similarity in five groups of gold rating, one panel for each model.

    A good model has the groups climb from left to right with little overlap; a narrow one (all cosines alike) shows at
    once, because every panel has the same axis.
    """
    figure, axes = _canvas(panels, width=3.1, height=3.6)
    low = min(float(panel.similarity.min()) for panel in panels)
    grid = np.linspace(min(-0.1, low - 0.15), 1.15, 400)  # a cosine ends at 1, the tail of its density does not
    for panel, axis in zip(panels, axes, strict=True):
        group = group_of(panel.gold)
        for index in range(GROUPS):
            values = panel.similarity[group == index]
            if len(values) == 0:
                axis.text(grid[0], index + 0.1, "no pairs", color=INK, fontsize=7)
                continue
            curve = _density(values, grid)
            axis.fill_between(grid, index, index + 0.92 * curve / curve.max(), color=COLOURS[index], linewidth=0)
            axis.plot(grid, index + 0.92 * curve / curve.max(), color=INK, linewidth=0.6)
            middle = float(np.median(values))
            axis.plot([middle, middle], [index, index + 0.3], color=INK, linewidth=1.2)
        axis.set_yticks(np.arange(GROUPS) + 0.4, [f"{index}–{index + 1}" for index in range(GROUPS)])
        axis.tick_params(axis="y", length=0)
        axis.set_xlim(grid[0], grid[-1])
        axis.set_ylim(-0.05, GROUPS + 0.05)
        axis.set_xlabel("cosine similarity (stroke: median)")
        axis.set_title(panel.title, fontsize=9)
    axes[0].set_ylabel("gold rating")
    return figure


def scatter_figure(panels: Sequence[Panel], path: Path) -> None:
    """Write what `scatters` draws."""
    save_figure(scatters(panels), path)


def scatters(panels: Sequence[Panel]) -> "Figure":
    """Similarity against gold, pair by pair, with the mean similarity of every half point of rating."""
    figure, axes = _canvas(panels, width=3.4, height=3.4)
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


def _density(values: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """A Gaussian kernel density with Scott's width; values without spread get a narrow bump instead of an error."""
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    width = max(spread * len(values) ** -0.2, 0.01)
    kernels = np.exp(-0.5 * ((grid[:, None] - values[None]) / width) ** 2)
    return np.asarray(kernels.sum(axis=1) / (len(values) * width * np.sqrt(2 * np.pi)))


def _canvas(panels: Sequence[Panel], width: float, height: float) -> "tuple[Figure, list[Axes]]":
    if not panels:
        raise ConfigError("A figure needs at least one model.")
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    figure = new_figure(width * columns + 0.4, height * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    axes: list[Axes] = list(grid.flat)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[: len(panels)]
