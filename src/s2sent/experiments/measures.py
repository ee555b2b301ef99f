"""What a record says of a trained model beside its scores, small enough to be kept for every run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from s2sent.evaluation.cost import count_parameters, interleaved_seconds, paired_ratios
from s2sent.evaluation.figures import GROUPS, group_of
from s2sent.evaluation.result import TaskResult
from s2sent.model.pooling import SelectivePooling
from s2sent.vectors.encoder import TorchEncoder, encode_texts

BIN = 0.025
"""Width of the histogram's bins of cosines."""


def selector_of(model: SentenceTransformer) -> SelectivePooling:
    """The model's selector."""
    return next(module for module in model if isinstance(module, SelectivePooling))


def block_weights(model: SentenceTransformer, sentences: Sequence[str]) -> Tensor:
    """Return the weight of every block in every feature of every sentence: (s, n, d)."""
    weights = encode_texts(TorchEncoder(model, output="block_weights"), sentences)
    return torch.from_numpy(weights.reshape(len(sentences), -1, selector_of(model).get_embedding_dimension()))


def spread(weights: Tensor) -> dict[str, Any]:
    """How far weights (s, n, d) leave a constant.

    `shares`: each block's mean weight. `blocks`: the standard deviation of these shares. `features`: of a block's
    weight over the features, averaged over blocks. `sentences`: of one weight over the sentences, averaged over all
    weights. `min`, `max`: over everything.
    """
    weights = weights.double()
    shares = weights.mean(dim=(0, 2))
    return {
        "shares": [round(float(share), 4) for share in shares],
        "blocks": round(float(shares.std(correction=0)), 5),
        "features": round(float(weights.mean(dim=0).std(dim=1, correction=0).mean()), 5),
        "sentences": round(float(weights.std(dim=0, correction=0).mean()), 5),
        "min": round(float(weights.min()), 4),
        "max": round(float(weights.max()), 4),
    }


def histogram(result: TaskResult) -> dict[str, Any]:
    """Cosines of a task's pairs in bins of width `BIN` from `low` on; a row for each of five groups of gold rating."""
    similarity, gold = (np.array(result.evidence[name]) for name in ("similarity", "gold"))
    group = group_of(gold)
    number = np.floor(np.clip(similarity, -1, 1 - 1e-9) / BIN).astype(int)
    first, bins = int(number.min()), int(np.ptp(number)) + 1
    counts = [np.bincount(number[group == index] - first, minlength=bins).tolist() for index in range(GROUPS)]
    return {"low": round(first * BIN, 3), "counts": counts}


def cost(
    model: SentenceTransformer, plain: SentenceTransformer, sentences: Sequence[str], rounds: int = 9
) -> dict[str, Any]:
    """What the selector adds to the plain encoder: parameters, and time as the median over rounds side by side."""
    added = count_parameters(selector_of(model))
    batch = list(sentences)
    runs = {
        "plain": lambda: plain.encode(batch, batch_size=len(batch), show_progress_bar=False),
        "selected": lambda: model.encode(batch, batch_size=len(batch), show_progress_bar=False),
    }
    seconds = interleaved_seconds(runs, rounds)
    ratios = paired_ratios(seconds["selected"], seconds["plain"])
    return {
        "parameters": count_parameters(plain),
        "added": added,
        "latency": round(100 * (float(np.median(ratios)) - 1), 2),
        "latency_quartiles": [round(100 * (float(np.quantile(ratios, q)) - 1), 2) for q in (0.25, 0.75)],
        "sentences": len(batch),
        "rounds": rounds,
    }
