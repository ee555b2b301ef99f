"""Batches by tokens with a model one can compute by hand; `TorchEncoder` against the host's own `encode`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from conftest import SENTENCES
from model.tiny import tiny
from s2sent.errors import DataError
from s2sent.model.load import open_encoder
from s2sent.model.text import TextPipeline
from s2sent.vectors.encoder import (
    EncodeOptions,
    TorchEncoder,
    UnsupportedModelError,
    encode_function,
    encode_tokens,
    token_batches,
)


@given(st.lists(st.integers(1, 50), max_size=80), st.integers(1, 120))
def test_batches_hold_every_place_once_and_keep_to_the_budget(lengths: list[int], budget: int) -> None:
    batches = list(token_batches(lengths, budget))
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[place] for place in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget
    firsts = [max(lengths[place] for place in batch) for batch in batches]
    assert firsts == sorted(firsts, reverse=True)


def test_padding_is_rare_on_text_of_any_mix() -> None:
    lengths = np.random.default_rng(0).geometric(0.03, size=8192).clip(1, 256).tolist()
    batches = list(token_batches(lengths, 2048))
    padded = sum(len(batch) * max(lengths[place] for place in batch) for batch in batches)
    assert padded / sum(lengths) < 1.02


class Letters:
    """A tokenizer whose tokens are letters."""

    class Encoding:
        def __init__(self, text: str) -> None:
            self.ids = [ord(letter) for letter in text]

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> list[Encoding]:
        assert not add_special_tokens
        return [self.Encoding(text) for text in texts]


class Sums:
    """A model one can compute by hand: a text's vector is the sum and the number of its tokens."""

    pipeline = TextPipeline(prefix=(1,), suffix=(2,), room=4, tokenizer=Letters())
    dimension, normalizes, fingerprint = 2, False, "sums"

    def embed(self, sequences: Sequence[Sequence[int]]) -> np.ndarray:
        if any(ord("!") in sequence for sequence in sequences):
            raise DataError("A sentence shouts.")
        return np.array([[sum(sequence) - 3, len(sequence) - 2] for sequence in sequences], dtype=np.float32)


def test_long_texts_are_cut_or_averaged_by_length() -> None:
    texts = ["abcdefghi", "xy", ""]
    cut = encode_tokens(Sums(), Sums.pipeline.tokenize(texts))
    assert cut.vectors[:2].tolist() == [[sum(map(ord, "abcd")), 4], [sum(map(ord, "xy")), 2]]
    assert (cut.long, list(cut.problems)) == (1, [2])

    mean = encode_tokens(Sums(), Sums.pipeline.tokenize(texts), EncodeOptions("mean"))
    pieces = [("abcd", 4 / 9), ("efgh", 4 / 9), ("i", 1 / 9)]
    expected = sum(share * np.array([sum(map(ord, piece)), len(piece)]) for piece, share in pieces)
    np.testing.assert_allclose(mean.vectors[0], expected, rtol=1e-6)
    assert mean.vectors[1].tolist() == cut.vectors[1].tolist()


