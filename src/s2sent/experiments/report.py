"""The report: one html file that needs nothing else, and its tables and figures as files of their own.

FOLDER/index.html
FOLDER/tables/<experiment>-<backbone>-<objective>.md .tex .csv, and all.csv with every score of every run
FOLDER/figures/<experiment>.png .svg
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from s2sent.errors import ConfigError
from s2sent.evaluation.comparison import Comparison
from s2sent.evaluation.report import Entry as Text
from s2sent.evaluation.report import Format, Grid, comparison_csv
from s2sent.experiments.catalogue import Profile
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
    parts = []
    for experiment in dict.fromkeys(results.experiment.name for results in tables):
        own = [results for results in tables if results.experiment.name == experiment]
        parts.append(_section(own, about, folder))
    (folder / "tables" / "all.csv").write_text(scores_csv(tables), encoding="utf-8")
    page = folder / "index.html"
    page.write_text(_PAGE.format(style=_STYLE, head=_head(tables, about), body="\n".join(parts)), encoding="utf-8")
    return page


def _section(tables: Sequence[Results], about: About, folder: Path) -> str:
    experiment = tables[0].experiment
    where = f"in the paper: {experiment.where}" if experiment.where else "not in the paper"
    parts = [f"<section id='{experiment.name}'><h2>{escape(experiment.title)}</h2>"]
    parts.append(f"<p class='where'><code>{experiment.name}</code> · {escape(where)} · {_badge(about)}</p>")
    for results in tables:
        grid = _grid(results)
        parts.append(f"<h3>{escape(results.name)}</h3>{_html(grid)}")
        _write_tables(results, grid, about, folder / "tables")
        published = paper_grid(experiment.name, results.objective)
        if published is not None:
            parts.append(
                f"<div class='theirs'><h4>For comparison: the paper's, on other backbones</h4>{_html(published)}</div>"
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
    if results.experiment.kind == "train":
        table = cells(results, results.columns)
        compared = Comparison(tuple(results.columns), table, results.experiment.base, "")
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
    inline = io.BytesIO()
    figure.savefig(inline, format="svg")
    figure.savefig(folder / f"{experiment.name}.svg")
    figure.savefig(folder / f"{experiment.name}.png", dpi=160)
    source = base64.b64encode(inline.getvalue()).decode()
    title = escape(f"{experiment.title}, profile {about.profile.name}", quote=True)
    return f"<figure><div class='wide'><img alt=\"{title}\" src='data:image/svg+xml;base64,{source}'></div></figure>"


def _stated(about: About) -> str:
    return f"Profile {about.profile.name}: {about.profile.what}."


def _badge(about: About) -> str:
    return f"<span class='badge {escape(about.profile.name)}'>profile {escape(about.profile.name)}</span>"


def _head(tables: Sequence[Results], about: About) -> str:
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
    facts = _facts(records, about)
    parts.append("<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items()) + "</dl>")
    names = {results.experiment.name: results.experiment for results in tables}
    links = [f"<a href='#{name}'>{escape(experiment.title)}</a>" for name, experiment in names.items()]
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
    facts = {name: "; ".join(values) for name, values in said.items()}
    scored = {task for record in records for task in record.get("samples", {})}
    thin = [f"{task} 1 in {number}" for task, number in about.profile.every.items() if number > 1 and task in scored]
    if thin:
        thin.append(f"STS-B dev 1 in {about.profile.dev_every}")
        facts["Scored on"] = f"a part of the samples: {', '.join(thin)}; the others whole"
    hours = sum(record["seconds"]["total"] for record in {record["key"]: record for record in records}.values()) / 3600
    return facts | {"Time": f"{hours:.1f} hours for the finished runs"}


def _html(grid: Grid) -> str:
    def marked(entry: Text) -> str:
        text = escape(entry.text).replace(" ± ", "<small> ± ") + ("</small>" if " ± " in entry.text else "")
        text = f"<b>{text}</b>" if entry.best else text
        return f"<u>{text}</u>" if entry.significant else text

    heads = "".join(f"<th>{escape(column)}</th>" for column in ("", *grid.columns))
    rows = [
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{marked(entry)}</td>' for entry in entries)}</tr>"
        for name, entries in grid.rows
    ]
    below = "".join(f"<p class='below'>{escape(text)}</p>" for text in grid.below)
    return (
        f"<div class='wide'><table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{below}"
    )


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


_STYLE = """
:root { color-scheme: light dark; --ink: #1c1917; --soft: #57534e; --line: #d6d3d1; --paper: #fafaf9; --page: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e5e4; --soft: #a8a29e; --line: #44403c; --paper: #292524;
  --page: #1c1917 } img { background: #fff; border-radius: 4px } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 1120px;
  margin: 0 auto; padding: 1rem }
h1 { font-size: 1.7rem; line-height: 1.2 } h2 { margin: 2.5rem 0 0; font-size: 1.35rem }
h3 { margin: 1.4rem 0 .4rem; font-size: 1.05rem } h4 { margin: 0 0 .4rem; font-size: .9rem }
.where, .below, dl { color: var(--soft); font-size: .87rem } .where { margin: .2rem 0 }
.banner { padding: .7rem 1rem; border-left: 5px solid #c2410c; background: var(--paper) }
.banner.paper { border-color: #15803d } .badge { border: 1px solid var(--line); border-radius: 9px; padding: 0 .5em;
  white-space: nowrap }
.wide { overflow-x: auto }
table { border-collapse: separate; border-spacing: 0; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line) }
thead th { vertical-align: bottom; white-space: normal; min-width: 3.6em; color: var(--soft); font-weight: 600 }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--page); font-weight: 500 }
tbody tr:hover td { background: var(--paper) } td small { color: var(--soft) } u { text-underline-offset: 3px }
.theirs { margin: .8rem 0; padding: .7rem 1rem; background: var(--paper); border: 1px dashed var(--line) }
.theirs th:first-child { background: var(--paper) }
pre { white-space: pre-wrap; padding: .7rem 1rem; background: var(--paper); font-size: .82rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem } dd { margin: 0 }
figure { margin: 1rem 0 } figure img { max-width: 100%; min-width: 540px }
@media (max-width: 600px) { th:first-child { white-space: normal; min-width: 7.5em } dl { grid-template-columns: 1fr }
  dt { font-weight: 600 } }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>S²Sent, rerun</title><style>{style}</style></head><body>
<h1>S²Sent, rerun</h1>
{head}
{body}
</body></html>
"""
