"""The selection of one sentence in float64, as the design words it. Nothing here is taken from the package."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s2sent.selection import SelectionConfig, Selector

Array = npt.NDArray[np.float64]


@dataclass
class Answer:
    embedding: Array  # (d,)
    weights: Array  # (n, d)
    tokens: Array  # (l, d)


@lru_cache
def frequencies_of(count: int, blocks: int) -> list[tuple[int, int]]:
    """Every pair on a grid that is far too large, lowest first."""
    pairs = [(a, b) for a in range(40) for b in range(70)]
    pairs.sort(key=lambda pair: (pair[0] * pair[0] + pair[1] * pair[1], pair[0]))
    return [pair for pair in pairs if pair[0] < blocks][:count]


def parts_of(dim: int, parts: int) -> list[list[int]]:
    """Deal out the features: as equal as they come, the first dim mod parts one larger."""
    sizes = [0] * parts
    for feature in range(dim):
        sizes[feature % parts] += 1
    features = iter(range(dim))
    return [[next(features) for _ in range(size)] for size in sizes]


def squeeze_by_loops(u: Array, count: int, scale: str) -> Array:
    """Squeeze (n, l, d) to (d,): nothing but sums of products."""
    N, L, D = u.shape
    f = np.zeros(D)
    for (a, b), features in zip(frequencies_of(count, N), parts_of(D, count), strict=True):
        constant = {
            "mean": 1 / (N * L),
            "orthonormal": math.sqrt(2 if a else 1) * math.sqrt(2 if b else 1) / math.sqrt(N * L),
            "sum": 1.0,
        }[scale]
        for d in features:
            for n in range(N):
                for k in range(L):
                    basis = math.cos(math.pi * a * (n + 0.5) / N) * math.cos(math.pi * b * (k + 0.5) / L)
                    f[d] += constant * basis * u[n, k, d]
    return f


def squeeze(u: Array, count: int, scale: str) -> Array:
    """`squeeze_by_loops`, with the two inner loops as a product."""
    N, L, D = u.shape
    f = np.zeros(D)
    for (a, b), features in zip(frequencies_of(count, N), parts_of(D, count), strict=True):
        over_blocks = np.array([math.cos(math.pi * a * (n + 0.5) / N) for n in range(N)])
        over_tokens = np.array([math.cos(math.pi * b * (k + 0.5) / L) for k in range(L)])
        if scale == "mean":
            over_blocks, over_tokens = over_blocks / N, over_tokens / L
        if scale == "orthonormal":
            over_blocks = over_blocks / np.linalg.norm(over_blocks)
            over_tokens = over_tokens * math.sqrt((2 if b else 1) / L)
        f[features] = over_blocks @ np.einsum("nld,l->nd", u[:, :, features], over_tokens)
    return f


def excite(f: Array, w1: Array, w2: Array, config: SelectionConfig) -> Array:
    """(…, d) to (…, n, d); W₁ (h, d), W₂ (n, d, h)."""
    s = f @ w1.T
    s = np.tanh(s) if config.activation == "tanh" else np.maximum(0, s)
    e = np.stack([s @ w.T for w in w2], axis=-2)
    return 1 / (1 + np.exp(-e)) if config.gate == "sigmoid" else e


def softmax(e: Array, axis: int) -> Array:
    exp = np.exp(e - e.max(axis=axis, keepdims=True))
    return exp / exp.sum(axis=axis, keepdims=True)


def select(u: Array, config: SelectionConfig, parameters: dict[str, Array], pool: Array | None = None) -> Answer:
    """Select from one sentence's real tokens u (n, l, d); `pool` (l,) defaults to the mean."""
    given, L, D = u.shape
    if config.block_scales:
        u = np.stack([states / scale for states, scale in zip(u, config.block_scales, strict=True)])
    pool = np.full(L, 1 / L) if pool is None else pool
    if config.fusion != "stack":
        u = u[-1:] if config.fusion == "last" else u.mean(axis=0, keepdims=True)
    N = len(u)

    if config.gate == "none":
        per_token = np.ones((L, N, D))
    elif config.gate == "static":
        per_token = np.broadcast_to(softmax(parameters["block_logits"], 0)[None, :, None], (L, N, D))
    elif config.gate == "per_feature":
        per_token = np.broadcast_to(softmax(parameters["feature_logits"], 0)[None], (L, N, D))
    else:
        W1 = parameters["reduce.weight"]
        W2 = parameters["expand.weight"].reshape(N, D, len(W1))
        if config.squeeze == "none":
            e = np.stack([np.stack([excite(u[n, k], W1, W2, config)[n] for n in range(N)]) for k in range(L)])
        else:
            f = squeeze(u, config.frequencies if config.squeeze == "dct" else 1, config.scale)
            e = np.broadcast_to(excite(f, W1, W2, config), (L, N, D))
        if config.prior == "last" or config.bias:
            e = e + parameters["block_logits"][None, :, None]
        per_token = e if N == 1 else softmax(e, axis=1)

    tokens = np.einsum("lnd,nld->ld", per_token, u)
    weights = per_token.mean(axis=0)
    if config.fusion == "average":  # the average is itself the same share of every block
        weights = np.repeat(weights, given, axis=0) / given
    return Answer(pool @ tokens, weights, tokens)


