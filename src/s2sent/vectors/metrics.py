"""Measures of vectors: cosine and Spearman, and alignment, uniformity (Wang & Isola, 2020) and anisotropy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from s2sent.errors import DataError, ModelError

FloatArray = NDArray[np.floating]

NOISE = 1e-6
"""Similarities that differ by less than this count as equal: float32 moves a cosine by 1e-7, and ranks of such noise
would be a score."""


def cosine(u: FloatArray, v: FloatArray) -> tuple[NDArray[np.float64], int]:
    """Return the cosine of each row of `u` with the same row of `v`, and how many are undefined.

    A zero vector has no direction. SentEval's `nan_to_num` makes the cosine of such a pair 0, and so do we.
    """
    u, v = u.astype(np.float64), v.astype(np.float64)
    norm = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    undefined = norm == 0
    return np.einsum("bd,bd->b", u, v) / np.where(undefined, 1.0, norm), int(undefined.sum())


def spearman(similarity: FloatArray, gold: FloatArray, name: str) -> float:
    """Return Spearman's correlation × 100. `name` says in errors which pairs these are.

    Raises:
        DataError: there are fewer than two pairs, or all have one gold score.
        ModelError: all similarities are the same.
    """
    from scipy.stats import spearmanr  # an exported model encodes without scipy

    if len(gold) < 2:
        raise DataError(f"{name}: a correlation needs at least two pairs.")
    if np.ptp(gold) == 0:
        raise DataError(f"{name}: every gold score is the same ({gold[0]:g}), so there is no correlation.")
    if np.ptp(similarity) < NOISE:
        raise ModelError(
            f"{name}: the model gives every pair the same similarity ({similarity[0]:g}), so there is no correlation. "
            "Is the encoder constant?"
        )
    return 100 * float(spearmanr(similarity, gold).statistic)


def unit_length(x: FloatArray, name: str) -> NDArray[np.float64]:
    """Return the rows of `x` at length 1. `name` says in errors which vectors these are.

    Raises:
        ModelError: a vector is zero and has no direction.
    """
    values = x.astype(np.float64)
    norm = np.linalg.norm(values, axis=1, keepdims=True)
    if not norm.all():
        raise ModelError(f"{name}: {int((norm == 0).sum())} sentences have a zero vector, which has no direction.")
    return np.asarray(values / norm)


def alignment(u: FloatArray, v: FloatArray) -> float:
    """Return the mean squared distance of each row of `u` to the same row of `v`, all of unit length."""
    return float(((u - v) ** 2).sum(axis=1).mean())


def uniformity(x: FloatArray, t: float = 2.0) -> float:
    """Return log mean exp(-t · ‖x - y‖²) over all unordered pairs of different rows of unit length."""
    total, count = 0.0, len(x) * (len(x) - 1) // 2
    if not count:
        raise DataError("Uniformity needs at least two sentences.")
    for start in range(0, len(x), 1024):  # never more than 1024 rows of the distance matrix
        block = x[start : start + 1024]
        distance = np.maximum(2 - 2 * block @ x[start:].T, 0)  # ‖x - y‖² on the unit sphere
        total += float(np.exp(-t * distance[np.triu_indices(len(block), 1, distance.shape[1])]).sum())
    return float(np.log(total / count))


def anisotropy(x: FloatArray) -> float:
    """Return the mean cosine over all pairs of different rows of unit length (Ethayarajh, 2019)."""
    n = len(x)
    if n < 2:
        raise DataError("Anisotropy needs at least two sentences.")
    total = x.sum(axis=0, dtype=np.float64)
    return float((total @ total - (x.astype(np.float64) ** 2).sum()) / (n * (n - 1)))
