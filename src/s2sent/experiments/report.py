"""The report: one html file that needs nothing else, and its tables and figures as files of their own.

FOLDER/index.html
FOLDER/tables/<experiment>-<backbone>-<objective>.md .tex .csv, and all.csv with every score of every run
FOLDER/figures/<experiment>.png .svg
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from s2sent.errors import ConfigError
from s2sent.evaluation.comparison import Comparison
from s2sent.evaluation.page import facts, page, picture, table
from s2sent.evaluation.report import Format, Grid, comparison_csv
from s2sent.experiments.catalogue import Experiment, Profile
from s2sent.experiments.published import paper_grid
from s2sent.experiments.tables import Results, cells, gradient_grid, score_grid, scores_csv


@dataclass(frozen=True)
class About:
    """What a reader must know of all numbers.

    Attributes:
        profile: The profile.
        command: The command that gives them, without places of this machine.
        total, done: How many runs there are, and how many are finished.
        failed: Errors of the runs that failed, by run.
    """

    profile: Profile
    command: str
    total: int
    done: int
    failed: dict[str, str]


def write_report(tables: Sequence[Results], about: About, folder: Path) -> Path:
    """Write everything; return the html file's path. What was there of an earlier report is replaced."""
    try:
        for name in ("tables", "figures"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"The report cannot be written to {folder}: {error.strerror}.") from error
    begun = {results.experiment.name: results.experiment for results in tables if results.begun}
    waiting = dict.fromkeys(results.experiment.name for results in tables if results.experiment.name not in begun)
    parts = [_head(tables, about, begun.values(), waiting)]
    for experiment in begun:
        parts.append(_section([results for results in tables if results.experiment.name == experiment], about, folder))
    (folder / "tables" / "all.csv").write_text(scores_csv(tables), encoding="utf-8")
    written = folder / "index.html"
    body = "\n".join(parts)
    written.write_text(page("S²Sent, rerun", body), encoding="utf-8")
    return written


def _section(tables: Sequence[Results], about: About, folder: Path) -> str:
    experiment = tables[0].experiment
    where = f"in the paper: {experiment.where}" if experiment.where else "not in the paper"
    parts = [f"<section id='{experiment.name}'><h2>{escape(experiment.title)}</h2>"]
    parts.append(f"<p class='where'><code>{experiment.name}</code> · {escape(where)} · {_badge(about)}</p>")
    for results in tables:
        grid = _grid(results)
        parts.append(f"<h3>{escape(results.name)}</h3>{table(grid)}")
        _write_tables(results, grid, about, folder / "tables")
        published = paper_grid(experiment.name, results.objective)
        if published is not None:
            parts.append(
                f"<div class='theirs'><h4>For comparison: the paper's own numbers</h4>{table(published)}</div>"
            )
    parts.append(_figure(tables, about, folder / "figures"))
    return "\n".join([*parts, "</section>"])


def _grid(results: Results) -> Grid:
    return gradient_grid(results) if results.experiment.kind == "gradients" else score_grid(results)


def _write_tables(results: Results, grid: Grid, about: About, folder: Path) -> None:
    name = f"{results.experiment.name}-{_slug(results.backbone)}-{results.objective}"
    stated = Grid(grid.columns, grid.rows, (_stated(about), *grid.below))
    (folder / f"{name}.md").write_text(f"{stated.render(Format.MARKDOWN)}\n", encoding="utf-8")
    (folder / f"{name}.tex").write_text(f"{stated.render(Format.LATEX)}\n", encoding="utf-8")
    if results.experiment.kind == "gradients":
        rows = [["row", *grid.columns], *([name, *(entry.text for entry in entries)] for name, entries in grid.rows)]
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    else:
        compared = Comparison(tuple(results.columns), cells(results, results.columns), results.experiment.base, "")
        (folder / f"{name}.csv").write_text(f"{comparison_csv(compared)}\n", encoding="utf-8")


def _figure(tables: Sequence[Results], about: About, folder: Path) -> str:
    from s2sent.experiments.pictures import draw

    experiment = tables[0].experiment
    try:
        figure = draw(tables)
    except ConfigError as error:  # no matplotlib: the tables are worth having
        return f"<p class='note'>{escape(str(error))}</p>"
    if figure is None:
        return ""
    figure.text(0.995, 0.005, f"profile {about.profile.name}", ha="right", va="bottom", fontsize=6, color="0.5")
    figure.savefig(folder / f"{experiment.name}.svg")
    figure.savefig(folder / f"{experiment.name}.png", dpi=160)
    return picture(figure, f"{experiment.title}, profile {about.profile.name}")


def _stated(about: About) -> str:
    return f"Profile {about.profile.name}: {about.profile.what}."


def _badge(about: About) -> str:
    return f"<span class='badge {escape(about.profile.name)}'>profile {escape(about.profile.name)}</span>"


def _head(tables: Sequence[Results], about: About, begun: Iterable[Experiment], waiting: Iterable[str]) -> str:
    records = [record for results in tables for record in results.finished]
    parts = [f"<p class='banner {escape(about.profile.name)}'><b>Profile {escape(about.profile.name)}</b>: "]
    parts.append(f"{escape(about.profile.what)}.</p>")
    state = f"{about.done} of {about.total} runs are finished."
    if about.done < about.total:
        state += " What is missing shows as “…”; the same command goes on."
    parts.append(f"<p>{state}</p>")
    if about.failed:
        rows = "".join(f"<li>{escape(run)}: {escape(error)}</li>" for run, error in about.failed.items())
        parts.append(f"<details><summary>{len(about.failed)} runs failed</summary><ul>{rows}</ul></details>")
    parts.append(f"<pre>{escape(about.command)}</pre>")
    parts.append(facts(_facts(records, about)))
    if names := ", ".join(f"<code>{escape(name)}</code>" for name in waiting):
        parts.append(f"<p>Nothing is finished yet of {names}.</p>")
    links = [f"<a href='#{experiment.name}'>{escape(experiment.title)}</a>" for experiment in begun]
    return "\n".join([*parts, f"<nav>{' · '.join(links)}</nav>"])


def _facts(records: Sequence[dict[str, Any]], about: About) -> dict[str, str]:
    """Versions, machines and sizes, each said once however many runs had them."""
    said: dict[str, dict[str, None]] = {}
    for record in records:
        backbone = record["backbone"]
        versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
        machine = record["machine"]
        found = {"Backbone": f"{backbone['name']} ({backbone['depth']} blocks)", "Versions": versions}
        found["Machine"] = f"{machine.get('gpu', machine['cpu'])}, {machine['cores']} cores"
        if recipe := record["description"].get("recipe"):
            steps = f"{recipe['steps']} steps" if "steps" in recipe else f"{recipe['epochs']} epoch"
            found["Training"] = f"{steps} of {recipe['batch_size']} sentences, {recipe['max_length']} tokens"
        for name, value in found.items():
            said.setdefault(name, {})[value] = None
    told = {name: "; ".join(values) for name, values in said.items()}
    scored = {task for record in records for task in record.get("samples", {})}
    thin = [f"{task} 1 in {number}" for task, number in about.profile.every.items() if number > 1 and task in scored]
    if thin:
        thin.append(f"STS-B dev 1 in {about.profile.dev_every}")
        told["Scored on"] = f"a part of the samples: {', '.join(thin)}; the others whole"
    hours = sum(record["seconds"]["total"] for record in {record["key"]: record for record in records}.values()) / 3600
    return told | {"Time": f"{hours:.1f} hours for the finished runs"}


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
