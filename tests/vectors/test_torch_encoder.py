"""The oracle everywhere: the host's own `encode`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from conftest import SENTENCES
from model.tiny import tiny
from s2sent.errors import ModelError
from s2sent.vectors.encoder import EncodeOptions, TorchEncoder, encode_tokens

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
def test_a_stranger_s_pipeline_with_a_prompt_is_followed_to_the_end(bert: Path, side: str) -> None:
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
    with pytest.raises(ModelError, match=r"would not be the model's.*model\.encode"):
        TorchEncoder(model)


@pytest.mark.backbone
@pytest.mark.data
def test_real_text_on_the_real_backbone(minilm: str, data_folder: Path) -> None:
    model = SentenceTransformer(minilm, device="cpu")
    with (data_folder / "wiki_200k.txt").open(encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in islice(file, 60)]
    texts = [*lines, " ".join(lines), " ".join(lines[:9])]  # longer than the model takes, and nearly so
    np.testing.assert_allclose(vectors(model, texts), model.encode(texts), atol=2e-6)
