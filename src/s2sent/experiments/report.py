"""The report of experiments: one html file that needs nothing else, and its tables and figures as files of their own.

FOLDER/index.html
FOLDER/tables/<experiment>-<backbone>-<objective>.md .tex .csv, and all.csv with every number of every run
FOLDER/figures/<experiment>.png .svg
FOLDER/.files.json: their names, so that the next report removes those that it does not write
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from s2sent.atomic import atomic_file
from s2sent.errors import ConfigError
from s2sent.experiments.catalogue import Experiment, Profile
from s2sent.experiments.plan import TRAINED, Settings, scale_blocks
from s2sent.experiments.results import RUN_COLUMNS, Results, figure_of, frame_of, paper_table, run_rows, table_of
from s2sent.experiments.store import Record
from s2sent.figures import drawn
from s2sent.report.page import Picture, render
from s2sent.report.tables import Table, frame_csv, to_csv
from s2sent.untrusted import read_json

Files = dict[str, bytes]
"""The files of a report, by their place in the folder."""


@dataclass(frozen=True)
class About:
    """What holds for all numbers of a report.

    Attributes:
        profile: The profile.
        changes: In what the runs differ from the profile.
        command: The command that gives them, without paths of this machine.
        total: How many runs there are.
        done: How many of them are finished.
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
        """The profile in a sentence, and in what the runs differ from it."""
        changed = f" Changed: {', '.join(self.changes)}." if self.changes else ""
        return f"Profile {self.profile.name}: {self.profile.what}.{changed}"


def changes_of(settings: Settings) -> list[str]:
    """Return in what settings differ from their profile, except for the seeds, whose number is in every table."""
    profile = settings.profile
    names = sorted(backbone.name for backbone in settings.backbones)
    usual = sorted(Path(name).name for name in profile.backbones)
    changes = [f"backbone {', '.join(names)}"] if names != usual and usual != ["embedded"] else []
    return changes + [
        f"{name.replace('_', ' ')} {value}"
        for name, value in sorted(settings.recipe.items())
        if value != profile.recipe.get(name)
    ]


@dataclass(frozen=True)
class Section:
    """An experiment in the report.

    Attributes:
        experiment: The experiment.
        tables: Title, table, and the paper's own numbers if there are any.
        picture: The figure, why there is none, or None.
    """

    experiment: Experiment
    tables: Sequence[tuple[str, Table, Table | None]]
    picture: Picture | str | None


def write_report(tables: Sequence[Results], about: About, folder: Path) -> Path:
    """Write everything, each file whole; return the html file's path. Files of an earlier report are removed."""
    files: Files = {"tables/all.csv": f"{to_csv(run_rows(tables), RUN_COLUMNS)}\n".encode()}
    by_name: dict[str, list[Results]] = {}
    for results in tables:
        by_name.setdefault(results.experiment.name, []).append(results)
    begun = [group for group in by_name.values() if any(results.begun for results in group)]
    waiting = [name for name, group in by_name.items() if group not in begun]
    sections = [_section(group, about, files) for group in begun]
    html = render(
        "reproduction.html",
        title="S²Sent, rerun",
        about=about,
        facts=_facts(tables, about),
        waiting=waiting,
        sections=sections,
    )
    _replace(folder, {**files, "index.html": html.encode()})
    return folder / "index.html"


def _section(tables: Sequence[Results], about: About, files: Files) -> Section:
    experiment = tables[0].experiment
    shown = []
    for results in tables:
        table = _with_depth(table_of(results), results, about.profile)
        shown.append((results.name, table, paper_table(experiment.name, results.objective)))
        place = f"tables/{experiment.name}-{_slug(results.backbone)}-{results.objective}"
        stated = replace(table, notes=(about.statement, *table.notes))
        files[f"{place}.md"] = f"{stated.markdown()}\n".encode()
        files[f"{place}.tex"] = f"{stated.latex()}\n".encode()
        files[f"{place}.csv"] = f"{_csv(results, table, about)}\n".encode()
    return Section(experiment, shown, _picture(tables, about, files))


