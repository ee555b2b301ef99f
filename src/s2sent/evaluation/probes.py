"""Many linear probes trained together, each as if it were alone.

SentEval fits a linear classifier hundreds of times on subsets of one feature matrix. Fits do not touch each other,
so they can share the work of a step, as long as each keeps what decides its result: its initial weights (seed 1111
for every classifier), its order of samples (numpy's stream, reseeded for every classifier), its ragged last batch,
its own Adam state and its own early stop. What makes it fast:

- Fits on the same rows with different regularisers (a *cohort member* and its `regs`) read the same batches: one
  gather of rows serves all of them, their weights side by side in one matrix product.
- All members step together: one batched product forward, one back; softmax's gradient is written down, not traced.
- A member whose regularisers have all stopped leaves the batch.

Letters: f fit (a set of rows), r regulariser, k class, s sample of a batch, d feature. The bias is one more feature
that is always 1, and features are padded with zeros to a multiple of 16; both are exact.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2sent.options import Options, Rule, at_least, option

CHUNK = 24
"""Fits that step together in one worker: enough to fill an operation, few enough that a batch stays in its cache."""

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ProbeConfig(Options):
    """How a probe is trained; the defaults are SentEval's default configuration.

    Args:
        kfold: Folds.
        optimizer: With torch's default rates: 1e-3 (`adam`) and 1e-2 (`rmsprop`).
        batch_size: Samples per step.
        tenacity: The check without improvement after this many others stops the fit; improvements do not reset it.
        epoch_size: Passes over the data between two checks on the development set.
        max_epoch: At most this many passes.
        regs: The regularisers that are tried.
        seed: Of weights, order and folds.
        validation_split: The part of the training rows that stops the final fit, which has no development set.
    """

    kfold: int = option(10, at_least(2))
    optimizer: Literal["adam", "rmsprop"] = option("adam")
    batch_size: int = option(64, at_least(1))
    tenacity: int = option(5, at_least(0))
    epoch_size: int = option(4, at_least(1))
    max_epoch: int = option(200, at_least(1))
    regs: tuple[float, ...] = option(
        (1e-5, 1e-4, 1e-3, 1e-2), Rule(lambda regs: bool(regs) and min(regs) >= 0, "one or more numbers of at least 0")
    )
    seed: int = option(1111)
    validation_split: float = option(0.05, Rule(lambda share: 0 < share < 1, "between 0 and 1"))


DEFAULT = ProbeConfig()
"""What papers report."""

FAST = ProbeConfig(kfold=5, optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2)
"""SentEval's configuration for looking in between: quicker, and not comparable with reported scores."""


@dataclass(frozen=True)
class Fit:
    """Train on these rows, once for each regulariser.

    Without `dev`, the first `validation_split` of a permutation of `train` is held out to stop the fit.
    """

    train: Rows
    regs: tuple[float, ...]
    dev: Rows | None = None


@dataclass(frozen=True)
class Fitted:
    """The best check of every regulariser of one fit."""

    accuracy: NDArray[np.float64]
    """(r,) on the development rows."""
    weight: Tensor
    """(r, k, d), the bias and the padding among the features."""
    epochs: NDArray[np.int64]
    """(r,) passes over the data before the fit stopped."""


class Features:
    """A feature matrix laid out for the probes: single precision, a column of ones, padded to whole vectors."""

    def __init__(self, values: NDArray[np.floating]) -> None:
        rows, self.dim = values.shape
        self.matrix = torch.zeros(rows, math.ceil((self.dim + 1) / 16) * 16)
        self.matrix[:, : self.dim] = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
        self.matrix[:, self.dim] = 1.0

    def predict(self, weight: Tensor, rows: Rows | None = None) -> NDArray[np.int64]:
        """The class of each row under `weight` (..., k, d): (..., rows)."""
        matrix = self.matrix if rows is None else self.matrix.index_select(0, torch.from_numpy(rows))
        logits = weight @ matrix.T  # (..., k, rows)
        return logits.argmax(-2).numpy()


