"""Results: what one model scored on its tasks, and the tidy frame that every table, figure and csv is made from."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from s2sent.data.senteval import STS_TASKS, TRANSFER_TASKS
from s2sent.errors import ConfigError, DataError
from s2sent.untrusted import Table

AVERAGES = {"STS avg": STS_TASKS, "Transfer avg": TRANSFER_TASKS}
"""What tables show beside the tasks, and the tasks it is the mean of."""


class Aggregation(StrEnum):
    """How the subsets of a year become one score. It moves scores by points: every report names it.

    `all`: one correlation over the concatenated subsets (SimCSE and everyone since).
    `mean`: the mean of the subsets' correlations. `wmean`: weighted by their pairs (original SentEval).
    """

    ALL = "all"
    MEAN = "mean"
    WMEAN = "wmean"

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ConfigError(f"aggregation must be one of {', '.join(cls)}, got {value!r}.")


@dataclass(frozen=True)
class TaskResult:
    """One model on one task, as it is kept in json.

    Attributes:
        task: The task's name.
        scores: All times 100. STS: `all`, `mean`, `wmean`, `pearson`; transfer: `accuracy`, `dev`, `f1` (MRPC).
        samples: Scored pairs (STS) or tested sentences (transfer).
        details: Scores by subset or by fold, regularisers chosen, the configuration.
        evidence: Per sample, for intervals and figures: `similarity` and `gold` in the order of subsets, or `correct`.
        notes: What a reader of the score should know.
        seconds: How long it took to score.
        key: A digest of the task's data and of how it was scored: results with different ones do not compare.
    """

    task: str
    scores: dict[str, float]
    samples: int
    details: dict[str, Any] = field(default_factory=dict, repr=False)
    evidence: dict[str, list[float]] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    key: str = field(default="", repr=False)

    @property
    def is_probed(self) -> bool:
        """Whether this is a transfer task, scored by the accuracy of a probe."""
        return "accuracy" in self.scores

    def score(self, aggregation: Aggregation = Aggregation.ALL) -> float:
        """Return the task's main score, unrounded."""
        return self.scores["accuracy" if self.is_probed else aggregation.value]

    def headline(self, aggregation: Aggregation = Aggregation.ALL) -> float:
        """Return the score as papers print it, with two decimals."""
        return round(self.score(aggregation), 2)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for json."""
        return asdict(self)

    @classmethod
    def read(cls, values: Table) -> Self:
        """Read a result back from json, checked."""
        values.only([option.name for option in fields(cls)])
        evidence = values.table("evidence")
        return cls(
            task=values.get("task", str),
            scores=values.dict_of("scores", float),
            samples=values.get("samples", int),
            details=values.get("details", dict),
            evidence={name: evidence.list_of(name, float) for name in evidence.values},
            notes=tuple(values.list_of("notes", str)),
            seconds=values.get("seconds", float),
            key=values.get("key", str),
        )


@dataclass(frozen=True)
class Report:
    """One model on several tasks, and how it was evaluated."""

    model: str
    results: tuple[TaskResult, ...]
    aggregation: Aggregation = Aggregation.ALL
    text: str = "file"
    source: str = ""
    fingerprint: str | None = None
    probes: str = "default"

    def __str__(self) -> str:
        return f"{self.model}: " + ", ".join(f"{task} {score:.2f}" for task, score in self.headlines().items())

    def __getitem__(self, task: str) -> TaskResult:
        for result in self.results:
            if result.task == task:
                return result
        raise DataError(f"{self.model} was not evaluated on {task}.")

    def headlines(self) -> dict[str, float]:
        """Return the score by task, and the averages of the suites that are complete: `STS avg`, `Transfer avg`.

        An average is the mean of the seven scores as printed, rounded again, as papers compute it.
        """
        found = {result.task: result.headline(self.aggregation) for result in self.results}
        table = {}
        for task, score in found.items():
            table[task] = score
            for name, tasks in AVERAGES.items():
                if task == tasks[-1] and all(one in found for one in tasks):
                    table[name] = round(sum(found[one] for one in tasks) / len(tasks), 2)
        return table

    def score(self, column: str) -> float:
        """Return a task's score or an average, unrounded: what a test of differences needs."""
        if column in AVERAGES:
            return sum(self.score(task) for task in AVERAGES[column]) / len(AVERAGES[column])
        return self[column].score(self.aggregation)

    @property
    def how(self) -> str:
        """How these scores were computed."""
        probed = [result.is_probed for result in self.results]
        parts = []
        if not all(probed):
            parts.append(f"STS: Spearman × 100 of cosine, aggregation {self.aggregation.value}, text {self.text}.")
        if any(probed):
            parts.append(f"Transfer: accuracy of linear probes, {self.probes} configuration.")
        return " ".join(parts)

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores should know, task by task."""
        return [note for result in self.results for note in result.notes]

    def frame(self) -> "Frame":
        """Return the scores as a frame of one method."""
        rows = tuple(Score(self.model, task, score) for task, score in self.headlines().items())
        samples = ", ".join(f"{result.task} {result.samples:,}" for result in self.results)
        return Frame(rows, f"{self.how} Samples: {samples}.", tuple(self.notes))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for json, without the evidence, which is long."""
        results = [result.to_dict() for result in self.results]
        for result in results:
            del result["evidence"]
        return {
            "model": self.model,
            "fingerprint": self.fingerprint,
            "aggregation": self.aggregation.value,
            "text": self.text,
            "source": self.source,
            "probes": self.probes,
            "scores": self.headlines(),
            "results": results,
        }


