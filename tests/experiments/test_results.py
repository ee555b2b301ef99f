"""The tables against scipy and against numbers worked out by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from experiments.tiny import Bench
from s2sent.evaluation.result import TaskResult
from s2sent.experiments.catalogue import read_catalogue
from s2sent.experiments.measures import histogram, spread
from s2sent.experiments.plan import Place
from s2sent.experiments.results import collect, figure_of, frame_of, paper_table, run_rows, table_of
from s2sent.experiments.store import Store
from s2sent.report.figures import BIN

SCORES = {
    "Avg · base": (50.0, 51.0, 52.0),
    "Avg · S²Sent": (52.0, 53.1, 53.9),
    "CLS · base": (40.0, 51.5, 49.0),
    "CLS · S²Sent": (49.0, 50.2, 50.9),
}


def fill(entries: list[Place], store: Store, leave_out: tuple[tuple[str, int], ...] = ()) -> None:
    weights = {"shares": [0.2, 0.3, 0.5], "blocks": 0.12, "features": 0.03, "sentences": 0.01, "min": 0.1, "max": 0.6}
    for entry in entries:
        if (entry.row, entry.seed) not in leave_out:
            score = SCORES[entry.row][entry.seed]
            record: dict[str, Any] = {"profile": "cpu", "run": entry.run.name, "description": entry.run.description}
            store.put(entry.run.key, {**record, "scores": {"STS-B": score, "STS avg": score + 1}, "weights": weights})


def test_means_marks_and_tests(bench: Bench, tmp_path: Path) -> None:
    store, entries = Store(tmp_path), bench.places("pooling", seeds=3)
    fill(entries, store)
    (results,) = collect(entries, [read_catalogue().experiment("pooling", "cpu")], store)
    found = frame_of(results)
    base = SCORES["Avg · base"]
    for row, scores in SCORES.items():
        cell = found[row, "STS-B"]
        assert cell.mean == pytest.approx(np.mean(scores))
        assert cell.std == pytest.approx(np.std(scores, ddof=1))
        if row != "Avg · base":
            assert cell.p == pytest.approx(stats.ttest_rel(scores, base).pvalue)
    assert [row for row in SCORES if found[row, "STS-B"].best] == ["Avg · S²Sent"]
    assert found["Avg · S²Sent", "STS-B"].significant
    assert not found["CLS · S²Sent", "STS-B"].significant  # significantly worse is not underlined
    assert found["CLS · S²Sent", "STS-B"].p < 0.05  # type: ignore[operator]
    assert found["Avg · base", "STS-B"].p is None


def test_missing_seeds_are_paired_by_seed_and_said(bench: Bench, tmp_path: Path) -> None:
    store, entries = Store(tmp_path), bench.places("pooling", seeds=3)
    fill(entries, store, leave_out=(("Avg · S²Sent", 0), ("CLS · S²Sent", 0), ("CLS · S²Sent", 1), ("CLS · S²Sent", 2)))
    (results,) = collect(entries, [read_catalogue().experiment("pooling", "cpu")], store)
    found = frame_of(results)
    assert found["Avg · S²Sent", "STS-B"].difference == pytest.approx((53.1 - 51 + 53.9 - 52) / 2)
    assert "CLS · S²Sent" not in found.methods
    text = table_of(results).markdown()
    assert "| CLS · S²Sent | … |" in text
    assert "4 runs are missing." in text
    assert len(run_rows([results])) == 8 * (2 + 5 + 3)


def test_rows_compare_at_sight_only_with_the_same_seeds(bench: Bench, tmp_path: Path) -> None:
    """A row whose one seed was a lucky one is not the best, and its name says so; two seeds are no test."""
    store, entries = Store(tmp_path), bench.places("pooling", seeds=3)
    fill(entries, store, leave_out=(("Avg · S²Sent", 0), ("Avg · S²Sent", 1), ("CLS · S²Sent", 0)))
    (results,) = collect(entries, [read_catalogue().experiment("pooling", "cpu")], store)
    found = frame_of(results)
    assert [row for row in SCORES if row in found.methods and found[row, "STS-B"].best] == ["Avg · base"]
    assert found["CLS · S²Sent", "STS-B"].p is None
    text = table_of(results).markdown()
    assert "| Avg · S²Sent (1 of 3 seeds) | 53.90 |" in text
    figure = figure_of([replace(results, experiment=replace(results.experiment, figure="bars"))])
    assert figure is not None
    (axes,) = figure.axes
    by_row = dict(zip([label.get_text() for label in axes.get_yticklabels()], axes.patches, strict=True))
    assert by_row["Avg · S²Sent"].get_width() == pytest.approx(53.9 - 52)  # to the base of the same seed


def test_figures_need_the_base(bench: Bench, tmp_path: Path) -> None:
    store, entries = Store(tmp_path), bench.places("pooling", seeds=1)
    fill(entries, store, leave_out=(("Avg · base", 0),))
    (results,) = collect(entries, [read_catalogue().experiment("pooling", "cpu")], store)
    assert figure_of([replace(results, experiment=replace(results.experiment, figure="bars"))]) is None


def test_latex_is_latex(bench: Bench, tmp_path: Path) -> None:
    """Nothing that starts a comment, and nothing that pdflatex does not know."""
    store, entries = Store(tmp_path), bench.places("main", seeds=3)
    cost = {"added": 5, "parameters": 1000, "latency": 1.94, "latency_quartiles": [-0.5, 2.25]}
    weights = {"shares": [1.0], "blocks": 0.1, "features": 0.1, "sentences": 0.1, "min": 0.1, "max": 0.6}
    for entry in entries:
        score = 50 + entry.seed + (3 + entry.seed / 100 if "2D" in entry.row else 0)
        found = {"cost": cost} if entry.run.kind == "cost" else {"scores": {"STS-B": score}, "weights": weights}
        store.put(entry.run.key, {"profile": "cpu", **found})
    results = collect(entries, [read_catalogue().experiment("main", "cpu")], store)[0]
    lines = table_of(results).latex().split(r"\end{tabular}")[0].splitlines()
    assert all(line.isascii() for line in lines)
    assert not any(re.search(r"(?<!\\)%", line) for line in lines)
    (row,) = [line for line in lines if line.startswith("Last3 $\\cdot$ Stack")]
    assert row.count(" & ") == lines[2].count(" & ") == 7
    assert r"\underline{\textbf{54.01$_{\pm 1.01}$ $\dagger$}}" in row
    assert r"0.50 \% & +1.9 \% (-0.5 to +2.2)" in row
    assert row.endswith(r"\\")


def test_a_single_seed_has_no_test(bench: Bench, tmp_path: Path) -> None:
    store, entries = Store(tmp_path), bench.places("pooling", seeds=1)
    fill(entries, store)
    (results,) = collect(entries, [read_catalogue().experiment("pooling", "cpu")], store)
    text = table_of(results).markdown()
    assert "±" not in text.split("Mean")[0]
    assert "Underlined" not in text


def test_the_spread_of_weights() -> None:
    flat = torch.full((5, 3, 8), 1 / 3)
    assert {spread(flat)[name] for name in ("blocks", "features", "sentences")} == {0.0}
    by_block = torch.tensor([0.2, 0.3, 0.5])[None, :, None].expand(5, 3, 8)
    assert spread(by_block)["shares"] == [0.2, 0.3, 0.5]
    assert spread(by_block)["blocks"] == pytest.approx(np.std([0.2, 0.3, 0.5]), abs=1e-5)
    assert spread(by_block)["features"] == spread(by_block)["sentences"] == 0
    by_sentence = torch.tensor([0.1, 0.5])[:, None, None].expand(2, 3, 8)
    assert spread(by_sentence)["sentences"] == pytest.approx(0.2, abs=1e-5)
    assert spread(by_sentence)["features"] == 0


def test_the_histogram_holds_every_pair_in_its_place() -> None:
    chance = np.random.default_rng(0)
    cosines, gold = chance.uniform(-1, 1, 300), chance.uniform(0, 5, 300)
    cosines[:2], gold[:2] = (1.0, -1.0), (5.0, 0.0)
    found = histogram(TaskResult("STS-B", {}, 300, evidence={"similarity": cosines.tolist(), "gold": gold.tolist()}))
    for group, row in enumerate(found["counts"]):
        own = cosines[(gold >= group) & ((gold < group + 1) | (group == 4))]
        edges = found["low"] + BIN * np.arange(len(row) + 1)
        assert row == np.histogram(own, edges)[0].tolist()


@pytest.mark.parametrize(
    ("name", "objective", "columns"), [("main", "simcse", 10), ("pooling", "simcse", 2), ("transfer", "promptcse", 16)]
)
def test_the_papers_numbers_have_the_rows_of_ours(name: str, objective: str, columns: int) -> None:
    table = paper_table(name, objective)
    assert table is not None
    assert len(table.columns) == columns
    assert [row for row, _ in table.rows] == [row.name for row in read_catalogue().experiment(name, "paper").rows]
    assert {len(entries) for _, entries in table.rows} == {columns}


def test_what_the_paper_does_not_print_is_not_made_up() -> None:
    assert paper_table("squeeze", "simcse") is None
    assert paper_table("pooling", "promptcse") is None
