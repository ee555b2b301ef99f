"""Measures of a model beside its scores: gradients by block on backbones of every shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import make_backbone
from experiments.tiny import Bench
from s2sent.experiments.catalogue import read_catalogue
from s2sent.experiments.inputs import backbone_input
from s2sent.experiments.plan import Run, expand
from s2sent.experiments.run import perform


def gradient_run(bench: Bench, backbone: Path, row: str) -> Run:
    settings = replace(bench.settings(), backbones=(backbone_input(str(backbone)),))
    catalogue = read_catalogue()
    places = expand(catalogue, [catalogue.experiment("gradients", "cpu")], settings)
    return next(place.run for place in places if place.row == row)


@pytest.mark.parametrize("family", ["bert", "albert", "albert-groups", "modernbert", "deberta"])
def test_every_block_has_its_gradient(bench: Bench, backbone_of: Callable[[str], Path], family: str) -> None:
    """ALBERT's blocks are one module, or a few, that run again and again."""
    run = gradient_run(bench, backbone_of(family), "linear fusion")
    found = perform(run, bench.folders)["gradients"]
    assert len(found["direct"]) == len(found["total"]) == run.backbone.depth
    chosen = [found["direct"][block - 1] for block in found["blocks"]]
    if family != "modernbert":  # whose final norm shares the gradient out by the size of the states
        assert chosen == pytest.approx([chosen[0]] * len(chosen), rel=1e-3)
    assert all(norm > 0 for norm in (*chosen, *found["total"]))
    if family == "albert":
        assert found["total"] == pytest.approx([found["total"][0]] * run.backbone.depth)


@pytest.mark.parametrize(("family", "groups"), [("bert", 384), ("roberta", 256)])
def test_presets_follow_the_config_and_not_the_name(bench: Bench, tmp_path: Path, family: str, groups: int) -> None:
    folder = make_backbone(tmp_path / "my-roberta-or-not", family, num_hidden_layers=6)
    (tmp_path / "mine.toml").write_text(
        '[experiments.mine]\ntitle = "x"\nobjectives = ["whitened"]\nbase = "x"\nrows = [{ row = "x" }]\n'
    )
    catalogue = read_catalogue(tmp_path / "mine.toml")
    settings = replace(bench.settings(), backbones=(backbone_input(str(folder)),))
    (place,) = expand(catalogue, [catalogue.experiment("mine", "cpu")], settings)
    assert place.run.recipe.to_dict()["groups"] == groups
