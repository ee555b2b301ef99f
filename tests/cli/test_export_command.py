"""`s2sent export`, and the commands that take what it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from model.exports import shallow
from s2sent.cli import app
from s2sent.cli.export import measured_loss
from s2sent.errors import ModelError
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
    return result.output


def test_an_export_is_evaluated_compared_and_encodes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("S2SENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("S2SENT_DATA", raising=False)
    model, exact, small = folder / "model", tmp_path / "exact", tmp_path / "small"
    senteval = ("--data", folder / "senteval")
    assert "fp32" in run("export", model, exact)
    # Its loss is measured if there is anything to measure it on.
    out = run("export", model, small, "--int8", *senteval)
    assert "STS-B (test, Spearman × 100): " in out

    with pytest.raises(ModelError, match="OnnxEncoder is no Transformer with blocks"):
        run("evaluate", exact, "--per-block", "--tasks", "STS-B", *senteval)
    scores = {
        path: json.loads(run("evaluate", path, *senteval, "--format", "json"))["scores"] for path in (model, exact)
    }
    assert scores[exact] == pytest.approx(scores[model], abs=0.02)
    assert list((tmp_path / "cache" / "results").glob("*/*.json"))
    table = run("compare", f"torch={model}", f"onnx={exact}", f"int8={small}", "--tasks", "STS-B", *senteval)
    assert all(name in table for name in ("torch", "onnx", "int8"))

    (tmp_path / "lines.txt").write_text("A cat sat.\nRain.\nThe committee argued at length about the bridge.\n")
    for name, path in (("torch", model), ("onnx", exact)):
        run("encode", path, tmp_path / "lines.txt", tmp_path / f"{name}.npy")
    vectors = [np.load(tmp_path / f"{name}.npy") for name in ("torch", "onnx")]
    np.testing.assert_allclose(vectors[1], vectors[0], rtol=1e-4, atol=1e-5)


def test_without_stsb_the_loss_is_said_to_be_unknown(folder: Path, tmp_path: Path) -> None:
    said = measured_loss(str(folder / "model"), tmp_path, str(tmp_path / "nowhere"))
    assert said.startswith("The loss was not measured: STS-B could not be read.")
    assert "nowhere" in said
