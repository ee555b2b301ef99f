"""An inspection as a picture: blocks × feature groups, and each block's spectrum."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from s2sent.figures import new_figure
from s2sent.model.inspection import Inspection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


def draw(inspection: Inspection) -> Figure:
    """Draw what each block gives to each group of features, the groups named by their frequency, and its spectrum."""
    panels = 1 if inspection.spectrum is None else 2
    width = min(11.0, max(5.0, 1.8 + 0.8 * len(inspection.frequencies)))
    figure = new_figure(width * panels, height=1.9 + 0.55 * max(4, len(inspection.blocks)))
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _draw_shares(axes[0], inspection)
    if inspection.spectrum is not None:
        _draw_spectrum(axes[1], inspection, inspection.spectrum)
    count = len(inspection.sentences)
    figure.suptitle(f"What the selector takes from each block ({count} sentence{'s' * (count > 1)})", fontsize=11)
    return figure


def _draw_shares(axes: Axes, inspection: Inspection) -> None:
    shares = 100 * inspection.part_shares  # (n, m)
    # Colour is the distance from equal shares, so that white means "no preference" in every picture.
    equal = float(shares.sum(dim=0).mean()) / len(inspection.blocks)
    span = max(5.0, float((shares - equal).abs().max()))
    image = axes.imshow(shares.numpy(), cmap="RdBu_r", vmin=equal - span, vmax=equal + span, **_MAP)
    _write_values(axes, image, shares, "{:.1f}")
    ends = list(accumulate(inspection.part_sizes))
    ranges = [f"{end - size}–{end - 1}" for size, end in zip(inspection.part_sizes, ends, strict=True)]
    labels = [f"({a},{b})\n{features}" for (a, b), features in zip(inspection.frequencies, ranges, strict=True)]
    _label(axes, labels, [_name(block) for block in inspection.blocks])
    axes.set_xlabel("group of features: its frequency (block, token) and range")
    axes.set_title(f"{inspection.what.lower()} of each block, %", fontsize=10)


def _draw_spectrum(axes: Axes, inspection: Inspection, spectrum: Tensor) -> None:
    # A block adds nothing at a frequency whose basis is zero there (an odd one, in the middle): that stays blank.
    strength = spectrum.masked_fill(spectrum < 1e-6 * spectrum.max(), float("nan"))
    image = axes.imshow(strength.numpy(), cmap="viridis", norm="log", **_MAP)
    _write_values(axes, image, strength, "{:.2f}")
    fused_first = len(spectrum) < len(inspection.blocks)
    names = ["all, averaged"] if fused_first else [_name(block) for block in inspection.blocks]
    _label(axes, [f"({a},{b})" for a, b in inspection.frequencies], names)
    axes.set_xlabel("frequency (block, token)")
    axes.set_title("spectrum of each block, rms (blank: basis is 0)", fontsize=10)


_MAP: dict[str, Any] = {"aspect": "auto", "origin": "lower"}


def _write_values(axes: Axes, image: AxesImage, values: Tensor, form: str) -> None:
    for n, row in enumerate(values.tolist()):
        for m, value in enumerate(row):
            if value == value:  # not blank
                red, green, blue = image.cmap(float(np.ma.filled(image.norm(value), 0.5)))[:3]
                dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
                ink = "white" if dark else "black"
                axes.text(
                    m,
                    n,
                    form.format(value),
                    ha="center",
                    va="center",
                    color=ink,
                    fontsize=9 if values.shape[1] < 12 else 7,
                )


def _label(axes: Axes, columns: list[str], rows: list[str]) -> None:
    axes.set_xticks(range(len(columns)), columns, fontsize=8 if len(columns) < 12 else 6)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _name(block: int) -> str:
    return f"block {block}" if block else "embeddings"
