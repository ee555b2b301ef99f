"""Options on the command line are the fields of the dataclasses: the same names, types, defaults and help."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest
from typer.testing import CliRunner

from s2sent.cli import app
from s2sent.cli.adapt import adapt
from s2sent.cli.options import parse
from s2sent.cli.train import train
from s2sent.errors import ConfigError
from s2sent.options import help_texts
from s2sent.selection import SelectionConfig
from s2sent.training.adapt_recipe import AdaptRecipe
from s2sent.training.recipes import RECIPES


@pytest.mark.parametrize(("command", "kinds"), [(train, RECIPES.values()), (adapt, [AdaptRecipe])])
def test_every_field_is_an_option_of_its_own_name(command: Any, kinds: Any) -> None:
    names = {one.name for kind in kinds for one in fields(kind)} | {one.name for one in fields(SelectionConfig)}
    left_out = {"selection", "block_scales", *(["fusion"] if command is adapt else [])}
    assert names - left_out <= set(inspect.signature(command).parameters)


@pytest.mark.parametrize("kind", [*RECIPES.values(), AdaptRecipe, SelectionConfig])
def test_every_field_has_a_help_text(kind: type) -> None:
    assert {one.name for one in fields(kind)} <= set(help_texts(kind))  # type: ignore[arg-type]


def test_help_has_headings_and_defaults() -> None:
    said = CliRunner().invoke(app, ["train", "--help"], terminal_width=120, env={"COLUMNS": "120"}).output
    for heading in ("Selection", "Optimisation", "Validation", "Only with --objective whitened", "Run"):
        assert f"─ {heading} ─" in said
    assert said.index("--backbone") < said.index("─ Selection ─") < said.index("--warmup")
    words = " ".join(said.replace("│", " ").split())
    assert "Examples per step and device. Default: 64; supervised: 32." in words
    assert "sigmoid|linear|static|per_feature|none" in words


def test_lists_and_numbers_come_from_text() -> None:
    kinds = [AdaptRecipe, SelectionConfig]
    given = {"columns": ["a,b"], "map_learning_rates": ["1e-3,1e-4"], "depth": "4", "blocks": "1,-1", "seed": 0}
    expected = {"columns": ("a", "b"), "map_learning_rates": (1e-3, 1e-4), "depth": 4, "blocks": (1, -1), "seed": 0}
    assert parse(kinds, given) == expected
    assert parse(kinds, {"depth": "auto", "blocks": "3", "columns": ["a", "b"], "steps": None}) == {
        "depth": "auto",
        "blocks": 3,
        "columns": ("a", "b"),
    }
    with pytest.raises(ConfigError, match="--blocks must be a number, or several with commas, got 'many'"):
        parse(kinds, {"blocks": "many"})
