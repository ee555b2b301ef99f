"""Selecting while the encoder runs: nothing is kept, nothing is mixed up, nothing is left behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from conftest import DEPTH, SENTENCES
from model.tiny import pooling_of, tiny, with_gradients
from s2sent.model import stream

BackboneOf = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _no_pass_of_another_test() -> None:
    stream._running.set(())


@pytest.fixture
def model(bert: Path) -> SentenceTransformer:
    return tiny(bert)


def blocks_of(model: SentenceTransformer) -> nn.ModuleList:
    blocks: nn.ModuleList = model[0].auto_model.encoder.layer
    return blocks


def test_no_hidden_state_outlives_its_block(model: SentenceTransformer) -> None:
    """When block k runs, the outputs of the blocks before k − 1 are gone."""
    outputs: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def before(*_: Any) -> None:
        alive.append(sum(ref() is not None for ref in outputs))

    def after(_: nn.Module, __: Any, output: Any) -> None:
        outputs.append(weakref.ref(output[0] if isinstance(output, tuple) else output))

    for block in blocks_of(model):
        block.register_forward_pre_hook(before)
        block.register_forward_hook(after)
    gc.disable()  # they must go by themselves
    try:
        model.encode(SENTENCES[:4])
    finally:
        gc.enable()
    assert len(outputs) == DEPTH
    assert max(alive) <= 1
    assert sum(ref() is not None for ref in outputs) == 0


def test_features_hold_no_states_but_give_token_vectors_on_demand(model: SentenceTransformer) -> None:
    with torch.no_grad():
        features = model(model.preprocess(SENTENCES))
    assert "all_layer_embeddings" not in features
    assert "token_embeddings" not in features
    shape = features["input_ids"].shape
    assert features["token_embeddings"].shape == (*shape, 32)
    with pytest.raises(KeyError):
        features["no such thing"]


def test_the_encoder_runs_once_unless_token_vectors_are_wanted(model: SentenceTransformer) -> None:
    runs: list[int] = []
    blocks_of(model)[0].register_forward_hook(lambda *_: runs.append(1))
    model.encode(SENTENCES[:4])
    assert len(runs) == 1
    model.encode(SENTENCES[:4], output_value="token_embeddings")
    assert len(runs) == 3


def test_two_threads_can_share_a_model(model: SentenceTransformer) -> None:
    parts = [SENTENCES[:3], SENTENCES[3:6], SENTENCES[6:], SENTENCES[::-1]]
    serial = [model.encode(part) for part in parts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for expected, given in zip(serial, pool.map(model.encode, parts), strict=True):
                np.testing.assert_allclose(given, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("block", [0, 2, 3])
def test_an_encoder_that_fails_midway_leaves_nothing_behind(
    model: SentenceTransformer, block: int, error: type[BaseException]
) -> None:
    before = model.encode(SENTENCES)

    def fail(*_: Any) -> None:
        raise error("in the middle")

    handle = blocks_of(model)[block].register_forward_pre_hook(fail)
    with pytest.raises(error, match="in the middle"):
        model.encode(SENTENCES[:2])
    handle.remove()
    if error is RuntimeError:  # torch calls no hook on Ctrl-C: an open pass stays, and must do no harm
        assert stream._running.get() == ()
    model[0].forward(model.preprocess(SENTENCES[3:7]))
    np.testing.assert_allclose(with_gradients(model, SENTENCES), before, rtol=1e-5, atol=1e-5)
    assert np.array_equal(model.encode(SENTENCES), before)


def test_training_after_an_interrupted_encode_sees_its_own_batch(model: SentenceTransformer) -> None:
    """Ctrl-C in a notebook, then a training step."""
    expected = with_gradients(model, SENTENCES[3:5])

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    handle = blocks_of(model)[0].register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.encode(SENTENCES[:2])
    handle.remove()
    torch.testing.assert_close(with_gradients(model, SENTENCES[3:5]), expected)


def test_nothing_is_left_after_encoding(model: SentenceTransformer) -> None:
    model.encode(SENTENCES)
    assert stream._running.get() == ()
    with_gradients(model, SENTENCES)
    assert stream._running.get() == ()


def test_the_encoder_alone_runs_as_ever(model: SentenceTransformer) -> None:
    """Blocks and encoder called directly, outside of a pass."""
    inputs = model.preprocess(SENTENCES[:2])
    keys = ("input_ids", "attention_mask")
    with torch.no_grad():
        out = model[0].auto_model(**{key: inputs[key] for key in keys})
    assert len(out.hidden_states) == DEPTH + 1
    assert stream._running.get() == ()


def test_putting_the_modules_together_again_does_not_stack_hooks(model: SentenceTransformer) -> None:
    before = model.encode(SENTENCES)
    hooks = len(model[0]._forward_hooks), len(blocks_of(model)[0]._forward_hooks)
    again = SentenceTransformer(modules=list(model), device="cpu")
    assert (len(model[0]._forward_hooks), len(blocks_of(model)[0]._forward_hooks)) == hooks
    assert np.array_equal(again.encode(SENTENCES), before)


@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"])
def test_autocast_streams_what_it_computes_from_hidden_states(family: str, backbone_of: BackboneOf) -> None:
    model = tiny(backbone_of(family))
    texts = sorted(SENTENCES, key=len, reverse=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        streamed = model.encode(texts, convert_to_tensor=True).float()
        whole = with_gradients(model, texts).float()
    torch.testing.assert_close(streamed, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"pooling": "cls"}, {"squeeze": "none"}, {"blocks": (1, -1)}])
def test_flat_features_of_unpadded_attention_give_the_same_vectors(options: dict[str, Any], bert: Path) -> None:
    model = tiny(bert, **options)
    texts = SENTENCES[:4]
    padded = model.preprocess(texts)
    with torch.no_grad():
        states = model[0].auto_model(padded["input_ids"], padded["attention_mask"]).hidden_states
    mask = padded["attention_mask"].bool()
    features = {
        "input_ids": padded["input_ids"][mask][None],
        "attention_mask": None,
        "all_layer_embeddings": tuple(u[mask][None] for u in states),
        "cu_seq_lens_q": torch.tensor([0, *mask.sum(dim=1).cumsum(0).tolist()], dtype=torch.int32),
    }
    out = pooling_of(model)(features)
    np.testing.assert_allclose(out["sentence_embedding"].detach(), model.encode(texts), rtol=1e-5, atol=1e-5)
    assert out["token_embeddings"].shape == (1, int(mask.sum()), 32)


@pytest.mark.parametrize("place", [-1, 0])
def test_flat_mask_pooling_takes_the_last_mask_of_each_sentence(place: int, bert: Path) -> None:
    model = tiny(bert, pooling="mask")
    texts = ["[MASK] is a much longer sentence [MASK] than.", "[MASK]!", "So [MASK] it is."]
    padded = model.preprocess(texts)
    with torch.no_grad():
        states = model[0].auto_model(padded["input_ids"], padded["attention_mask"]).hidden_states
    mask = padded["attention_mask"].bool()
    features = {
        "input_ids": padded["input_ids"][mask][None],
        "all_layer_embeddings": tuple(u[mask][None] for u in states),
        "cu_seq_lens_q": torch.tensor([0, *mask.sum(dim=1).cumsum(0).tolist()], dtype=torch.int32),
    }
    out = pooling_of(model)(features)["sentence_embedding"].detach()
    np.testing.assert_allclose(out[place], model.encode(texts)[place], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("what", ["encoder", pytest.param("model", marks=pytest.mark.long)])
def test_a_compiled_model_gives_the_same_vectors(what: str, model: SentenceTransformer) -> None:
    torch._dynamo.reset()
    before = model.encode(SENTENCES[:3])
    if what == "encoder":
        model[0].auto_model.compile(backend="eager", dynamic=True)
    else:
        model.compile(backend="eager", dynamic=True)
    np.testing.assert_allclose(model.encode(SENTENCES[:3]), before, rtol=1e-5, atol=1e-5)
