"""Someone has an encoder that was made for something else, and text. What do a few minutes of training make of it?

python examples/demo.py [--backbone FOLDER_OR_NAME] [--corpus FILE] [--steps 40] [--folder demo]

The backbone is a DistilBERT that others tuned to tag grammar errors (see grammar_tagger.py), the text the sentences of
STS-B's training split without their scores; both come from the package registry. It is trained twice, in the same way
and for as long: pooled from its last block, as everybody does, and with the selector. STS-B's other splits, which
neither has seen, tell what came of it. Everything ends in FOLDER/report.html; a second start goes on where the first
one stopped.
"""

from __future__ import annotations

import argparse
import csv
import platform
import shlex
import sys
import time
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.console import Console
from sentence_transformers import SentenceTransformer
from transformers.utils import logging

import grammar_tagger
import s2sent
from s2sent.cli import mistakes_in_a_line
from s2sent.cli.progress import Bar
from s2sent.cli.train_screen import Screen
from s2sent.data.cache import cache_folder
from s2sent.data.stsb import STSB_WHEEL, read_stsb_wheel
from s2sent.evaluation import evaluate
from s2sent.evaluation.comparison import resample_task
from s2sent.evaluation.figures import Panel, densities
from s2sent.evaluation.page import facts, page, picture, table
from s2sent.evaluation.report import Entry, Format, Grid
from s2sent.evaluation.result import TaskResult
from s2sent.evaluation.statistics import Interval
from s2sent.experiments.inputs import default_corpus
from s2sent.figures import new_figure
from s2sent.model.inspection import Inspection, inspect
from s2sent.model.inspection_figure import draw
from s2sent.model.load import load_in_torch
from s2sent.selection import SelectionConfig
from s2sent.training import SimCSE, train
from s2sent.training.log import read_log
from s2sent.training.output import FinishedError
from s2sent.training.recipes import Recipe

BEFORE, FRESH = "as it came, last block", "as it came, S²Sent untrained"
BASE, OURS = "trained, last block", "trained, S²Sent"
SENTENCES = [
    "A man is playing a guitar.",
    "Someone makes music with a stringed instrument.",
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping by the window.",
    "Shares fell sharply after the bank raised rates.",
]
LAST_BLOCK = SelectionConfig(blocks=1, fusion="last", gate="none")
console = Console(highlight=False)


@dataclass(frozen=True)
class Scored:
    """A model of the story."""

    result: TaskResult
    cosines: np.ndarray


