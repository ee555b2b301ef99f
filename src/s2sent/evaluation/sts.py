"""Semantic textual similarity as SentEval (SimCSE's fork) scores it, and the geometry of the vectors."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from s2sent.data.lines import counted
from s2sent.data.senteval import STSTask
from s2sent.errors import DataError
from s2sent.evaluation.encoder import Vectors
from s2sent.evaluation.result import Aggregation, TaskResult
from s2sent.vectors.metrics import alignment, anisotropy, cosine, spearman, uniformity, unit_length

CLOSE = 4.0
"""Pairs with a gold score above this count as positives, as SimCSE takes them from STS-B."""


def score_sts(task: STSTask, vectors: Vectors) -> TaskResult:
    """Score one task from its sentences' vectors, with every aggregation.

    Raises:
        ModelError: the correlation is undefined because the encoder is constant.
        DataError: it is undefined because there are too few pairs, or all have one gold score.
    """
    from scipy.stats import pearsonr  # slow to import, and `--help` does not need it

    similarities, notes, subsets = [], list(task.notes), {}
    for subset in task.subsets:
        where = task.name if len(task.subsets) == 1 else f"{task.name} {subset.name}"
        similarity, undefined = cosine(vectors[subset.first], vectors[subset.second])
        if undefined:
            notes.append(
                f"{where}: {counted(undefined, 'pair')} with a zero vector, similarity taken as 0 as SentEval does"
            )
        similarities.append(similarity)
        subsets[subset.name] = {"spearman": spearman(similarity, subset.gold, where), "pairs": len(subset)}
    similarity = np.concatenate(similarities)
    gold = np.concatenate([subset.gold for subset in task.subsets])
    by_subset = np.array([values["spearman"] for values in subsets.values()])
    scores = {
        Aggregation.ALL.value: spearman(similarity, gold, task.name),
        Aggregation.MEAN.value: float(by_subset.mean()),
        Aggregation.WMEAN.value: float(np.average(by_subset, weights=[len(subset) for subset in task.subsets])),
        "pearson": 100 * float(pearsonr(similarity, gold).statistic),
    }
    return TaskResult(
        task.name,
        scores,
        samples=len(task),
        details={"subsets": subsets, "text": task.text.value, "source": task.source},
        evidence={"similarity": [round(float(value), 7) for value in similarity], "gold": gold.tolist()},
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class Geometry:
    """The shape of a model's vectors over the sentences of one task (Wang & Isola, 2020; Ethayarajh, 2019).

    Attributes:
        alignment: Mean squared distance of close pairs on the unit sphere; lower is better.
        uniformity: log mean exp(-2 · squared distance) over all pairs of sentences; lower is more spread out.
        anisotropy: Mean cosine of two different sentences; 0 when directions are used evenly, 1 when all are one.
        close_pairs: How many pairs are close.
        sentences: How many different sentences there are.
    """

    alignment: float
    uniformity: float
    anisotropy: float
    close_pairs: int
    sentences: int

    MEASURES: ClassVar[tuple[str, ...]] = ("alignment", "uniformity", "anisotropy")

    def __str__(self) -> str:
        return (
            f"STS-B: alignment {self.alignment:.3f} ({self.close_pairs:,} close pairs), uniformity "
            f"{self.uniformity:.3f}, anisotropy {self.anisotropy:.3f} ({self.sentences:,} sentences)"
        )

    @classmethod
    def of(cls, result: TaskResult) -> Self:
        """Return the geometry that an STS-B result keeps.

        Raises:
            DataError: there is none; the message says why.
        """
        found = result.details.get("geometry", f"{result.task} has no geometry, only STS-B has.")
        if isinstance(found, str):
            raise DataError(found)
        return cls(**found)


def geometry(task: STSTask, vectors: Vectors, close: float = CLOSE) -> Geometry:
    """Compute alignment over the pairs rated above `close`, uniformity and anisotropy over all distinct sentences.

    Raises:
        DataError: no pair is rated that high, or there is only one sentence.
        ModelError: a vector is zero and has no direction.
    """
    positive = [
        (first, second)
        for subset in task.subsets
        for first, second, gold in zip(subset.first, subset.second, subset.gold, strict=True)
        if gold > close
    ]
    if not positive:
        raise DataError(f"{task.name}: no pair is rated above {close:g}, so there is no alignment.")
    sentences = sorted(set(task.sentences()))

    def on_sphere(texts: Iterable[str]) -> np.ndarray:
        return unit_length(vectors[list(texts)], task.name)

    x = on_sphere(sentences)
    return Geometry(
        alignment=alignment(*map(on_sphere, zip(*positive, strict=True))),
        uniformity=uniformity(x),
        anisotropy=anisotropy(x),
        close_pairs=len(positive),
        sentences=len(sentences),
    )
