"""``s2sent evaluate``: one model, SentEval's numbers."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from s2sent.cli.output import deliver
from s2sent.cli.progress import Bar
from s2sent.data.senteval import TRANSFER_TASKS
from s2sent.data.sts import STSTask, Text
from s2sent.data.tasks import Source, task_names
from s2sent.errors import ConfigError
from s2sent.evaluation.report import Format, blocks_grid, report_csv, report_grid, to_json
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

    Finished tasks are kept: a run that was stopped goes on where it was, and a second run is instant.
    """
    names = task_names(tasks)
    for picture in (density, scatter):
        if picture is not None:
            check_figure_path(picture)
    if per_block:
        if shape or density or scatter:
            raise ConfigError(
                "--per-block looks at a backbone, the pictures and --geometry at a model. Ask one by one."
            )
        _per_block(model, names, data, text, style, output)
        return
    from s2sent.evaluation.figures import Panel, density_figure, scatter_figure
    from s2sent.evaluation.suite import evaluate as run_suite

    with Bar(name or "") as bar:
        report = run_suite(
            model,
            names,
            data=data,
            text=text,
            aggregation=aggregation,
            probes=probes,
            cache=cache,
            name=name,
            listener=bar,
        )
        pictured = report
        if (density or scatter) and "STS-B" not in names:
            pictured = run_suite(model, "STS-B", data=data, text=text, cache=cache, name=name, listener=bar)
        found = _geometry(model, data, text, bar) if shape else None
    deliver(_written(report, style, interval, found), output)
    if style is Format.TABLE and output is None:
        typer.echo(described(report))
    for path, draw in ((density, density_figure), (scatter, scatter_figure)):
        if path is not None:
            draw([Panel.of(pictured.model, pictured["STS-B"])], path)
            typer.echo(f"{path}", err=True)


def described(report: Report) -> str:
    """How these scores were computed, on one line."""
    parts = [f"STS: Spearman × 100, {report.aggregation.value}, text {report.text}."]
    if any(result.task in TRANSFER_TASKS for result in report.results):
        parts.append(f"Transfer: accuracy, {report.probes} probes.")
    samples = ", ".join(f"{result.task} {result.samples:,}" for result in report.results)
    return " ".join([*parts, f"Samples: {samples}."])


def _written(report: Report, style: Format, interval: bool, found: "Geometry | None") -> str | RenderableType:
    intervals = None
    if interval:
        from s2sent.evaluation.comparison import Method, compare

        (cells,) = compare([Method(report.model, (report,))]).rows.values()
        intervals = {column: (cell.low or 0.0, cell.high or 0.0) for column, cell in cells.items()}
    if style is Format.JSON:
        values = report.to_dict()
        if intervals is not None:
            values["intervals"] = {column: list(pair) for column, pair in intervals.items()}
        if found is not None:
            values["geometry"] = asdict(found)
        return to_json(values)
    if style is Format.CSV:
        return report_csv([report])
    return report_grid(report, intervals).render(style)


def _geometry(model: str, data: str | None, text: Text, bar: Bar) -> "Geometry":
    from s2sent.evaluation.encoder import Vectors, as_encoder
    from s2sent.evaluation.geometry import geometry

    task = Source(data, text).read("STS-B")
    assert isinstance(task, STSTask)
    vectors = Vectors(as_encoder(model))
    sentences = list(task.sentences())
    bar.encoding(len(vectors.missing(sentences)))
    vectors.add(sentences, bar.encoded)
    found = geometry(task, vectors)
    bar.progress.console.print(
        f"alignment {found.alignment:.3f} ({found.close_pairs} close pairs), uniformity {found.uniformity:.3f}, "
        f"anisotropy {found.anisotropy:.3f} ({found.sentences:,} sentences of STS-B)",
        highlight=False,
    )
    return found


def _per_block(
    model: str, names: tuple[str, ...], data: str | None, text: Text, style: Format, output: Path | None
) -> None:
    from s2sent.evaluation.blocks import score_blocks
    from s2sent.evaluation.encoder import load_model

    source = Source(data, text)
    tasks = [
        task
        for task in (source.read(name) for name in names if name not in TRANSFER_TASKS)
        if isinstance(task, STSTask)
    ]
    if not tasks:
        raise ConfigError("--per-block scores STS tasks; --tasks names none.")
    loaded = load_model(model)
    with Bar() as bar:
        bar.encoding(len({sentence for task in tasks for sentence in task.sentences()}))
        blocks = score_blocks(loaded, tasks, bar.encoded)
    grid = blocks_grid(blocks)
    if style is Format.JSON:
        table = {name: {result.task: result.headline() for result in results} for name, results in blocks.items()}
        samples = {task.name: len(task) for task in tasks}
        values = {"model": model, "text": text.value, "samples": samples, "notes": grid.below, "blocks": table}
        deliver(to_json(values), output)
    elif style is Format.CSV:
        lines = [f"{name},{result.task},{result.headline()}" for name, results in blocks.items() for result in results]
        deliver("\n".join(["block,task,score", *lines]), output)
    else:
        deliver(grid.render(style), output)