def initial_weight(dim: int, width: int, classes: int, seed: int) -> Tensor:
    """The weights `nn.Linear(dim, classes)` starts from after `torch.manual_seed(seed)`, as (k, width)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        linear = torch.nn.Linear(dim, classes)
    weight = torch.zeros(classes, width)
    weight[:, :dim] = linear.weight.detach()
    weight[:, dim] = linear.bias.detach()
    return weight


def train_probes(
    features: Features, labels: NDArray[np.int64], classes: int, fits: Sequence[Fit], config: ProbeConfig = DEFAULT
) -> list[Fitted]:
    """Train every fit with every one of its regularisers; the results are those of one fit at a time.

    Fits with the same number of batches to a pass and of regularisers step together. Returned in the order of `fits`.
    """
    orders = [_order(fit, config) for fit in fits]
    cohorts: dict[tuple[int, int], list[int]] = {}
    for index, (fit, order) in enumerate(zip(fits, orders, strict=True)):
        cohorts.setdefault((math.ceil(len(order.train) / config.batch_size), len(fit.regs)), []).append(index)
    chunks = [members[i : i + CHUNK] for members in cohorts.values() for i in range(0, len(members), CHUNK)]
    results: dict[int, Fitted] = {}
    # Every classifier starts from the same weights. Drawn here, for torch's random stream is one for all threads.
    start = initial_weight(features.dim, features.matrix.shape[1], classes, config.seed)

    def run(members: list[int]) -> list[Fitted]:
        order, regs = [orders[index] for index in members], [fits[index].regs for index in members]
        return _Cohort(features, labels, start, order, regs, config).run()

    with _one_thread_each() as threads, ThreadPoolExecutor(threads) as pool:
        for members, fitted in zip(chunks, pool.map(run, chunks), strict=True):
            results.update(zip(members, fitted, strict=True))
    return [results[index] for index in range(len(fits))]


@contextmanager
def _one_thread_each() -> Iterator[int]:
    """Let every worker compute alone; gives the number of workers.

    The operations of a step are too small to share: two threads in one operation wait for each other at its end,
    two threads in two chunks never do.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


@dataclass
class _Order:
    """The rows a fit learns from and is checked on, and the key of its stream of permutations."""

    train: Rows
    dev: Rows
    stream: tuple[int, bool]
    """Classifiers are reseeded alike, so equal keys mean equal permutations: drawn once, used by many fits."""


def _order(fit: Fit, config: ProbeConfig) -> _Order:
    if fit.dev is not None:
        return _Order(fit.train, fit.dev, (len(fit.train), False))
    permutation = np.random.RandomState(config.seed).permutation(len(fit.train))
    held_out = int(config.validation_split * len(fit.train))
    return _Order(fit.train[permutation[held_out:]], fit.train[permutation[:held_out]], (len(fit.train), True))


def _passes(stream: tuple[int, bool], rows: int, seed: int) -> Iterator[Rows]:
    """The permutation of each pass over the data, from the point of numpy's stream where the first pass finds it."""
    random = np.random.RandomState(seed)
    length, was_split = stream
    if was_split:
        random.permutation(length)
    while True:
        yield random.permutation(rows)


@dataclass
class _State:
    """What steps together, one entry per active fit. Everything here shrinks when a fit leaves."""

    member: Tensor
    """(f,) which fit of the cohort."""
    weight: Tensor
    """(f, r, k, d)"""
    moments: list[Tensor]
    """Adam's two, RMSprop's one; each (f, r, k, d)"""
    decay: Tensor
    """(f, r, 1, 1) the regulariser: L2 in the gradient, as torch's `weight_decay`, not AdamW's."""

    def keep(self, active: Tensor) -> None:
        self.member, self.weight, self.decay = self.member[active], self.weight[active], self.decay[active]
        self.moments = [moment[active] for moment in self.moments]


