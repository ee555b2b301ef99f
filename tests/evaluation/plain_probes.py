"""SentEval's transfer protocol the plain way: one ``nn.Linear`` at a time, autograd, torch's own optimizers.

Written from the protocol alone, as the oracle for the batched probes and the other side of ``benchmarks/transfer.py``.
"""

import copy

import numpy as np
import torch
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold
from torch import nn

REGS = [10.0**exponent for exponent in range(-5, -1)]
DEFAULT = {"kfold": 10, "optim": "adam", "batch": 64, "tenacity": 5, "epoch_size": 4}
FAST = {"kfold": 5, "optim": "rmsprop", "batch": 128, "tenacity": 3, "epoch_size": 2}
SEED = 1111


class Probe:
    def __init__(self, dim: int, classes: int, reg: float, params: dict) -> None:
        np.random.seed(SEED)
        torch.manual_seed(SEED)
        self.params = params
        self.model = nn.Linear(dim, classes)
        optimizer = torch.optim.Adam if params["optim"] == "adam" else torch.optim.RMSprop
        self.optimizer = optimizer(self.model.parameters(), weight_decay=reg)
        self.loss = nn.CrossEntropyLoss()
        self.epochs = 0

    def fit(self, x: torch.Tensor, y: torch.Tensor, dev: tuple[torch.Tensor, torch.Tensor] | None = None) -> float:
        if dev is None:
            permutation = np.random.permutation(len(x))
            cut = int(0.05 * len(x))
            held, kept = permutation[:cut], permutation[cut:]
            dev, x, y = (x[held], y[held]), x[kept], y[kept]
        best, count, stop = -1.0, 0, False
        kept_model = self.model
        while not stop and self.epochs <= 200:
            for _ in range(self.params["epoch_size"]):
                permutation = torch.from_numpy(np.random.permutation(len(x)))
                for start in range(0, len(x), self.params["batch"]):
                    rows = permutation[start : start + self.params["batch"]]
                    loss = self.loss(self.model(x[rows]), y[rows])
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
            self.epochs += self.params["epoch_size"]
            accuracy = self.score(*dev)
            if accuracy > best:
                best, kept_model = accuracy, copy.deepcopy(self.model)
            else:
                stop = count >= self.params["tenacity"]
                count += 1
        self.model = kept_model
        return best

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.model(x).max(1)[1]

    def score(self, x: torch.Tensor, y: torch.Tensor) -> float:
        return (self.predict(x) == y).sum().item() / len(x)


def nested(x: np.ndarray, y: np.ndarray, params: dict = DEFAULT) -> tuple[float, float]:
    """Dev and test accuracy of MR, CR, SUBJ, MPQA."""
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    classes = int(y.max()) + 1
    dev, test = [], []
    folds = StratifiedKFold(params["kfold"], shuffle=True, random_state=SEED)
    for train, held in folds.split(x, y):
        x_train, y_train = x[train], y[train]
        means = []
        for reg in REGS:
            scores = []
            for inner, inner_held in folds.split(x_train, y_train):
                probe = Probe(x.shape[1], classes, reg, params)
                check = (x_train[inner_held], y_train[inner_held])
                probe.fit(x_train[inner], y_train[inner], check)
                scores.append(probe.score(*check))
            means.append(round(100 * np.mean(scores), 2))
        dev.append(max(means))
        probe = Probe(x.shape[1], classes, REGS[int(np.argmax(means))], params)
        probe.fit(x_train, y_train)
        test.append(round(100 * probe.score(x[held], y[held]), 2))
    return round(float(np.mean(dev)), 2), round(float(np.mean(test)), 2)


def kfold(
    x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, params: dict = DEFAULT
) -> tuple[float, float, float]:
    """Dev accuracy, test accuracy and F1 (of class 1) of TREC and MRPC."""
    x, y, x_test, y_test = (torch.from_numpy(array) for array in (x, y, x_test, y_test))
    classes = int(y.max()) + 1
    means = []
    for reg in REGS:
        scores = []
        for train, held in StratifiedKFold(params["kfold"], shuffle=True, random_state=SEED).split(x, y):
            probe = Probe(x.shape[1], classes, reg, params)
            probe.fit(x[train], y[train], (x[held], y[held]))
            scores.append(probe.score(x[held], y[held]))
        means.append(round(100 * np.mean(scores), 2))
    probe = Probe(x.shape[1], classes, REGS[int(np.argmax(means))], params)
    probe.fit(x, y)
    f1 = f1_score(y_test, probe.predict(x_test)) if classes == 2 else 0.0
    return max(means), round(100 * probe.score(x_test, y_test), 2), round(100 * f1, 2)


def split(parts: dict[str, tuple[np.ndarray, np.ndarray]], params: dict = DEFAULT) -> tuple[float, float]:
    """Dev and test accuracy of SST-2."""
    data = {name: tuple(torch.from_numpy(array) for array in part) for name, part in parts.items()}
    dim, classes = data["train"][0].shape[1], int(data["train"][1].max()) + 1
    means = []
    for reg in REGS:
        probe = Probe(dim, classes, reg, params)
        probe.fit(*data["train"], data["dev"])
        means.append(round(100 * probe.score(*data["dev"]), 2))
    probe = Probe(dim, classes, REGS[int(np.argmax(means))], params)
    probe.fit(*data["train"], data["dev"])
    return max(means), round(100 * probe.score(*data["test"]), 2)
