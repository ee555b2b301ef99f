"""Training the encoder itself, for comparison with adapting it: slower, and the two add up.

python examples/demo_train.py [--steps 40] [--folder demo]

The grammar tagger's DistilBERT of demo.py is trained with SimCSE on STS-B's training sentences, without their scores,
pooled from its last block; then the trained encoder is frozen and adapted with the scored pairs, as in demo.py.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console
from transformers.utils import logging

import grammar_tagger
import s2sent
from demo import difference, scored_pairs
from s2sent.cli.progress import Bar
from s2sent.cli.screen import ProgressBar, errors_as_lines
from s2sent.evaluation.comparison import resample_task
from s2sent.evaluation.result import TaskResult
from s2sent.experiments.inputs import default_corpus
from s2sent.model.load import open_encoder
from s2sent.report.tables import Entry, Format, Table
from s2sent.selection import SelectionConfig
from s2sent.training import SimCSE

BEFORE, TRAINED = "as it came", "trained (SimCSE), last block"
ADAPTED, BOTH = "adapted", "trained, then adapted"
console = Console(highlight=False)


def main() -> None:
    """Train, adapt, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or hub name (default: the grammar tagger's DistilBERT)")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=5749)
    parser.add_argument("--folder", type=Path, default=Path("demo"))
    options = parser.parse_args()
    logging.disable_progress_bar()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    model = options.model or str(grammar_tagger.backbone(folder / "backbone"))
    pairs = scored_pairs(folder / "pairs.csv", options.pairs)

    seconds = {BEFORE: 0.0}
    start = time.monotonic()
    recipe = SimCSE(
        backbone=model,
        corpus=(default_corpus("pypi", folder),),
        selection=SelectionConfig(blocks=1, fusion="last", gate="none"),
        steps=options.steps,
        batch_size=32,
        dev="none",
        seed=0,
    )
    with ProgressBar() as bar:
        s2sent.train(recipe, folder / "trained", restart=True, listener=bar)
    seconds[TRAINED] = time.monotonic() - start
    models = {BEFORE: open_encoder(model), TRAINED: s2sent.load(folder / "trained")}
    for name, source in ((ADAPTED, model), (BOTH, str(folder / "trained"))):
        start = time.monotonic()
        with ProgressBar() as bar:
            output = folder / ("adapted" if name == ADAPTED else "trained-adapted")
            result = s2sent.adapt(source, pairs, output, restart=True, states=folder / "states", listener=bar)
        models[name] = result.model
        seconds[name] = time.monotonic() - start + (seconds[TRAINED] if name == BOTH else 0)
    results: dict[str, TaskResult] = {}
    for name, one in models.items():
        with Bar(name) as shown:
            results[name] = s2sent.evaluate(one, "STS-B", data="pypi", text="raw", name=name, listener=shown)["STS-B"]
    rows = []
    for name, result in results.items():
        alone, versus = resample_task(result).interval(), difference(result, results[BEFORE])
        gained = "" if name == BEFORE else f"{versus.value:+.1f} ({versus.low:+.1f} to {versus.high:+.1f})"
        cells = (f"{alone.value:.2f}", f"{alone.low:.1f} to {alone.high:.1f}", gained, f"{seconds[name]:.0f} s")
        rows.append((name, tuple(Entry(cell) for cell in cells)))
    columns = ("STS-B test", "95 % interval", "gained", "time")
    console.print(Table(columns, tuple(rows), ("100 × Spearman; one seed.",)).render(Format.TABLE))


if __name__ == "__main__":
    with errors_as_lines():
        main()
