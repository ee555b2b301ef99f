"""Methods side by side: the best of each task, and which differ from the baseline by more than chance."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from s2sent.errors import ConfigError, DataError
from s2sent.evaluation.result import AVERAGES, Aggregation, Frame, Report, Score, TaskResult
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

LEAST_RESAMPLES, MOST_RESAMPLES = 100, 1_000_000


@dataclass(frozen=True)
class Method:
    """What is compared: one model, or several runs of one recipe that differ in their seed."""

    name: str
    reports: tuple[Report, ...]


def check_design(
    methods: Sequence[tuple[str, int]], baseline: str | None = None, *, level: float = 0.05, resamples: int = 1000
) -> None:
    """Raise a `ConfigError` unless methods of these names and numbers of runs can be compared in this way."""
    names = [name for name, _ in methods]
    if not methods or not all(runs for _, runs in methods):
        raise ConfigError("There is nothing to compare: give at least one model.")
    if len(set(names)) < len(names):
        raise ConfigError(f"Two methods have one name; name them as NAME=PATH: {', '.join(names)}.")
    if baseline is not None and baseline not in names:
        raise ConfigError(f"The baseline {baseline!r} is none of {', '.join(names)}.")
    if baseline is not None and len({runs for _, runs in methods}) > 1:
        counts = ", ".join(f"{name} {runs}" for name, runs in methods)
        raise ConfigError(f"Runs are compared seed by seed, so every method needs as many as the baseline: {counts}.")
    if not 0 < level < 1:
        raise ConfigError(f"level must be between 0 and 1, got {level}.")
    if resamples < LEAST_RESAMPLES:
        raise ConfigError(f"resamples must be at least {LEAST_RESAMPLES}, got {resamples}: fewer have no tails.")
    if resamples > MOST_RESAMPLES:
        raise ConfigError(f"resamples must be at most {MOST_RESAMPLES:,}, got {resamples}.")


def compare(
    methods: Sequence[Method],
    baseline: str | None = None,
    *,
    level: float = 0.05,
    resamples: int = 1000,
    seed: int = 0,
    intervals: bool = True,
) -> Frame:
    """Compare methods, each against `baseline` if one is named.

    With several runs of every method: a paired t-test over runs (Wilcoxon's test beside it), the runs paired in their
    order, which is that of their seeds. With single models: a paired bootstrap over the samples of a task. More than
    one comparison in the table is corrected with Holm's method. Tested are the scores themselves, not as printed.

    Args:
        methods: What to compare.
        baseline: The name of the method that the others are tested against.
        level: A (corrected) p below this is significant.
        resamples: Of the bootstrap.
        seed: Of the bootstrap; every task draws for itself.
        intervals: Whether single models get the bootstrap interval of each score.

    Raises:
        ConfigError: the baseline is none of the methods, names repeat, or runs cannot be paired.
        DataError: methods were not evaluated on the same tasks and data.
    """
    design = [(method.name, len(method.reports)) for method in methods]
    check_design(design, baseline, level=level, resamples=resamples)
    columns = _columns(methods)
    single = {runs for _, runs in design} == {1}
    by_name = {method.name: method.reports for method in methods}
    drawn: dict[str, dict[str, Resampled]] = {}
    if single and (intervals or baseline is not None):
        drawn = {name: _resampled(reports[0], columns, resamples, seed) for name, reports in by_name.items()}
    rows = []
    for name, reports in by_name.items():
        headlines = [report.headlines() for report in reports]
        for column in columns:
            summary = summarize([scores[column] for scores in headlines])
            values: dict[str, Any] = {"mean": summary.mean, "std": summary.std, "runs": summary.runs}
            if single and intervals:
                interval = drawn[name][column].interval()
                values |= {"low": interval.low, "high": interval.high}
            if baseline is not None and name != baseline:
                ours, theirs = ([report.score(column) for report in by_name[one]] for one in (name, baseline))
                values["difference"] = float(np.mean(ours) - np.mean(theirs))
                if single:
                    values["p"] = (drawn[name][column] - drawn[baseline][column]).interval().p
                else:
                    values |= {"p": paired_t_test(ours, theirs), "wilcoxon": wilcoxon(ours, theirs)}
            rows.append(Score(name, column, **values))
    how = _how(methods, baseline, single, level, resamples, sum(row.p is not None for row in rows))
    notes = dict.fromkeys(note for method in methods for report in method.reports for note in report.notes)
    return Frame(marked(rows, level), how, tuple(notes), baseline)


def marked(
    rows: Sequence[Score], level: float = 0.05, *, correct: bool = True, candidates: Collection[str] | None = None
) -> tuple[Score, ...]:
    """Return the rows with `best`, `p_holm` and `significant`.

    Args:
        rows: The rows of one frame, whose comparisons are corrected together.
        level: A p below this is significant,
        correct: after the correction, or before it.
        candidates: The methods that can be the best; None: all.
    """
    best: dict[str, float] = {}
    for row in rows:
        if candidates is None or row.method in candidates:
            best[row.task] = max(best.get(row.task, -np.inf), round(row.mean, 2))
    tested = [row.p for row in rows if row.p is not None]
    corrected = iter(holm(tested))
    found = []
    for row in rows:
        p_holm = None if row.p is None else next(corrected)
        p = p_holm if correct else row.p
        found.append(
            replace(
                row,
                p_holm=p_holm,
                best=(candidates is None or row.method in candidates) and round(row.mean, 2) == best[row.task],
                significant=p is not None and p < level and (row.difference or 0) > 0,
            )
        )
    return tuple(found)


def _columns(methods: Sequence[Method]) -> tuple[str, ...]:
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
            for result in report.results:
                if not _same_data(result, first[result.task]):
                    raise DataError(
                        f"{result.task}: {method.name} was evaluated on other data than {methods[0].name}, or with "
                        "other probes: these scores do not compare."
                    )
    return columns


def _same_data(one: TaskResult, other: TaskResult) -> bool:
    return (
        one.key == other.key and one.samples == other.samples and one.evidence.get("gold") == other.evidence.get("gold")
    )


def _resampled(report: Report, columns: Sequence[str], resamples: int, seed: int) -> dict[str, Resampled]:
    tasks = {
        result.task: resample_task(result, report.aggregation, resamples=resamples, seed=seed)
        for result in report.results
    }
    return {
        column: average([tasks[task] for task in AVERAGES[column]]) if column in AVERAGES else tasks[column]
        for column in columns
    }


def resample_task(
    result: TaskResult, aggregation: Aggregation = Aggregation.ALL, *, resamples: int = 1000, seed: int = 0
) -> Resampled:
    """Return the bootstrap of one task's score from the evidence a result carries.

    Every task and subset draws for itself; two models on one task are drawn alike, so their difference is paired.
    """

    def own(name: str) -> list[int]:
        return [seed, *f"{result.task}/{name}".encode()]

    if "correct" in result.evidence:
        return bootstrap_mean(result.evidence["correct"], resamples=resamples, seed=own(""))
    similarity, gold = result.evidence["similarity"], result.evidence["gold"]
    if aggregation is Aggregation.ALL:
        return bootstrap_spearman(similarity, gold, resamples=resamples, seed=own(""))
    parts, sizes, start = [], [], 0
    for name, subset in result.details["subsets"].items():
        pairs = slice(start, start + subset["pairs"])
        parts.append(bootstrap_spearman(similarity[pairs], gold[pairs], resamples=resamples, seed=own(name)))
        sizes.append(subset["pairs"])
        start = pairs.stop
    return average(parts, None if aggregation is Aggregation.MEAN else sizes)


def _how(
    methods: Sequence[Method], baseline: str | None, single: bool, level: float, resamples: int, tested: int
) -> str:
    """Write the paragraph under the table."""
    parts = [methods[0].reports[0].how]
    if not single:
        counts = sorted({len(method.reports) for method in methods})
        parts.append(f"Mean ± standard deviation over {' or '.join(map(str, counts))} runs.")
    parts.append("Bold: best of the task.")
    if baseline is not None:
        test = (
            f"paired bootstrap over samples ({resamples:,} resamples)"
            if single
            else "paired t-test over runs in their order"
        )
        corrected = f", Holm-corrected for {tested} comparisons" if tested > 1 else ""
        parts.append(f"Underlined: better than {baseline} with p < {level:g} ({test}, two-sided{corrected}).")
    return " ".join(parts)
