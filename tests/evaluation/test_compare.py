import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import spearmanr

from s2sent.data.senteval import STS_TASKS
from s2sent.errors import ConfigError, DataError
from s2sent.evaluation.comparison import Method, compare
from s2sent.evaluation.report import Format, comparison_csv, comparison_grid, report_csv, report_grid, to_json
from s2sent.evaluation.result import Aggregation, Report, TaskResult
from s2sent.evaluation.statistics import holm, paired_t_test

GOLD = np.random.default_rng(9).uniform(0, 5, 300)


def single(name: str, noise: float, seed: int = 0) -> Report:
    random = np.random.default_rng(seed)
    results = []
    for task in STS_TASKS:
        similarity = GOLD + noise * random.normal(size=len(GOLD))
        score = 100 * spearmanr(similarity, GOLD).statistic
        subsets = {"one": {"pairs": 100}, "two": {"pairs": 200}}
        evidence = {"similarity": similarity.tolist(), "gold": GOLD.tolist()}
        results.append(
            TaskResult(task, {"all": score, "mean": score, "wmean": score}, 300, {"subsets": subsets}, evidence)
        )
    correct = (random.random(400) < 1 - noise / 10).astype(float)
    results.append(TaskResult("TREC", {"accuracy": 100 * correct.mean()}, 400, evidence={"correct": correct.tolist()}))
    return Report(name, tuple(results))


def runs(name: str, scores: dict[str, list[float]]) -> Method:
    count = len(next(iter(scores.values())))
    return Method(
        name,
        tuple(
            Report(f"{name}/{i}", tuple(TaskResult(task, {"all": values[i]}, 9) for task, values in scores.items()))
            for i in range(count)
        ),
    )


BASE = runs("base", {"STS12": [70.1, 70.3, 69.8, 70.0, 70.2], "STS13": [80.0, 81.0, 79.0, 80.5, 79.5]})
BETTER = runs("better", {"STS12": [72.0, 72.4, 71.7, 71.9, 72.3], "STS13": [80.1, 80.8, 79.3, 80.4, 79.4]})
WORSE = runs("worse", {"STS12": [60.1, 60.3, 59.7, 60.0, 60.3], "STS13": [80.0, 81.0, 79.0, 80.5, 79.5]})


def test_runs_are_tested_seed_by_seed_and_corrected() -> None:
    table = compare([BASE, BETTER, WORSE], "base")
    cells = [table.rows[name][task] for name in ("better", "worse") for task in ("STS12", "STS13")]
    raw = [
        paired_t_test([r.headlines()[task] for r in method.reports], [r.headlines()[task] for r in BASE.reports])
        for method in (BETTER, WORSE)
        for task in ("STS12", "STS13")
    ]
    assert [cell.p for cell in cells] == pytest.approx(raw)
    assert [cell.p_holm for cell in cells] == pytest.approx(holm(raw))
    assert [cell.significant for cell in cells] == [True, False, False, False]  # far worse is no improvement
    assert cells[2].p_holm is not None
    assert cells[2].p_holm < 0.05
    assert cells[0].difference == pytest.approx(1.98)
    assert cells[0].std == pytest.approx(np.std([72.0, 72.4, 71.7, 71.9, 72.3], ddof=1))
    assert [name for name in table.rows if table.rows[name]["STS12"].best] == ["better"]
    for words in ("paired t-test over runs", "Holm-corrected for 4 comparisons", "5 runs", "better than base"):
        assert words in table.how


def test_single_models_are_tested_over_pairs() -> None:
    methods = [Method(name, (single(name, noise, seed),)) for name, noise, seed in (("a", 2.0, 0), ("b", 1.0, 1))]
    table = compare(methods, "a", resamples=200)
    assert table.rows["b"]["STS12"].significant
    assert table.rows["b"]["STS avg"].significant
    assert table.rows["a"]["STS12"].p is None
    for column in table.columns:
        cell = table.rows["b"][column]
        assert cell.low is not None
        assert cell.high is not None
        assert cell.low < cell.mean < cell.high
    wide, narrow = table.rows["b"]["STS12"], table.rows["b"]["STS avg"]
    assert narrow.high - narrow.low < wide.high - wide.low  # type: ignore[operator]
    assert "paired bootstrap over samples (200 resamples)" in table.how
    # As many comparisons as a large table has must not hide a large difference behind few resamples.
    many = compare([methods[0], *(Method(f"b{i}", methods[1].reports) for i in range(12))], "a", resamples=100)
    assert many.rows["b0"]["STS12"].significant
    same = compare([methods[0], Method("c", methods[0].reports)], "a", resamples=100)
    assert not any(cell.significant for cell in same.rows["c"].values())


