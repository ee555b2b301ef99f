"""Is the difference real? Tests over seeds, intervals over samples, and a correction for looking many times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s2sent.errors import DataError

Floats = NDArray[np.float64]
ScoreDraws = Callable[[Floats], Floats]
"""From how often each sample was drawn, (draws, samples), to something of every draw."""
Seed = int | Sequence[int]


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation (of the sample, n - 1) over runs; one run has no deviation."""

    mean: float
    std: float | None
    runs: int


def summarize(values: ArrayLike) -> Summary:
    """Return mean and standard deviation over runs."""
    array = _runs(values, "a summary", least=1)
    return Summary(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None, len(array))


def paired_t_test(scores: ArrayLike, baseline: ArrayLike) -> float:
    """Return the two-sided p of Student's t-test on the differences of runs that share a seed.

    Runs that all differ by the very same amount have no spread to test against, which speaks for nothing: p is 1.
    """
    difference = _differences(scores, baseline)
    if np.ptp(difference) == 0:
        return 1.0
    from scipy import stats  # slow to import, and `--help` does not need it

    return float(stats.ttest_1samp(difference, 0.0).pvalue)


def wilcoxon(scores: ArrayLike, baseline: ArrayLike) -> float:
    """Two-sided p of Wilcoxon's signed-rank test on the same differences; with n runs it cannot go below 2 / 2^n."""
    difference = _differences(scores, baseline)
    if not difference.any():
        return 1.0
    from scipy import stats  # slow to import, and `--help` does not need it

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

    def __sub__(self, other: "Resampled") -> "Resampled":
        """How far two values lie apart. Both must be of the same draws, so that samples hard for both cancel."""
        if self.drawn.shape != other.drawn.shape:
            raise DataError(f"{len(self.drawn)} draws cannot be paired with {len(other.drawn)}.")
        return Resampled(self.value - other.value, self.drawn - other.drawn)

    def interval(self, level: float = 0.95) -> Interval:
        """The percentile interval, and a p from the normal law with the spread of the resamples.

        Counting resamples on the far side of zero instead would give no p below 2 / resamples, and a table with many
        comparisons could then never have a significant one, however large the difference.
        """
        low, high = np.quantile(self.drawn, [(1 - level) / 2, (1 + level) / 2])
        spread = float(self.drawn.std())
        from scipy import stats  # slow to import, and `--help` does not need it

        p = 2 * float(stats.norm.sf(abs(self.value) / spread)) if spread else float(self.value == 0)
        return Interval(self.value, float(low), float(high), p)


def average(parts: Sequence[Resampled], weights: Sequence[float] | None = None) -> Resampled:
    """Return the (weighted) mean of values whose data were resampled independently of each other."""
    value = np.average([part.value for part in parts], weights=weights)
    return Resampled(float(value), np.average([part.drawn for part in parts], axis=0, weights=weights))


def bootstrap_spearman(similarity: ArrayLike, gold: ArrayLike, *, resamples: int = 1000, seed: Seed = 0) -> Resampled:
    """100 times Spearman with sentence pairs drawn with replacement.

    The same seed draws the same pairs: subtract another model's to compare the two on each draw.
    """
    first, second = np.asarray(similarity, dtype=np.float64), np.asarray(gold, dtype=np.float64)
    if first.shape != second.shape:
        raise DataError(
            f"A bootstrap over pairs needs as many similarities as gold scores, not {len(first)} and {len(second)}."
        )
    rank_first, rank_second = _ranker(first), _ranker(second)
    return _bootstrap(
        lambda counts: _correlation(rank_first(counts), rank_second(counts), counts), len(first), resamples, seed
    )


def bootstrap_mean(values: ArrayLike, *, resamples: int = 1000, seed: Seed = 0) -> Resampled:
    """The same for 100 times a mean, such as the accuracy from one 0 or 1 per sentence."""
    array = np.asarray(values, dtype=np.float64)
    return _bootstrap(lambda counts: 100 * (counts @ array) / len(array), len(array), resamples, seed)


def _bootstrap(score: ScoreDraws, samples: int, resamples: int, seed: Seed) -> Resampled:
    if samples < 2 or resamples < 1:
        raise DataError(f"A bootstrap needs at least two samples and one resample, not {samples} and {resamples}.")
    random = np.random.default_rng(seed)
    size = max(1, 2_000_000 // samples)  # draws at a time: memory stays small however many are asked for
    drawn = []
    for start in range(0, resamples, size):
        draws = min(size, resamples - start)
        rows = random.integers(0, samples, (draws, samples)) + samples * np.arange(draws)[:, None]
        counts = np.bincount(rows.ravel(), minlength=draws * samples).reshape(draws, samples)
        drawn.append(score(counts.astype(np.float64)))
    return Resampled(float(score(np.ones((1, samples)))[0]), np.concatenate(drawn))


def _ranker(values: Floats) -> ScoreDraws:
    """Return a function from draws to the ranks of these values in each. It sorts once, not for every draw."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))

    def ranks(counts: Floats) -> Floats:
        drawn = np.add.reduceat(counts[:, order], starts, axis=1)  # how often each distinct value, in their order
        return np.asarray((drawn.cumsum(axis=1) - (drawn - 1) / 2)[:, group])  # equal values share their middle rank

    return ranks


def _correlation(x: Floats, y: Floats, counts: Floats) -> Floats:
    """100 times the correlation of ranks, sample by sample as often as it was drawn. A draw without spread counts 0."""
    middle = (counts.shape[1] + 1) / 2
    x, y = x - middle, y - middle
    weighted = counts * x
    norm = np.sqrt(np.einsum("ds,ds->d", weighted, x) * np.einsum("ds,ds,ds->d", counts, y, y))
    return np.asarray(100 * np.einsum("ds,ds->d", weighted, y) / np.where(norm == 0, 1.0, norm))


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
