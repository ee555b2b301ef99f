from pathlib import Path

import numpy as np
import pytest

from s2sent.data.senteval import Pairs, STSTask, Text, read_sts
from s2sent.errors import DataError, ModelError
from s2sent.evaluation.encoder import Encoder, Vectors
from s2sent.evaluation.sts import geometry
from s2sent.vectors.metrics import anisotropy, uniformity
from tiny_senteval import hashed, write_folder


def unit(rows: int, dim: int, shift: float = 0.0) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(rows, dim)) + shift
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("rows", [2, 7, 1030])  # 1030 needs a second block of the distance matrix
def test_uniformity_and_anisotropy_by_pairs(rows: int) -> None:
    x = unit(rows, 3, shift=0.5)
    above = np.triu_indices(rows, 1)
    distance = ((x[:, None] - x[None]) ** 2).sum(-1)[above]
    assert uniformity(x) == pytest.approx(np.log(np.exp(-2 * distance).mean()))
    assert anisotropy(x) == pytest.approx((x @ x.T)[above].mean())


def test_a_narrow_cone_is_anisotropic_and_not_uniform() -> None:
    wide, narrow = unit(200, 16), unit(200, 16, shift=5)
    assert abs(anisotropy(wide)) < 0.02
    assert anisotropy(narrow) > 0.9
    assert uniformity(narrow) > uniformity(wide)


def test_alignment_is_over_close_pairs_only(tmp_path: Path) -> None:
    task = read_sts(write_folder(tmp_path, pairs=40), "STS-B")
    vectors = Vectors(Encoder("hashed", hashed))
    vectors.add(task.sentences())
    found = geometry(task, vectors)
    (pairs,) = task.subsets
    expected = []
    for first, second, gold in zip(pairs.first, pairs.second, pairs.gold, strict=True):
        if gold > 4:
            u, v = (row / np.linalg.norm(row) for row in hashed([first, second]))
            expected.append(((u - v) ** 2).sum())
    assert found.close_pairs == len(expected) > 2
    assert found.alignment == pytest.approx(np.mean(expected), rel=1e-5)
    assert found.sentences == len(set(task.sentences()))
    with pytest.raises(DataError, match="no pair is rated above 5"):
        geometry(task, vectors, close=5)


def test_a_zero_vector_has_no_direction() -> None:
    task = STSTask("tiny", (Pairs("tiny", ("a", "b"), ("c", "d"), np.array([5.0, 5.0])),), Text.FILE, "here")
    vectors = Vectors(Encoder("half", lambda texts: np.array([[text != "a", 1.0 * (text != "a")] for text in texts])))
    vectors.add(task.sentences())
    with pytest.raises(ModelError, match="1 sentences have a zero vector"):
        geometry(task, vectors)