@dataclass(frozen=True)
class Score:
    """A row of a frame: one method on one task.

    Attributes:
        method: The model, or the recipe that several runs share.
        task: The task, or an average of tasks.
        mean: The score, over `runs` runs.
        std: Its standard deviation; None for one run.
        runs: How many runs.
        low: With `high`, the 95 % bootstrap interval of the score of a single run.
        high: See `low`.
        difference: The difference to the baseline.
        p: Of that difference: paired t-test over runs, or bootstrap over samples.
        wilcoxon: The p of Wilcoxon's test, beside the t-test.
        p_holm: `p` corrected for all comparisons of the frame.
        best: Whether no method has a better mean, as printed.
        significant: Whether it is better than the baseline: in `compare` after the correction, in reruns of the paper
            before it.
    """

    method: str
    task: str
    mean: float
    std: float | None = None
    runs: int = 1
    low: float | None = None
    high: float | None = None
    difference: float | None = None
    p: float | None = None
    wilcoxon: float | None = None
    p_holm: float | None = None
    best: bool = False
    significant: bool = False


@dataclass(frozen=True)
class Frame:
    """Scores of methods on tasks: one row each. Tables, csv and json follow from it.

    Attributes:
        rows: The scores.
        how: How they, and the marks of a table, were computed.
        notes: What a reader should know, such as that scores are not comparable with published ones.
        baseline: The method that the others were tested against.
    """

    rows: tuple[Score, ...]
    how: str = ""
    notes: tuple[str, ...] = ()
    baseline: str | None = None

    def __iter__(self) -> Iterator[Score]:
        return iter(self.rows)

    def __getitem__(self, place: tuple[str, str]) -> Score:
        """Return the score of a method on a task."""
        return next(row for row in self.rows if (row.method, row.task) == place)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in order."""
        return tuple(dict.fromkeys(row.method for row in self.rows))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in order."""
        return tuple(dict.fromkeys(row.task for row in self.rows))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for json: scores by method and task."""
        rows: dict[str, dict[str, Any]] = {method: {} for method in self.methods}
        for row in self.rows:
            values = asdict(row)
            rows[values.pop("method")][values.pop("task")] = values
        columns, notes = list(self.tasks), list(self.notes)
        return {"columns": columns, "baseline": self.baseline, "how": self.how, "notes": notes, "rows": rows}