def test_averages_have_length_1_where_the_model_s_vectors_have(bert: Path) -> None:
    encoder = TorchEncoder(tiny(bert, normalize=True))
    assert encoder.normalizes
    encoded = encode_tokens(encoder, encoder.pipeline.tokenize([" ".join(SENTENCES)]), EncodeOptions("mean"))
    assert encoded.long == 1
    np.testing.assert_allclose(np.linalg.norm(encoded.vectors, axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("budget", [1, 7, 1000])
def test_a_text_that_the_model_refuses_does_not_cost_its_neighbours(budget: int) -> None:
    done: list[int] = []
    encoded = encode_tokens(
        Sums(), Sums.pipeline.tokenize(["a", "no!", "bb", "!"]), EncodeOptions(batch_tokens=budget), done.append
    )
    assert {place: "shouts" in reason for place, reason in encoded.problems.items()} == {1: True, 3: True}
    assert encoded.vectors[[0, 2]].tolist() == [[97, 1], [196, 2]]
    assert sum(done) == 4


RAGGED = [*SENTENCES, " spaces around ", "[MASK] [SEP] <mask> </s>", "x", "long and longer " * 60]


def vectors(model: SentenceTransformer, texts: list[str] = RAGGED) -> np.ndarray:
    encoder = TorchEncoder(model)
    encoded = encode_tokens(encoder, encoder.pipeline.tokenize(texts), EncodeOptions(batch_tokens=64))
    assert not encoded.problems
    assert encoder.dimension == encoded.vectors.shape[1]
    return encoded.vectors


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "distilbert", "modernbert", "qwen3"])
@pytest.mark.parametrize("options", [{}, {"template": "auto"}], ids=["plain", "template"])
def test_vectors_are_those_of_encode(backbone_of: Callable[[str], Path], family: str, options: dict[str, Any]) -> None:
    if family == "qwen3" and options:
        options = {"template": "It says: {sentence}!"}
    model = tiny(backbone_of(family), **options)
    np.testing.assert_allclose(vectors(model), model.encode(RAGGED), atol=2e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_another_pipeline_with_a_prompt_is_followed_to_the_end(bert: Path, side: str) -> None:
    encoder = Transformer(str(bert), max_seq_length=20)
    encoder.tokenizer.truncation_side = side
    modules = [encoder, Pooling(32, "mean", include_prompt=False), Dense(32, 16), Normalize()]
    prompts = {"query": "find the cat: "}
    model = SentenceTransformer(modules=modules, prompts=prompts, default_prompt_name="query", device="cpu")
    assert TorchEncoder(model).normalizes
    np.testing.assert_allclose(vectors(model), model.encode(RAGGED), atol=2e-6)
    model.truncate_dim = 5
    assert not TorchEncoder(model).normalizes
    np.testing.assert_allclose(vectors(model), model.encode(RAGGED), atol=2e-6)


def test_a_prompt_inside_a_template_is_stripped_with_its_text(backbone_of: Callable[[str], Path]) -> None:
    model = tiny(backbone_of("roberta"), template="auto")
    model.prompts, model.default_prompt_name = {"query": " find: "}, "query"
    np.testing.assert_allclose(vectors(model), model.encode(RAGGED), atol=2e-6)


def test_tokens_that_would_not_be_the_model_s_are_refused(bert: Path) -> None:
    class Shouting(Transformer):
        def preprocess(self, inputs: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return super().preprocess([text + " !" for text in inputs], *args, **kwargs)

    model = SentenceTransformer(modules=[Shouting(str(bert)), Pooling(32)], device="cpu")
    with pytest.raises(UnsupportedModelError, match=r"would not be the model's.*model\.encode"):
        TorchEncoder(model)
    np.testing.assert_array_equal(encode_function(model)(SENTENCES), model.encode(SENTENCES))  # its own way then


def test_a_text_without_a_token_is_encoded_only_where_the_model_can(bert: Path) -> None:
    plain = open_encoder(bert, device="cpu")
    np.testing.assert_allclose(encode_function(plain)(["", "x"]), plain.encode(["", "x"]), atol=2e-6)
    with pytest.raises(DataError, match="Input 1 of 2, '', has nothing in it"):
        encode_function(tiny(bert))(["", "x"])


@pytest.mark.backbone
@pytest.mark.data
def test_real_text_on_the_real_backbone(minilm: str, data_folder: Path) -> None:
    model = SentenceTransformer(minilm, device="cpu")
    with (data_folder / "wiki_200k.txt").open(encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in islice(file, 60)]
    texts = [*lines, " ".join(lines), " ".join(lines[:9])]  # longer than the model takes, and nearly so
    np.testing.assert_allclose(vectors(model, texts), model.encode(texts), atol=2e-6)
