"""Batches of like lengths against plain shuffling: real tokens per second, and what STS-B dev says.

    python -m benchmarks.buckets                            both corpora, 3 seeds, 50 steps each way
    python -m benchmarks.buckets --results runs.jsonl       … kept there: started again, it goes on

The same budget of steps and sentences either way, taken in turns. Tokens are counted without padding, from the end of
the first step: before that, a window of text is tokenised, which is the same work both ways. The backbone is
S2SENT_WEIGHTS/distilbert-cased-gec, which was never made for sentences; STS-B and the corpora are S2SENT_DATA's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch
from scipy.stats import t as student
from transformers.utils import logging

from s2sent.listener import Listener
from s2sent.selection import SelectionConfig
from s2sent.training import SimCSE, train
from s2sent.training.setup import make_model
from s2sent.training.validation import stsb

WAYS = {"like lengths": True, "shuffled": False}


class Clock(Listener):
    """Notes when each step ended, by the wall and by CPU time."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def progress(self, done: int, total: int, loss: float | None = None) -> None:
        """A step is done."""
        del done, total
        if loss is not None:
            self.ends.append((time.perf_counter(), time.process_time()))


def run(recipe: SimCSE) -> dict[str, float]:
    """Train once; return tokens per second and per CPU second, and STS-B dev."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        done = train(recipe, Path(folder) / "out", listener=clock)
        log = [json.loads(line) for line in (Path(folder) / "out/training/log.jsonl").read_text().splitlines()]
    # The log has tokens by tens of steps; those of the first step, which is not timed, are a share of them.
    tokens = sum(row["tokens"] for row in log) * (done.steps - 1) / done.steps
    wall, cpu = (last - first for first, last in zip(clock.ends[0], clock.ends[-1], strict=True))
    return {"tokens/s": tokens / wall, "tokens/CPU s": tokens / cpu, "STS-B dev": stsb("dev")(done.model)}


def interval(values: list[float]) -> str:
    """The mean and its 95 % interval."""
    if len(values) < 2:
        return f"{statistics.mean(values):+.2f}"
    half = student.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):+.2f} ± {half:.2f}"


def show(results: list[dict[str, Any]], before: float) -> None:
    """Print markdown."""
    print(f"\nSTS-B dev of the untrained backbone: {before:.2f}\n")
    print("| corpus | batches | tokens/s | tokens/CPU s | STS-B dev (seeds) | like lengths − shuffled |")
    print("|---|---|---:|---:|---:|---:|")
    for corpus in dict.fromkeys(row["corpus"] for row in results):
        of = {way: [r for r in results if (r["corpus"], r["way"]) == (corpus, way)] for way in WAYS}
        pairs = zip(*([row["STS-B dev"] for row in rows] for rows in of.values()), strict=True)
        difference = interval([like - shuffled for like, shuffled in pairs])
        for way, rows in of.items():
            speed = [statistics.median(row[name] for row in rows) for name in ("tokens/s", "tokens/CPU s")]
            scores = " ".join(f"{row['STS-B dev']:.2f}" for row in rows)
            print(f"| {corpus} | {way} | {speed[0]:,.0f} | {speed[1]:,.0f} | {scores} | {difference} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data, weights = (Path(os.environ.get(name, ".")) for name in ("S2SENT_DATA", "S2SENT_WEIGHTS"))
    corpora = [data / "wiki_200k.txt", data / "wiki1m_for_simcse_head.txt"]
    parser.add_argument("--corpus", nargs="+", type=Path, default=corpora)
    parser.add_argument("--backbone", default=str(weights / "distilbert-cased-gec"))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path(tempfile.mkdtemp()) / "results.jsonl")
    options = parser.parse_args()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    print(f"{Path(options.backbone).name}, {options.steps} steps of batch {options.batch_size}, 32 tokens, ", end="")
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}\n")

    lines = options.results.read_text().splitlines() if options.results.exists() else []
    results: list[dict[str, Any]] = [json.loads(line) for line in lines]
    recipe = SimCSE(backbone=options.backbone, corpus=("",), selection=SelectionConfig(fusion="last", gate="none"))
    before = stsb("dev")(make_model(recipe, torch.device("cpu")))
    for corpus, seed in product(options.corpus, range(options.seeds)):
        for way in list(WAYS)[:: 1 if seed % 2 == 0 else -1]:
            name = {"corpus": corpus.name, "seed": seed, "way": way}
            if any(name.items() <= row.items() for row in results):
                continue
            recipe = SimCSE(
                backbone=options.backbone,
                corpus=(str(corpus),),
                selection=recipe.selection,
                steps=options.steps,
                batch_size=options.batch_size,
                by_length=WAYS[way],
                dev="none",
                seed=seed,
            )
            results.append({**name, **run(recipe)})
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(results[-1]) + "\n")
            shown = ", ".join(f"{key} {value:,.2f}" for key, value in results[-1].items() if key not in name)
            print(f"{corpus.name}, seed {seed}, {way}: {shown}", flush=True)
    show(sorted(results, key=lambda row: row["seed"]), before)


if __name__ == "__main__":
    main()
