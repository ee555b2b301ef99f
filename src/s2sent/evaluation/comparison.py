"""Methods side by side: the best of each task, and which differ from the baseline by more than chance."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from s2sent.data.senteval import STS_TASKS, TRANSFER_TASKS
from s2sent.errors import ConfigError, DataError
from s2sent.evaluation.result import Aggregation, Report, TaskResult
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

SUITE_OF = {"STS avg": STS_TASKS, "Transfer avg": TRANSFER_TASKS}


@dataclass(frozen=True)
class Method:
    """A row of the table: one model, or several runs of one recipe that differ in their seed."""

    name: str
    reports: tuple[Report, ...]


@dataclass(frozen=True)
class Cell:
    """One method on one task."""

    mean: float
    std: float | None
    runs: int
    best: bool = False
    low: float | None = None
    high: float | None = None
    """The 95 % bootstrap interval of the score of a single run."""
    difference: float | None = None
    """To the baseline."""
    p: float | None = None
    """Of that difference: paired t-test over runs, or bootstrap over samples."""
    wilcoxon: float | None = None
    p_holm: float | None = None
    """``p`` corrected for all comparisons of the table."""
    significant: bool = False
    """Better than the baseline at the level of the table, after the correction."""


@dataclass(frozen=True)
class Comparison:
    """The table, and how its marks were computed."""

    columns: tuple[str, ...]
    rows: dict[str, dict[str, Cell]]
    baseline: str | None
    how: str
    notes: tuple[str, ...] = ()
    """What a reader of the scores should know, such as that they are not comparable with published ones."""

    def to_dict(self) -> dict[str, Any]:
        """For json."""
        rows = {name: {column: asdict(cell) for column, cell in cells.items()} for name, cells in self.rows.items()}
        return {
            "columns": list(self.columns),
            "baseline": self.baseline,
            "how": self.how,
            "notes": list(self.notes),
            "rows": rows,
        }


def compare(
    methods: Sequence[Method],
    baseline: str | None = None,
    *,
    level: float = 0.05,
    resamples: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare methods, each against ``baseline`` if one is named.

    With several runs of every method: a paired t-test over runs (Wilcoxon's test beside it), the runs paired in their
    order, which is that of their seeds. With single models: a paired bootstrap over the samples of a task. More than
    one comparison in the table is corrected with Holm's method.

    Raises:
        ConfigError: the baseline is none of the methods, names repeat, or runs cannot be paired.
        DataError: methods were not evaluated on the same tasks and data.
    """
    names = [method.name for method in methods]
    if len(set(names)) < len(names):
        raise ConfigError(f"Two methods have one name; name them as NAME=PATH: {', '.join(names)}.")
    if baseline is not None and baseline not in names:
        raise ConfigError(f"The baseline {baseline!r} is none of {', '.join(names)}.")
    if not 0 < level < 1:
        raise ConfigError(f"level must lie between 0 and 1, not at {level}.")
    columns = _columns(methods)
    runs = {len(method.reports) for method in methods}
    if baseline is not None and len(runs) > 1:
        counts = ", ".join(f"{method.name} {len(method.reports)}" for method in methods)
        raise ConfigError(f"Runs are compared seed by seed, so every method needs as many as the baseline: {counts}.")
    single = runs == {1}

    scores = {
        method.name: {column: [report.headlines()[column] for report in method.reports] for column in columns}
        for method in methods
    }
    best = {column: max(round(float(np.mean(scores[name][column])), 2) for name in names) for column in columns}
    reference = next((method for method in methods if method.name == baseline), None)
    rows: dict[str, dict[str, Cell]] = {}
    for method in methods:
        rows[method.name] = {}
        for column in columns:
            summary = summarize(scores[method.name][column])
            values: dict[str, Any] = asdict(summary) | {"best": round(summary.mean, 2) == best[column]}
            if single:
                interval = _resampled(method.reports[0], None, column, resamples, seed).interval()
                values |= {"low": interval.low, "high": interval.high}
            if reference is not None and method.name != baseline:
                ours, theirs = scores[method.name][column], scores[reference.name][column]
                values["difference"] = float(np.mean(ours) - np.mean(theirs))
                if single:
                    values["p"] = (
                        _resampled(method.reports[0], reference.reports[0], column, resamples, seed).interval().p
                    )
                else:
                    values |= {"p": paired_t_test(ours, theirs), "wilcoxon": wilcoxon(ours, theirs)}
            rows[method.name][column] = Cell(**values)
    tested = _corrected(rows, level)
    how = _how(methods, baseline, single, level, resamples, tested)
    notes = dict.fromkeys(note for method in methods for report in method.reports for note in report.notes)
    return Comparison(columns, rows, baseline, how, tuple(notes))


