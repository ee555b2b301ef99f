"""`s2sent reproduce`: the paper's tables and figures, rerun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from s2sent.cli.engine import Engine
from s2sent.cli.options import options_of, parse, with_options
from s2sent.cli.screen import console, errors
from s2sent.experiments.options import ReproduceOptions
from s2sent.options import help_texts

if TYPE_CHECKING:
    from s2sent.experiments.reproduce import Reproduction


@with_options(options_of([ReproduceOptions], skip=("experiments",), short={"backbone": "b"}))
def reproduce(
    experiments: Annotated[list[str] | None, typer.Argument(help=help_texts(ReproduceOptions)["experiments"])] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the runs, which are done, and the time left.")] = False,
    report_only: Annotated[
        bool,
        typer.Option("--report-only", help="Write the report from the store alone: no weights or data are needed."),
    ] = False,
    engine: Annotated[Engine, typer.Option(help="On this machine, or as tasks of a Ray cluster.")] = Engine.LOCAL,
    budget: Annotated[str | None, typer.Option(help="Start no run after this time: 2h, 90m.")] = None,
    **options: Any,
) -> None:
    """Rerun the paper's tables and figures, and ours beside them, with error bars.

    Killed and started again, it does what is missing. Several processes may share a store: none does another's run.
    """
    from s2sent.experiments.reproduce import Reproduction
    from s2sent.experiments.runner import parse_duration

    seconds = None if budget is None else parse_duration(budget)
    chosen = ReproduceOptions(experiments=tuple(experiments or ()), **parse([ReproduceOptions], options))
    job = Reproduction(chosen, "report" if report_only else "list" if show else "run")
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
    done = sum(job.store.has(run.key) for run in job.runs)
    text = f"{done} of {len(job.runs)} runs are done"
    if outcome.failed:
        text += f", {len(outcome.failed)} failed (see {job.store.failures}); the same command tries them again"
    if outcome.out_of_time:
        text += "; the time is up, and the same command does the others"
    console.print(escape(f"{text}."), soft_wrap=True)
    return bool(outcome.failed)


def _show_list(job: Reproduction) -> None:
    """Print every row of every experiment with the state of its seeds, and the sum."""
    from s2sent.experiments.runner import show_duration, status

    found = status(job.runs, job.store)
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
        f"Profile {job.profile.name}: {len(job.runs)} runs for {len(job.places)} places in tables; "
        f"{len(found.done)} done, {len(found.missing)} missing, of which {len(found.failed)} failed the last time.",
        soft_wrap=True,
    )
    console.print(f"Time left: {left}.")
