"""Experiments and profiles as data: `catalogue.toml` of this package, or a file of one's own, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from s2sent.errors import ConfigError
from s2sent.selection import SelectionConfig
from s2sent.training.recipes import RECIPES, Recipe, read_toml, recipe_class

OWN = Path(__file__).with_name("catalogue.toml")
KINDS = ("train", "gradients")
FIGURES = ("", "bars", "boxes", "line", "densities", "gradients")
SELECTION_FIELDS = tuple(field.name for field in fields(SelectionConfig))
NOT_A_ROWS = {"selection", "seed", "dev", "backbone", "corpus"}
"""What a row cannot change of a recipe: it has selection's fields, and the same inputs and seeds as the others."""


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        name: Its name.
        changes: What differs from the catalogue's selection or the profile's recipe.
        blocks: Which blocks it is about, whether it changes them or not.
    """

    name: str
    changes: Mapping[str, Any]
    blocks: int | Sequence[int]


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Attributes:
        name: What the command line calls it.
        title: What the report calls it.
        where: Where it is in the paper; empty for ours.
        kind: `train`: runs train and score. `gradients`: runs measure one batch.
        objectives: Each row is run with each of these.
        base: The row that the others are tested against.
        tasks: The suite a trained model is scored on: `sts` or `transfer`.
        figure: The kind of picture, if any.
        cost: Whether the table shows what a row costs in parameters and time.
        rows: The rows.
        grid: What the grid varied, if there was one; its rows are the last ones.
    """

    name: str
    title: str
    where: str
    kind: str
    objectives: tuple[str, ...]
    base: str
    tasks: str
    figure: str
    cost: bool
    rows: tuple[Row, ...]
    grid: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Profile:
    """How large everything is.

    Attributes:
        name: Written on everything it produces.
        what: What it is, in a sentence.
        backbones: Used when none is given.
        seeds: How many, from 0 on.
        depth: The number of blocks that the experiments' block numbers are meant for; see `scale_blocks`.
        recipe: On top of the paper's preset.
        dev_every: Every so many-th pair of STS-B dev decides the best step.
        every: By task: only every so many-th pair or sentence is scored.
        probes: The transfer probes' configuration.
    """

    name: str
    what: str
    backbones: tuple[str, ...]
    seeds: int
    depth: int
    recipe: Mapping[str, Any]
    dev_every: int
    every: Mapping[str, int]
    probes: str


@dataclass(frozen=True)
class Catalogue:
    """What a file describes."""

    selection: Mapping[str, Any]
    profiles: Mapping[str, Mapping[str, Any]]
    experiments: Mapping[str, Mapping[str, Any]]
    source: str

    def profile(self, name: str) -> Profile:
        """The profile of this name."""
        if name not in self.profiles:
            raise ConfigError(f"There is no profile {name!r}. There are: {', '.join(self.profiles)}.")
        where = f"{self.source}: profile {name}"
        values = _made(Profile, {"name": name, **self.profiles[name]}, where)
        kinds = {"backbones": list, "seeds": int, "depth": int, "dev_every": int, "recipe": dict, "every": dict}
        _check_kinds(values, kinds, where)
        legal = sorted(field.name for field in fields(Recipe))
        if unknown := sorted(set(values["recipe"]) - set(legal)):
            raise ConfigError(f"{where}: recipe has {', '.join(unknown)}. Legal: {', '.join(legal)}.")
        return Profile(**{**values, "backbones": tuple(values["backbones"])})

    def experiment(self, name: str, profile: str) -> Experiment:
        """The experiment of this name as the profile has it."""
        if name not in self.experiments:
            raise ConfigError(f"There is no experiment {name!r}. There are: {', '.join(self.experiments)}.")
        where = f"{self.source}: {name}"
        defaults = {"where": "", "kind": "train", "tasks": "sts", "figure": "", "cost": False, "rows": [], "grid": {}}
        given = {key: value for key, value in self.experiments[name].items() if key not in self.profiles}
        values = {"name": name, **defaults, **given, **self.experiments[name].get(profile, {})}
        values = _made(Experiment, values, where)
        _check_kinds(values, {"rows": list, "objectives": list, "grid": dict, "cost": bool}, where)
        named = [_named(row, where) for row in values["rows"]]
        named += [(_grid_name(changes), changes) for changes in _grid(values["grid"], where)]
        rows = [Row(name, changes, changes.get("blocks", self.selection["blocks"])) for name, changes in named]
        values |= {
            "rows": tuple(rows),
            "objectives": tuple(values["objectives"]),
            "grid": {key: tuple(numbers) for key, numbers in values["grid"].items()},
        }
        found = Experiment(**values)
        _check(found, where)
        return found


