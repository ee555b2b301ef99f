"""Exports that run in OpenVINO: a text's vector has the same bits in any batch, in every precision."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import s2sent
from conftest import SENTENCES
from runtime.exports import distances, exported, same_bits, shallow
from s2sent.errors import ConfigError, DataError, ModelError
from s2sent.model.folder import EXPORT_CONFIG
from s2sent.runtime import openvino
from s2sent.runtime.calibration import builtin_texts
from s2sent.runtime.exported import ExportedEncoder
from s2sent.runtime.openvino import OpenVinoEncoder

PRECISIONS = ("fp32", "bf16", "int8")
WORDS = " ".join(SENTENCES).split()
TEXTS = [" ".join(WORDS[start : start + 1 + start % 40]) for start in range(70)] + ["word " * 300]
Exports = Callable[[str], ExportedEncoder]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformer:
    return shallow(tmp_path_factory.mktemp("model"), "bert")


@pytest.fixture(scope="module")
def exports(model: SentenceTransformer, tmp_path_factory: pytest.TempPathFactory) -> Exports:
    folder, done = tmp_path_factory.mktemp("openvino"), dict[str, ExportedEncoder]()

    def of(precision: str) -> ExportedEncoder:
        if precision not in done:
            options: dict[str, Any] = {"calibration": SENTENCES} if precision == "int8" else {}
            done[precision] = exported(model, folder / precision, runtime="openvino", precision=precision, **options)
        return done[precision]

    return of


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_vector_does_not_depend_on_the_batch(exports: Exports, model: SentenceTransformer, precision: str) -> None:
    encoder = exports(precision)
    limit = {"fp32": 1e-6, "bf16": 1e-3, "int8": 0.01}[precision]
    assert distances(encoder.encode(TEXTS), model.encode(TEXTS)).max() < limit
    same_bits(encoder.folder, TEXTS)


def test_without_buckets_it_does(exports: Exports) -> None:
    """What the test above would find: padded to the longest of their batch, the same texts have other bits."""
    encoder = s2sent.load(exports("fp32").folder)
    assert isinstance(encoder, OpenVinoEncoder)
    encoder.pipeline = replace(encoder.pipeline, bucket=0)
    alone = np.stack([encoder.encode(text) for text in TEXTS])
    assert not np.array_equal(encoder.encode(TEXTS, batch_size=64), alone)
    with pytest.raises(AssertionError):
        same_bits(folder_without_buckets(encoder), TEXTS)


def folder_without_buckets(encoder: OpenVinoEncoder) -> Path:
    folder = Path(shutil.copytree(encoder.folder, encoder.folder.parent / "longest"))
    values = json.loads((folder / EXPORT_CONFIG).read_text())
    (folder / EXPORT_CONFIG).write_text(json.dumps({**values, "bucket": 0}))
    assert s2sent.load(folder).fingerprint != encoder.fingerprint  # a bulk job does not go on with another rule
    return folder


def test_int8_multiplies_the_backbone_in_int8(exports: Exports) -> None:
    core = s2sent.runtime.openvino._core()
    folder = exports("int8").folder
    graph = core.read_model(folder / OpenVinoEncoder.GRAPH, folder / openvino.WEIGHTS)
    products = [op for op in graph.get_ops() if op.get_type_name() == "MatMul"]
    rounded = [op for op in products if op.input_value(0).get_node().get_type_name() == "FakeQuantize"]
    assert len(rounded) == 2 * 6  # all of the backbone's products with weights, and no others
    assert (folder / openvino.WEIGHTS).stat().st_size < (exports("fp32").folder / openvino.WEIGHTS).stat().st_size / 2


def test_what_cannot_be_exported_is_said_first(
    model: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options, message in (
        ({"runtime": "torch"}, "runtime must be onnxruntime or openvino, got 'torch'"),
        ({"precision": "bf16"}, "precision in onnxruntime must be fp32 or int8, got 'bf16'"),
        ({"runtime": "openvino", "precision": "int4"}, "precision in openvino must be fp32 or bf16 or int8"),
        ({"runtime": "openvino", "calibration": SENTENCES}, "calibration is for int8 in OpenVINO"),
    ):
        with pytest.raises(ConfigError, match=message):
            s2sent.export(model, tmp_path / "out", **options)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "nncf", None)
    with pytest.raises(ConfigError, match=r"needs nncf, .* pip install 's2sent\[openvino\]'"):
        s2sent.export(model, tmp_path / "out", runtime="openvino", precision="int8")
    assert not list(tmp_path.iterdir())


def test_no_text_to_calibrate_with(model: SentenceTransformer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no text to calibrate with"):
        s2sent.export(model, tmp_path / "out", runtime="openvino", precision="int8", calibration=["", " "])
    assert not list(tmp_path.iterdir())


def test_bf16_is_refused_by_a_processor_without_it(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = exports("bf16").folder

    class Old:
        def get_property(self, *_: str) -> list[str]:
            return ["FP32", "INT8"]

    monkeypatch.setattr(openvino, "_core", Old)
    with pytest.raises(ConfigError, match="computes in bf16, which this processor does not have"):
        s2sent.load(folder)


def test_a_damaged_graph_is_an_error(exports: Exports, tmp_path: Path) -> None:
    for number, (name, old, new) in enumerate(
        (
            (OpenVinoEncoder.GRAPH, b'offset="0"', b'offset="999999999999"'),
            (OpenVinoEncoder.GRAPH, b'type="MatMul"', b'type="Planted"'),
            (OpenVinoEncoder.GRAPH, b"<net", b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hosts">]><net'),
        )
    ):
        folder = Path(shutil.copytree(exports("fp32").folder, tmp_path / str(number)))
        content = (folder / name).read_bytes()
        assert old in content
        (folder / name).write_bytes(content.replace(old, new))
        values = json.loads((folder / EXPORT_CONFIG).read_text())
        (folder / EXPORT_CONFIG).write_text(json.dumps({**values, "files": {}}))
        if b"DOCTYPE" in new:
            assert np.array_equal(s2sent.load(folder).encode(SENTENCES), exports("fp32").encode(SENTENCES))
        else:
            with pytest.raises(ModelError, match=f"{name} cannot be run"):
                s2sent.load(folder)


def test_builtin_texts_are_text() -> None:
    texts = builtin_texts()
    assert len(texts) > 1000
    assert all(isinstance(text, str) and len(text) > 20 for text in texts)
