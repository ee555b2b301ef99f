"""Is the difference real? Tests over seeds, intervals over samples, and a correction for looking many times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from s2sent.errors import DataError

Floats = NDArray[np.float64]
ScoreRows = Callable[[NDArray[np.int64]], Floats]


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation (of the sample, n - 1) over runs; one run has no deviation."""

    mean: float
    std: float | None
    runs: int


def summarize(values: ArrayLike) -> Summary:
    """Mean and standard deviation over runs."""
    array = _runs(values, "a summary", least=1)
    return Summary(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None, len(array))


def paired_t_test(scores: ArrayLike, baseline: ArrayLike) -> float:
    """Two-sided p of Student's t-test on the differences of runs that share a seed.

    Runs that all differ by the very same amount have no spread to test against: p is 0, or 1 when that amount is 0.
    """
    difference = _differences(scores, baseline)
    if np.ptp(difference) == 0:
        return 1.0 if difference[0] == 0 else 0.0
    return float(stats.ttest_1samp(difference, 0.0).pvalue)


def wilcoxon(scores: ArrayLike, baseline: ArrayLike) -> float:
    """Two-sided p of Wilcoxon's signed-rank test on the same differences; with n runs it cannot go below 2 / 2^n."""
    difference = _differences(scores, baseline)
    if not difference.any():
        return 1.0
    return float(stats.wilcoxon(difference).pvalue)


def holm(pvalues: Sequence[float]) -> list[float]:
    """Holm's step-down correction: compare these with the level you would have used for one comparison.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(pvalues)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(pvalues)), key=lambda index: pvalues[index])):
        running = max(running, min(1.0, (len(pvalues) - rank) * pvalues[index]))
        adjusted[index] = running
    return adjusted


@dataclass(frozen=True)
class Interval:
    """A bootstrap interval around a value, and what the resamples say about its sign."""

    value: float
    low: float
    high: float
    p: float
    """Two-sided, that the value is not 0: of use for a difference, not for a score."""


@dataclass(frozen=True)
class Resampled:
    """A value and the values it takes on resampled data."""

    value: float
    drawn: Floats

    def interval(self, level: float = 0.95) -> Interval:
        """The percentile interval, and a p from the normal law with the spread of the resamples.

        Counting resamples on the far side of zero instead would give no p below 2 / resamples, and a table with many
        comparisons could then never have a significant one, however large the difference.
        """
        low, high = np.quantile(self.drawn, [(1 - level) / 2, (1 + level) / 2])
        spread = float(self.drawn.std())
        p = 2 * float(stats.norm.sf(abs(self.value) / spread)) if spread else float(self.value == 0)
        return Interval(self.value, float(low), float(high), p)


def average(parts: Sequence[Resampled], weights: Sequence[float] | None = None) -> Resampled:
    """The (weighted) mean of values whose data were resampled independently of each other."""
    value = np.average([part.value for part in parts], weights=weights)
    return Resampled(float(value), np.average([part.drawn for part in parts], axis=0, weights=weights))


def bootstrap_spearman(
    similarity: ArrayLike, gold: ArrayLike, baseline: ArrayLike | None = None, *, resamples: int = 1000, seed: int = 0
) -> Resampled:
    """100 times Spearman with sentence pairs drawn with replacement.

    With ``baseline`` (another model's similarities of the same pairs) it is the difference that is resampled: both
    models are scored on the same draw, so pairs that are hard for both cancel.
    """
    first, second = np.asarray(similarity, dtype=np.float64), np.asarray(gold, dtype=np.float64)
    other = None if baseline is None else np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape or (other is not None and other.shape != first.shape):
        raise DataError("A bootstrap over pairs needs as many similarities as gold scores, for every model.")

    def score(rows: NDArray[np.int64]) -> Floats:
        gold_ranks = _ranks(second[rows])
        value = _correlation(_ranks(first[rows]), gold_ranks)
        return value if other is None else value - _correlation(_ranks(other[rows]), gold_ranks)

    return _bootstrap(score, len(first), resamples, seed)


def bootstrap_mean(
    values: ArrayLike, baseline: ArrayLike | None = None, *, resamples: int = 1000, seed: int = 0
) -> Resampled:
    """The same for 100 times a mean, such as the accuracy from one 0 or 1 per sentence."""
    array = np.asarray(values, dtype=np.float64)
    if baseline is not None:
        other = np.asarray(baseline, dtype=np.float64)
        if other.shape != array.shape:
            raise DataError(
                f"A paired bootstrap needs the same samples of both models, not {len(array)} and {len(other)}."
            )
        array = array - other
    return _bootstrap(lambda rows: 100 * array[rows].mean(axis=1), len(array), resamples, seed)


def _bootstrap(score: ScoreRows, samples: int, resamples: int, seed: int) -> Resampled:
    if samples < 2 or resamples < 1:
        raise DataError(f"A bootstrap needs at least two samples and one resample, not {samples} and {resamples}.")
    random = np.random.default_rng(seed)
    size = max(1, 2_000_000 // samples)  # draws at a time: memory stays small however many are asked for
    drawn = [
        score(random.integers(0, samples, (min(size, resamples - start), samples)))
        for start in range(0, resamples, size)
    ]
    return Resampled(float(score(np.arange(samples)[None])[0]), np.concatenate(drawn))


def _ranks(values: Floats) -> Floats:
    return np.asarray(stats.rankdata(values, axis=-1), dtype=np.float64)


def _correlation(x: Floats, y: Floats) -> Floats:
    """100 times Pearson's correlation of each row; of ranks, that is Spearman's. A row without spread counts 0."""
    x, y = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    norm = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return np.asarray(100 * (x * y).sum(-1) / np.where(norm == 0, 1.0, norm))


def _runs(values: ArrayLike, what: str, least: int) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < least:
        raise DataError(f"For {what} at least {least} runs are needed, not {array.size}.")
    if not np.isfinite(array).all():
        raise DataError(f"For {what} every score must be a number: {array.tolist()}.")
    return array


def _differences(scores: ArrayLike, baseline: ArrayLike) -> Floats:
    first, second = _runs(scores, "a paired test", 2), _runs(baseline, "a paired test", 2)
    if len(first) != len(second):
        raise DataError(f"A paired test needs the same seeds on both sides, not {len(first)} and {len(second)} runs.")
    # Scores have two decimals; what is left after subtracting them in binary is noise that a rank test would rank.
    return np.round(first - second, 9)
