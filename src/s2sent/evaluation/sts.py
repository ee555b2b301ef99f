"""Semantic textual similarity: Spearman's correlation of cosine and gold, as SentEval (SimCSE's fork) has it."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from s2sent.data.lines import counted
from s2sent.data.senteval import STSTask
from s2sent.errors import DataError, ModelError
from s2sent.evaluation.encoder import Vectors
from s2sent.evaluation.result import Aggregation, TaskResult

FloatArray = NDArray[np.floating]

NOISE = 1e-6
"""Similarities that differ by less than this over all pairs are one: single precision moves a cosine by 1e-7, and the
ranks of such noise would be a score."""


def cosine(u: FloatArray, v: FloatArray) -> tuple[NDArray[np.float64], int]:
    """Cosine of each row of ``u`` with the same row of ``v``, and how many have none.

    A zero vector has no direction; SentEval's ``nan_to_num`` makes such a pair 0, and so do we, but counted.
    """
    u, v = u.astype(np.float64), v.astype(np.float64)
    norm = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    undefined = norm == 0
    return np.einsum("bd,bd->b", u, v) / np.where(undefined, 1.0, norm), int(undefined.sum())


def spearman(similarity: FloatArray, gold: FloatArray, where: str) -> float:
    """Spearman times 100; an error where it is not defined, instead of a NaN that turns into 0 further on."""
    if len(gold) < 2:
        raise DataError(f"{where}: a correlation needs at least two pairs.")
    if np.ptp(gold) == 0:
        raise DataError(f"{where}: every gold score is the same ({gold[0]:g}), so there is no correlation.")
    if np.ptp(similarity) < NOISE:
        raise ModelError(
            f"{where}: the model gives every pair the same similarity ({similarity[0]:g}), so there is no correlation. "
            "Is the encoder constant?"
        )
    return 100 * float(spearmanr(similarity, gold).statistic)


def score_sts(task: STSTask, vectors: Vectors) -> TaskResult:
    """Score one task from its sentences' vectors; every aggregation at once, for they cost nothing.

    Raises:
        ModelError: the correlation is undefined because the encoder is constant.
        DataError: it is because there are too few pairs, or all have one gold score.
    """
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
