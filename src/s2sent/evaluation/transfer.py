"""Transfer tasks: how well a linear probe reads classes off the vectors, as SentEval has it.

Rounding is part of the protocol: the mean accuracy over folds is rounded to two decimals before the best regulariser
is chosen (so ties go to the weakest), each fold's test accuracy is rounded, and so is their mean.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from s2sent.data.senteval import Driver, Samples, TransferTask
from s2sent.errors import DataError
from s2sent.evaluation.encoder import Vectors
from s2sent.evaluation.probes import DEFAULT, Features, Fit, Fitted, ProbeConfig, Rows, train_probes
from s2sent.evaluation.result import TaskResult


def score_transfer(task: TransferTask, vectors: Vectors, config: ProbeConfig = DEFAULT) -> TaskResult:
    """Train and test the probes of one task on its sentences' vectors.

    Raises:
        DataError: too few samples of a class for the folds.
    """
    features = {name: pair_features(samples, vectors) for name, samples in task.splits.items()}
    drive = {Driver.NESTED: _nested, Driver.KFOLD: _kfold, Driver.SPLIT: _split}[task.driver]
    scores, correct, details = drive(task, features, config)
    return TaskResult(
        task.name,
        scores,
        samples=len(correct),
        details={**details, "source": task.source},
        evidence={"correct": correct.astype(float).tolist()},
        notes=task.notes,
    )


def pair_features(samples: Samples, vectors: Vectors) -> NDArray[np.float32]:
    """What the probe sees: the vector of a sentence; of a pair, |u - v| beside u * v."""
    u = vectors[samples.first]
    if samples.second is None:
        return u
    v = vectors[samples.second]
    return np.concatenate([np.abs(u - v), u * v], axis=1)


Outcome = tuple[dict[str, float], NDArray[np.bool_], dict[str, object]]
"""Scores, whether each tested sample was right, and details."""


def _nested(task: TransferTask, values: dict[str, NDArray[np.float32]], config: ProbeConfig) -> Outcome:
    """Ten folds to test; within each, ten folds for every regulariser: 410 fits, and 400 of them wait for no other."""
    features, labels = Features(values["train"]), task.splits["train"].labels
    outer = list(_folds(labels, config, task.name))
    fits = [
        Fit(train[inner_train], config.regs, dev=train[inner_dev])
        for train, _ in outer
        for inner_train, inner_dev in _folds(labels[train], config, task.name)
    ]
    fitted = train_probes(features, labels, task.classes, fits, config)
    chosen = [_choose(fitted[start : start + config.kfold], config) for start in range(0, len(fitted), config.kfold)]
    final = [Fit(train, (reg,)) for (train, _), (reg, _) in zip(outer, chosen, strict=True)]
    correct = np.zeros(len(labels), dtype=bool)
    folds = []
    for (_, test), probe in zip(outer, train_probes(features, labels, task.classes, final, config), strict=True):
        correct[test] = features.predict(probe.weight[0], test) == labels[test]
        folds.append(round(100 * correct[test].mean(), 2))
    scores = {"accuracy": round(float(np.mean(folds)), 2), "dev": round(float(np.mean([dev for _, dev in chosen])), 2)}
    return scores, correct, {"folds": [float(fold) for fold in folds], "regs": [reg for reg, _ in chosen]}


def _kfold(task: TransferTask, values: dict[str, NDArray[np.float32]], config: ProbeConfig) -> Outcome:
    """Ten folds of the training set choose the regulariser; a final fit on all of it is tested."""
    features, labels = Features(values["train"]), task.splits["train"].labels
    fits = [Fit(train, config.regs, dev=dev) for train, dev in _folds(labels, config, task.name)]
    reg, dev_accuracy = _choose(train_probes(features, labels, task.classes, fits, config), config)
    (final,) = train_probes(features, labels, task.classes, [Fit(np.arange(len(labels)), (reg,))], config)
    return _test(task, values, final, 0, {"dev": dev_accuracy}, {"regs": [reg]})


def _split(task: TransferTask, values: dict[str, NDArray[np.float32]], config: ProbeConfig) -> Outcome:
    """The development set stops the fits and chooses among them.

    SentEval then fits once more with the chosen regulariser on the same data from the same seed; that is the same
    fit, so we keep the one we have.
    """
    train, dev = task.splits["train"].labels, task.splits["dev"].labels
    features = Features(np.concatenate([values["train"], values["dev"]]))
    rows = np.arange(len(train) + len(dev))
    fit = Fit(rows[: len(train)], config.regs, dev=rows[len(train) :])
    fitted = train_probes(features, np.concatenate([train, dev]), task.classes, [fit], config)
    reg, dev_accuracy = _choose(fitted, config)
    return _test(task, values, fitted[0], config.regs.index(reg), {"dev": dev_accuracy}, {"regs": [reg]})


def _test(
    task: TransferTask,
    values: dict[str, NDArray[np.float32]],
    fitted: Fitted,
    reg: int,
    scores: dict[str, float],
    details: dict[str, object],
) -> Outcome:
    labels = task.splits["test"].labels
    predicted = Features(values["test"]).predict(fitted.weight[reg])
    correct = predicted == labels
    scores = {"accuracy": round(100 * float(correct.mean()), 2), **scores}
    if task.splits["test"].second is not None:
        scores["f1"] = round(100 * f1(predicted, labels), 2)
    return scores, correct, {**details, "epochs": int(fitted.epochs[reg])}


def f1(predicted: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """F1 of class 1, as MRPC is also reported; 0 when that class is neither there nor predicted."""
    hits = int(((predicted == 1) & (labels == 1)).sum())
    either = int((predicted == 1).sum() + (labels == 1).sum())
    return 2 * hits / either if either else 0.0


def _choose(fitted: list[Fitted], config: ProbeConfig) -> tuple[float, float]:
    """The regulariser with the best mean accuracy over these folds, and that mean; the first one of equals."""
    means = [round(100 * float(mean), 2) for mean in np.mean([fit.accuracy for fit in fitted], axis=0)]
    best = int(np.argmax(means))
    return config.regs[best], means[best]


def _folds(labels: NDArray[np.int64], config: ProbeConfig, task: str) -> Iterator[tuple[Rows, Rows]]:
    """Stratified folds, shuffled with SentEval's seed: (training rows, held-out rows)."""
    # comes with sentence-transformers; slow to import
    from sklearn.model_selection import StratifiedKFold  # type: ignore[import-untyped]

    classes, counts = np.unique(labels, return_counts=True)
    if counts.min() < config.kfold:
        raise DataError(
            f"{task}: class {classes[counts.argmin()]} has {counts.min()} samples, too few for {config.kfold} folds."
        )
    if len(labels) * config.validation_split < 1:
        raise DataError(f"{task}: {len(labels)} samples are too few to hold {config.validation_split:.0%} of them out.")
    yield from StratifiedKFold(config.kfold, shuffle=True, random_state=config.seed).split(
        np.zeros(len(labels)), labels
    )