@cache
def read_catalogue(path: Path | None = None) -> Catalogue:
    """Read a file of experiments; what it leaves out, profiles and the selection included, is this package's own."""
    own = read_toml(OWN)
    given = own if path is None else read_toml(path, "a catalogue of experiments")
    if unknown := sorted(set(given) - set(own)):
        raise ConfigError(f"{path}: {', '.join(unknown)} is not known. Legal: {', '.join(own)}.")
    return Catalogue(
        selection={**own["selection"], **given.get("selection", {})},
        profiles={**own["profiles"], **given.get("profiles", {})},
        experiments={**own["experiments"], **given.get("experiments", {})},
        source="the catalogue" if path is None else path.name,
    )


def _made(kind: type, values: dict[str, Any], where: str) -> dict[str, Any]:
    known = [field.name for field in fields(kind)]
    if unknown := sorted(set(values) - set(known)):
        raise ConfigError(f"{where}: {', '.join(unknown)} is not known. Legal: {', '.join(known)}.")
    if missing := [name for name in known if name not in values]:
        raise ConfigError(f"{where}: {', '.join(missing)} is missing.")
    return values


def _check_kinds(values: Mapping[str, Any], kinds: Mapping[str, type], where: str) -> None:
    names = {int: "a whole number", bool: "true or false", list: "a list", dict: "a table"}
    for name, kind in kinds.items():
        if not isinstance(values[name], kind):
            raise ConfigError(f"{where}: {name} = {values[name]!r} must be {names[kind]}.")


def _named(values: Any, where: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(values, dict) or "row" not in values:
        raise ConfigError(f'{where}: a row has no name. Give it one: {{ row = "…", … }}.')
    return str(values["row"]), {name: value for name, value in values.items() if name != "row"}


def _grid(grid: Mapping[str, Any], where: str) -> list[dict[str, int]]:
    for key, numbers in grid.items():
        if key not in GRID_LETTERS or not isinstance(numbers, list) or not numbers:
            raise ConfigError(f"{where}: a grid is of {' or '.join(GRID_LETTERS)}, each with a list of numbers.")
    return [dict(zip(grid, numbers, strict=True)) for numbers in product(*grid.values())] if grid else []


GRID_LETTERS = {"blocks": "n", "frequencies": "m", "reduction": "r"}


def _grid_name(changes: dict[str, int]) -> str:
    return ", ".join(f"{GRID_LETTERS[key]} = {value}" for key, value in changes.items())


def _check(found: Experiment, where: str) -> None:
    """Everything that can be known to be wrong before an hour was spent on it."""
    for name, value, legal in (
        ("kind", found.kind, KINDS),
        ("figure", found.figure, FIGURES),
        ("tasks", found.tasks, ("sts", "transfer")),
        *(("objective", objective, tuple(RECIPES)) for objective in found.objectives),
    ):
        if value not in legal:
            raise ConfigError(f"{where}: {name} = {value!r} is not known. Legal: {', '.join(map(repr, legal))}.")
    if not found.objectives:
        raise ConfigError(f"{where}: objectives is empty. Legal: {', '.join(RECIPES)}.")
    names = [row.name for row in found.rows]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{where}: two rows are called {twice[0]!r}.")
    if found.base not in names:
        raise ConfigError(f"{where}: base = {found.base!r} is none of its rows: {', '.join(names)}.")
    of_recipes = [{field.name for field in fields(recipe_class(objective))} for objective in found.objectives]
    changeable = {*SELECTION_FIELDS, *set.intersection(*of_recipes)} - NOT_A_ROWS
    for row in found.rows:
        if unknown := sorted(set(row.changes) - changeable):
            raise ConfigError(
                f"{where}: the row {row.name!r} has {', '.join(unknown)}. Legal: {', '.join(sorted(changeable))}."
            )
