"""Look inside a selector: which blocks it takes from, for which features, and what its squeeze sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import Tensor

from s2sent.errors import DataError, ModelError
from s2sent.figures import new_figure
from s2sent.model.pooling import SelectivePooling
from s2sent.model.prompts import padded, pipeline_of
from s2sent.selection import Selector

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_MAP: dict[str, Any] = {"aspect": "auto", "origin": "lower"}


@dataclass(frozen=True)
class Inspection:
    """What a selector did with some sentences.

    Attributes:
        sentences: The sentences, s of them.
        blocks: The numbers of the n chosen blocks, counted from 1.
        frequencies: The m chosen frequencies (a, b) over (block, token).
        part_sizes: How many features each frequency has.
        shares: (s, n) the share of every block in every sentence: its weight, averaged over the features.
        part_shares: (n, m) the share of every block in each part of the features, averaged over the sentences.
        spectrum: (n, m) how strongly every block speaks at each frequency: the root mean square, over sentences and
            features, of what it adds to the squeeze. None where nothing is squeezed (token gate, no gate).
    """

    sentences: tuple[str, ...]
    blocks: tuple[int, ...]
    frequencies: tuple[tuple[int, int], ...]
    part_sizes: tuple[int, ...]
    shares: Tensor
    part_shares: Tensor
    spectrum: Tensor | None

    @property
    def what(self) -> str:
        """What the numbers are: shares that add up to 1 where blocks compete, else the weights of a single gate."""
        return "Share" if bool((self.shares.sum(dim=1) - 1).abs().max() < 1e-3) else "Weight"


def inspect(model: SentenceTransformer, sentences: Sequence[str]) -> Inspection:
    """Run the model on a few sentences and return what its selector did."""
    if not sentences:
        raise DataError("There is no sentence to inspect. Give at least one.")
    encoder, pooling = model[0], next((module for module in model if isinstance(module, SelectivePooling)), None)
    if not isinstance(encoder, Transformer) or pooling is None:
        raise ModelError(
            f"This model ({' → '.join(type(module).__name__ for module in model)}) has no selector to look into. "
            "s2sent.build gives it one."
        )
    selector = pooling.selector
    model.eval()
    with torch.inference_mode():
        pipeline = pipeline_of(model)
        sequences = [pipeline.frame(tokens) for tokens in pipeline.tokenize(sentences)]
        pipeline.check_text(sequences)
        features = {name: tensor.to(model.device) for name, tensor in padded(encoder, sequences).items()}
        # Called past its hooks, the encoder returns hidden states instead of streaming.
        selected = pooling.select(encoder.forward(features))
    weights = selected.weights.float().cpu()  # (s, n, d)
    parts = torch.split(weights.mean(dim=0), list(selector.part_sizes), dim=-1)
    return Inspection(
        sentences=tuple(sentences),
        blocks=pooling.block_numbers,
        frequencies=selector.frequencies,
        part_sizes=selector.part_sizes,
        shares=weights.mean(dim=-1),
        part_shares=torch.stack([part.mean(dim=-1) for part in parts], dim=-1),
        spectrum=None if selected.projections is None else _spectrum(selector, selected.projections),
    )


def _spectrum(selector: Selector, projections: Tensor) -> Tensor:
    """(s, n, k, d) means over tokens → (n, m) root mean squares of the blocks' terms of the squeeze."""
    strength = projections.square().mean(dim=(0, 3)).sqrt()  # (n, k)
    row = {int(b): k for k, b in enumerate(selector.token_frequencies)}
    columns = [
        basis.abs() * strength[:, row[b]]
        for basis, (_, b) in zip(selector.block_basis, selector.frequencies, strict=True)
    ]
    return torch.stack(columns, dim=-1).cpu()


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


def _write_values(axes: Axes, image: AxesImage, values: Tensor, form: str) -> None:
    size = 9 if values.shape[1] < 12 else 7
    for n, row in enumerate(values.tolist()):
        for m, value in enumerate(row):
            if value == value:  # not blank
                red, green, blue = image.cmap(float(np.ma.filled(image.norm(value), 0.5)))[:3]
                ink = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else "black"
                axes.text(m, n, form.format(value), ha="center", va="center", color=ink, fontsize=size)


def _label(axes: Axes, columns: list[str], rows: list[str]) -> None:
    axes.set_xticks(range(len(columns)), columns, fontsize=8 if len(columns) < 12 else 6)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _name(block: int) -> str:
    return f"block {block}" if block else "embeddings"
