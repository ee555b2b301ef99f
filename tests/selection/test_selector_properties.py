"""What must hold for any selector, whatever its numbers."""

from __future__ import annotations

import io
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from s2sent.selection import Selection, SelectionConfig, Selector
from selection import oracle

DIM = 24
LENGTHS = [5, 1, 9, 2]

# One of each kind: the paper's, every way to squeeze, gate, fuse and start.
KINDS = {
    "paper": SelectionConfig(reduction=4),
    "orthonormal": SelectionConfig(reduction=4, scale="orthonormal", frequencies=8),
    "sum": SelectionConfig(reduction=4, scale="sum", activation="tanh"),
    "gap": SelectionConfig(reduction=4, squeeze="gap"),
    "token-gate": SelectionConfig(reduction=4, squeeze="none"),
    "token-gate-1d": SelectionConfig(reduction=4, squeeze="none", fusion="average"),
    "linear": SelectionConfig(reduction=4, gate="linear"),
    "prior": SelectionConfig(reduction=4, gate="linear", prior="last"),
    "static": SelectionConfig(reduction=4, gate="static"),
    "average-1d": SelectionConfig(reduction=4, fusion="average"),
    "last-1d": SelectionConfig(reduction=4, fusion="last"),
    "average": SelectionConfig(reduction=4, fusion="average", gate="none"),
    "last": SelectionConfig(reduction=4, fusion="last", gate="none"),
}
kinds = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS.keys())


@pytest.fixture
def sentences() -> list[np.ndarray]:
    return oracle.ragged(np.random.default_rng(0), 3, DIM, LENGTHS)


# --- parameters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 2, 3, 6, 12])
@pytest.mark.parametrize("reduction", [1, 5, 12, 16])
@pytest.mark.parametrize("dim", [24, 100, 768])
def test_parameters_are_as_many_as_the_paper_counts(blocks: int, reduction: int, dim: int) -> None:
    selector = Selector(dim, SelectionConfig(blocks=blocks, reduction=reduction))
    assert sum(p.numel() for p in selector.parameters()) == dim * (dim // reduction) * (1 + blocks)


@pytest.mark.parametrize(
    ("fusion", "gate", "extra"), [("stack", "static", 6), ("average", "none", 0), ("last", "none", 0)]
)
def test_baselines_learn_a_weight_per_block_or_nothing(fusion: str, gate: str, extra: int) -> None:
    selector = Selector(DIM, SelectionConfig(blocks=6, fusion=fusion, gate=gate))
    assert sum(p.numel() for p in selector.parameters()) == extra


@kinds
def test_state_dict_brings_back_the_same_vectors(config: SelectionConfig, sentences: list[np.ndarray]) -> None:
    states, mask = oracle.padded(sentences)
    first, second = oracle.lively(DIM, config), oracle.lively(DIM, config, seed=5)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(states, mask).embedding, second(states, mask).embedding)


# --- weights ------------------------------------------------------------------------------------------------------


@kinds
def test_weights_explain_the_embedding(config: SelectionConfig, sentences: list[np.ndarray]) -> None:
    states, mask = oracle.padded(sentences, "left")
    out = oracle.lively(DIM, config)(states, mask)
    used = 1 if config.fusion == "last" else 3
    assert out.weights.shape == (len(LENGTHS), used, DIM)
    if config.fusion == "stack":
        torch.testing.assert_close(out.weights.sum(dim=1), torch.ones(len(LENGTHS), DIM))
        assert (out.weights >= 0).all()
    if not config.per_token:
        pooled = torch.tensor(np.stack([u[-used:].mean(axis=1) for u in sentences]), dtype=torch.float32)
        torch.testing.assert_close(out.embedding, (out.weights * pooled).sum(dim=1), rtol=1e-5, atol=1e-5)


@kinds
@pytest.mark.parametrize("layout", ["right", "left", "flat"])
def test_pooled_first_equals_fused_first(config: SelectionConfig, sentences: list[np.ndarray], layout: str) -> None:
    selector = oracle.lively(DIM, config)
    if layout == "flat":
        states, cu_seq_lens = oracle.flat(sentences)
        out = selector(states, cu_seq_lens=cu_seq_lens)
        fused = [out.tokens()[0, a:b].mean(dim=0) for a, b in pairwise(cu_seq_lens)]
    else:
        states, mask = oracle.padded(sentences, layout)
        out = selector(states, mask)
        fused = [tokens[own.bool()].mean(dim=0) for tokens, own in zip(out.tokens(), mask, strict=True)]
    torch.testing.assert_close(out.embedding, torch.stack(fused), rtol=1e-5, atol=1e-5)