def main() -> None:
    """Train twice, compare, write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", help="a folder or hub name (default: the grammar tagger's DistilBERT)")
    parser.add_argument("--corpus", help="a sentence a line (default: STS-B's training sentences)")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("demo"))
    options = parser.parse_args()
    logging.disable_progress_bar()
    start = time.monotonic()

    console.print("[bold]The encoder and the text[/]")
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    backbone = options.backbone or str(grammar_tagger.backbone(folder / "backbone"))
    corpus = options.corpus or default_corpus("pypi", folder)
    console.print(f"backbone {backbone}, text {corpus}")

    models = {}
    selections = {BASE: LAST_BLOCK, OURS: SimCSE(backbone=backbone, corpus=(corpus,)).selection}
    for name, selection in selections.items():
        output = folder / ("base" if name == BASE else "s2sent")
        console.print(f"\n[bold]{name}[/]: {options.steps} steps of SimCSE")
        recipe = SimCSE(
            backbone=backbone,
            corpus=(corpus,),
            selection=selection,
            steps=options.steps,
            batch_size=32,
            evaluate_every=max(1, options.steps // 4),
            dev=str(dev_pairs(folder / "dev.csv")),
            seed=options.seed,
        )
        models[name] = trained(recipe, output)

    console.print("\n[bold]STS-B test[/], which nobody trained on")
    torch.manual_seed(options.seed)
    untrained = {
        BEFORE: s2sent.build(backbone, selection=LAST_BLOCK),
        FRESH: s2sent.build(backbone, selection=selections[OURS]),
    }
    scored = {name: score(name, model) for name, model in (untrained | models).items()}
    grid = score_grid(scored)
    console.print(grid.render(Format.TABLE))
    verdict = difference(scored[OURS].result, scored[BASE].result)
    console.print(said(verdict))

    looked = inspect(models[OURS], SENTENCES)
    minutes = (time.monotonic() - start) / 60
    about = {
        "Backbone": Path(backbone).name,
        "Text": f"{Path(corpus).name}, {options.steps} steps of 32 sentences, twice",
        "Scored on": "STS-B test, raw text, 1,379 pairs; the best step chosen on a third of STS-B dev",
        "Command": shlex.join(["python", "examples/demo.py", *sys.argv[1:]]),
        "Versions": f"s2sent {s2sent.__version__}, torch {version('torch')}, Python {platform.python_version()}",
        "Time": f"{minutes:.1f} minutes",
    }
    body = "\n".join([*story(scored, grid, verdict, looked, folder), facts(about)])
    report = folder / "report.html"
    report.write_text(page("An encoder made for something else, a few minutes later", body), encoding="utf-8")
    console.print(f"\n{report.resolve().as_uri()}", soft_wrap=True)


def trained(recipe: SimCSE, output: Path) -> SentenceTransformer:
    """The model of this recipe: the one that is there, one that was interrupted and goes on, or a new one."""
    earlier = output / "recipe.toml"
    another = earlier.exists() and Recipe.load(earlier) != recipe.anchored()
    try:
        with Screen() as screen:
            return train(recipe, output, restart=another, listener=screen).model
    except FinishedError as already:
        console.print(str(already))
        return load_in_torch(output)


def dev_pairs(path: Path) -> Path:
    """Every third pair of STS-B dev as a csv: enough to draw a curve and to choose the best step by."""
    task = read_stsb_wheel(STSB_WHEEL.fetch(cache_folder()), "STS-B-dev")
    pairs = [(a, b, g) for part in task.subsets for a, b, g in zip(part.first, part.second, part.gold, strict=True)]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *pairs[::3]])
    return path


def score(name: str, model: SentenceTransformer) -> Scored:
    """STS-B test, and the cosines of a few sentences."""
    with Bar(name) as bar:
        report = evaluate(model, "STS-B", data="pypi", text="raw", name=name, listener=bar)
    vectors = model.encode(SENTENCES)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return Scored(report["STS-B"], unit @ unit.T)


def difference(ours: TaskResult, base: TaskResult) -> Interval:
    """How much better the one is than the other, with the interval that chance in the choice of pairs leaves."""
    return (resample_task(ours) - resample_task(base)).interval()


def said(verdict: Interval) -> str:
    """The result in a sentence, whatever it is."""
    size = f"{abs(verdict.value):.2f} points {'above' if verdict.value >= 0 else 'below'} the last block's"
    between = f"95 % interval of the difference {verdict.low:+.2f} to {verdict.high:+.2f}"
    if verdict.low <= 0 <= verdict.high:
        return f"S²Sent ends {size}, no more than chance can do ({between})."
    return f"S²Sent ends {size}, more than the choice of pairs explains ({between}; one seed)."


def score_grid(scored: dict[str, Scored]) -> Grid:
    """STS-B test of every model, with intervals."""
    rows = []
    best = max(one.result.headline() for one in scored.values())
    for name, one in scored.items():
        alone = resample_task(one.result).interval()
        versus = difference(one.result, scored[BASE].result)
        entries = [
            Entry(f"{alone.value:.2f}", best=one.result.headline() == best),
            Entry(f"{alone.low:.2f} to {alone.high:.2f}"),
        ]
        shown = "" if name == BASE else f"{versus.value:+.2f} ({versus.low:+.2f} to {versus.high:+.2f})"
        rows.append((name, (*entries, Entry(shown))))
    columns = ("STS-B test", "95 % interval", "against the last block")
    return Grid(columns, tuple(rows), ("100 × Spearman; intervals from 1,000 resamples of the pairs.",))


def story(scored: dict[str, Scored], grid: Grid, verdict: Interval, looked: Inspection, folder: Path) -> list[str]:
    """The parts of the report."""

    def gained(before: str, after: str) -> str:
        return f"{scored[after].result.headline() - scored[before].result.headline():+.1f}"

    shares = Grid(
        tuple(f"block {block}" for block in looked.blocks),
        tuple(
            (text, tuple(Entry(f"{100 * share:.1f}") for share in row))
            for text, row in zip(looked.sentences, looked.shares.tolist(), strict=True)
        ),
    )
    parts = [
        f"<p class='banner'>{escape(said(verdict))} Training brought the last block {gained(BEFORE, BASE)} points and "
        f"S²Sent {gained(FRESH, OURS)}.</p>",
        "<h2>Before and after</h2>",
        table(grid),
        "<h2>On the way</h2>",
        "<p>STS-B dev (a third of its pairs) while it trained.</p>",
        picture(curves(folder), "STS-B dev over the steps of both runs"),
        "<h2>Similarities by rating</h2>",
        "<p>Pairs of STS-B test in five groups of people's ratings: in a good model they climb without overlap.</p>",
        picture(densities([Panel.of(name, one.result) for name, one in scored.items()]), "densities of similarities"),
        "<h2>Which blocks it takes from</h2>",
        f"<p>{escape(looked.what)} of each block, in percent, mean over features.</p>",
        table(shares),
        picture(draw(looked), "shares of the blocks by group of features, and their spectra"),
        "<h2>A few sentences</h2>",
    ]
    return parts + [f"<h3>{escape(name)}</h3>{table(cosine_grid(one.cosines))}" for name, one in scored.items()]


def cosine_grid(cosines: np.ndarray) -> Grid:
    """The cosine of every two sentences."""
    rows = [
        (f"{number} {text}", tuple(Entry(f"{value:.2f}") for value in row))
        for number, (text, row) in enumerate(zip(SENTENCES, cosines, strict=True), start=1)
    ]
    return Grid(tuple(str(number) for number in range(1, len(SENTENCES) + 1)), tuple(rows))


def curves(folder: Path) -> Figure:
    """The dev scores of both runs over their steps."""
    figure = new_figure(7, 3.2)
    axes = figure.add_subplot()
    # The first is thick: where both are the same, both are seen.
    for name, run, colour, width in ((BASE, "base", "0.75", 6), (OURS, "s2sent", "#08519c", 1.5)):
        points = [
            (row["step"], row["score"]) for row in read_log(folder / run / "training" / "log.jsonl") if "score" in row
        ]
        axes.plot(*zip(*points, strict=True), marker="o", label=name, color=colour, linewidth=width)
    axes.set_xlabel("step")
    axes.set_ylabel("STS-B dev")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    with mistakes_in_a_line():
        main()
