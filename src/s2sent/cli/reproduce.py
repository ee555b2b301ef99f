"""`s2sent reproduce`: the paper's tables and figures, rerun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from s2sent.cli.engine import Engine
from s2sent.cli.screen import console, errors

if TYPE_CHECKING:
    from s2sent.experiments.reproduce import Reproduction

_SIZE, _PLACES = "Size", "Places"


def reproduce(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            help="main, squeeze, blocks-frequencies, reduction, pooling, transfer, density, gradients, beyond, or all."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the runs, which are done, and the time left.")] = False,
    report_only: Annotated[
        bool,
        typer.Option("--report-only", help="Write the report from the store alone: no weights or data are needed."),
    ] = False,
    engine: Annotated[Engine, typer.Option(help="On this machine, or as tasks of a Ray cluster.")] = Engine.LOCAL,
    profile: Annotated[
        str, typer.Option(help="paper (a million sentences, base models) or cpu.", rich_help_panel=_SIZE)
    ] = ("cpu"),
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="How many. Default: the profile's.", rich_help_panel=_SIZE)
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Begin no run after this time: 2h, 90m.", rich_help_panel=_SIZE)
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps. Default: the profile's.", rich_help_panel=_SIZE)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=2, help="Default: the profile's.", rich_help_panel=_SIZE)
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32 (the default) or bf16: train and score in it.", rich_help_panel=_SIZE)
    ] = None,
    backbone: Annotated[
        list[str] | None,
        typer.Option("--backbone", "-b", help="A folder or a name on the hub; also several.", rich_help_panel=_PLACES),
    ] = None,
    corpus: Annotated[
        list[str] | None, typer.Option(help="Text to train on: a sentence a line.", rich_help_panel=_PLACES)
    ] = None,
    store: Annotated[Path, typer.Option(help="The folder of finished runs.", rich_help_panel=_PLACES)] = Path(
        "reproduction/runs"
    ),
    report: Annotated[
        Path | None, typer.Option(help="The report's folder. Default: beside the store.", rich_help_panel=_PLACES)
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="SentEval's folder (default: S2SENT_DATA), hub, or pypi: STS-B alone.", rich_help_panel=_PLACES
        ),
    ] = None,
    catalogue: Annotated[
        Path | None, typer.Option(help="A file with experiments of your own.", rich_help_panel=_PLACES)
    ] = None,
    models: Annotated[
        Path | None, typer.Option(help="Keep trained models here. Default: none is kept.", rich_help_panel=_PLACES)
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="For unfinished runs. Default: in the cache.", rich_help_panel=_PLACES)
    ] = None,
    device: Annotated[str | None, typer.Option(help="Default: the best there is.", rich_help_panel=_PLACES)] = None,
) -> None:
    """Rerun the paper's tables and figures, and ours beside them, with error bars.

    Killed and started again, it does what is missing. Several processes may share a store: none does another's run.
    """
    from s2sent.experiments.reproduce import Reproduction
    from s2sent.experiments.runner import parse_duration

    seconds = None if budget is None else parse_duration(budget)
    job = Reproduction(
        experiments=experiments or [],
        mode="report" if report_only else "list" if show else "run",
        profile=profile,
        backbones=backbone or [],
        corpus=corpus or [],
        data=data,
        seeds=seeds,
        steps=steps,
        batch_size=batch_size,
        precision=precision,
        store=store,
        report=report,
        catalogue=catalogue,
        models=models,
        work=work,
        device=device,
    )
    _ = job.runs  # planned before anything is done, with notes about it
    for note in job.notes:
        errors.print(escape(note), soft_wrap=True)
    if show:
        _show_list(job)
        return
    failed = not report_only and _run(job, engine, seconds)
    console.print(f"Report → {escape(str(job.write_report()))}", soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _run(job: Reproduction, engine: Engine, budget: float | None) -> bool:
    """Do what is missing; return whether a run failed."""
    from s2sent.cli.progress import Bar

    with Bar(stopped="Stopped. Finished runs are kept; the same command does the others.") as bar:
        outcome = job.run(engine.value, budget, bar)
    done = sum(job.records.has(run.key) for run in job.runs)
    text = f"{done} of {len(job.runs)} runs are done"
    if outcome.failed:
        text += f", {len(outcome.failed)} failed (see {job.records.failures}); the same command tries them again"
    if outcome.out_of_time:
        text += "; the time is up, and the same command does the others"
    console.print(escape(f"{text}."), soft_wrap=True)
    return bool(outcome.failed)


def _show_list(job: Reproduction) -> None:
    """Print every row of every experiment with the state of its seeds, and the sum."""
    from s2sent.experiments.runner import show_duration, status

    found = status(job.runs, job.records)
    state = {run.key: "·" for run in job.runs}
    state |= {run.key: "✓" for run in found.done} | {run.key: "✗" for run in found.failed}
    tables: dict[tuple[str, str, str], dict[str, str]] = {}
    for place in job.places:
        if place.run.kind != "cost":
            rows = tables.setdefault((place.experiment, place.backbone, place.objective), {})
            rows[place.row] = rows.get(place.row, "") + state[place.run.key]
    for (experiment, backbone, objective), rows in tables.items():
        console.print(f"[bold]{escape(experiment)}[/] · {escape(backbone)} · {objective}")
        for row, marks in rows.items():
            console.print(f"  {marks}  {escape(row)}")
    console.print("✓ done  ✗ failed  · missing, seed by seed")
    unknown = "unknown until a training run is finished"
    left = unknown if found.seconds_left is None else show_duration(found.seconds_left)
    console.print(
        f"Profile {job.profile}: {len(job.runs)} runs for {len(job.places)} places in tables; {len(found.done)} done, "
        f"{len(found.missing)} missing, of which {len(found.failed)} failed the last time.",
        soft_wrap=True,
    )
    console.print(f"Time left: {left}.")
