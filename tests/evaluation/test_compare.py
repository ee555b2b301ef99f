import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import spearmanr, ttest_rel

from s2sent.data.senteval import STS_TASKS
from s2sent.errors import ConfigError, DataError
from s2sent.evaluation.comparison import Method, compare, resample_task
from s2sent.evaluation.report import Format, Grid, comparison_csv, comparison_grid, report_csv, report_grid, to_json
from s2sent.evaluation.result import Aggregation, Report, TaskResult
from s2sent.evaluation.statistics import holm, paired_t_test

GOLD = np.random.default_rng(9).uniform(0, 5, 300)


def spearman(similarity: np.ndarray, gold: np.ndarray) -> float:
    return 100 * float(spearmanr(similarity, gold).statistic)


def single(name: str, noise: float, seed: int = 0) -> Report:
    """Two subsets of unequal size, quality and level: every aggregation has another score."""
    random = np.random.default_rng(seed)
    results = []
    for task in STS_TASKS:
        similarity = GOLD + noise * random.normal(size=len(GOLD))
        similarity[:100] += 2 * noise * random.normal(size=100) + 3
        one, two = spearman(similarity[:100], GOLD[:100]), spearman(similarity[100:], GOLD[100:])
        scores = {"all": spearman(similarity, GOLD), "mean": (one + two) / 2, "wmean": (one + 2 * two) / 3}
        subsets = {"one": {"pairs": 100}, "two": {"pairs": 200}}
        evidence = {"similarity": similarity.tolist(), "gold": GOLD.tolist()}
        results.append(TaskResult(task, scores, 300, {"subsets": subsets}, evidence, key="same"))
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


def test_a_bootstrap_knows_the_aggregation() -> None:
    result = single("a", 1.0)["STS12"]
    drawn = {aggregation: resample_task(result, aggregation, resamples=200) for aggregation in Aggregation}
    for aggregation, resampled in drawn.items():
        assert resampled.value == pytest.approx(result.scores[aggregation])
        assert resampled.drawn.mean() == pytest.approx(resampled.value, abs=1)
        report = Report("a", single("a", 1.0).results, aggregation=aggregation)
        cell = compare([Method("a", (report,))], resamples=200).rows["a"]["STS12"]
        assert (cell.low, cell.high) == pytest.approx(tuple(np.quantile(resampled.drawn, [0.025, 0.975])))
    values = sorted(resampled.value for resampled in drawn.values())
    assert min(np.diff(values)) > 2  # or the test could not tell them apart


def test_tasks_draw_for_themselves_and_models_alike() -> None:
    one, two = single("a", 1.0, seed=0), single("b", 2.0, seed=1)
    same = replace(one["STS12"], task="STS13")
    assert not np.allclose(resample_task(one["STS12"]).drawn, resample_task(same).drawn)
    paired = resample_task(one["STS12"]) - resample_task(two["STS12"])
    rows = np.random.default_rng([0, *b"STS12/"]).integers(0, 300, (1000, 300))
    ours, theirs = (np.array(report["STS12"].evidence["similarity"]) for report in (one, two))
    expected = [spearman(ours[r], GOLD[r]) - spearman(theirs[r], GOLD[r]) for r in rows[:5]]
    np.testing.assert_allclose(paired.drawn[:5], expected)


def test_intervals_are_computed_where_they_are_wanted() -> None:
    methods = [Method(name, (single(name, noise),)) for name, noise in (("a", 2.0), ("b", 1.0))]
    without = compare(methods, "a", resamples=100, intervals=False).rows["b"]["STS12"]
    assert (without.low, without.high) == (None, None)
    assert without.p == compare(methods, "a", resamples=100).rows["b"]["STS12"].p


