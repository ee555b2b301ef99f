import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from s2sent.errors import DataError
from s2sent.evaluation.statistics import (
    Resampled,
    average,
    bootstrap_mean,
    bootstrap_spearman,
    holm,
    paired_t_test,
    summarize,
    wilcoxon,
)

DIFFERENCES = st.lists(st.integers(-300, 300).map(lambda value: value / 100), min_size=3, max_size=3)


@given(DIFFERENCES)
def test_the_t_test_of_three_seeds_by_its_closed_form(differences: list[float]) -> None:
    """With two degrees of freedom Student's law is elementary: p = 1 - |t| / √(t² + 2)."""
    assume(np.ptp(differences) > 0)
    t = np.mean(differences) / (np.std(differences, ddof=1) / np.sqrt(3))
    scores = [70 + difference for difference in differences]
    assert paired_t_test(scores, [70.0] * 3) == pytest.approx(1 - abs(t) / np.sqrt(t**2 + 2), rel=1e-4, abs=1e-9)


def test_seven_seeds_as_the_paper_has_them() -> None:
    base = [76.1, 76.4, 75.9, 76.0, 76.3, 76.2, 75.8]
    better = [77.0, 77.1, 76.7, 77.0, 77.4, 76.9, 76.8]
    assert paired_t_test(better, base) < 1e-4
    assert wilcoxon(better, base) == pytest.approx(2 / 2**7)
    assert summarize([80.0]).std is None


def test_runs_without_spread() -> None:
    """Two runs that are both 0.1 better are two runs, not a proof."""
    assert paired_t_test([1.1, 2.2, 3.3], [1.0, 2.1, 3.2]) == 1.0
    assert paired_t_test([1.0, 2.0], [1.0, 2.0]) == wilcoxon([1.0, 2.0], [1.0, 2.0]) == 1.0


def test_runs_that_cannot_be_paired() -> None:
    with pytest.raises(DataError, match="3 and 2 runs"):
        paired_t_test([1, 2, 3], [1, 2])
    with pytest.raises(DataError, match="at least 2 runs"):
        wilcoxon([1], [2])
    with pytest.raises(DataError, match="must be a number"):
        paired_t_test([1, float("nan")], [1, 2])


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_by_its_definition(pvalues: list[float]) -> None:
    """Reject in order while p(i) <= level / (n - i): an adjusted p at most the level says the same."""
    adjusted = holm(pvalues)
    order = sorted(range(len(pvalues)), key=lambda index: pvalues[index])
    for level in (0.01, 0.05, 0.3):
        going = True
        for rank, index in enumerate(order):
            going = going and (len(pvalues) - rank) * pvalues[index] <= level
            assert (adjusted[index] <= level) == going
    assert all(a >= p for a, p in zip(adjusted, pvalues, strict=True))


def test_a_bootstrap_of_spearman_is_scipys_on_every_draw() -> None:
    random = np.random.default_rng(3)
    gold = np.round(random.uniform(0, 5, 60), 0)  # many ties
    one, two = gold + random.normal(size=(2, 60))
    resampled = bootstrap_spearman(one, gold, resamples=20, seed=7) - bootstrap_spearman(
        two, gold, resamples=20, seed=7
    )
    rows = np.random.default_rng(7).integers(0, 60, (20, 60))
    expected = [
        100 * (stats.spearmanr(one[r], gold[r]).statistic - stats.spearmanr(two[r], gold[r]).statistic) for r in rows
    ]
    np.testing.assert_allclose(resampled.drawn, expected, atol=1e-9)
    whole = 100 * (stats.spearmanr(one, gold).statistic - stats.spearmanr(two, gold).statistic)
    assert resampled.value == pytest.approx(whole)


def test_a_draw_without_spread_counts_zero() -> None:
    assert bootstrap_spearman([1.0, 2.0], [1.0, 2.0], resamples=50).drawn.min() == 0


def test_many_draws_are_made_in_parts() -> None:
    values = np.random.default_rng(0).random(50_000) < 0.5  # forty draws at a time
    drawn = bootstrap_mean(values, resamples=90, seed=3).drawn
    random = np.random.default_rng(3)
    expected = [100 * values[random.integers(0, len(values), len(values))].mean() for _ in range(90)]
    np.testing.assert_allclose(drawn, expected)


def test_an_interval_is_the_middle_of_the_draws() -> None:
    interval = Resampled(400.0, np.random.default_rng(0).permutation(1001).astype(float)).interval()
    assert (interval.value, interval.low, interval.high) == pytest.approx((400, 25, 975))
    assert interval.p == pytest.approx(2 * stats.norm.sf(400 / np.std(np.arange(1001))))
    narrow = Resampled(400.0, np.arange(1001.0)).interval(level=0.5)
    assert (narrow.low, narrow.high) == pytest.approx((250, 750))


def test_an_interval_covers_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(200):
        sample = np.random.default_rng(seed).random(150) < 0.7
        interval = bootstrap_mean(sample, resamples=400, seed=seed).interval()
        covered += interval.low <= 70 <= interval.high
    assert 0.90 <= covered / 200 <= 0.99


def test_a_difference_is_found_where_there_is_one_and_only_there() -> None:
    random = np.random.default_rng(0)
    gold = random.uniform(0, 5, 500)
    good, bad = gold + random.normal(size=500), gold + 3 * random.normal(size=500)
    assert (bootstrap_spearman(good, gold) - bootstrap_spearman(bad, gold)).interval().p < 0.01
    assert (bootstrap_spearman(good, gold) - bootstrap_spearman(good, gold)).interval().p == 1.0
    accuracy = bootstrap_mean(random.random(500) < 0.6, resamples=4000)
    expected = 100 * np.sqrt(0.6 * 0.4 / 500)  # the standard error of a share
    assert accuracy.drawn.std() == pytest.approx(expected, rel=0.1)
    one, other = (bootstrap_mean(random.random(500) < 0.5) for _ in range(2))
    same = (one - other).interval()
    assert same.low < 0 < same.high


def test_averages_weigh_values_and_draws_alike() -> None:
    parts = [bootstrap_mean([0, 1, 1, 1], resamples=5, seed=seed) for seed in (0, 1)]
    both = average(parts, [1, 3])
    assert both.value == pytest.approx(75)
    np.testing.assert_allclose(both.drawn, 0.25 * parts[0].drawn + 0.75 * parts[1].drawn)


def test_a_bootstrap_needs_matching_data() -> None:
    with pytest.raises(DataError, match="as many similarities"):
        bootstrap_spearman([1, 2, 3], [1, 2])
    with pytest.raises(DataError, match="20 draws cannot be paired with 10"):
        bootstrap_mean([1, 0, 1], resamples=20) - bootstrap_mean([1, 0, 1], resamples=10)
    with pytest.raises(DataError, match="at least two samples"):
        bootstrap_mean([1])
