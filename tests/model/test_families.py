"""What must hold for every family of backbones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

import s2sent
from conftest import DEPTH, DIM, FAMILIES, PRE_NORM, SENTENCES
from model.tiny import block_states, enliven, expected, pooling_of, tiny, with_gradients
from s2sent.errors import ModelError
from s2sent.model.backbone import keep_blocks

families = pytest.mark.parametrize("family", FAMILIES)
BackboneOf = Callable[[str], Path]


@families
def test_vectors_are_those_of_the_oracle_on_transformers_own_blocks(family: str, backbone_of: BackboneOf) -> None:
    model = tiny(backbone_of(family))
    states = block_states(backbone_of(family), family, SENTENCES, model.max_seq_length)
    vectors = model.encode(SENTENCES)
    np.testing.assert_allclose(vectors, expected(model, states, [DEPTH - 2, DEPTH - 1, DEPTH]), rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(np.ptp(vectors, axis=0) > 1e-2, True)  # and the sentences do differ


@families
@pytest.mark.parametrize(
    ("blocks", "numbers"), [((1, -1), [1, 4]), ((2,), [2]), ((1, 2, 3), [1, 2, 3]), (4, [1, 2, 3, 4])]
)
def test_any_blocks_can_be_chosen(
    family: str, blocks: int | tuple[int, ...], numbers: list[int], backbone_of: BackboneOf
) -> None:
    model = tiny(backbone_of(family), blocks=blocks)
    states = block_states(backbone_of(family), family, SENTENCES, model.max_seq_length)[:4]
    np.testing.assert_allclose(model.encode(SENTENCES[:4]), expected(model, states, numbers), rtol=1e-4, atol=2e-5)


@families
@pytest.mark.parametrize(
    "options",
    [{}, {"squeeze": "none"}, {"fusion": "average"}, {"pooling": "cls"}, {"blocks": (0, 1, 4), "bias": True}],
)
def test_streamed_equals_hidden_states(family: str, options: dict[str, str], backbone_of: BackboneOf) -> None:
    model = tiny(backbone_of(family), **options)
    np.testing.assert_allclose(
        model.encode(SENTENCES, batch_size=5), torch.cat([with_gradients(model, [s]) for s in SENTENCES]), atol=1e-5
    )
    in_order = sorted(SENTENCES, key=len, reverse=True)  # as `encode` batches them
    torch.testing.assert_close(
        model.encode(in_order, convert_to_tensor=True), with_gradients(model, in_order), rtol=1e-6, atol=1e-6
    )


@families
def test_the_embeddings_are_streamed_as_the_model_gives_them(family: str, backbone_of: BackboneOf) -> None:
    model = tiny(backbone_of(family), blocks=(0, 2), block_scales=(2.0, 0.5))
    seen = []
    handle = model[0].register_forward_hook(lambda *args: seen.append(args[2].get("all_layer_embeddings")))
    vectors = model.encode(SENTENCES, convert_to_tensor=True)
    handle.remove()
    torch.testing.assert_close(vectors, with_gradients(model, SENTENCES), rtol=1e-5, atol=1e-5)
    if family != "deberta-conv":  # whose first block is followed by a convolution: it is asked for its hidden states
        assert seen[0] is None  # nothing was kept beyond its block


@families
def test_without_its_upper_blocks_an_encoder_gives_the_same_lower_ones(
    family: str, backbone_of: BackboneOf, tmp_path: Path
) -> None:
    whole = tiny(backbone_of(family), blocks=(0, 1, 2))
    cut = copy.deepcopy(whole)
    if family in ("albert-groups", "albert-inner"):
        with pytest.raises(ModelError, match="cannot be cut"):
            keep_blocks(cut[0].auto_model, 2)
        return
    keep_blocks(cut[0].auto_model, 2)
    cut = SentenceTransformer(modules=list(cut), device="cpu")
    np.testing.assert_allclose(cut.encode(SENTENCES), whole.encode(SENTENCES), rtol=1e-5, atol=1e-5)
    cut.save(str(tmp_path))
    loaded = s2sent.load(tmp_path, device="cpu")
    assert loaded[0].auto_model.config.num_hidden_layers == 2
    np.testing.assert_allclose(loaded.encode(SENTENCES), whole.encode(SENTENCES), rtol=1e-5, atol=1e-5)
    if family != "albert":  # which has one block, however often it runs
        assert sum(p.numel() for p in loaded.parameters()) < sum(p.numel() for p in whole.parameters())


@families
def test_a_sentence_alone_and_in_a_padded_batch_of_64_agree(family: str, backbone_of: BackboneOf) -> None:
    model = tiny(backbone_of(family))
    texts = [f"{a} {b}" for a in SENTENCES[:8] for b in SENTENCES[:8]]
    together = model.encode(texts, batch_size=64)
    for i in range(0, 64, 5):
        np.testing.assert_allclose(model.encode(texts[i]), together[i], rtol=1e-5, atol=1e-5)


@families
def test_saved_and_loaded_vectors_are_bit_identical(family: str, backbone_of: BackboneOf, tmp_path: Path) -> None:
    model = tiny(backbone_of(family))
    before = model.encode(SENTENCES)
    model.save(str(tmp_path))
    assert np.array_equal(s2sent.load(tmp_path, device="cpu").encode(SENTENCES), before)
    plain = SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
    assert np.array_equal(plain.encode(SENTENCES), before)
    assert np.array_equal(model.encode(SENTENCES), before)


@families
@pytest.mark.parametrize("mode", ["mean", "cls"])
def test_last_block_alone_is_the_hosts_own_pooling(family: str, mode: str, backbone_of: BackboneOf) -> None:
    ours = s2sent.build(backbone_of(family), blocks=1, fusion="last", gate="none", pooling=mode, device="cpu")
    encoder = Transformer(str(backbone_of(family)))
    encoder.max_seq_length = ours.max_seq_length
    host = SentenceTransformer(modules=[encoder, Pooling(DIM, pooling_mode=mode)], device="cpu")
    np.testing.assert_allclose(ours.encode(SENTENCES), host.encode(SENTENCES), rtol=1e-6, atol=1e-6)


@families
def test_prior_last_starts_as_the_encoder_itself(family: str, backbone_of: BackboneOf) -> None:
    ours = s2sent.build(backbone_of(family), reduction=4, gate="linear", prior="last", device="cpu")
    last = s2sent.build(backbone_of(family), blocks=1, fusion="last", gate="none", device="cpu")
    a, b = (torch.tensor(m.encode(SENTENCES)) for m in (ours, last))
    assert torch.cosine_similarity(a, b).min() > 0.998


@families
def test_token_vectors_are_the_fused_blocks(family: str, backbone_of: BackboneOf) -> None:
    """Fused by hand from transformers' blocks with the weights that the model reports; their mean is the vector."""
    model = tiny(backbone_of(family))
    states = block_states(backbone_of(family), family, SENTENCES, model.max_seq_length)
    tokens = model.encode(SENTENCES, output_value="token_embeddings")
    reports = model.encode(SENTENCES, output_value=None)
    vectors = model.encode(SENTENCES)
    for u, of_tokens, report, vector in zip(states, tokens, reports, vectors, strict=True):
        weights = report["block_weights"].numpy()
        assert weights.shape == (3, DIM)
        np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=1e-5)
        fused = np.einsum("nd,nld->ld", weights, u[-3:])
        of_tokens = of_tokens[-len(fused) :]  # the host leaves padding on the left where it is
        np.testing.assert_allclose(of_tokens.numpy(), fused, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(of_tokens.numpy().mean(axis=0), vector, rtol=1e-4, atol=2e-5)


@families
def test_gradients_reach_the_selector_and_every_chosen_block(family: str, backbone_of: BackboneOf) -> None:
    model = tiny(backbone_of(family)).train()
    model(model.preprocess(SENTENCES))["sentence_embedding"].square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in pooling_of(model).parameters())
    states = [torch.randn(2, 5, DIM, requires_grad=True) for _ in range(3)]
    pooling_of(model).selector(states).embedding.square().sum().backward()
    assert all(u.grad is not None and u.grad.abs().sum() > 0 for u in states)
    backbone = pooling_of(model)._backbone
    assert backbone is not None
    for block in backbone.blocks or []:
        assert sum(p.grad.abs().sum() for p in block.parameters() if p.grad is not None) > 0