def parameters_of(selector: Selector) -> dict[str, Array]:
    return {name: value.detach().double().numpy() for name, value in selector.named_parameters()}


def answers(
    selector: Selector, sentences: list[Array], pools: list[Array] | None = None
) -> tuple[Array, Array, list[Array]]:
    """The embeddings, weights and token vectors of sentences (n, l, d), each by itself."""
    parameters = parameters_of(selector)
    every = [
        select(u, selector.config, parameters, None if pools is None else pools[i]) for i, u in enumerate(sentences)
    ]
    return np.stack([a.embedding for a in every]), np.stack([a.weights for a in every]), [a.tokens for a in every]


# --- batches -----------------------------------------------------------------------------------------------------


def ragged(rng: np.random.Generator, blocks: int, dim: int, lengths: list[int]) -> list[Array]:
    """Sentences (n, l, d) whose blocks and features differ in mean, so that no frequency is idle."""
    offsets = rng.normal(size=(blocks, 1, dim))
    return [rng.normal(size=(blocks, length, dim)) + offsets for length in lengths]


def padded(sentences: list[Array], side: str = "right", garbage: float = 0.0) -> tuple[list[Tensor], Tensor]:
    """Lay out sentences as a batch: hidden states [(b, l, d)] and the attention mask; padding holds `garbage`."""
    width = max(u.shape[1] for u in sentences) + (2 if side == "both" else 0)
    N, _, D = sentences[0].shape
    states = np.full((N, len(sentences), width, D), garbage)
    mask = np.zeros((len(sentences), width), dtype=np.int64)
    for b, u in enumerate(sentences):
        start = {"right": 0, "left": width - u.shape[1], "both": 1}[side]
        states[:, b, start : start + u.shape[1]] = u
        mask[b, start : start + u.shape[1]] = 1
    return list(torch.tensor(states, dtype=torch.float32).unbind(0)), torch.tensor(mask)


def flat(sentences: list[Array]) -> tuple[list[Tensor], Tensor]:
    """Lay out sentences end to end: hidden states [(1, Σ, d)] and their cumulative lengths."""
    states = torch.tensor(np.concatenate(sentences, axis=1), dtype=torch.float32)
    lengths = torch.tensor([0] + [u.shape[1] for u in sentences])
    return [block[None] for block in states.unbind(0)], lengths.cumsum(0).int()


def lively(dim: int, config: SelectionConfig, seed: int = 0, size: float = 0.4) -> Selector:
    """A selector whose weights are large enough that every part of it shows in the result."""
    selector = Selector(dim, config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in selector.parameters():
            parameter.normal_(0, size, generator=generator)
    return selector.eval()


def every_config(blocks: int, frequencies: int, reduction: int) -> list[SelectionConfig]:
    """Each distinct legal form of the selection for these numbers."""
    options: list[dict[str, Any]] = []
    for fusion in ("stack", "average", "last"):
        alone = blocks == 1 or fusion != "stack"
        for prior in ("uniform",) if alone else ("uniform", "last"):
            for gate in ("sigmoid",) if alone else ("sigmoid", "linear"):
                for activation in ("relu", "tanh"):
                    fixed = {"fusion": fusion, "gate": gate, "prior": prior, "activation": activation}
                    for scale in ("mean", "orthonormal", "sum"):
                        options.append({**fixed, "squeeze": "dct", "scale": scale})
                        options.append({**fixed, "squeeze": "gap", "scale": scale})
                    options.append({**fixed, "squeeze": "none"})
        if fusion == "stack" and not alone:
            options += [{"gate": gate, "prior": p} for gate in ("static", "per_feature") for p in ("uniform", "last")]
            scales = tuple(0.5 + n for n in range(blocks))
            for squeeze in ("dct", "none"):
                options += [{"gate": gate, "bias": True, "squeeze": squeeze} for gate in ("sigmoid", "linear")]
                options.append({"gate": "linear", "bias": True, "squeeze": squeeze, "block_scales": scales})
            options.append({"gate": "static", "block_scales": scales})
        if fusion != "stack":
            options.append({"fusion": fusion, "gate": "none"})
        if fusion == "average":
            options.append({"fusion": fusion, "block_scales": tuple(0.5 + n for n in range(blocks))})
    return [SelectionConfig(blocks=blocks, frequencies=frequencies, reduction=reduction, **o) for o in options]
