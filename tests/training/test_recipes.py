"""Recipes check themselves, and survive a round trip through TOML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sent.errors import ConfigError, DataError
from s2sent.options import to_toml
from s2sent.selection import SelectionConfig
from s2sent.training.loop import learning_rate_factor
from s2sent.training.recipes import RECIPES, PromptCSE, Recipe, SimCSE, Supervised, Whitened

NEEDED: dict[str, Any] = {"backbone": "b", "corpus": ("c.txt",)}


@pytest.mark.parametrize("kind", RECIPES.values())
@pytest.mark.parametrize("preset", ["paper", "original"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_round_trip(kind: type[Recipe], preset: str, family: Any, tmp_path: Path) -> None:
    recipe = kind.preset(preset, family, **NEEDED, selection=SelectionConfig(blocks=(1, -1), gate="linear"))
    recipe.save(tmp_path / "recipe.toml")
    assert Recipe.load(tmp_path / "recipe.toml") == recipe


@given(st.text(), st.floats(1e-9, 1), st.integers(1, 10**9))
def test_any_text_survives(text: str, rate: float, seed: int) -> None:
    import tomllib

    if any("\ud800" <= c <= "\udfff" for c in text):
        return
    recipe = PromptCSE(**NEEDED, template=text, learning_rate=rate, seed=seed)
    assert Recipe.from_dict(tomllib.loads(to_toml(recipe.to_dict()))) == recipe


def test_the_papers_values() -> None:
    simcse = SimCSE.preset("paper", "bert", **NEEDED)
    assert (simcse.learning_rate, simcse.batch_size, simcse.temperature) == (3e-5, 64, 0.05)
    assert (simcse.max_length, simcse.evaluate_every, simcse.epochs) == (32, 125, 1)
    assert (simcse.pooling, simcse.head) == ("mean", "none")
    assert PromptCSE.preset("paper", "roberta", **NEEDED).learning_rate == 1e-5
    assert Whitened.preset("paper", "bert", **NEEDED).groups == 384
    assert Whitened.preset("paper", "roberta", **NEEDED).groups == 256
    assert Whitened(**NEEDED).views == 3
    original = SimCSE.preset("original", "roberta", **NEEDED)
    assert (original.pooling, original.head, original.batch_size) == ("cls", "mlp", 512)


def test_the_default_selection_starts_from_the_last_block_and_presets_are_the_papers() -> None:
    ours = SelectionConfig(blocks=3, gate="linear", prior="last")
    assert SimCSE(**NEEDED).selection == PromptCSE(**NEEDED).selection == ours
    assert SimCSE(**NEEDED).selector_learning_rate is None
    for name in ("paper", "original"):
        assert SimCSE.preset(name, **NEEDED).selection == SelectionConfig()
        assert SimCSE.preset(name, **NEEDED, selection={"blocks": 6}).selection == SelectionConfig(blocks=6)


@pytest.mark.parametrize(
    ("changes", "form"),
    [
        ({}, {"blocks": 3, "gate": "linear", "prior": "last"}),
        ({"blocks": 5}, {"blocks": 5, "gate": "linear", "prior": "last"}),
        ({"prior": "uniform", "squeeze": "gap"}, {"gate": "linear", "squeeze": "gap"}),
        ({"fusion": "last", "gate": "none", "prior": "uniform"}, {"fusion": "last", "gate": "none"}),
        ({"blocks": 1, "gate": "sigmoid", "prior": "uniform"}, {"blocks": 1}),
    ],
)
def test_part_of_a_selection_goes_on_top_of_the_default(changes: dict[str, Any], form: dict[str, Any]) -> None:
    assert SimCSE(**NEEDED, selection=changes).selection == SelectionConfig(**form)


@pytest.mark.parametrize("changes", [{"fusion": "last", "gate": "none"}, {"blocks": 1}, {"fusion": "average"}])
def test_what_does_not_go_with_the_default_selection_says_what_to_give(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"weighs blocks .* give gate and prior as well .*preset='paper'"):
        SimCSE(**NEEDED, selection=changes)
    assert SimCSE.preset("paper", **NEEDED, selection=changes).selection == SelectionConfig(**changes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 1}, "batch_size must be at least 2 .*, got 1"),
        ({"temperature": 0}, "temperature must be above 0, got 0"),
        ({"pooling": "max"}, "one of 'mean', 'cls', 'mask'"),
        ({"head": "big"}, "one of 'none', 'mlp'"),
        ({"warmup": 1.0}, "from 0 to below 1"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"columns": ("a", "b")}, "takes 1 column of text"),
        ({"corpus": ()}, "at least one file"),
        ({"selection": {"blocks": 0}}, "blocks must be .*, got 0"),
        ({"learning_rate": "3e-5"}, "learning_rate must be a number, got '3e-5'"),
        ({"temperature": float("inf")}, "temperature must be a finite number .*, got inf"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number .*, got nan"),
        ({"selector_learning_rate": float("inf")}, "selector_learning_rate must be a finite number"),
        ({"mlm_weight": float("inf")}, "mlm_weight must be a finite number"),
        ({"weight_decay": float("nan")}, "weight_decay must be a finite number"),
        ({"clip": 10**400}, "clip must be a finite number"),
        ({"batch_size": 10**400}, "batch_size must be a finite number"),
        ({"corpus": 5}, "corpus must be a list of texts, got 5"),
        ({"corpus": ["a.txt", 5]}, "corpus must be a list of texts"),
        ({"columns": {"a": 1}}, "columns must be a list of texts"),
        ({"backbone": 5}, "backbone must be a text, got 5"),
        ({"selection": 5}, "selection must be a table of options, got 5"),
        ({"selection": {"frequencies": [1]}}, r"frequencies must be a whole number of at least 1, got \[1\]"),
        ({"selection": {"blocks": 10**9}}, "blocks must be at most 1,024, got 1000000000"),
        ({"batch_size": 32.0}, "a whole number"),
        ({"by_length": 1}, "true or false"),
        ({"steps": True}, "a whole number"),
        ({"precision": "fp8"}, "one of 'fp32', 'bf16'"),
    ],
)
def test_mistakes(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SimCSE(**{**NEEDED, **options})


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        Recipe.load(tmp_path / "none.toml")
    path = tmp_path / "bad.toml"
    path.write_text("objective = ")
    with pytest.raises(DataError, match=r"bad\.toml is not valid TOML"):
        Recipe.load(path)
    path.write_text('objective = "magic"')
    with pytest.raises(
        ConfigError,
        match=r"bad\.toml: objective must be one of 'simcse', 'supervised', 'promptcse', 'whitened', got 'magic'",
    ):
        Recipe.load(path)
    path.write_text('objective = "simcse"\nbackbone = "b"\ncorpus = ["c"]\ncolour = "red"')
    with pytest.raises(ConfigError, match="Unknown option: colour"):
        Recipe.load(path)
    path.write_text('objective = "simcse"\n')
    with pytest.raises(ConfigError, match="does not say its backbone and corpus"):
        Recipe.load(path)
    with pytest.raises(ConfigError, match="takes 2 or 3 columns"):
        Supervised(**NEEDED, columns=("a",))


def test_the_learning_rate_rises_then_falls_to_zero() -> None:
    factors = [learning_rate_factor(step, 100, 0.1) for step in range(101)]
    assert factors[0] == pytest.approx(0.1)
    assert max(factors) == factors[9] == factors[10] == 1.0
    assert factors[100] == 0
    assert [learning_rate_factor(step, 4, 0.0) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]


def test_a_recipe_runs_again_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lines.txt").write_text("A line.\n")
    (tmp_path / "dev.csv").touch()
    monkeypatch.chdir(tmp_path)
    recipe = SimCSE(
        backbone="bert-base-uncased", corpus=("lines.txt", "some/dataset"), dev="dev.csv"
    ).with_absolute_paths()
    assert recipe.backbone == "bert-base-uncased"  # a name on the hub, not a path
    assert recipe.corpus == (str(tmp_path / "lines.txt"), "some/dataset")
    assert recipe.dev == str(tmp_path / "dev.csv")
    (tmp_path / "none").touch()
    assert SimCSE(backbone="b", corpus=("lines.txt",), dev="none").with_absolute_paths().dev == "none"
