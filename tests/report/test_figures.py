import builtins
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from s2sent.errors import ConfigError, DataError
from s2sent.evaluation.result import TaskResult
from s2sent.figures import save_figure
from s2sent.report.figures import GROUPS, Panel, densities, group_of, scatters, smoothed


def panel(name: str = "model", pairs: int = 200) -> Panel:
    random = np.random.default_rng(0)
    gold = random.uniform(0, 5, pairs)
    evidence = {"similarity": list(gold / 5 - random.uniform(0, 0.2, pairs)), "gold": list(gold)}
    return Panel.of(name, TaskResult("STS-B", {"all": 90.0}, pairs, evidence=evidence))


def test_five_groups_with_the_top_one_closed() -> None:
    assert list(group_of(np.array([0, 0.99, 1, 2.5, 3.999, 4, 4.5, 5]))) == [0, 0, 1, 2, 3, 4, 4, 4]


def test_the_density_is_scipys() -> None:
    """Of the lowest group, scaled to the height of a ridge."""
    one = panel()
    (axis,) = densities([one]).axes
    x, curve = axis.lines[0].get_xydata().T
    expected = gaussian_kde(one.similarity[one.gold < 1])(x)
    np.testing.assert_allclose(curve, 0.92 * expected / expected.max(), rtol=1e-9)


@pytest.mark.parametrize("draw", [densities, scatters])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_panel_for_each_model(draw: Callable[[list[Panel]], Figure], count: int) -> None:
    figure = draw([panel(f"model {index}") for index in range(count)])
    titles = [axis.get_title() for axis in figure.axes if axis.get_visible()]
    assert titles == [f"model {index}\nSpearman 90.00, 200 pairs" for index in range(count)]


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


def test_groups_without_pairs_or_without_spread() -> None:
    lonely = Panel("lonely", np.array([0.5, 0.5, 0.5, 0.1]), np.array([4.5, 4.6, 4.7, 1.0]), 50.0)
    (axis,) = densities([lonely]).axes
    assert [text.get_text() for text in axis.texts] == ["no pairs"] * 3
    assert len(axis.lines) == 2 * 2  # a curve and its median
    assert all(np.isfinite(line.get_ydata()).all() for line in axis.lines)


def test_a_narrow_density_is_drawn() -> None:
    """All cosines in three bins, fewer than the smoothing is wide."""
    x, curve = smoothed([{"low": 0.925, "counts": [[1, 2, 3]] * GROUPS}], 0, 0.925)
    assert x.shape == curve.shape
    assert curve.sum() == pytest.approx(6, rel=0.2)


def test_what_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"Legal: \.png"):
        save_figure(densities([panel()]), tmp_path / "figure.doc")
    with pytest.raises(ConfigError, match="at least one model"):
        densities([])
    with pytest.raises(DataError, match="no sentence pairs"):
        Panel.of("m", TaskResult("MR", {"accuracy": 80.0}, 10))
    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 's2sent\[plot\]'"):
        densities([panel()])
