"""Batched probes are the plain ones: same seeds, same order, same early stop, same rounding."""

import numpy as np
import pytest
import torch

from evaluation import plain_probes
from s2sent.errors import ConfigError
from s2sent.evaluation import probes
from s2sent.evaluation.probes import DEFAULT, FAST, Features, Fit, ProbeConfig, initial_weight, train_probes


def blobs(rows: int, dim: int, classes: int, noise: float = 2.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(0, classes, rows)
    centres = random.normal(size=(classes, dim))
    return (centres[y] + noise * random.normal(size=(rows, dim))).astype(np.float32), y


@pytest.mark.parametrize(("config", "plain"), [(DEFAULT, plain_probes.DEFAULT), (FAST, plain_probes.FAST)])
@pytest.mark.parametrize("classes", [2, 5])
def test_every_fit_of_a_ragged_batch_is_the_plain_fit(config: ProbeConfig, plain: dict, classes: int) -> None:
    x, y = blobs(260, 20, classes)
    # Training sizes around multiples of both batch sizes: 65 leaves a last batch of one, 128 none.
    sizes = [65, 127, 128, 200]
    random = np.random.default_rng(1)
    fits = []
    for size in sizes:
        rows = random.permutation(len(x))
        fits.append(Fit(rows[:size], (1e-5, 1e-2), dev=rows[size : size + 60]))
    fits.append(Fit(random.permutation(len(x))[:150], (1e-3,)))  # stops on 5 % of its own rows
    for fit, fitted in zip(fits, train_probes(Features(x), y, classes, fits, config), strict=True):
        for index, reg in enumerate(fit.regs):
            probe = plain_probes.Probe(x.shape[1], classes, reg, plain)
            dev = None if fit.dev is None else (torch.from_numpy(x[fit.dev]), torch.from_numpy(y[fit.dev]))
            accuracy = probe.fit(torch.from_numpy(x[fit.train]), torch.from_numpy(y[fit.train]), dev)
            assert fitted.epochs[index] == probe.epochs
            assert fitted.accuracy[index] == pytest.approx(accuracy, abs=1e-12)
            weight = fitted.weight[index]
            torch.testing.assert_close(weight[:, :20], probe.model.weight.detach(), atol=2e-4, rtol=1e-3)
            torch.testing.assert_close(weight[:, 20], probe.model.bias.detach(), atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("chunk", [1, 5, 24])
def test_results_do_not_depend_on_who_else_is_trained(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    x, y = blobs(300, 8, 2)
    fits = [Fit(np.arange(start, start + 200), (1e-4, 1e-2), dev=np.arange(100)) for start in range(0, 100, 9)]
    alone = [train_probes(Features(x), y, 2, [fit])[0] for fit in fits]
    threads = torch.get_num_threads()
    monkeypatch.setattr(probes, "CHUNK", chunk)
    torch.set_num_threads(4)  # as many workers, who share torch's random stream
    try:
        together = train_probes(Features(x), y, 2, fits)
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one.accuracy, other.accuracy)
        np.testing.assert_array_equal(one.epochs, other.epochs)


def test_the_count_of_misses_is_never_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that get better and worse by turns: it is the third that is worse which ends a fit of tenacity 2."""
    right = iter([5, 4, 6, 5, 7, 6, 8, 7, 9, 8])

    def scripted(self: Features, weight: torch.Tensor, rows: np.ndarray) -> np.ndarray:
        return (np.arange(10) >= next(right)).astype(int)[None]

    monkeypatch.setattr(Features, "predict", scripted)
    x, y = blobs(40, 4, 2)
    y[:10] = 0
    fit = Fit(np.arange(10, 40), (1e-4,), dev=np.arange(10))
    (fitted,) = train_probes(Features(x), y, 2, [fit], ProbeConfig(tenacity=2, epoch_size=3))
    assert (fitted.epochs[0], fitted.accuracy[0]) == (6 * 3, 0.7)


def test_tenacity_ends_a_fit_or_the_last_epoch_does() -> None:
    """Labels that cannot be learned: with tenacity 0 the first check without improvement ends the fit."""
    x, y = blobs(200, 4, 2, noise=50)
    fit = Fit(np.arange(150), (1e-4,), dev=np.arange(150, 200))
    epochs = [
        int(train_probes(Features(x), y, 2, [fit], ProbeConfig(tenacity=tenacity))[0].epochs[0])
        for tenacity in (0, 2, 50)
    ]
    assert epochs[0] < epochs[1] < epochs[2] == 204  # checks at 4, 8, ... 200 and one more: `nepoch <= 200` comes first


def test_padding_and_bias_are_exact() -> None:
    x, _ = blobs(10, 17, 2)
    features = Features(x)
    assert features.matrix.shape == (10, 32)
    weight = initial_weight(17, 32, 3, seed=1111)
    torch.manual_seed(1111)
    linear = torch.nn.Linear(17, 3)
    torch.testing.assert_close(features.matrix @ weight.T, linear(torch.from_numpy(x)).detach())
    np.testing.assert_array_equal(features.predict(weight), linear(torch.from_numpy(x)).argmax(1).numpy())


def test_global_random_states_and_threads_are_left_alone() -> None:
    x, y = blobs(100, 4, 2)
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    threads = torch.get_num_threads()
    train_probes(Features(x), y, 2, [Fit(np.arange(80), (1e-4,), dev=np.arange(80, 100))])
    assert (torch.rand(1), np.random.rand()) == expected
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    "values",
    [
        {"optimizer": "sgd"},
        {"kfold": 1},
        {"batch_size": 0},
        {"tenacity": -1},
        {"regs": ()},
        {"regs": (-1.0,)},
        {"validation_split": 1.0},
    ],
)
def test_a_configuration_checks_itself(values: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        ProbeConfig(**values)
