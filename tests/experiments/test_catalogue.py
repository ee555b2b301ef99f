from __future__ import annotations

from pathlib import Path

import pytest

from s2sent.errors import ConfigError, DataError
from s2sent.experiments.catalogue import read_catalogue
from s2sent.selection import SelectionConfig

NAMES = "main squeeze blocks-frequencies reduction pooling transfer density gradients beyond".split()  # noqa: SIM905


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("profile", ["paper", "cpu"])
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_of_the_issue_is_there(name: str, profile: str) -> None:
    experiment = read_catalogue().experiment(name, profile)
    assert experiment.rows
    assert experiment.base in [row.name for row in experiment.rows]


def test_the_spelled_out_selection_is_the_papers() -> None:
    """Frozen: a changed default of the library must not change what a committed record means."""
    assert read_catalogue().selection == SelectionConfig(
        blocks=3, frequencies=4, reduction=12, squeeze="dct", scale="mean", fusion="stack", activation="relu",
        gate="sigmoid", prior="uniform",
    ).to_dict()  # fmt: skip


def test_the_paper_has_the_papers_grid_and_sizes() -> None:
    catalogue = read_catalogue()
    grid = catalogue.experiment("blocks-frequencies", "paper").grid
    assert grid == {"blocks": (1, 3, 6, 9, 12), "frequencies": (1, 2, 4, 8, 16)}
    assert catalogue.profile("paper").seeds == 7
    assert catalogue.experiment("main", "paper").objectives == ("simcse", "promptcse")


def test_a_row_is_one_line(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mine.toml",
        '[experiments.mine]\ntitle = "Mine"\nobjectives = ["simcse"]\nbase = "base"\nrows = [\n'
        '  { row = "base", fusion = "last", gate = "none" },\n'
        '  { row = "colder", temperature = 0.02 },\n]\n',
    )
    catalogue = read_catalogue(path)
    mine = catalogue.experiment("mine", "cpu")
    assert [row.name for row in mine.rows] == ["base", "colder"]
    assert "main" in catalogue.experiments  # the package's own are still there


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ('{ row = "base" }, { row = "x", blokcs = 3 }', "blokcs"),
        ('{ row = "base" }, { row = "base" }', "two rows"),
        ('{ row = "other" }', "none of its rows"),
        ("{ blocks = 3 }", "no name"),
        ('{ row = "base", seed = 3 }', "seed"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(tmp_path: Path, rows: str, said: str) -> None:
    path = write(
        tmp_path / "bad.toml",
        f'[experiments.bad]\ntitle = "Bad"\nobjectives = ["simcse"]\nbase = "base"\nrows = [{rows}]\n',
    )
    with pytest.raises(ConfigError, match=said) as raised:
        read_catalogue(path).experiment("bad", "cpu")
    assert "bad.toml" in str(raised.value)


def test_a_broken_file_and_unknown_names_are_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a catalogue"):
        read_catalogue(write(tmp_path / "a.toml", "[experiments"))
    with pytest.raises(ConfigError, match="no experiment 'mian'"):
        read_catalogue().experiment("mian", "cpu")
    with pytest.raises(ConfigError, match="There are: paper, cpu"):
        read_catalogue().profile("gpu")
