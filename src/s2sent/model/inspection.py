"""Look inside a selector: which blocks it takes from, for which features, and what its squeeze sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util import batch_to_device
from torch import Tensor

from s2sent.errors import DataError, ModelError
from s2sent.model.pooling import SelectivePooling
from s2sent.selection import Selector


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
        prompt = model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None
        features = batch_to_device(model.preprocess(list(sentences), prompt=prompt), model.device)
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