@pytest.mark.parametrize("aggregation", list(Aggregation))
def test_a_bootstrap_knows_the_aggregation(aggregation: Aggregation) -> None:
    report = Report("a", single("a", 1.0).results, aggregation=aggregation)
    cell = compare([Method("a", (report,))], resamples=100).rows["a"]["STS12"]
    assert cell.low is not None
    assert cell.low < cell.mean < (cell.high or 0)


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match="none of base, better"):
        compare([BASE, BETTER], "bse")
    with pytest.raises(ConfigError, match="base 5, short 2"):
        compare([BASE, Method("short", BETTER.reports[:2])], "base")
    with pytest.raises(ConfigError, match="one name"):
        compare([BASE, BASE])
    with pytest.raises(DataError, match="was evaluated on"):
        compare([BASE, runs("other", {"STS14": [1.0] * 5})])
    with pytest.raises(DataError, match="aggregation"):
        compare([Method("a", (single("a", 1),)), Method("b", (Report("b", single("b", 1).results, Aggregation.MEAN),))])
    with pytest.raises(ConfigError, match="nothing to compare"):
        compare([])
    with pytest.raises(ConfigError, match="level"):
        compare([BASE], level=1.5)


def test_tables_mark_best_and_significant() -> None:
    table = compare([BASE, BETTER], "base")
    markdown = comparison_grid(table).render(Format.MARKDOWN)
    assert isinstance(markdown, str)
    assert "| better | <u>**72.06 ± 0.29**</u> |" in markdown
    assert markdown.splitlines()[1] == "| --- | ---: | ---: |"
    latex = comparison_grid(table).render(Format.LATEX)
    assert isinstance(latex, str)
    assert r"better & \underline{\textbf{72.06$_{\pm 0.29}$}}" in latex
    assert latex.count("\\\\") == 3
    console = Console(record=True, width=120, file=io.StringIO(), force_terminal=True)
    console.print(comparison_grid(table).render(Format.TABLE))
    assert "\x1b[1;4m72.06 ± 0.29" in console.export_text(styles=True)


def test_csv_and_json_hold_every_number() -> None:
    table = compare([BASE, BETTER], "base")
    rows = list(csv.DictReader(io.StringIO(comparison_csv(table))))
    assert len(rows) == 4
    found = next(row for row in rows if (row["method"], row["task"]) == ("better", "STS12"))
    cell = table.rows["better"]["STS12"]
    assert float(found["p_holm"]) == cell.p_holm
    assert found["significant"] == "True"
    assert json.loads(to_json(table.to_dict()))["rows"]["better"]["STS12"]["wilcoxon"] == cell.wilcoxon
    report = single("a,b", 1.0)
    (first, *_) = csv.DictReader(io.StringIO(report_csv([report])))
    assert first["model"] == "a,b"
    with pytest.raises(ValueError, match="JSON"):
        to_json({"score": float("nan")})


def test_names_cannot_break_a_table() -> None:
    report = Report("a_b|c & [bold]", (TaskResult("STS12", {"all": 70.0}, 9),))
    latex = report_grid(report).render(Format.LATEX)
    assert isinstance(latex, str)
    assert r"a\_b|c \& [bold] & 70.00 \\" in latex
    markdown = report_grid(report).render(Format.MARKDOWN)
    assert isinstance(markdown, str)
    assert markdown.splitlines()[2] == r"| a_b\|c & [bold] | 70.00 |"
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(report_grid(report).render(Format.TABLE))
    assert "[bold]" in console.export_text()


def test_what_makes_scores_incomparable_stands_below_the_table() -> None:
    note = "STS-B: 2 samples where SentEval has 1,379; not comparable with published scores."
    reports = [single(name, noise) for name, noise in (("a", 1.0), ("b", 2.0))]
    reports = [replace(one, results=tuple(replace(r, notes=(note,)) for r in one.results)) for one in reports]
    found = compare([Method(report.model, (report,)) for report in reports])
    assert found.notes == (note,)  # once, though both have it
    assert found.to_dict()["notes"] == [note]
    for style in (Format.MARKDOWN, Format.LATEX):
        assert note in str(comparison_grid(found).render(style))