def _columns(methods: Sequence[Method]) -> tuple[str, ...]:
    if not methods or not all(method.reports for method in methods):
        raise ConfigError("There is nothing to compare: give at least one model.")
    first = methods[0].reports[0]
    columns = tuple(first.headlines())
    for method in methods:
        for report in method.reports:
            if tuple(report.headlines()) != columns:
                raise DataError(
                    f"{method.name} was evaluated on {list(report.headlines())}, {methods[0].name} on {list(columns)}."
                )
            for name in ("aggregation", "text", "probes"):
                if getattr(report, name) != getattr(first, name):
                    raise DataError(
                        f"{method.name} was evaluated with {name} {getattr(report, name)!r}, {methods[0].name} with "
                        f"{getattr(first, name)!r}: these scores do not compare."
                    )
    return columns


def _corrected(rows: dict[str, dict[str, Cell]], level: float) -> int:
    """Correct all p of the table together and mark what stays below ``level``; returns how many there were."""
    places = [(name, column) for name, cells in rows.items() for column, cell in cells.items() if cell.p is not None]
    adjusted = holm([rows[name][column].p or 0.0 for name, column in places])
    for (name, column), p in zip(places, adjusted, strict=True):
        cell = rows[name][column]
        better = cell.difference is not None and cell.difference > 0
        rows[name][column] = Cell(**{**asdict(cell), "p_holm": p, "significant": better and p < level})
    return len(places)


def _resampled(report: Report, baseline: Report | None, column: str, resamples: int, seed: int) -> Resampled:
    if column in SUITE_OF:
        return average([_resampled(report, baseline, task, resamples, seed) for task in SUITE_OF[column]])
    other = None if baseline is None else baseline[column]
    return resample_task(report[column], other, report.aggregation, resamples=resamples, seed=seed)


def resample_task(
    result: TaskResult,
    baseline: TaskResult | None = None,
    aggregation: Aggregation = Aggregation.ALL,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Resampled:
    """The bootstrap of one task's score, or of its difference to a baseline's, from the evidence a result carries.

    Raises:
        DataError: the two results are not about the same samples.
    """
    if baseline is not None and result.evidence.get("gold") != baseline.evidence.get("gold"):
        raise DataError(f"{result.task}: the two models were evaluated on different data.")
    if "correct" in result.evidence:
        other = None if baseline is None else baseline.evidence["correct"]
        return bootstrap_mean(result.evidence["correct"], other, resamples=resamples, seed=seed)
    similarity, gold = result.evidence["similarity"], result.evidence["gold"]
    others = None if baseline is None else baseline.evidence["similarity"]
    sizes = [subset["pairs"] for subset in result.details["subsets"].values()]
    if aggregation is Aggregation.ALL:
        return bootstrap_spearman(similarity, gold, others, resamples=resamples, seed=seed)
    ends = np.cumsum(sizes)
    parts = [
        bootstrap_spearman(
            similarity[end - size : end],
            gold[end - size : end],
            None if others is None else others[end - size : end],
            resamples=resamples,
            seed=seed + index,
        )
        for index, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]
    return average(parts, None if aggregation is Aggregation.MEAN else sizes)


def _how(
    methods: Sequence[Method], baseline: str | None, single: bool, level: float, resamples: int, tested: int
) -> str:
    """One paragraph under the table."""
    first = methods[0].reports[0]
    parts = []
    if any(task in first.headlines() for task in (*STS_TASKS, "STS-B-dev")):
        parts.append(f"STS: Spearman × 100 of cosine, aggregation {first.aggregation.value}, text {first.text}.")
    if any(task in first.headlines() for task in TRANSFER_TASKS):
        parts.append(f"Transfer: accuracy of linear probes, {first.probes} configuration.")
    if not single:
        counts = sorted({len(method.reports) for method in methods})
        parts.append(f"Mean ± standard deviation over {' or '.join(map(str, counts))} runs.")
    parts.append("Bold: best of the column.")
    if baseline is not None:
        test = f"paired bootstrap over samples ({resamples:,} resamples)" if single else "paired t-test over runs"
        corrected = f", Holm-corrected for {tested} comparisons" if tested > 1 else ""
        parts.append(f"Underlined: better than {baseline} with p < {level:g} ({test}, two-sided{corrected}).")
    return " ".join(parts)
