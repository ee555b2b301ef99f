"""``s2sent compare``: several models or several runs of each, with the paper's marks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2sent.cli.evaluate import AggregationOption, Cache, Data, Density, FormatOption, Output, Probes, Tasks, TextOption
from s2sent.cli.output import deliver
from s2sent.cli.progress import Bar
from s2sent.data.sts import Text
from s2sent.data.tasks import task_names
from s2sent.errors import ConfigError
from s2sent.evaluation.report import Format, comparison_csv, comparison_grid, to_json
from s2sent.evaluation.result import Aggregation
from s2sent.figures import check_figure_path

if TYPE_CHECKING:
    from s2sent.evaluation.figures import Panel


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
    if density is not None:
        check_figure_path(density)
    chosen = [parse_method(item) for item in models]
    if baseline is not None and baseline not in [name for name, _ in chosen]:
        raise ConfigError(f"The baseline {baseline!r} is none of {', '.join(name for name, _ in chosen)}.")
    from s2sent.evaluation.comparison import Method
    from s2sent.evaluation.comparison import compare as run_compare
    from s2sent.evaluation.figures import Panel, density_figure
    from s2sent.evaluation.suite import evaluate as run_suite

    names = task_names(tasks)
    methods: list[Method] = []
    panels: list[Panel] = []
    for name, paths in chosen:
        reports = []
        for path in paths:
            title = name if len(paths) == 1 else f"{name}/{Path(path).name}"
            with Bar(title) as bar:
                reports.append(
                    run_suite(
                        path,
                        names,
                        data=data,
                        text=text,
                        aggregation=aggregation,
                        probes=probes,
                        cache=cache,
                        name=title,
                        listener=bar,
                    )
                )
                if density is not None and not panels_have(panels, name):
                    pictured = (
                        reports[-1] if "STS-B" in names else run_suite(path, "STS-B", data=data, text=text, cache=cache)
                    )
                    panels.append(Panel.of(name, pictured["STS-B"]))
        methods.append(Method(name, tuple(reports)))
    found = run_compare(methods, baseline, level=level, resamples=resamples)
    if style is Format.JSON:
        deliver(to_json(found.to_dict()), output)
    elif style is Format.CSV:
        deliver(comparison_csv(found), output)
    else:
        deliver(comparison_grid(found).render(style), output)
    if density is not None:
        density_figure(panels, density)
        typer.echo(f"{density}", err=True)


def panels_have(panels: "list[Panel]", name: str) -> bool:
    """Whether a method has its panel already: of several runs the first is drawn."""
    return any(panel.name == name for panel in panels)


def parse_method(item: str) -> tuple[str, list[str]]:
    """A method's name and its model folders from ``PATH``, ``NAME=PATH`` or ``NAME=PATH,PATH,...``.

    A folder that is no model itself but holds model folders stands for those, in the order of their names (seeds).
    """
    name, equals, rest = item.partition("=")
    if not equals or Path(item).exists():
        name, rest = "", item
    given = [path for path in rest.split(",") if path] if equals else [rest]
    paths = [run for path in given for run in _runs(path)]
    if not paths:
        raise ConfigError(f"{item!r} names no model: give PATH, NAME=PATH or NAME=PATH,PATH,...")
    return name or (Path(given[0]).resolve().name if Path(given[0]).exists() else given[0]), paths


def _runs(path: str) -> list[str]:
    folder = Path(path).expanduser()
    if not folder.is_dir() or _is_model(folder):
        return [path]
    inner = sorted((child for child in folder.iterdir() if child.is_dir() and _is_model(child)), key=_natural)
    if not inner:
        raise ConfigError(f"{path} is no model folder and holds none: neither modules.json nor config.json is there.")
    return [str(child) for child in inner]


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("modules.json", "config.json"))


def _natural(folder: Path) -> tuple[int, str]:
    """``seed-2`` before ``seed-10``."""
    digits = "".join(character for character in folder.name if character.isdigit())
    return (int(digits) if digits else -1, folder.name)
