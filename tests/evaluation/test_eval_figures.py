import builtins
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import gaussian_kde

from s2sent.errors import ConfigError, DataError
from s2sent.evaluation.figures import Panel, _density, densities, density_figure, group_of, scatter_figure, scatters
from s2sent.evaluation.result import TaskResult


def panel(name: str = "model", pairs: int = 200) -> Panel:
    random = np.random.default_rng(0)
    gold = random.uniform(0, 5, pairs)
    evidence = {"similarity": list(gold / 5 - random.uniform(0, 0.2, pairs)), "gold": list(gold)}
    return Panel.of(name, TaskResult("STS-B", {"all": 90.0}, pairs, evidence=evidence))


def test_five_groups_with_the_top_one_closed() -> None:
    assert list(group_of(np.array([0, 0.99, 1, 2.5, 3.999, 4, 4.5, 5]))) == [0, 0, 1, 2, 3, 4, 4, 4]


def test_the_density_is_scipys() -> None:
    values, grid = np.random.default_rng(0).normal(size=50), np.linspace(-3, 3, 31)
    np.testing.assert_allclose(_density(values, grid), gaussian_kde(values)(grid), rtol=1e-9)


@pytest.mark.parametrize("draw", [density_figure, scatter_figure])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_panel_for_each_model(tmp_path: Path, draw: object, count: int) -> None:
    from matplotlib.image import imread

    path = tmp_path / "new" / "figure.png"
    draw([panel(f"model {index}") for index in range(count)], path)  # type: ignore[operator]
    height, width = imread(path).shape[:2]
    assert width > height * min(count, 4) * 0.4
    assert imread(path)[..., :3].std() > 0.01  # something is drawn


def test_the_line_of_a_scatter_is_the_mean_of_every_half_point() -> None:
    one = panel()
    (axis,) = scatters([one]).axes
    expected = {}
    for gold, similarity in zip(one.gold, one.similarity, strict=True):
        expected.setdefault(round(gold * 2) / 2, []).append(similarity)
    line = sorted((place, float(np.mean(values))) for place, values in expected.items())
    np.testing.assert_allclose(axis.lines[0].get_xydata(), line)
    np.testing.assert_allclose(axis.collections[0].get_offsets(), np.stack([one.gold, one.similarity], axis=1))


def test_long_names_and_whole_curves_stay_inside() -> None:
    names = ["a-very-long-name-of-a-model-folder-" * 3, "short"]
    near = np.random.default_rng(1).uniform(0.8, 1, 200)
    figure = densities([replace(panel(name), similarity=near) for name in names])
    figure.draw_without_rendering()
    for axis in figure.axes:
        box = axis.title.get_window_extent()
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        top = axis.lines[-2].get_ydata()  # the curve of the best group, before its median
        assert top[-1] - 4 < 0.01  # has come down to its base before the axis ends
    first, second = (axis.title.get_window_extent() for axis in figure.axes)
    assert first.x1 < second.x0


def test_groups_without_pairs_or_without_spread(tmp_path: Path) -> None:
    lonely = Panel("lonely", np.array([0.5, 0.5, 0.5, 0.1]), np.array([4.5, 4.6, 4.7, 1.0]), 50.0)
    density_figure([lonely], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_what_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"Legal: \.png"):
        density_figure([panel()], tmp_path / "figure.doc")
    with pytest.raises(ConfigError, match="at least one model"):
        density_figure([], tmp_path / "figure.png")
    with pytest.raises(DataError, match="no sentence pairs"):
        Panel.of("m", TaskResult("MR", {"accuracy": 80.0}, 10))
    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 's2sent\[plot\]'"):
        density_figure([panel()], tmp_path / "figure.png")
