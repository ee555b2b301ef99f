"""The paper's own numbers, to stand beside ours."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from s2sent.evaluation.report import Entry as Text
from s2sent.evaluation.report import Grid
from s2sent.untrusted import read_toml


@cache
def _numbers() -> dict[str, Any]:
    return read_toml(Path(__file__).with_name("paper.toml"))


def paper_grid(experiment: str, objective: str) -> Grid | None:
    """What the paper prints for an experiment and objective, one group of columns per backbone; None if nothing."""
    table = _numbers().get(experiment)
    if table is None:
        return None
    groups = {name.split(" · ")[0]: rows for name, rows in table["rows"].items() if name.endswith(f" · {objective}")}
    if not groups:
        return None
    cost = table.get("cost", {})
    columns: list[str] = []
    rows: dict[str, list[Text]] = {row: [] for row in next(iter(groups.values()))}
    for backbone, numbers in groups.items():
        columns += [f"{backbone} {column}" for column in table["columns"]]
        if backbone in cost:
            columns += [f"{backbone} Δ parameters", f"{backbone} Δ latency"]
        for row, entries in rows.items():
            entries += [Text(f"{value:.2f}") for value in numbers[row]]
            if backbone in cost:
                entries += [Text(f"{value:.2f} %") for value in cost[backbone][row]] or [Text("–")] * 2
    return Grid(
        tuple(columns), tuple((row, tuple(entries)) for row, entries in rows.items()), (table["caption"] + ".",)
    )
