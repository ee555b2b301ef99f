"""What a record says of a model beside its scores: weights, densities, gradients, cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from s2sent.evaluation.cost import count_parameters, interleaved_seconds, paired_ratios
from s2sent.evaluation.result import TaskResult
from s2sent.model.backbone import Backbone
from s2sent.model.pooling import SelectivePooling
from s2sent.report.figures import BIN, GROUPS, group_of
from s2sent.training.losses import ContrastiveLoss
from s2sent.vectors.encoder import TorchEncoder, encode_texts


def selector_of(model: SentenceTransformer) -> SelectivePooling:
    """Return the model's selector."""
    return next(module for module in model if isinstance(module, SelectivePooling))


def block_weights(model: SentenceTransformer, sentences: Sequence[str]) -> Tensor:
    """Return the weight of every block in every feature of every sentence: (s, n, d)."""
    weights = encode_texts(TorchEncoder(model, output="block_weights"), sentences)
    return torch.from_numpy(weights.reshape(len(sentences), -1, selector_of(model).get_embedding_dimension()))


def spread(weights: Tensor) -> dict[str, Any]:
    """Return how far weights (s, n, d) differ from a constant.

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
    """Count the cosines of a task's pairs in bins of width `BIN` from `low` on, for each of five groups of rating."""
    similarity, gold = (np.array(result.evidence[name]) for name in ("similarity", "gold"))
    group = group_of(gold)
    number = np.floor(np.clip(similarity, -1, 1 - 1e-9) / BIN).astype(int)
    first, bins = int(number.min()), int(np.ptp(number)) + 1
    counts = [np.bincount(number[group == index] - first, minlength=bins).tolist() for index in range(GROUPS)]
    return {"low": round(first * BIN, 3), "counts": counts}


def cost(
    model: SentenceTransformer, plain: SentenceTransformer, sentences: Sequence[str], rounds: int = 9
) -> dict[str, Any]:
    """Return what the selector adds to the plain encoder: parameters, and time as the median of paired rounds."""
    batch = list(sentences)
    runs = {
        "plain": lambda: plain.encode(batch, batch_size=len(batch), show_progress_bar=False),
        "selected": lambda: model.encode(batch, batch_size=len(batch), show_progress_bar=False),
    }
    seconds = interleaved_seconds(runs, rounds)
    ratios = paired_ratios(seconds["selected"], seconds["plain"])
    return {
        "parameters": count_parameters(plain),
        "added": count_parameters(selector_of(model)),
        "latency": round(100 * (float(np.median(ratios)) - 1), 2),
        "latency_quartiles": [round(100 * (float(np.quantile(ratios, q)) - 1), 2) for q in (0.25, 0.75)],
        "sentences": len(batch),
        "rounds": rounds,
    }


def block_gradients(loss: ContrastiveLoss, features: dict[str, Tensor]) -> dict[str, Any]:
    """Return norms of the loss's gradient by block, of the model as it is (appendix C).

    `direct`: what the fusion itself sends to a block's output, not what comes through later blocks: the paper's factor
    K, whose dependence on the block is the point of the appendix. Blocks outside the fusion get 0. `total`: the
    gradient of the block's own parameters, which is what moves it; blocks that share parameters share it.
    """
    model: Any = loss.model
    blocks = _blocks(model[0].auto_model)
    loss.train()
    loss.zero_grad(set_to_none=True)
    loss([features]).backward()
    total = [_norm([p.grad for p in block.parameters()]) for block in blocks]
    loss.zero_grad(set_to_none=True)
    states: list[Tensor] = []

    def cut(_: Any, __: Any, output: dict[str, Any]) -> dict[str, Any]:
        """Cut the graph between encoder and selector: what arrives at a state then came through the fusion."""
        states[:] = [state.detach().requires_grad_() for state in output["all_layer_embeddings"]]
        return {**output, "all_layer_embeddings": tuple(states)}

    hook = model[0].register_forward_hook(cut)
    try:
        loss([features]).backward()
    finally:
        hook.remove()
    direct = [_norm([state.grad]) for state in states[len(states) - len(blocks) :]]  # without the embeddings
    loss.zero_grad(set_to_none=True)
    return {"direct": direct, "total": total, "blocks": list(selector_of(model).block_numbers)}


def _blocks(encoder: Any) -> Sequence[nn.Module]:
    """Return the encoder's blocks in the order they run, a shared one as often as it runs."""
    backbone = Backbone.of(encoder)
    if backbone.blocks is not None:
        return backbone.blocks
    stacks = [module for module in encoder.modules() if isinstance(module, nn.ModuleList)]
    return next(list(stack) for stack in stacks if len(stack) == backbone.depth)


def _norm(tensors: Sequence[Tensor | None]) -> float:
    return float(sum(float(tensor.double().square().sum()) for tensor in tensors if tensor is not None) ** 0.5)
