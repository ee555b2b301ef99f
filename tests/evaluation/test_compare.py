from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr, ttest_rel

from s2sent.data.senteval import STS_TASKS
from s2sent.errors import ConfigError, DataError
from s2sent.evaluation.comparison import Method, compare, resample_task
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
    cells = [table[name, task] for name in ("better", "worse") for task in ("STS12", "STS13")]
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
    assert [name for name in table.methods if table[name, "STS12"].best] == ["better"]
    for words in ("paired t-test over runs", "Holm-corrected for 4 comparisons", "5 runs", "better than base"):
        assert words in table.how


def test_single_models_are_tested_over_pairs() -> None:
    methods = [Method(name, (single(name, noise, seed),)) for name, noise, seed in (("a", 2.0, 0), ("b", 1.0, 1))]
    table = compare(methods, "a", resamples=200)
    assert table["b", "STS12"].significant
    assert table["b", "STS avg"].significant
    assert table["a", "STS12"].p is None
    for column in table.tasks:
        cell = table["b", column]
        assert cell.low is not None
        assert cell.high is not None
        assert cell.low < cell.mean < cell.high
    wide, narrow = table["b", "STS12"], table["b", "STS avg"]
    assert narrow.high - narrow.low < wide.high - wide.low  # type: ignore[operator]
    assert "paired bootstrap over samples (200 resamples)" in table.how
    # As many comparisons as a large table has must not hide a large difference behind few resamples.
    many = compare([methods[0], *(Method(f"b{i}", methods[1].reports) for i in range(12))], "a", resamples=100)
    assert many["b0", "STS12"].significant
    same = compare([methods[0], Method("c", methods[0].reports)], "a", resamples=100)
    assert not any(score.significant for score in same if score.method == "c")


def test_a_bootstrap_knows_the_aggregation() -> None:
    result = single("a", 1.0)["STS12"]
    drawn = {aggregation: resample_task(result, aggregation, resamples=200) for aggregation in Aggregation}
    for aggregation, resampled in drawn.items():
        assert resampled.value == pytest.approx(result.scores[aggregation])
        assert resampled.drawn.mean() == pytest.approx(resampled.value, abs=1)
        report = Report("a", single("a", 1.0).results, aggregation=aggregation)
        cell = compare([Method("a", (report,))], resamples=200)["a", "STS12"]
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
    without = compare(methods, "a", resamples=100, intervals=False)["b", "STS12"]
    assert (without.low, without.high) == (None, None)
    assert without.p == compare(methods, "a", resamples=100)["b", "STS12"].p


def test_what_is_printed_alike_is_tested_as_it_is() -> None:
    base, ours = runs("base", {"STS12": [70.001, 71.004]}), runs("ours", {"STS12": [70.006, 71.008]})
    cell = compare([base, ours], "base")["ours", "STS12"]
    assert cell.p == pytest.approx(ttest_rel([70.006, 71.008], [70.001, 71.004]).pvalue, rel=1e-4)
    assert not cell.significant
    assert cell.difference == pytest.approx(0.0045)
    shifted = runs("ours", {"STS12": [70.501, 71.504]})  # the same difference twice has no spread to test against
    assert not compare([base, shifted], "base")["ours", "STS12"].significant
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
