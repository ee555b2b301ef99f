"""The selector against float64 arithmetic on each sentence alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
import torch

from s2sent.selection import SelectionConfig, Selector, TokenLayout
from selection import oracle

DIM = 24
LENGTHS = [5, 1, 9, 2]


def close(given: torch.Tensor, expected: np.ndarray, message: str) -> None:
    np.testing.assert_allclose(given.detach().double().numpy(), expected, rtol=1e-5, atol=1e-5, err_msg=message)


@pytest.mark.parametrize("frequencies", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("blocks", [1, 2, 3, 6, 12])
def test_every_form_agrees_with_the_oracle_in_every_layout(blocks: int, frequencies: int) -> None:
    rng = np.random.default_rng(100 * blocks + frequencies)
    sentences = oracle.ragged(rng, blocks, DIM, LENGTHS)
    pools = [rng.normal(size=length) for length in LENGTHS]
    for i, config in enumerate(oracle.every_config(blocks, frequencies, reduction=4)):
        # a sum over 12 × 9 tokens is large, and the softmax of large numbers is not fp32's best side
        selector = oracle.lively(DIM, config, seed=i, size=0.1 if config.scale == "sum" else 0.4)
        side = ("right", "left", "both")[i % 3]
        states, mask = oracle.padded(sentences, side)
        embeddings, weights, tokens = oracle.answers(selector, sentences)

        out = selector(states, mask)
        close(out.embedding, embeddings, f"{config} {side}")
        close(out.weights, weights, f"{config} {side}")
        for b, expected in enumerate(tokens):
            close(out.tokens()[b][mask[b].bool()], expected, f"{config} {side}")

        flat_states, cu_seq_lens = oracle.flat(sentences)
        out = selector(flat_states, cu_seq_lens=cu_seq_lens)
        close(out.embedding, embeddings, f"{config} flat")
        close(out.weights, weights, f"{config} flat")
        close(out.tokens()[0], np.concatenate(tokens), f"{config} flat")

        pool = torch.zeros(mask.shape)
        for b, row in enumerate(pools):
            pool[b, mask[b].bool()] = torch.tensor(row, dtype=torch.float32)
        embeddings, weights, _ = oracle.answers(selector, sentences, pools)
        out = selector(states, mask, pool=pool)
        close(out.embedding, embeddings, f"{config} {side} pooled")
        close(out.weights, weights, f"{config} {side} pooled")
        flat_pool = torch.tensor(np.concatenate(pools), dtype=torch.float32)[None]
        out = selector(flat_states, cu_seq_lens=cu_seq_lens, pool=flat_pool)
        close(out.embedding, embeddings, f"{config} flat pooled")


@pytest.mark.parametrize("scale", ["mean", "orthonormal", "sum"])
@pytest.mark.parametrize(("blocks", "frequencies"), [(1, 4), (3, 8), (4, 16)])
def test_squeeze_is_the_sum_that_the_paper_writes(blocks: int, frequencies: int, scale: str) -> None:
    sentences = oracle.ragged(np.random.default_rng(1), blocks, DIM, LENGTHS)
    f = _squeezed(sentences, SelectionConfig(blocks=blocks, frequencies=frequencies, reduction=4, scale=scale))
    for b, u in enumerate(sentences):
        close(f[b], oracle.squeeze_by_loops(u, frequencies, scale), f"sentence {b}")


@pytest.mark.parametrize("blocks", [1, 2, 3, 6, 12])
@pytest.mark.parametrize("frequencies", [1, 2, 4, 8, 16])
def test_squeeze_is_scipys_dct_of_each_sentence_alone(blocks: int, frequencies: int) -> None:
    pairs = oracle.frequencies_of(frequencies, blocks)
    shortest = 1 + max(b for _, b in pairs)  # scipy's has no frequency beyond the length
    sentences = oracle.ragged(np.random.default_rng(2), blocks, DIM, [shortest, shortest + 3, shortest + 1])
    config = {"blocks": blocks, "frequencies": frequencies, "reduction": 4}
    ortho = _squeezed(sentences, SelectionConfig(**config, scale="orthonormal"))
    plain = _squeezed(sentences, SelectionConfig(**config, scale="sum"))
    mean = _squeezed(sentences, SelectionConfig(**config, scale="mean"))
    for i, u in enumerate(sentences):
        transforms = {norm: scipy.fft.dctn(u, type=2, axes=(0, 1), norm=norm) for norm in ("ortho", "backward")}
        for (a, b), features in zip(pairs, oracle.parts_of(DIM, frequencies), strict=True):
            close(ortho[i][features], transforms["ortho"][a, b, features], f"{a, b}")
            close(plain[i][features], transforms["backward"][a, b, features] / 4, f"{a, b}")
            count = u.shape[0] * u.shape[1]
            close(mean[i][features], transforms["backward"][a, b, features] / 4 / count, f"{a, b}")


def _squeezed(sentences: list[np.ndarray], config: SelectionConfig) -> torch.Tensor:
    """What the gate sees, off the public steps: project every block, then squeeze."""
    selector = Selector(DIM, config)
    states, mask = oracle.padded(sentences)
    basis = selector.token_basis(TokenLayout.padded(mask))
    projections = torch.stack([basis.project(u) for u in states], dim=1)
    return selector.squeeze(projections, basis.layout.lengths)


def test_lowest_frequency_is_exactly_the_mean() -> None:
    sentences = oracle.ragged(np.random.default_rng(3), 3, DIM, LENGTHS)
    f = _squeezed(sentences, SelectionConfig(blocks=3, frequencies=1, reduction=4))
    close(f, np.stack([u.mean(axis=(0, 1)) for u in sentences]), "")


@pytest.mark.parametrize("scale", ["mean", "orthonormal", "sum"])
def test_gap_is_dct_with_one_frequency(scale: str) -> None:
    states, mask = oracle.padded(oracle.ragged(np.random.default_rng(4), 3, DIM, LENGTHS))
    gap = oracle.lively(DIM, SelectionConfig(squeeze="gap", scale=scale, frequencies=8))
    dct = oracle.lively(DIM, SelectionConfig(squeeze="dct", scale=scale, frequencies=1))
    assert torch.equal(gap(states, mask).embedding, dct(states, mask).embedding)


def test_plain_baselines_are_the_means_over_tokens_and_blocks() -> None:
    sentences = oracle.ragged(np.random.default_rng(5), 3, DIM, LENGTHS)
    states, mask = oracle.padded(sentences)
    last = Selector(DIM, SelectionConfig(fusion="last", gate="none"))
    close(last(states, mask).embedding, np.stack([u[-1].mean(axis=0) for u in sentences]), "last")
    average = Selector(DIM, SelectionConfig(fusion="average", gate="none"))
    close(average(states, mask).embedding, np.stack([u.mean(axis=(0, 1)) for u in sentences]), "average")
    static = Selector(DIM, SelectionConfig(gate="static"))  # starts with equal weights
    close(static(states, mask).embedding, np.stack([u.mean(axis=(0, 1)) for u in sentences]), "static")
