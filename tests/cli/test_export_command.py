"""`s2sent export`, and the commands that take what it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from conftest import SENTENCES
from runtime.exports import distances, shallow
from s2sent.cli import app
from s2sent.cli.export import measured_loss
from s2sent.errors import ModelError
from s2sent.evaluation import suite
from s2sent.runtime.onnxruntime import OnnxEncoder
from s2sent.runtime.openvino import OpenVinoEncoder
from tiny_senteval import write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and SentEval."""
    folder = tmp_path_factory.mktemp("command")
    shallow(folder, "bert").save(str(folder / "model"))
    write_folder(folder / "senteval")
    return folder


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_export_is_evaluated_compared_and_encodes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("S2SENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("S2SENT_DATA", raising=False)
    model, exported = folder / "model", tmp_path / "exported"
    data = ("--tasks", "STS-B", "--data", folder / "senteval")
    out = run("export", model, exported, "--precision", "int8", "--data", folder / "senteval")
    assert "int8" in out
    assert "STS-B (test, Spearman × 100): " in out

    encoder = OnnxEncoder(exported)
    report = json.loads(run("evaluate", exported, *data, "--format", "json"))
    scores = report["scores"]
    assert scores == suite.evaluate(encoder, "STS-B", data=folder / "senteval", cache=False).headlines()
    assert f"{scores['STS-B']:.2f} in int8" in out
    assert report["fingerprint"] == encoder.fingerprint
    assert len(list((tmp_path / "cache" / "results").glob("*/*.json"))) == 2  # torch's and the export's, each once
    table = run("compare", f"torch={model}", f"onnx={exported}", *data)
    assert "torch" in table
    assert "onnx" in table
    with pytest.raises(ModelError, match="is an exported model, which has only a graph"):
        run("evaluate", exported, "--per-block", *data)

    (tmp_path / "lines.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    run("encode", exported, tmp_path / "lines.txt", tmp_path / "vectors.npy")
    assert distances(np.load(tmp_path / "vectors.npy"), encoder.encode(SENTENCES)).max() < 0.01


def test_int8_in_openvino_with_ones_own_lines(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    openvino = ("--runtime", "openvino", "--precision", "int8", "--calibration", tmp_path / "lines.txt")
    out = run("export", folder / "model", tmp_path / "exported", *openvino, "--data", folder / "senteval")
    assert "openvino, int8" in out
    assert "calibrated with Python's documentation" not in out
    run("encode", tmp_path / "exported", tmp_path / "lines.txt", tmp_path / "vectors.npy")
    alone = np.stack([OpenVinoEncoder(tmp_path / "exported").encode(text) for text in SENTENCES])
    assert np.array_equal(np.load(tmp_path / "vectors.npy"), alone)


def test_without_stsb_the_loss_is_said_to_be_unknown(folder: Path, tmp_path: Path) -> None:
    said = measured_loss(str(folder / "model"), tmp_path, str(tmp_path / "nowhere"), "int8")
    assert said.startswith("The loss was not measured: STS-B could not be read.")
    assert "nowhere" in said
