"""The frozen regime: runs that share one pass, scored as the assembled models would be."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.tiny import Bench
from s2sent.evaluation import evaluate
from s2sent.experiments.plan import Run, unique
from s2sent.experiments.run import perform
from s2sent.model.load import open_encoder
from s2sent.vectors.states import StateEncoder
from training.runs import make_lines


@pytest.fixture(scope="module")
def runs(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Runs of `beyond` and `squeeze`, by their rows."""
    path = tmp_path_factory.mktemp("nli") / "nli.csv"
    lines = make_lines(240)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = zip(lines[:80], lines[80:160], lines[160:], strict=True)
        csv.writer(file).writerows([("sent0", "sent1", "hard_neg"), *rows])
    small = {"steps": 3, "batch_size": 16, "held_out": 20, "evaluate_every": 2}
    catalogue_runs = {}
    for name in ("beyond", "squeeze"):
        for entry in bench.places(name, profile="frozen", **small):
            recipe = replace(
                entry.run.recipe, corpus=(str(path),), selection=replace(entry.run.recipe.selection, reduction=4)
            )
            catalogue_runs[f"{name}: {entry.row}"] = replace(entry.run, recipe=recipe)
    return catalogue_runs


def done(run: Run, bench: Bench) -> dict[str, Any]:
    return perform(run, bench.folders)


def test_every_row_is_a_run_of_its_own(runs: dict[str, Run]) -> None:
    assert {run.kind for run in runs.values()} == {"frozen"}
    assert len({run.key for name, run in runs.items() if name.startswith("beyond")}) == 18
    described = runs["beyond: linear gate + bias + map"].description
    assert described["recipe"]["map"] is True
    assert described["selection"]["bias"] is True
    assert "max_length" not in described["recipe"]


def test_the_last_block_scores_as_the_encoder_does_and_later_runs_do_not_encode(
    runs: dict[str, Run], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = done(runs["beyond: last block"], bench)
    report = evaluate(open_encoder(bench.backbone, device="cpu"), "sts", data=bench.data, cache=False)
    for task in ("STS12", "STS-B", "SICK-R"):
        assert record["scores"][task] == pytest.approx(report.score(task), abs=0.5)  # states are kept in fp16
    assert record["parameters"] == {"added": 0, "backbone": record["parameters"]["backbone"]}
    monkeypatch.setattr(StateEncoder, "run", lambda *_: pytest.fail("the encoder was run again"))
    for row in ("best single state", "average + map", "weights per feature", "the paper's gate + bias"):
        found = done(runs[f"beyond: {row}"], bench)
        assert found["held_out"]["loss"] > 0
    assert "state" in done(runs["beyond: best single state"], bench)["held_out"]
    gate, shuffled = (
        done(replace(run, recipe=replace(run.recipe, learning_rate=1.0, shuffled=shuffled)), bench)  # type: ignore[call-arg]
        for run in [runs["beyond: the paper's gate"]]
        for shuffled in (False, True)
    )
    assert gate["held_out"]["loss"] == shuffled["held_out"]["loss"]
    assert gate["scores"] != shuffled["scores"]
    assert done(runs["squeeze: no FS"], bench)["scores"] != done(runs["squeeze: GAP"], bench)["scores"]


def test_a_run_gives_the_same_record_again(runs: dict[str, Run], bench: Bench) -> None:
    one, other = (done(runs["beyond: linear gate + bias + map"], bench) for _ in range(2))
    for name in ("scores", "held_out", "weights"):
        for record in (one, other):
            record[name].pop("seconds", None)
        assert one[name] == other[name]


def test_seeds_change_the_split(bench: Bench, tmp_path: Path) -> None:
    entries = bench.places("beyond", profile="frozen", seeds=2)
    assert len(unique(entries)) == 36