@kinds
def test_one_hot_pooling_picks_that_tokens_fused_vector(config: SelectionConfig, sentences: list[np.ndarray]) -> None:
    states, mask = oracle.padded(sentences, "left")
    place = [mask[b].nonzero()[-1].item() for b in range(len(sentences))]
    pool = nn.functional.one_hot(torch.tensor(place), mask.shape[1])
    out = oracle.lively(DIM, config)(states, mask, pool=pool)
    torch.testing.assert_close(out.embedding, out.tokens()[range(len(place)), place], rtol=1e-5, atol=1e-5)


def test_sigmoid_keeps_shares_in_the_band_the_design_names(sentences: list[np.ndarray]) -> None:
    states, mask = oracle.padded(sentences)
    shares = oracle.lively(DIM, SelectionConfig(scale="sum", activation="tanh"), size=20)(states, mask).weights.detach()
    assert shares.min() == pytest.approx(1 / (1 + 2 * math.e), abs=1e-3)
    assert shares.max() == pytest.approx(math.e / (math.e + 2), abs=1e-3)


@pytest.mark.parametrize("gate", ["sigmoid", "linear", "static"])
@pytest.mark.parametrize("blocks", [2, 3, 12])
def test_prior_last_starts_with_99_hundredths_on_the_last_block(blocks: int, gate: str) -> None:
    sentences = oracle.ragged(np.random.default_rng(0), blocks, DIM, LENGTHS)
    states, mask = oracle.padded(sentences)
    out = Selector(DIM, SelectionConfig(blocks=blocks, gate=gate, prior="last"))(states, mask)
    torch.testing.assert_close(out.weights[:, -1], torch.full((len(LENGTHS), DIM), 0.99))
    torch.testing.assert_close(out.weights[:, :-1], torch.full((len(LENGTHS), blocks - 1, DIM), 0.01 / (blocks - 1)))


def test_uniform_start_is_near_equal_shares(sentences: list[np.ndarray]) -> None:
    torch.manual_seed(0)
    states, mask = oracle.padded(sentences)
    shares = Selector(DIM)(states, mask).weights
    assert (shares - 1 / 3).abs().max() < 0.05


# --- padding and batches ------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("garbage", [1e4, -1e30])
def test_what_is_in_the_padding_changes_nothing(
    config: SelectionConfig, sentences: list[np.ndarray], garbage: float
) -> None:
    selector = oracle.lively(DIM, config)
    for side in ("right", "left", "both"):
        clean = selector(*oracle.padded(sentences, side))
        dirty = selector(*oracle.padded(sentences, side, garbage))
        assert torch.equal(clean.embedding, dirty.embedding)
        assert torch.equal(clean.weights, dirty.weights)


@kinds
def test_padding_gets_no_gradient(config: SelectionConfig, sentences: list[np.ndarray]) -> None:
    states, mask = oracle.padded(sentences, "both", 3.0)
    leaves = [u.requires_grad_() for u in states]
    oracle.lively(DIM, config)(leaves, mask).embedding.square().sum().backward()
    for u in leaves:
        assert u.grad is None or not u.grad[mask == 0].any()


@given(
    kind=st.sampled_from(sorted(KINDS)),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_a_sentence_does_not_depend_on_its_batch(kind: str, lengths: list[int], seed: int, data: st.DataObject) -> None:
    """Alone, or at any place of a batch with padding strewn anywhere between its tokens."""
    rng = np.random.default_rng(seed)
    sentences = oracle.ragged(rng, 3, DIM, lengths)
    selector = oracle.lively(DIM, KINDS[kind], seed)
    width = max(lengths) + data.draw(st.integers(0, 5))
    states = torch.tensor(rng.normal(size=(3, len(lengths), width, DIM)), dtype=torch.float32)
    mask = torch.zeros(len(lengths), width, dtype=torch.long)
    for b, u in enumerate(sentences):
        places = sorted(rng.permutation(width)[: u.shape[1]])
        states[:, b, places] = torch.tensor(u, dtype=torch.float32)
        mask[b, places] = 1
    together = selector(list(states), mask).embedding
    for b, u in enumerate(sentences):
        alone = selector([torch.tensor(block, dtype=torch.float32)[None] for block in u]).embedding[0]
        torch.testing.assert_close(together[b], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64, torch.float32])
