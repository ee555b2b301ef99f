"""The report: one html file that needs nothing else, and its tables and figures as files of their own.

FOLDER/index.html
FOLDER/tables/<experiment>-<backbone>-<objective>.md .tex .csv, and all.csv with every score of every run
FOLDER/figures/<experiment>.png .svg
FOLDER/.files.json: their names, so that the next report removes those that it does not write
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path

from s2sent.atomic import atomic_file
from s2sent.errors import ConfigError
from s2sent.evaluation.comparison import Comparison
from s2sent.evaluation.page import facts, page, picture, table
from s2sent.evaluation.report import Format, Grid, comparison_csv
from s2sent.experiments.catalogue import Experiment, Profile
from s2sent.experiments.plan import TRAINED, Settings, scale_blocks
from s2sent.experiments.published import paper_grid
from s2sent.experiments.store import Record
from s2sent.experiments.tables import Results, cells, gradient_grid, score_grid, scores_csv
from s2sent.untrusted import read_json

Files = dict[str, bytes]
"""What a report consists of, by its place in the folder."""


@dataclass(frozen=True)
class About:
    """What a reader must know of all numbers.

    Attributes:
        profile: The profile.
        changes: In what the runs are not the profile's, so that none is taken for it.
        command: The command that gives them, without places of this machine.
        total, done: How many runs there are, and how many are finished.
        failed: Runs that failed, with their errors.
    """

    profile: Profile
    changes: Sequence[str]
    command: str
    total: int
    done: int
    failed: Sequence[tuple[str, str]]

    @property
    def label(self) -> str:
        """The profile in two or three words."""
        return f"profile {self.profile.name}{', changed' if self.changes else ''}"

    @property
    def statement(self) -> str:
        """The profile in a sentence, and in what the runs are not it."""
        changed = f" Changed: {', '.join(self.changes)}." if self.changes else ""
        return f"Profile {self.profile.name}: {self.profile.what}.{changed}"


def changes_of(settings: Settings) -> list[str]:
    """In what a person's settings are not their profile's, but for the seeds, whose number is in every table."""
    profile = settings.profile
    names = sorted(backbone.name for backbone in settings.backbones)
    usual = sorted(Path(name).name for name in profile.backbones)
    changes = [f"backbone {', '.join(names)}"] if names != usual and usual != ["embedded"] else []
    return changes + [
        f"{name.replace('_', ' ')} {value}"
        for name, value in sorted(settings.recipe.items())
        if value != profile.recipe.get(name)
    ]


def write_report(tables: Sequence[Results], about: About, folder: Path) -> Path:
    """Write everything, each file whole; return the html file's path. What an earlier report left is removed."""
    files: Files = {}
    begun = {results.experiment.name: results.experiment for results in tables if results.begun}
    waiting = dict.fromkeys(results.experiment.name for results in tables if results.experiment.name not in begun)
    parts = [_head(tables, about, begun.values(), waiting)]
    for experiment in begun:
        parts.append(_section([results for results in tables if results.experiment.name == experiment], about, files))
    files["tables/all.csv"] = scores_csv(tables).encode()
    files["index.html"] = page("S²Sent, rerun", "\n".join(parts)).encode()
    _replace(folder, files)
    return folder / "index.html"