def test_what_is_printed_alike_is_tested_as_it_is() -> None:
    base, ours = runs("base", {"STS12": [70.001, 71.004]}), runs("ours", {"STS12": [70.006, 71.008]})
    cell = compare([base, ours], "base").rows["ours"]["STS12"]
    assert cell.p == pytest.approx(ttest_rel([70.006, 71.008], [70.001, 71.004]).pvalue, rel=1e-4)
    assert not cell.significant
    assert cell.difference == pytest.approx(0.0045)
    shifted = runs("ours", {"STS12": [70.501, 71.504]})  # the same difference twice has no spread to test against
    assert not compare([base, shifted], "base").rows["ours"]["STS12"].significant
    exact = [70.0, 70.0, 70.0, 70.0, 70.0, 70.0, 70.004]
    report = Report("m", tuple(TaskResult(task, {"all": x}, 9) for task, x in zip(STS_TASKS, exact, strict=True)))
    assert report.score("STS avg") == pytest.approx(70 + 0.004 / 7)


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
    one = single("b", 1)
    for name, value in (("text", "raw"), ("probes", "fast")):
        with pytest.raises(DataError, match=f"{name} '{value}'"):
            compare([Method("a", (single("a", 1),)), Method("b", (replace(one, **{name: value}),))])
    first = one.results[0]
    others = [  # of the same shape, but not the same data
        replace(first, evidence={**first.evidence, "gold": first.evidence["gold"][::-1]}),
        replace(first, key="another"),
        replace(first, samples=299),
    ]
    for other in others:
        with pytest.raises(DataError, match="STS12: b was evaluated on other data than a"):
            compare([Method("a", (single("a", 1),)), Method("b", (replace(one, results=(other, *one.results[1:])),))])
    with pytest.raises(ConfigError, match="resamples must be at least 100"):
        compare([BASE], resamples=0)
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
    plain = Console(width=120, file=io.StringIO())  # as to a pipe or a file, where letters have no style
    plain.print(comparison_grid(table).render(Format.TABLE))
    assert "│ <u>**72.06 ± 0.29**</u> │" in plain.file.getvalue()


@pytest.mark.parametrize("width", [30, 60, 80, 100])
@pytest.mark.parametrize("count", [1, 3, 12])
def test_a_narrow_screen_cuts_neither_names_nor_numbers(width: int, count: int) -> None:
    scores = {task: [70 + i + j for j in range(3)] for i, task in enumerate(STS_TASKS)}
    methods = [runs(f"method-{i:02}", scores) for i in range(count)]
    grid = comparison_grid(compare(methods))
    console = Console(width=width, file=io.StringIO(), color_system="standard", force_terminal=True, no_color=True)
    console.print(Grid(grid.columns, grid.rows))
    printed = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert max(map(len, printed.splitlines())) <= width
    assert "…" not in printed
    words = printed.split()
    for column in (*STS_TASKS, "avg"):
        assert column in words
    for method in methods:
        assert method.name in words
    assert words.count("±") == count * len(grid.columns)
    if count == 1:
        assert printed.count("method-00") == 1  # on its side, in one piece


def test_a_long_name_is_folded() -> None:
    report = Report("a/very/long/" * 12, single("a", 1.0).results)
    console = Console(width=80, file=io.StringIO())
    console.print(Grid((grid := report_grid(report)).columns, grid.rows))
    printed = console.file.getvalue()
    assert f"{report.score('STS12'):.2f}" in printed
    assert re.sub(r"[\s┃│]", "", printed).count("very") == 12


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
    (first, *_) = csv.DictReader(io.StringIO(report_csv(report)))
    assert first["model"] == "a,b"
    with pytest.raises(ValueError, match="JSON"):
        to_json({"score": float("nan")})


def test_names_cannot_break_a_table() -> None:
    name = Report(r"a\b^~", (TaskResult("STS12", {"all": 70.0}, 9),))
    assert r"a\textbackslash{}b\textasciicircum{}\textasciitilde{} & 70.00" in str(
        report_grid(name).render(Format.LATEX)
    )
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