def _with_depth(table: Table, results: Results, profile: Profile) -> Table:
    """Return the table with a note where numbers of blocks were scaled to the backbone."""
    records = (*results.finished, *results.cost.values())
    depth = records[0]["backbone"]["depth"] if records else profile.depth
    numbers = sorted({row.blocks for row in results.experiment.rows if isinstance(row.blocks, int)})
    scaled = {number: scale_blocks(number, profile.depth, depth) for number in numbers}
    if all(number == here for number, here in scaled.items()):
        return table
    said = ", ".join(f"{number} stands for {here}" for number, here in scaled.items())
    return replace(table, notes=(*table.notes, f"The backbone has {depth} blocks: of last blocks {said}."))


def _csv(results: Results, table: Table, about: About) -> str:
    if results.experiment.kind != "gradients":
        return frame_csv(frame_of(results), {"profile": about.label})
    entries = [(row, [entry.text for entry in entries]) for row, entries in table.rows]
    return to_csv(
        [{"profile": about.label, "row": row, **dict(zip(table.columns, texts, strict=True))} for row, texts in entries]
    )


def _picture(tables: Sequence[Results], about: About, files: Files) -> Picture | str | None:
    experiment = tables[0].experiment
    try:
        figure = figure_of(tables)
    except ConfigError as error:  # no matplotlib: the tables are worth having
        return str(error)
    if figure is None:
        return None
    figure.text(0.995, 0.995, about.label, ha="right", va="top", fontsize=6, color="0.5")
    for kind in ("svg", "png"):
        files[f"figures/{experiment.name}.{kind}"] = drawn(figure, kind)
    return Picture(figure, f"{experiment.title}, {about.label}")


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


def _facts(tables: Sequence[Results], about: About) -> dict[str, str]:
    """Return versions, machines and sizes, each once however many runs had them."""
    records = [record for results in tables for record in results.finished]
    values: dict[str, dict[str, None]] = {}
    for record in records:
        backbone, recipe = record["backbone"], record["description"]["recipe"]
        found = {
            "Backbone": f"{backbone['name']} ({backbone['depth']} blocks)",
            "Versions": ", ".join(f"{name} {number}" for name, number in record["versions"].items()),
            "Machine": _machine(record),
        }
        if record["description"]["kind"] in TRAINED:
            steps = f"{recipe['steps']} steps" if "steps" in recipe else f"{recipe['epochs']} epoch"
            tokens = f", {recipe['max_length']} tokens" if "max_length" in recipe else ""
            found["Training"] = f"{steps} of {recipe['batch_size']} examples{tokens}, {recipe['precision']}"
            if "corpus" in record:  # the oldest records have none
                found["Text"] = ", ".join(record["corpus"])
        for name, value in found.items():
            values.setdefault(name, {})[value] = None
    for record in [record for results in tables for record in results.cost.values()]:
        measured = f"{_machine(record)}, {record['machine']['threads']} threads"
        values.setdefault("Latency measured on", {})[measured] = None
    facts = {name: "; ".join(found) for name, found in values.items()}
    scored = {task for record in records for task in record.get("samples", {})}
    thin = [f"{task} 1 in {number}" for task, number in about.profile.every.items() if number > 1 and task in scored]
    if thin:
        thin.append(f"STS-B dev 1 in {about.profile.dev_every}")
        facts["Scored on"] = f"a part of the samples: {', '.join(thin)}; the others whole"
    hours = sum(record["seconds"]["total"] for record in {record["key"]: record for record in records}.values()) / 3600
    return facts | {"Time": f"{hours:.1f} hours for the finished runs"}


def _machine(record: Record) -> str:
    machine = record["machine"]
    return f"{machine.get('gpu', machine['cpu'])}, {machine['cores']} cores"


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