def _replace(folder: Path, files: Mapping[str, bytes]) -> None:
    listed = folder / ".files.json"
    try:
        for name in ("tables", "figures"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        earlier = read_json(listed) if listed.exists() else []
    except (OSError, ValueError) as error:
        raise ConfigError(f"The report cannot be written to {folder}: {error}.") from error
    names = sorted(files)
    for name, content in {**files, listed.name: json.dumps(names, indent=1).encode()}.items():
        with atomic_file(folder / name) as file:
            file.write(content)
    for name in set(earlier) - set(names):
        with suppress(OSError):  # it is there no more, or not ours to remove
            (folder / name).unlink()


def _section(tables: Sequence[Results], about: About, files: Files) -> str:
    experiment = tables[0].experiment
    where = f"in the paper: {experiment.where}" if experiment.where else "not in the paper"
    parts = [f"<section id='{experiment.name}'><h2>{escape(experiment.title)}</h2>"]
    badge = f"<span class='badge'>{escape(about.label)}</span>"
    parts.append(f"<p class='where'><code>{experiment.name}</code> · {escape(where)} · {badge}</p>")
    for results in tables:
        grid = _grid(results, about.profile)
        parts.append(f"<h3>{escape(results.name)}</h3>{table(grid)}")
        _add_tables(results, grid, about, files)
        published = paper_grid(experiment.name, results.objective)
        if published is not None:
            parts.append(
                f"<div class='theirs'><h4>For comparison: the paper's own numbers</h4>{table(published)}</div>"
            )
    parts.append(_figure(tables, about, files))
    return "\n".join([*parts, "</section>"])


def _grid(results: Results, profile: Profile) -> Grid:
    grid = gradient_grid(results) if results.experiment.kind == "gradients" else score_grid(results)
    records = (*results.finished, *results.cost.values())
    depth = records[0]["backbone"]["depth"] if records else profile.depth
    numbers = sorted({row.blocks for row in results.experiment.rows if isinstance(row.blocks, int)})
    scaled = [(number, scale_blocks(number, profile.depth, depth)) for number in numbers]
    if all(number == here for number, here in scaled):
        return grid
    said = ", ".join(f"{number} stands for {here}" for number, here in scaled)
    return Grid(grid.columns, grid.rows, (*grid.below, f"The backbone has {depth} blocks: of last blocks {said}."))


def _add_tables(results: Results, grid: Grid, about: About, files: Files) -> None:
    place = f"tables/{results.experiment.name}-{_slug(results.backbone)}-{results.objective}"
    stated = Grid(grid.columns, grid.rows, (about.statement, *grid.below))
    files[f"{place}.md"] = f"{stated.render(Format.MARKDOWN)}\n".encode()
    files[f"{place}.tex"] = f"{stated.render(Format.LATEX)}\n".encode()
    if results.experiment.kind == "gradients":
        buffer = io.StringIO()
        rows = [[about.label, name, *(entry.text for entry in entries)] for name, entries in grid.rows]
        csv.writer(buffer, lineterminator="\n").writerows([["profile", "row", *grid.columns], *rows])
        text = buffer.getvalue()
    else:
        compared = Comparison(tuple(results.columns), cells(results, results.columns), results.experiment.base, "")
        text = f"{comparison_csv(compared, {'profile': about.label})}\n"
    files[f"{place}.csv"] = text.encode()


def _figure(tables: Sequence[Results], about: About, files: Files) -> str:
    from s2sent.experiments.pictures import draw
    from s2sent.figures import drawn

    experiment = tables[0].experiment
    try:
        figure = draw(tables)
    except ConfigError as error:  # no matplotlib: the tables are worth having
        return f"<p class='note'>{escape(str(error))}</p>"
    if figure is None:
        return ""
    figure.text(0.995, 0.995, about.label, ha="right", va="top", fontsize=6, color="0.5")
    for kind in ("svg", "png"):
        files[f"figures/{experiment.name}.{kind}"] = drawn(figure, kind)
    return picture(figure, f"{experiment.title}, {about.label}")


def _head(tables: Sequence[Results], about: About, begun: Iterable[Experiment], waiting: Iterable[str]) -> str:
    records = [record for results in tables for record in results.finished]
    parts = [f"<p class='banner'>{escape(about.statement)}</p>"]
    state = f"{about.done} of {about.total} runs are finished."
    if about.done < about.total:
        state += " What is missing shows as “…”; the same command goes on."
    parts.append(f"<p>{state}</p>")
    if about.failed:
        rows = "".join(f"<li>{escape(run)}: {escape(error)}</li>" for run, error in about.failed)
        parts.append(f"<details><summary>{len(about.failed)} runs failed</summary><ul>{rows}</ul></details>")
    parts.append(f"<pre>{escape(about.command)}</pre>")
    parts.append(facts(_facts(records, [record for results in tables for record in results.cost.values()], about)))
    if names := ", ".join(f"<code>{escape(name)}</code>" for name in waiting):
        parts.append(f"<p>Nothing is finished yet of {names}.</p>")
    links = [f"<a href='#{experiment.name}'>{escape(experiment.title)}</a>" for experiment in begun]
    return "\n".join([*parts, f"<nav>{' · '.join(links)}</nav>"])


def _facts(records: Sequence[Record], costs: Sequence[Record], about: About) -> dict[str, str]:
    """Versions, machines and sizes, each said once however many runs had them."""
    said: dict[str, dict[str, None]] = {}
    for record in records:
        backbone = record["backbone"]
        versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
        found = {"Backbone": f"{backbone['name']} ({backbone['depth']} blocks)", "Versions": versions}
        found["Machine"] = _machine(record)
        recipe = record["description"]["recipe"]
        if record["description"]["kind"] in TRAINED:
            steps = f"{recipe['steps']} steps" if "steps" in recipe else f"{recipe['epochs']} epoch"
            tokens = f", {recipe['max_length']} tokens" if "max_length" in recipe else ""
            size = f"{recipe['batch_size']} examples{tokens}, {recipe['precision']}"
            found["Training"] = f"{steps} of {size}"
            if "corpus" in record:  # the oldest records have none
                found["Text"] = ", ".join(record["corpus"])
        for name, value in found.items():
            said.setdefault(name, {})[value] = None
    for record in costs:
        said.setdefault("Latency measured on", {})[f"{_machine(record)}, {record['machine']['threads']} threads"] = None
    told = {name: "; ".join(values) for name, values in said.items()}
    scored = {task for record in records for task in record.get("samples", {})}
    thin = [f"{task} 1 in {number}" for task, number in about.profile.every.items() if number > 1 and task in scored]
    if thin:
        thin.append(f"STS-B dev 1 in {about.profile.dev_every}")
        told["Scored on"] = f"a part of the samples: {', '.join(thin)}; the others whole"
    hours = sum(record["seconds"]["total"] for record in {record["key"]: record for record in records}.values()) / 3600
    return told | {"Time": f"{hours:.1f} hours for the finished runs"}


def _machine(record: Record) -> str:
    machine = record["machine"]
    return f"{machine.get('gpu', machine['cpu'])}, {machine['cores']} cores"


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