@pytest.mark.parametrize("family", PRE_NORM)
def test_blocks_of_a_pre_norm_model_are_on_one_scale(family: str, backbone_of: BackboneOf) -> None:
    states = block_states(backbone_of(family), family, SENTENCES, 128)[:3]
    one_block = [tiny(backbone_of(family), blocks=(k,), fusion="last", gate="none") for k in (1, 2, 4)]
    for k, model in zip((1, 2, 4), one_block, strict=True):
        own = np.stack([u[k].mean(axis=0) for u in states])
        np.testing.assert_allclose(model.encode(SENTENCES[:3]), own, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert", "qwen3"])
def test_copied_models_are_models_of_their_own(family: str, backbone_of: BackboneOf) -> None:
    model = tiny(backbone_of(family))
    before = model.encode(SENTENCES)
    copied = copy.deepcopy(model)
    assert np.array_equal(copied.encode(SENTENCES), before)
    enliven(copied, seed=9)
    with torch.no_grad():
        for parameter in copied[0].parameters():
            parameter.mul_(1.5)
    changed = copied.encode(SENTENCES)
    assert np.abs(changed - before).max() > 1e-2
    np.testing.assert_allclose(changed, with_gradients(copied, SENTENCES), rtol=1e-5, atol=1e-5)
    assert np.array_equal(model.encode(SENTENCES), before)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["roberta", "qwen3", "llama"])  # BERT itself counts positions from the left edge
def test_the_side_of_the_padding_changes_nothing(family: str, side: str, backbone_of: BackboneOf) -> None:
    model = tiny(backbone_of(family))
    model.tokenizer.padding_side = side
    together = model.encode(SENTENCES)
    alone = np.stack([model.encode(text) for text in SENTENCES])
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_backbones_give_near_vectors(family: str, dtype: torch.dtype, backbone_of: BackboneOf) -> None:
    full = tiny(backbone_of(family))
    half = tiny(backbone_of(family), model_kwargs={"dtype": dtype})
    a, b = torch.tensor(full.encode(SENTENCES)), half.encode(SENTENCES, convert_to_tensor=True)
    assert b.dtype == dtype
    assert torch.cosine_similarity(a, b.float()).min() > 0.99
