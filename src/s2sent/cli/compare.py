"""`s2sent compare`: several models, or several runs of each, with the paper's marks."""

import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from s2sent.cli.evaluate import AggregationOption, Cache, Data, Density, FormatOption, Output, Probes, Tasks, TextOption
from s2sent.cli.progress import Bar
from s2sent.cli.screen import check_output, deliver
from s2sent.data.senteval import Text, task_names
from s2sent.errors import ConfigError
from s2sent.evaluation.result import Aggregation, Report
from s2sent.figures import check_figure_path, save_figure
from s2sent.model.folder import find_folder
from s2sent.report.tables import Format, frame_csv, table_of, to_json
from s2sent.untrusted import exists


def compare(
    models: Annotated[
        list[str],
        typer.Argument(help="Models: PATH, NAME=PATH, NAME=PATH,PATH,... or a folder with one model folder per seed."),
    ],
    baseline: Annotated[str | None, typer.Option(help="Test every other method against this one.")] = None,
    tasks: Tasks = "sts",
    data: Data = None,
    text: TextOption = Text.FILE,
    aggregation: AggregationOption = Aggregation.ALL,
    probes: Probes = "default",
    style: FormatOption = Format.TABLE,
    output: Output = None,
    cache: Cache = True,
    level: Annotated[float, typer.Option(help="Differences with a (corrected) p below this are marked.")] = 0.05,
    resamples: Annotated[int, typer.Option(help="Resamples of the bootstrap when methods are single models.")] = 1000,
    density: Density = None,
) -> None:
    """Put models side by side: bold is best, underlined is better than the baseline by more than chance.

    Several runs of each method are tested seed by seed (paired t-test); single models by a bootstrap over samples;
    many comparisons are corrected (Holm). The table says which.
    """
    check_output(output)
    if density is not None:
        check_figure_path(density)
    from s2sent.evaluation.comparison import Method, check_design
    from s2sent.evaluation.comparison import compare as run_compare
    from s2sent.evaluation.suite import evaluate as run_suite
    from s2sent.report.figures import Panel, densities

    chosen = [parse_method(item) for item in models]
    check_design([(one.name, len(one.paths)) for one in chosen], baseline, level=level, resamples=resamples)
    _check_pairs(chosen, baseline)
    names = task_names(tasks)
    methods: list[Method] = []
    panels: list[Panel] = []
    for one in chosen:
        reports: list[Report] = []
        for path in one.paths:
            title = one.name if len(one.paths) == 1 else f"{one.name}/{Path(path).name}"
            with Bar(title) as bar:
                common: dict[str, Any] = {"data": data, "text": text, "cache": cache, "name": title, "listener": bar}
                report = run_suite(path, names, aggregation=aggregation, probes=probes, **common)
                if density is not None and not reports:  # of several runs the first is drawn
                    stsb = report if "STS-B" in names else run_suite(path, "STS-B", **common)
                    panels.append(Panel.of(one.name, stsb["STS-B"]))
            reports.append(report)
        methods.append(Method(one.name, tuple(reports)))
    full = style in (Format.CSV, Format.JSON)  # which hold intervals, where a table has no room for them
    frame = run_compare(methods, baseline, level=level, resamples=resamples, intervals=full)
    if style is Format.JSON:
        deliver(to_json(frame.to_dict()), output)
    else:
        deliver(frame_csv(frame) if style is Format.CSV else table_of(frame).render(style), output)
    if density is not None:
        save_figure(densities(panels), density)
        typer.echo(f"{density}", err=True)


class Wanted(NamedTuple):
    """A method of the command line."""

    name: str
    paths: list[str]
    listed: bool
    """Whether its runs were named one by one, so that their order is the user's."""


def parse_method(item: str) -> Wanted:
    """Return a method's name and its model folders from `PATH`, `NAME=PATH` or `NAME=PATH,PATH,...`.

    A folder that is no model itself but holds model folders stands for those, in the order of their names (seeds).

    Raises:
        ConfigError: no model is named.
        ModelError: a folder does not exist.
    """
    name, equals, rest = item.partition("=")
    if not equals or exists(Path(item)):
        name, rest = "", item
    given = [path for path in rest.split(",") if path] if equals else [rest]
    paths = [run for path in given for run in _runs(path)]
    if not paths:
        raise ConfigError(f"{item!r} names no model: give PATH, NAME=PATH or NAME=PATH,PATH,...")
    title = name or (Path(given[0]).resolve().name if exists(Path(given[0])) else given[0])
    return Wanted(title, paths, listed=paths == given)


def _runs(path: str) -> list[str]:
    folder = find_folder(path)
    if folder is None or _is_model(folder):
        return [path]
    inner = sorted((child for child in folder.iterdir() if child.is_dir() and _is_model(child)), key=_natural)
    if not inner:
        raise ConfigError(f"{path} is no model folder and holds none: neither modules.json nor config.json is there.")
    return [str(child) for child in inner]


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("modules.json", "config.json"))


def _natural(folder: Path) -> list[int | str]:
    """Sort `seed-2` before `seed-10`."""
    parts = re.split(r"([0-9]+)", folder.name)  # text and digits take turns, so that like is compared with like
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def _check_pairs(chosen: list[Wanted], baseline: str | None) -> None:
    """Raise unless runs that would be tested against each other belong together, as far as their names tell."""
    if baseline is None:
        return
    base = next(one for one in chosen if one.name == baseline)
    theirs = [Path(path).name for path in base.paths]
    for one in chosen:
        ours = [Path(path).name for path in one.paths]
        if len(ours) > 1 and ours != theirs and not (one.listed and base.listed):
            raise ConfigError(
                f"Runs are compared seed by seed, but {one.name} has {', '.join(ours)} and {base.name} "
                f"{', '.join(theirs)}. Name them alike, or list them in the order they belong together: "
                "NAME=PATH,PATH,..."
            )
