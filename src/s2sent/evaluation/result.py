"""What an evaluation found: numbers, what they were computed from, and what a reader should know about them."""

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

    ``all``: one correlation over the concatenated subsets (SimCSE and everyone since).
    ``mean``: the mean of the subsets' correlations. ``wmean``: weighted by their pairs (original SentEval).
    """

    ALL = "all"
    MEAN = "mean"
    WMEAN = "wmean"

    @classmethod
    def of(cls, value: str) -> "Aggregation":
        """The member of this name, or an error that lists them."""
        try:
            return cls(value)
        except ValueError:
            raise ConfigError(f"aggregation must be one of {', '.join(cls)}, not {value!r}.") from None


@dataclass(frozen=True)
class TaskResult:
    """One model on one task. Survives json, for that is how it is kept."""

    task: str
    scores: dict[str, float]
    """All times 100. STS: ``all``, ``mean``, ``wmean``, ``pearson``; transfer: ``accuracy``, ``dev``, ``f1`` (MRPC)."""
    samples: int
    """Scored pairs (STS) or tested sentences (transfer)."""
    details: dict[str, Any] = field(default_factory=dict, repr=False)
    """Scores by subset or by fold, regularisers chosen, the configuration."""
    evidence: dict[str, list[float]] = field(default_factory=dict, repr=False)
    """Per sample, for intervals and figures: ``similarity`` and ``gold`` in the order of subsets, or ``correct``."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    key: str = field(default="", repr=False)
    """A digest of the task's data and of how it was scored: results with different ones do not compare."""

    def score(self, aggregation: Aggregation = Aggregation.ALL) -> float:
        """The number this is about, unrounded."""
        return self.scores["accuracy" if "accuracy" in self.scores else aggregation.value]

    def headline(self, aggregation: Aggregation = Aggregation.ALL) -> float:
        """The number a table shows, with two decimals as papers print it."""
        return round(self.score(aggregation), 2)

    def to_dict(self) -> dict[str, Any]:
        """For json."""
        return asdict(self)

    @classmethod
    def read(cls, values: Table) -> Self:
        """Back from json, checked."""
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
        """Score by task, and the averages of the suites that are complete: ``STS avg``, ``Transfer avg``.

        An average is the mean of the seven scores *as printed*, rounded again, which is how papers compute it.
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
        """A task's score or an average, unrounded: what a test of differences needs."""
        if column in AVERAGES:
            return sum(self.score(task) for task in AVERAGES[column]) / len(AVERAGES[column])
        return self[column].score(self.aggregation)

    @property
    def how(self) -> str:
        """How these scores were computed."""
        tasks = {result.task for result in self.results}
        parts = []
        if tasks - set(TRANSFER_TASKS):
            parts.append(f"STS: Spearman × 100 of cosine, aggregation {self.aggregation.value}, text {self.text}.")
        if tasks & set(TRANSFER_TASKS):
            parts.append(f"Transfer: accuracy of linear probes, {self.probes} configuration.")
        return " ".join(parts)

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores should know, task by task."""
        return [note for result in self.results for note in result.notes]

    def to_dict(self) -> dict[str, Any]:
        """For json, without the evidence, which is long."""
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
