from __future__ import annotations

from pathlib import Path

import pytest

from experiments.tiny import Bench
from s2sent.errors import ConfigError, DataError
from s2sent.experiments.catalogue import read_catalogue
from s2sent.experiments.plan import expand
from s2sent.selection import SelectionConfig

NAMES = "main squeeze blocks-frequencies reduction pooling transfer density gradients beyond".split()  # noqa: SIM905


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def experiment(rows: str, objectives: str = '["simcse"]', base: str = "base") -> str:
    return f'[experiments.bad]\ntitle = "Bad"\nobjectives = {objectives}\nbase = "{base}"\nrows = [{rows}]\n'


def profile(seeds: str = "3", recipe: str = "{}") -> str:
    rest = 'what = "x"\nbackbones = []\ndepth = 6\ndev_every = 1\nevery = {}\nprobes = "fast"\n'
    return f"[profiles.cpu]\nseeds = {seeds}\nrecipe = {recipe}\n{rest}"


@pytest.mark.parametrize("size", ["paper", "cpu"])
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_of_the_issue_is_there(name: str, size: str) -> None:
    found = read_catalogue().experiment(name, size)
    assert found.rows
    assert found.base in [row.name for row in found.rows]


def test_the_spelled_out_selection_is_the_papers() -> None:
    """Frozen: a changed default of the library must not change what a committed record means."""
    spelled_out = read_catalogue().selection
    assert set(spelled_out) == set(SelectionConfig().to_dict())
    assert SelectionConfig.from_dict(spelled_out) == SelectionConfig(
        blocks=3, frequencies=4, reduction=12, squeeze="dct", scale="mean", fusion="stack", activation="relu",
        gate="sigmoid", prior="uniform", bias=False, block_scales=(),
    )  # fmt: skip


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
    path = write(tmp_path / "bad.toml", experiment(rows))
    with pytest.raises(ConfigError, match=said) as raised:
        read_catalogue(path).experiment("bad", "cpu")
    assert "bad.toml" in str(raised.value)


@pytest.mark.parametrize(
    ("row", "said"), [('gate = "lineer"', "got 'lineer'"), ("blocks = 99", "has 6"), ("batch_size = 0", "batch_size")]
)
def test_what_is_wrong_with_a_value_says_where(bench: Bench, tmp_path: Path, row: str, said: str) -> None:
    catalogue = read_catalogue(write(tmp_path / "bad.toml", experiment(f'{{ row = "base", {row} }}')))
    with pytest.raises(ConfigError, match=r"bad\.toml: bad: the row 'base': ") as raised:
        expand(catalogue, [catalogue.experiment("bad", "cpu")], bench.settings())
    assert said in str(raised.value)


def test_a_row_may_change_what_all_its_objectives_know(tmp_path: Path) -> None:
    row = '{ row = "base", denoise = false }'
    prompt = read_catalogue(write(tmp_path / "a.toml", experiment(row, '["promptcse"]')))
    assert prompt.experiment("bad", "cpu").rows[0].changes == {"denoise": False}
    both = read_catalogue(write(tmp_path / "b.toml", experiment(row, '["promptcse", "simcse"]')))
    with pytest.raises(ConfigError, match="the row 'base' has denoise"):
        both.experiment("bad", "cpu")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (experiment("", '"simcse"'), "experiments.bad.objectives must be a list, got 'simcse'"),
        (experiment('{ row = "base" }', "[]"), "objectives must be of .*, got none"),
        (experiment('"base"'), "a row has no name"),
        ("[profiles.cpu]\nseeds = 3\n", "is missing"),
        (profile(seeds='"3"'), "profiles.cpu.seeds must be a whole number, got '3'"),
        (profile(seeds="0"), "seeds must be from 1 to 1,000, got 0"),
        (profile(seeds="1_000_000_000"), "seeds must be from 1 to 1,000"),
        (profile(recipe="3"), "profiles.cpu.recipe must be a table, got 3"),
        (experiment("", '["simcse", 3]'), r"objectives\[1\] must be a text, got 3"),
        (experiment("{ row = 3 }"), "the name of a row must be a text, got 3"),
        (experiment("") + "grid = 3\n", "experiments.bad.grid must be a table, got 3"),
        (experiment("") + "grid = { blocks = 3 }\n", "experiments.bad.grid.blocks must be a list, got 3"),
        (experiment("") + 'grid = { blocks = ["3"] }\n', "must be a whole number, got '3'"),
        (
            experiment("") + f"grid = {{ blocks = {[*range(200)]}, reduction = {[*range(200)]} }}\n",
            "at most 10,000 rows, and this one has 40,000",
        ),
        (experiment("") + "cpu = 3\n", "experiments.bad.cpu must be a table, got 3"),
        (profile(recipe="{ stesp = 3 }"), "profiles.cpu.recipe.stesp is not known"),
    ],
)
def test_what_has_the_wrong_shape_is_said(tmp_path: Path, text: str, said: str) -> None:
    catalogue = read_catalogue(write(tmp_path / "bad.toml", text))
    with pytest.raises(ConfigError, match=said) as raised:
        catalogue.experiment("bad", "cpu") if "experiments" in text else catalogue.profile("cpu")
    assert "bad.toml" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("experiments = 3", "experiments must be a table, got 3"),
        ("profiles = [1]", "profiles must be a table, got a list"),
        ('selection = "last"', "selection must be a table, got 'last'"),
        ("[experiments]\nmain = 3", "experiments.main must be a table, got 3"),
        ("[[profiles.cpu]]\nseeds = 3", "profiles.cpu must be a table, got a list"),
        ("other = 3", "other is not known. Known: experiments, profiles, selection"),
    ],
)
def test_a_scalar_in_place_of_a_table_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        read_catalogue(write(tmp_path / "bad.toml", text))
    assert "bad.toml" in str(raised.value)


def test_a_broken_file_and_unknown_names_are_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.toml is not valid TOML"):
        read_catalogue(write(tmp_path / "a.toml", "[experiments"))
    with pytest.raises(ConfigError, match="no experiment 'mian'"):
        read_catalogue().experiment("mian", "cpu")
    with pytest.raises(ConfigError, match="There are: paper, cpu"):
        read_catalogue().profile("gpu")