def test_any_kind_of_mask_will_do(dtype: torch.dtype, sentences: list[np.ndarray]) -> None:
    states, mask = oracle.padded(sentences)
    selector = oracle.lively(DIM, KINDS["paper"])
    assert torch.equal(selector(states, mask.to(dtype)).embedding, selector(states, mask).embedding)


# --- gradients ----------------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_gradients_reach_every_parameter_and_block(
    config: SelectionConfig, sentences: list[np.ndarray], layout: str
) -> None:
    selector = oracle.lively(DIM, config)
    if layout == "flat":
        states, cu_seq_lens = oracle.flat(sentences)
        where = {"cu_seq_lens": cu_seq_lens}
    else:
        states, mask = oracle.padded(sentences)
        where = {"attention_mask": mask}
    leaves = [u.requires_grad_() for u in states]
    torch.manual_seed(1)
    out = selector(leaves, **where).embedding
    (out * torch.randn_like(out)).sum().backward()
    for name, parameter in selector.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    for u in leaves[-1:] if config.fusion == "last" else leaves:
        assert u.grad is not None
        assert u.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", ["paper", "orthonormal", "token-gate", "prior", "static", "average-1d"])
def test_gradients_are_the_slopes_of_the_oracle(kind: str, sentences: list[np.ndarray]) -> None:
    """Central differences of the float64 oracle along a random direction of parameters and states."""
    config = KINDS[kind]
    rng = np.random.default_rng(3)
    selector = oracle.lively(DIM, config)
    states, mask = oracle.padded(sentences)
    leaves = [u.requires_grad_() for u in states]
    seen = rng.normal(size=(len(sentences), DIM))
    (selector(leaves, mask).embedding * torch.tensor(seen)).sum().backward()

    parameters = oracle.parameters_of(selector)
    along = {name: rng.normal(size=value.shape) for name, value in parameters.items()}
    moves = [rng.normal(size=u.shape) for u in sentences]

    def value(step: float) -> float:
        moved = {name: parameters[name] + step * along[name] for name in parameters}
        return sum(
            float(seen[b] @ oracle.select(u + step * moves[b], config, moved).embedding)
            for b, u in enumerate(sentences)
        )

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    exact = sum(
        float((p.grad.double().numpy() * along[name]).sum())
        for name, p in selector.named_parameters()
        if p.grad is not None
    )
    for n, u in enumerate(leaves):
        for b, length in enumerate(LENGTHS):
            if u.grad is not None:
                exact += float((u.grad[b, :length].double().numpy() * moves[b][n]).sum())
    assert exact == pytest.approx(slope, rel=1e-3, abs=1e-3)


