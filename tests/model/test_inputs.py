"""What a caller may give to `encode`: a torch model, its export and bulk encoding take the same and refuse the same."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import s2sent
from conftest import make_backbone
from model.tiny import tiny
from runtime.exports import exported, shallow
from s2sent.errors import DataError
from s2sent.model.load import open_encoder
from s2sent.runtime.onnxruntime import OnnxEncoder
from s2sent.vectors import TorchEncoder, encode_texts

TEXTS = ["A cat.", "Rain, and more of it."]
TEMPLATE = 'This sentence of "{sentence}" means {mask}.'

GOOD: dict[str, Callable[[], Any]] = {
    "list": lambda: TEXTS,
    "tuple": lambda: tuple(TEXTS),
    "array": lambda: np.array(TEXTS),
    "array of objects": lambda: np.array(TEXTS, dtype=object),
    "dictionary's values": lambda: {1: TEXTS[0], 2: TEXTS[1]}.values(),
    "text": lambda: TEXTS[0],
    "numpy's text": lambda: np.str_(TEXTS[0]),
    "empty list": list,
    "empty array": lambda: np.array([]),
}
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "generator": (lambda: (text for text in TEXTS), r"list of texts, got a value of type generator.*list\(inputs\)"),
    "None": (lambda: None, "list of texts, got None"),
    "number": (lambda: 5, "list of texts, got a value of type int: 5"),
    "bytes": (lambda: b"text", "list of texts, got a value of type bytes"),
    "set": (lambda: {"text"}, "list of texts, got a value of type set"),
    "array without an axis": (lambda: np.array("text"), "list of texts, got a value of type ndarray"),
    "numbers": (lambda: np.array([1.0, 2.0]), "Input 1 of 2 must be a text, got a value of type float64"),
    "None in a list": (lambda: ["text", None], "Input 2 of 2 must be a text, got None"),
    "number in a list": (lambda: ["text", 5], "Input 2 of 2 must be a text, got a value of type int: 5"),
    "NaN in an array": (lambda: np.array(["text", float("nan")], dtype=object), "Input 2 of 2 must be a text"),
    "bytes in a list": (lambda: [b"text"], "Input 1 of 1 must be a text"),
    "half a pair": (lambda: ["text", "\ud83d"], r"Input 2 of 2 has half a surrogate pair \('\\ud83d'\)"),
    "bytes that are no UTF-8": (lambda: b"tw\xf6".decode("utf-8", "surrogateescape"), r"Input 1 of 1 has half"),
    "no text": (lambda: ["text", ""], "has no text"),
}


@pytest.fixture(scope="module", params=["plain", "template"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SentenceTransformer, OnnxEncoder]:
    folder = tmp_path_factory.mktemp("inputs")
    options = {"template": TEMPLATE, "max_length": 20} if request.param == "template" else {}
    model = shallow(folder, "bert", **options)
    return model, exported(model, folder / "onnx")


@pytest.mark.parametrize("name", GOOD)
def test_the_same_vectors(both: tuple[SentenceTransformer, OnnxEncoder], name: str) -> None:
    model, export = both
    want = model.encode(GOOD[name]())
    ways = {
        "export": export.encode(GOOD[name]()),
        "bulk": encode_texts(TorchEncoder(model), GOOD[name]()),
        "bulk, export": encode_texts(export, GOOD[name]()),
    }
    for way, got in ways.items():
        assert (got.shape, got.dtype) == (want.shape, want.dtype), way
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=way)
    if want.size:
        np.testing.assert_allclose(np.atleast_2d(want), model.encode(TEXTS)[: len(np.atleast_2d(want))], atol=1e-5)


@pytest.mark.parametrize("name", BAD)
def test_the_same_error(both: tuple[SentenceTransformer, OnnxEncoder], name: str) -> None:
    model, export = both
    make, message = BAD[name]
    inputs, said = make(), []
    for encode in (model.encode, export.encode, lambda texts: encode_texts(export, texts)):
        with pytest.raises(DataError, match=message if name != "no text" else "has no|nothing") as caught:
            encode(inputs)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert name == "no text" or said[1] == said[2]  # bulk encoding knows which one it is


def test_a_copy_asks_itself(both: tuple[SentenceTransformer, OnnxEncoder], tmp_path: Path) -> None:
    model, _ = both
    model.save(str(tmp_path / "saved"))
    for other in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(s2sent.load(tmp_path / "saved"))),
        s2sent.load(tmp_path / "saved"),
        SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True),
    ):
        assert other.is_singular_input.model is other
        np.testing.assert_allclose(other.encode(TEXTS), model.encode(TEXTS), atol=1e-6)
        with pytest.raises(DataError, match="Input 1 of 1"):
            other.encode([None])


def test_a_plain_model_keeps_the_hosts_own_forms(tmp_path: Path) -> None:
    model = open_encoder(make_backbone(tmp_path / "backbone", "bert"))
    pair = model.encode([("A cat.", "Rain.")])
    assert pair.shape == (1, 32)
    np.testing.assert_allclose(model.encode({"text": "A cat."}), model.encode("A cat."), atol=1e-6)
    with pytest.raises(DataError, match="Input 2 of 2"):
        model.encode(["A cat.", 5])


def test_sizes_of_a_batch(both: tuple[SentenceTransformer, OnnxEncoder]) -> None:
    for encoder in both:
        for size in (0, -3):
            with pytest.raises(ValueError, match="batch_size must be"):
                encoder.encode(TEXTS, batch_size=size)
        assert encoder.encode(TEXTS, batch_size=10**9).shape == (2, 32)


def test_more_texts_than_are_looked_at_one_by_one(bert: Path) -> None:
    model = tiny(bert)
    texts = [f"text {number}" for number in range(300)]
    np.testing.assert_allclose(encode_texts(TorchEncoder(model), np.array(texts)), model.encode(texts), atol=2e-6)
