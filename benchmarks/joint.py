"""Train, adapt, or both: what each is worth on an encoder that was made for something else.

python -m benchmarks.joint MODEL [--store docs/results/joint] [--seeds 3] [--report-only]

Training is SimCSE of the last block on short unlabelled text (sentences of NLI and of STS-B's training split, 3 to 25
words); adapting is with STS-B's training pairs and their scores. Rows: the model as it came, adapted, trained, trained
and then adapted, adapted and then trained. Scored on STS-B test. A run is one small file in the store, and models are
kept in --work, so a stopped benchmark goes on where it was. S2SENT_DATA must lead to the data.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

import s2sent
from s2sent.data.cache import cache_folder
from s2sent.data.senteval import read_sts
from s2sent.training.recipes import SimCSE

ROWS = ("as it came", "adapt", "train", "train, then adapt", "adapt, then train")
LAST_BLOCK = s2sent.SelectionConfig(blocks=1, fusion="last", gate="none")


def main() -> None:
    """Do what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="the encoder's folder")
    parser.add_argument("--store", type=Path, default=Path("docs/results/joint"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--work", type=Path, help="where models are kept (default: in the cache)")
    parser.add_argument("--report-only", action="store_true")
    options = parser.parse_args()
    if not options.report_only:
        work = options.work or cache_folder() / "joint"
        for folder in (options.store, work):
            folder.mkdir(parents=True, exist_ok=True)
        Runs(options, work).do()
    report(options.store)


class Runs:
    """The runs of every seed; later rows of a seed start from the models of earlier ones."""

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        self.options, self.work = options, work
        data = Path(os.environ["S2SENT_DATA"])
        self.pairs, self.lines = write_data(data, work)

    def do(self) -> None:
        """Do what the store does not have, seed by seed."""
        for seed in range(self.options.seeds):
            models: dict[str, str] = {"as it came": self.options.model}
            steps: list[tuple[str, Callable[[], str]]] = [
                ("adapt", lambda seed=seed, m=models: self.adapt(m["as it came"], f"adapted-{seed}", seed)),
                ("train", lambda seed=seed, m=models: self.train(m["as it came"], f"trained-{seed}", seed)),
                ("train, then adapt", lambda seed=seed, m=models: self.adapt(m["train"], f"both-{seed}", seed)),
                ("adapt, then train", lambda seed=seed, m=models: self.train(m["adapt"], f"after-{seed}", seed)),
            ]
            missing = [row for row in ROWS if not self.record(row, seed).exists()]
            if missing:
                self.score("as it came", seed, self.options.model, 0.0)
            for row, run in steps if missing else ():
                start = time.perf_counter()
                models[row] = run()
                self.score(row, seed, models[row], time.perf_counter() - start)

    def record(self, row: str, seed: int) -> Path:
        """The file of a run."""
        return self.options.store / f"{row.replace(',', '').replace(' ', '-')}-{seed}.json"

    def score(self, row: str, seed: int, model: str, seconds: float) -> None:
        """Evaluate a model on STS-B test, and keep the score."""
        if self.record(row, seed).exists():
            return
        score = s2sent.evaluate(model, "STS-B", cache=False)["STS-B"].headline()
        values = {
            "row": row,
            "seed": seed,
            "STS-B": round(score, 4),
            "seconds": round(seconds, 1),
            "model": Path(self.options.model).name,
            "steps": self.options.steps,
            "precision": self.options.precision,
        }
        self.record(row, seed).write_text(json.dumps(values) + "\n", encoding="utf-8")
        Console().print(f"{row}, seed {seed}: STS-B {score:.2f} ({seconds:.0f} s)")

    def adapt(self, model: str, name: str, seed: int) -> str:
        """Adapt a model to the scored pairs."""
        output = self.work / name
        s2sent.adapt(
            model, self.pairs, output, seed=seed, precision=self.options.precision, states=self.work / "states"
        )
        return str(output)

    def train(self, model: str, name: str, seed: int) -> str:
        """Train a model with SimCSE: its last block, or the selector it has."""
        output = self.work / name
        selector = {} if name.startswith("after") else {"selection": LAST_BLOCK}
        recipe = SimCSE(
            backbone=model,
            corpus=(str(self.lines),),
            steps=self.options.steps,
            batch_size=64,
            seed=seed,
            dev="none",
            precision=self.options.precision,
            **selector,
        )
        s2sent.train(recipe, output)
        return str(output)


def write_data(data: Path, work: Path) -> tuple[Path, Path]:
    """Write STS-B's training pairs with their scores, and the short sentences of NLI and STS-B as lines."""
    (train,) = read_sts(data / "senteval" if (data / "senteval").is_dir() else data, "STS-B-train").subsets
    pairs = work / "pairs.csv"
    with pairs.open("w", encoding="utf-8", newline="") as file:
        rows = zip(train.first, train.second, train.gold.tolist(), strict=True)
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *rows])
    with (data / "nli_10k.csv").open(encoding="utf-8", newline="") as file:
        nli = [text for row in csv.reader(file) for text in row][3:]
    texts = dict.fromkeys(text.strip() for text in (*nli, *train.first, *train.second))
    lines = work / "lines.txt"
    lines.write_text("\n".join(text for text in texts if 3 <= len(text.split()) <= 25), encoding="utf-8")
    return pairs, lines


def report(store: Path) -> None:
    """Print every row's mean, and its difference to training alone: paired over the seeds, with a t-test."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(store.glob("*.json"))]
    scores = {row: {one["seed"]: one["STS-B"] for one in records if one["row"] == row} for row in ROWS}
    table = Table("", "STS-B test", "less training alone", "seconds", "seeds")
    for row in ROWS:
        values = np.array(list(scores[row].values()))
        if not len(values):
            continue
        common = sorted(set(scores[row]) & set(scores["train"]))
        paired = np.array([scores[row][seed] - scores["train"][seed] for seed in common])
        shown = ""
        if len(paired) > 1 and row != "train":
            p = stats.ttest_1samp(paired, 0).pvalue
            shown = f"{paired.mean():+.2f} ± {paired.std(ddof=1):.2f}, p = {p:.3f}"
        spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
        seconds = np.mean([one["seconds"] for one in records if one["row"] == row])
        table.add_row(row, f"{values.mean():.2f}{spread}", shown, f"{seconds:.0f}", str(len(values)))
    Console().print(table)


if __name__ == "__main__":
    main()
