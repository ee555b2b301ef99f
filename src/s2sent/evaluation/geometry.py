"""The shape of an embedding space: alignment, uniformity (Wang & Isola, 2020) and anisotropy (Ethayarajh, 2019)."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from s2sent.data.senteval import STSTask
from s2sent.errors import DataError, ModelError
from s2sent.evaluation.encoder import Vectors
from s2sent.evaluation.result import TaskResult

CLOSE = 4.0
"""Pairs with a gold score above this count as positives, as SimCSE takes them from STS-B."""


@dataclass(frozen=True)
class Geometry:
    """Three numbers about one model, over the sentences of one task."""

    alignment: float
    """Mean squared distance of close pairs on the unit sphere; lower is better."""
    uniformity: float
    """log of the mean of exp(-2 · squared distance) over all pairs of sentences; lower is more spread out."""
    anisotropy: float
    """Mean cosine of two different sentences; 0 when directions are used evenly, 1 when all point one way."""
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
        """From the STS-B result of an evaluation, which keeps it.

        Raises:
            DataError: there is none; the message says why.
        """
        found = result.details.get("geometry", f"{result.task} keeps no geometry, STS-B does.")
        if isinstance(found, str):
            raise DataError(found)
        return cls(**found)


def geometry(task: STSTask, vectors: Vectors, close: float = CLOSE) -> Geometry:
    """Alignment over the pairs rated above ``close``; uniformity and anisotropy over all distinct sentences.

    Raises:
        DataError: no pair is rated that high, or there is but one sentence.
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
    u, v = (_on_sphere(vectors[list(side)], task.name) for side in zip(*positive, strict=True))
    x = _on_sphere(vectors[sentences], task.name)
    return Geometry(
        alignment=alignment(u, v),
        uniformity=uniformity(x),
        anisotropy=anisotropy(x),
        close_pairs=len(positive),
        sentences=len(sentences),
    )


def alignment(u: NDArray[np.floating], v: NDArray[np.floating]) -> float:
    """Mean squared distance of rows that belong together."""
    return float(((u - v) ** 2).sum(axis=1).mean())


def uniformity(x: NDArray[np.floating], t: float = 2.0) -> float:
    """Log mean exp(-t · ‖x - y‖²) over all unordered pairs of different rows of unit length."""
    total, count = 0.0, len(x) * (len(x) - 1) // 2
    if not count:
        raise DataError("Uniformity needs at least two sentences.")
    for start in range(0, len(x), 1024):  # never more than 1024 rows of the distance matrix
        block = x[start : start + 1024]
        distance = np.maximum(2 - 2 * block @ x[start:].T, 0)  # ‖x - y‖² on the unit sphere
        total += float(np.exp(-t * distance[np.triu_indices(len(block), 1, distance.shape[1])]).sum())
    return float(np.log(total / count))


def anisotropy(x: NDArray[np.floating]) -> float:
    """Mean cosine over all pairs of different rows of unit length, from the length of their sum."""
    n = len(x)
    if n < 2:
        raise DataError("Anisotropy needs at least two sentences.")
    total = x.sum(axis=0, dtype=np.float64)
    return float((total @ total - (x.astype(np.float64) ** 2).sum()) / (n * (n - 1)))


def _on_sphere(x: NDArray[np.float32], where: str) -> NDArray[np.float64]:
    values = x.astype(np.float64)
    norm = np.linalg.norm(values, axis=1, keepdims=True)
    if not norm.all():
        raise ModelError(f"{where}: {int((norm == 0).sum())} sentences have a zero vector, which has no direction.")
    return np.asarray(values / norm)
