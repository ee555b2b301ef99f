"""Runs as tasks of a real, local Ray."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.tiny import Bench
from s2sent.cli import app
from s2sent.experiments.perform import perform
from s2sent.experiments.plan import unique
from s2sent.experiments.store import Store

pytestmark = pytest.mark.long


def test_on_ray_the_store_is_the_same(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    # Workers are processes of their own: they must find this package, and what the tests' bench pickles.
    here = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(here / "src"), str(here / "tests")]))
    store = tmp_path / "runs"
    arguments = ["reproduce", *bench.arguments("pooling", "gradients", store=store), "--engine", "ray"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "9 of 9 runs are done" in result.output
    run = unique(bench.entries("gradients"))[1]
    record = Store(store).get(run.key)
    assert record is not None
    here_too = perform(run, bench.places)
    assert record["gradients"]["direct"] == pytest.approx(here_too["gradients"]["direct"], rel=1e-4)
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0, again.output