class _Cohort:
    """Fits in step: the same number of batches to a pass, so the same count of optimizer steps."""

    def __init__(
        self,
        features: Features,
        labels: NDArray[np.int64],
        start: Tensor,
        orders: list[_Order],
        regs: list[tuple[float, ...]],
        config: ProbeConfig,
    ) -> None:
        self.features, self.labels, self.orders, self.config = features, labels, orders, config
        f, r, (k, d) = len(orders), len(regs[0]), start.shape
        self.state = _State(
            member=torch.arange(f),
            weight=start.expand(f, r, k, d).clone(),
            moments=[torch.zeros(f, r, k, d) for _ in range(2 if config.optimizer == "adam" else 1)],
            decay=torch.tensor(regs, dtype=torch.float32).view(f, r, 1, 1),
        )
        self.steps = 0
        self.buffers: dict[str, Tensor] = {}
        self.best_weight = torch.zeros(f, r, k, d)
        self.best = np.full((f, r), -1.0)
        self.misses = np.zeros((f, r), dtype=np.int64)
        self.running = np.ones((f, r), dtype=bool)
        self.epochs = np.zeros((f, r), dtype=np.int64)
        self.one_hot = torch.eye(k)[torch.from_numpy(labels)]  # (rows, k)
        self.passes = {order.stream: _passes(order.stream, len(order.train), config.seed) for order in orders}

    def run(self) -> list[Fitted]:
        epoch = 0
        while len(self.state.member) and epoch <= self.config.max_epoch:
            for _ in range(self.config.epoch_size):
                self._pass()
            epoch += self.config.epoch_size
            self._check(epoch)
        return [
            Fitted(accuracy, weight, epochs)
            for accuracy, weight, epochs in zip(self.best, self.best_weight, self.epochs, strict=True)
        ]

    def _pass(self) -> None:
        """One pass of every active fit over its rows, in its own order."""
        size = self.config.batch_size
        permutation = {stream: next(passes) for stream, passes in self.passes.items()}
        active = [self.orders[member] for member in self.state.member.tolist()]
        longest = max(len(order.train) for order in active)
        rows = np.zeros((len(active), longest), dtype=np.int64)  # (f, rows), the ragged end filled with row 0 ...
        weight = np.zeros((len(active), longest), dtype=np.float32)  # ... which weighs nothing
        for index, order in enumerate(active):
            count = len(order.train)
            rows[index, :count] = order.train[permutation[order.stream]]
            last = (count - 1) // size * size
            weight[index, :last] = 1 / size  # the loss is the mean over the batch,
            weight[index, last:count] = 1 / (count - last)  # and the last batch is smaller
        batches = torch.from_numpy(rows)
        weights = torch.from_numpy(weight)
        for start in range(0, longest, size):
            self._step(batches[:, start : start + size], weights[:, start : start + size])

    def _step(self, rows: Tensor, weight: Tensor) -> None:
        """One optimizer step of every active fit on its batch `rows` (f, s)."""
        f, r, k, d = self.state.weight.shape
        s = rows.shape[1]
        flat = rows.reshape(-1)
        batch = torch.index_select(self.features.matrix, 0, flat, out=self._buffer("batch", f * s, d)).view(f, s, d)
        target = self.one_hot.index_select(0, flat).view(f, 1, s, k).transpose(2, 3)
        logits = torch.bmm(self.state.weight.view(f, r * k, d), batch.transpose(1, 2))  # (f, rk, s)
        error = logits.view(f, r, k, s).softmax(2).sub_(target).mul_(weight.view(f, 1, 1, s))
        gradient = torch.bmm(error.view(f, r * k, s), batch, out=self._buffer("gradient", f, r * k, d)).view(f, r, k, d)
        gradient.addcmul_(self.state.weight, self.state.decay)
        self.steps += 1
        if self.config.optimizer == "adam":
            first, second = self.state.moments
            first.lerp_(gradient, 1 - 0.9)
            second.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
            # m / (1 - β₁ᵗ) / (√(v / (1 - β₂ᵗ)) + ε), both fractions multiplied by √(1 - β₂ᵗ) to save a pass over v
            correction = math.sqrt(1 - 0.999**self.steps)
            root = torch.sqrt(second, out=self._buffer("root", f, r, k, d)).add_(1e-8 * correction)
            self.state.weight.addcdiv_(first, root, value=-1e-3 * correction / (1 - 0.9**self.steps))
        else:
            (square,) = self.state.moments
            square.mul_(0.99).addcmul_(gradient, gradient, value=1 - 0.99)
            root = torch.sqrt(square, out=self._buffer("root", f, r, k, d)).add_(1e-8)
            self.state.weight.addcdiv_(gradient, root, value=-1e-2)

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """Memory that is used again in every step: fresh pages cost as much as the arithmetic."""
        found = self.buffers.get(name)
        if found is None or found.shape != shape:
            found = self.buffers[name] = torch.empty(shape)
        return found

    def _check(self, epoch: int) -> None:
        """Score every active fit on its development rows; keep the best weights; let those that are done go."""
        stay = []
        for index, member in enumerate(self.state.member.tolist()):
            dev = self.orders[member].dev
            correct = self.features.predict(self.state.weight[index], dev) == self.labels[dev]  # (r, rows)
            accuracy = correct.sum(-1) / max(len(dev), 1)
            for reg in np.flatnonzero(self.running[member]):
                self.epochs[member, reg] = epoch
                if accuracy[reg] > self.best[member, reg]:
                    self.best[member, reg] = accuracy[reg]
                    self.best_weight[member, reg] = self.state.weight[index, reg]
                else:
                    self.running[member, reg] = self.misses[member, reg] < self.config.tenacity
                    self.misses[member, reg] += 1
            stay.append(bool(self.running[member].any()))
        if not all(stay):
            self.state.keep(torch.tensor(stay))
