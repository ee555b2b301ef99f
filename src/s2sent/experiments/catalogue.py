"""Experiments and profiles as data: `catalogue.toml` of this package, or a file of your own, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal

from s2sent.errors import ConfigError
from s2sent.selection import SelectionConfig
from s2sent.training.recipes import OBJECTIVES, Frozen, Recipe
from s2sent.untrusted import Table, read_toml, shown

OWN = Path(__file__).with_name("catalogue.toml")
GRID_LETTERS = {"blocks": "n", "frequencies": "m", "reduction": "r"}
RECIPE_FIELDS = {field.name for kind in (Recipe, Frozen) for field in fields(kind)}
SELECTION_FIELDS = tuple(field.name for field in fields(SelectionConfig))
MOST_ROWS, MOST_SEEDS = 10_000, 1000
"""Limits of a table."""
NOT_IN_ROWS = {"selection", "seed", "dev", "backbone", "corpus"}
"""Fields of a recipe that a row cannot change: it has the selection's own, and the same inputs and seeds as others."""


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
        objectives: Each row is run with each of these.
        base: The row that the others are tested against.
        where: Where it is in the paper; empty for ours.
        kind: `train`: runs train and score. `gradients`: runs measure one batch.
        tasks: The suite a trained model is scored on: `sts` or `transfer`.
        figure: The kind of picture, if any.
        cost: Whether the table shows what a row costs in parameters and time.
        rows: The rows.
        grid: What the grid varied, if there was one; its rows are the last ones.
    """

    name: str
    title: str
    objectives: tuple[str, ...]
    base: str
    where: str = ""
    kind: Literal["train", "gradients"] = "train"
    tasks: Literal["sts", "transfer"] = "sts"
    figure: Literal["", "bars", "boxes", "line", "densities", "gradients"] = ""
    cost: bool = False
    rows: tuple[Row, ...] = ()
    grid: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


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
        dev_every: Every n-th pair of STS-B dev decides the best step.
        every: By task: only every n-th pair or sentence is scored.
        probes: The transfer probes' configuration.
    """

    name: str
    what: str
    backbones: tuple[str, ...]
    seeds: int
    depth: int
    recipe: dict  # type: ignore[type-arg]  # of any options of a recipe
    dev_every: int
    every: dict[str, int]
    probes: str


@dataclass(frozen=True)
class Catalogue:
    """What a file describes."""

    selection: Mapping[str, Any]
    profiles: Mapping[str, Mapping[str, Any]]
    experiments: Mapping[str, Mapping[str, Any]]
    source: str

    def profile(self, name: str) -> Profile:
        """Return the profile of this name."""
        table = self._table("profiles", name, {})
        found = table.to(Profile)
        every = {f"every.{task}": count for task, count in found.every.items()}
        for key, count in {"seeds": found.seeds, "depth": found.depth, "dev_every": found.dev_every, **every}.items():
            most = MOST_SEEDS if key == "seeds" else 1_000_000
            if not 1 <= count <= most:
                raise table.fail(key, f"must be from 1 to {most:,}, got {shown(repr(count))}")
        Table(found.recipe, Path(self.source), ConfigError, f"profiles.{name}.recipe.").only(RECIPE_FIELDS)
        return found

    def experiment(self, name: str, profile: str) -> Experiment:
        """Return the experiment of this name as the profile has it."""
        table = self._table("experiments", name, {"rows": [], "grid": {}})
        changes = table.get(profile, dict, {})
        values = {key: value for key, value in table.values.items() if key not in self.profiles} | changes
        where = f"{self.source}: {name}"
        table = replace(table, values=values)
        grid = {key: tuple(table.table("grid").list_of(key, int)) for key in table.get("grid", dict)}
        named = [_named(row, where) for row in table.get("rows", list)] + _grid(grid, where)
        rows = [Row(name, changes, changes.get("blocks", self.selection["blocks"])) for name, changes in named]
        plain = replace(table, values={key: value for key, value in values.items() if key not in ("rows", "grid")})
        found = replace(plain.to(Experiment), rows=tuple(rows), grid=grid)
        _check(found, where)
        return found

    def _table(self, section: str, name: str, defaults: dict[str, Any]) -> Table:
        known: Mapping[str, Mapping[str, Any]] = getattr(self, section)
        if name not in known:
            raise ConfigError(f"There is no {section[:-1]} {name!r}. There are: {', '.join(known)}.")
        return Table({"name": name, **defaults, **known[name]}, Path(self.source), ConfigError, f"{section}.{name}.")


@cache
def read_catalogue(path: Path | None = None) -> Catalogue:
    """Read a file of experiments; what it leaves out, profiles and the selection included, is this package's own."""
    own = read_toml(OWN)
    source = "the catalogue" if path is None else path.name
    given = Table(own if path is None else read_toml(path), Path(source), ConfigError).only(list(own))
    return Catalogue(
        selection={**own["selection"], **given.get("selection", dict, {})},
        profiles={**own["profiles"], **given.dict_of("profiles", dict, {})},
        experiments={**own["experiments"], **given.dict_of("experiments", dict, {})},
        source=source,
    )


def _named(values: Any, where: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(values, dict) or "row" not in values:
        raise ConfigError(f'{where}: a row has no name. Give it one: {{ row = "…", … }}.')
    if not isinstance(values["row"], str):
        raise ConfigError(f"{where}: the name of a row must be a text, got {shown(repr(values['row']))}.")
    return values["row"], {name: value for name, value in values.items() if name != "row"}


def _grid(grid: Mapping[str, tuple[int, ...]], where: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of a grid: names and changes."""
    for key, numbers in grid.items():
        if key not in GRID_LETTERS or not numbers:
            raise ConfigError(f"{where}: a grid is of {' or '.join(GRID_LETTERS)}, each with a list of numbers.")
    if (rows := prod(map(len, grid.values()))) > MOST_ROWS:
        raise ConfigError(f"{where}: a grid must have at most {MOST_ROWS:,} rows, and this one has {rows:,}.")
    combined = [dict(zip(grid, numbers, strict=True)) for numbers in product(*grid.values())] if grid else []
    return [(", ".join(f"{GRID_LETTERS[key]} = {value}" for key, value in one.items()), one) for one in combined]


def _check(found: Experiment, where: str) -> None:
    """Find what is wrong before any run is started."""
    others = [objective for objective in found.objectives if objective not in OBJECTIVES]
    if others or not found.objectives:
        got = ", ".join(map(repr, others)) or "none"
        raise ConfigError(f"{where}: objectives must be of {', '.join(map(repr, OBJECTIVES))}, got {got}.")
    names = [row.name for row in found.rows]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{where}: two rows are called {twice[0]!r}.")
    if found.base not in names:
        raise ConfigError(f"{where}: base = {found.base!r} is none of its rows: {', '.join(names)}.")
    of_recipes = [{field.name for field in fields(OBJECTIVES[objective])} for objective in found.objectives]
    changeable = {*SELECTION_FIELDS, *set.intersection(*of_recipes)} - NOT_IN_ROWS
    for row in found.rows:
        if unknown := sorted(set(row.changes) - changeable):
            raise ConfigError(
                f"{where}: the row {row.name!r} has {', '.join(unknown)}. Allowed: {', '.join(sorted(changeable))}."
            )