# --- precision ----------------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 4e-2), (torch.float16, 5e-3)])
def test_half_precision_comes_close_to_the_oracle(
    config: SelectionConfig, sentences: list[np.ndarray], dtype: torch.dtype, tolerance: float
) -> None:
    selector = oracle.lively(DIM, config, size=0.1).to(dtype)
    states, mask = oracle.padded(sentences)
    states = [u.to(dtype) for u in states]
    rounded = [np.stack([u[b, :length].double().numpy() for u in states]) for b, length in enumerate(LENGTHS)]
    expected, _, _ = oracle.answers(selector, rounded)
    out = selector(states, mask)
    assert out.embedding.dtype == dtype
    assert out.tokens().dtype == dtype
    assert out.weights.dtype == torch.float32
    np.testing.assert_allclose(out.embedding.detach().double().numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_basis_stays_fp32_in_a_half_precision_model(dtype: torch.dtype) -> None:
    """In bf16, position 300 of 301 is indistinguishable from its neighbours, and a long sum drowns."""
    u = np.random.default_rng(0).normal(size=(3, 301, DIM))
    config = SelectionConfig(frequencies=8, scale="orthonormal")
    selector = Selector(DIM, config).to(dtype)
    states = [torch.tensor(block, dtype=dtype)[None] for block in u]
    out = selector(states)
    expected = oracle.squeeze(np.stack([s[0].double().numpy() for s in states]), 8, "orthonormal")
    assert out.projections is not None
    f = selector.squeeze(out.projections, torch.tensor([301]))
    np.testing.assert_allclose(f[0].double().numpy(), expected, rtol=1e-4, atol=1e-4)


@kinds
def test_autocast_leaves_the_selection_in_fp32(config: SelectionConfig, sentences: list[np.ndarray]) -> None:
    selector = oracle.lively(DIM, config)
    states, mask = oracle.padded(sentences)
    plain = selector(states, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = selector(states, mask)
    torch.testing.assert_close(cast.embedding, plain.embedding, rtol=1e-5, atol=1e-5)


# --- compile and export -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["paper", "token-gate", "prior", "average-1d", "last"])
def test_compiled_is_eager_for_any_length(kind: str) -> None:
    torch._dynamo.reset()
    selector = oracle.lively(DIM, KINDS[kind])
    compiled = torch.compile(selector, fullgraph=True, dynamic=True, backend="aot_eager")
    for seed, lengths in enumerate(([3, 5], [7, 2, 4], [11, 6, 1, 3, 2])):
        states, mask = oracle.padded(oracle.ragged(np.random.default_rng(seed), 3, DIM, lengths), "left")
        with torch.no_grad():
            expected, given = selector(states, mask), compiled(states, mask)
        torch.testing.assert_close(given.embedding, expected.embedding)
        torch.testing.assert_close(given.weights, expected.weights)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_compiled_gives_the_same_gradients(sentences: list[np.ndarray], backend: str) -> None:
    torch._dynamo.reset()
    selector = oracle.lively(DIM, KINDS["paper"])
    compiled = torch.compile(selector, fullgraph=True, backend=backend)
    states, mask = oracle.padded(sentences)
    results = []
    for run in (selector, compiled):
        selector.zero_grad()
        embedding = run(states, mask).embedding
        embedding.square().sum().backward()
        results.append((embedding, selector.reduce.weight.grad, selector.expand.weight.grad))
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)


class Flat(nn.Module):
    """What an exporter wants: tensors in, tensors out."""

    def __init__(self, selector: Selector) -> None:
        super().__init__()
        self.selector = selector

    def forward(self, states: list[Tensor], mask: Tensor) -> tuple[Tensor, Tensor]:
        out = self.selector(states, mask)
        return out.embedding, out.weights


@pytest.mark.parametrize("kind", ["paper", "orthonormal", "token-gate", "prior", "static", "average-1d", "last"])
def test_exported_is_eager_for_any_batch_and_length(kind: str) -> None:
    selector = oracle.lively(DIM, KINDS[kind])
    states, mask = oracle.padded(oracle.ragged(np.random.default_rng(0), 3, DIM, [4, 7, 2]))
    sizes = {0: torch.export.Dim("sentences", min=1, max=512), 1: torch.export.Dim("tokens", min=1, max=512)}
    shapes = {"states": [sizes] * 3, "mask": sizes}
    program = torch.export.export(Flat(selector), (states, mask), dynamic_shapes=shapes, strict=False)
    for lengths in ([9, 1], [5, 6, 3, 12], [1, 1]):
        batch = oracle.padded(oracle.ragged(np.random.default_rng(1), 3, DIM, lengths), "left")
        embedding, weights = program.module()(*batch)
        expected = selector(*batch)
        torch.testing.assert_close(embedding, expected.embedding)
        torch.testing.assert_close(weights, expected.weights)


def test_a_selection_survives_export_itself(sentences: list[np.ndarray], tmp_path: Path) -> None:
    selector = oracle.lively(DIM, KINDS["paper"])
    states, mask = oracle.padded(sentences)
    program = torch.export.export(selector, (states, mask), strict=False)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    out = torch.export.load(buffer).module()(states, mask)
    assert isinstance(out, Selection)
    torch.testing.assert_close(out.embedding, selector(states, mask).embedding)
