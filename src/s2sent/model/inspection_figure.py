"""An inspection as a picture: blocks × feature groups, and each block's spectrum."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from s2sent.figures import new_figure
from s2sent.model.inspection import Inspection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(inspection: Inspection) -> Figure:
    """Draw what each block gives to each group of features, the groups named by their frequency, and its spectrum."""
    panels = 1 if inspection.spectrum is None else 2
    width = max(4.5, 1.8 + 0.8 * len(inspection.frequencies))
    figure = new_figure(width * panels, height=1.9 + 0.55 * max(4, len(inspection.blocks)))
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _draw_shares(axes[0], inspection)
    if inspection.spectrum is not None:
        _draw_spectrum(axes[1], inspection)
    count = len(inspection.sentences)
    figure.suptitle(f"What the selector takes from each block ({count} sentence{'s' * (count > 1)})", fontsize=11)
    return figure


def _draw_shares(axes: Axes, inspection: Inspection) -> None:
    shares = 100 * inspection.part_shares  # (n, m)
    # Colour is the distance from equal shares, so that white means "no preference" in every picture.
    equal = float(shares.sum(dim=0).mean()) / len(inspection.blocks)
    span = max(5.0, float((shares - equal).abs().max()))
    axes.imshow(shares.numpy(), cmap="RdBu_r", vmin=equal - span, vmax=equal + span, aspect="auto", origin="lower")
    for n, row in enumerate(shares.tolist()):
        for m, share in enumerate(row):
            strong = abs(share - equal) > 0.6 * span
            axes.text(m, n, f"{share:.1f}", ha="center", va="center", color="white" if strong else "black", fontsize=9)
    ends = list(accumulate(inspection.part_sizes))
    ranges = [f"{end - size}–{end - 1}" for size, end in zip(inspection.part_sizes, ends, strict=True)]
    labels = [f"({a},{b})\n{features}" for (a, b), features in zip(inspection.frequencies, ranges, strict=True)]
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set_yticks(range(len(inspection.blocks)), [_name(block) for block in inspection.blocks])
    axes.set_xlabel("group of features: its frequency (block, token) and range")
    axes.set_title("share of each block, %", fontsize=10)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_spectrum(axes: Axes, inspection: Inspection) -> None:
    assert inspection.spectrum is not None
    places = range(len(inspection.frequencies))
    # A block adds nothing at a frequency whose basis is zero there (an odd one, in the middle): a gap, not a plunge.
    floor = 1e-6 * float(inspection.spectrum.max())
    rows = inspection.spectrum.tolist()
    names = [_name(block) for block in inspection.blocks] if len(rows) > 1 else ["all blocks, fused first"]
    for n, (name, row) in enumerate(zip(names, rows, strict=True)):
        colour = 0.15 + 0.7 * n / max(1, len(rows) - 1)
        values = [value if value > floor else float("nan") for value in row]
        axes.plot(places, values, marker="o", markersize=4, linewidth=1.2, color=_ink(colour), label=name)
    axes.set_yscale("log")
    axes.set_xticks(places, [f"({a},{b})" for a, b in inspection.frequencies], fontsize=8)
    axes.set_xlabel("frequency (block, token)")
    axes.set_title("strength of each block in the squeeze (rms per token)", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def _name(block: int) -> str:
    return f"block {block}" if block else "embeddings"


def _ink(value: float) -> tuple[float, float, float, float]:
    from matplotlib import colormaps

    return colormaps["viridis"](value)
