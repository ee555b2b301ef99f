"""What adapting a frozen encoder costs: the pass, the training, the memory; and fine-tuning in as much time beside it.

python -m benchmarks.adapt [--texts 3000] [--rounds 5] [--memory-texts 100000] [--model FOLDER] [--quick]

1. The pass over the texts (`keep_states`: everything of every state that the forms need) against bulk encoding of the
   same texts with the same model, interleaved.
2. 200 steps of batch 256 of the gate with a map, on states of MiniLM's and of BERT-base's shape.
3. The peak memory of training on many texts of BERT-base's shape, in a process of its own.
4. Beside the host: `s2sent.adapt` on triplets (`S2SENT_DATA`), and sentence-transformers fine-tuning the whole encoder
   on the same triplets for as long, and for ten times as long; STS-B test of each.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers.utils import logging

import s2sent
from benchmarks import MINILM, name_of
from benchmarks.encoding import cpu
from benchmarks.texts import mixed_texts
from s2sent.data.examples import read_examples
from s2sent.evaluation import evaluate
from s2sent.evaluation.cost import interleaved_seconds, paired_ratios
from s2sent.model.backbone import Backbone
from s2sent.model.load import open_encoder
from s2sent.selection import SelectionConfig
from s2sent.training.frozen import Contrast, Form, FrozenTrainer, TrainingOptions
from s2sent.vectors import TorchEncoder, encode_texts
from s2sent.vectors.states import FrozenStates, StateEncoder, Sums, keep_states

SHAPES = {"all-MiniLM-L6-v2": (6, 384), "BERT-base": (12, 768)}


def main() -> None:
    """Print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--texts", type=int, default=3000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--memory-texts", type=int, default=100_000)
    arguments.add_argument("--model", default=MINILM, help="for the pass, and beside the host")
    arguments.add_argument("--quick", action="store_true", help="small sizes: does it run?")
    arguments.add_argument("--only-memory", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    logging.disable_progress_bar()
    if options.only_memory:
        train_on(Path(options.only_memory), steps=20)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    if options.quick:
        options.texts, options.rounds, options.memory_texts = 60, 1, 2000
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}; {cpu()}\n")
    the_pass(options.model, options.texts, options.rounds)
    the_training(20 if options.quick else 200)
    the_memory(options.memory_texts)
    beside_the_host(options.model, quick=options.quick)


def the_pass(path: str, count: int, rounds: int) -> None:
    """Texts per second of the pass over those of bulk encoding."""
    model = open_encoder(path, device="cpu")
    texts = mixed_texts(model, count)
    encoder, plain = StateEncoder(model), TorchEncoder(model)
    sums = Sums.of([], encoder.backbone)
    with tempfile.TemporaryDirectory() as folder:
        places = iter(range(1_000_000))
        runs = {
            "encode": lambda: encode_texts(plain, texts),
            "pass": lambda: keep_states(encoder, texts, Path(folder) / str(next(places)), sums),
        }
        seconds = interleaved_seconds(runs, rounds)
    ratio = statistics.median(paired_ratios(seconds["encode"], seconds["pass"]))
    rate = count / statistics.median(seconds["pass"])
    print(f"pass, {name_of(path)}: {ratio:.2f} of the speed of bulk encoding ({rate:,.0f} texts/s)")


def synthetic(folder: Path, depth: int, dim: int, texts: int) -> FrozenStates:
    """States of a shape, of random numbers: what they are costs nothing, how many there are does."""
    sums = Sums.of([], Backbone("", depth, None, None))
    states = FrozenStates(folder, texts, depth + 1, dim, dim, 2000, 0, sums)
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    about = {"texts": texts, "states": depth + 1, "dim": dim, "width": dim, "part_size": 2000, "parameters": 0}
    (folder / "about.json").write_text(json.dumps({**about, "sums": {"cosines": sums.cosines, "tokens": []}}))
    for number in range(states.parts):
        size = min(2000, texts - number * 2000)
        for name, rows in (("pooled", depth + 1), ("cosines", len(sums.cosines))):
            np.save(states.path(number, name), random.standard_normal((size, rows, dim), dtype=np.float32).astype("f2"))
        np.save(states.path(number, "own"), random.standard_normal((size, dim), dtype=np.float32))
        np.save(states.path(number, "lengths"), np.full(size, 14, dtype=np.int32))
    return states


def train_on(folder: Path, steps: int) -> float:
    """Seconds to train the gate with a map."""
    states = FrozenStates.open(folder)
    random = np.random.default_rng(0)
    examples = states.texts // 3
    rows = torch.from_numpy(random.permutation(states.texts)[: 3 * examples].reshape(-1, 3))
    order = torch.from_numpy(random.permutation(examples))
    held_out = min(2000, examples // 5)
    trainer = FrozenTrainer(
        states,
        Backbone("", states.states - 1, None, None).indices,
        Contrast(rows, 0.05),
        order[held_out:],
        order[:held_out],
        TrainingOptions(steps=steps, map_learning_rates=(1e-3,)),
    )
    selection = SelectionConfig(blocks=tuple(range(states.states)), gate="linear", bias=True)
    start = time.perf_counter()
    trainer.fit(Form("gate+map", selection, map=True))
    return time.perf_counter() - start


def the_training(steps: int) -> None:
    """Seconds of training on states of two shapes."""
    for name, (depth, dim) in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            synthetic(Path(folder) / "states", depth, dim, 9000)
            seconds = train_on(Path(folder) / "states", steps)
        print(
            f"training, {name}'s shape: {seconds:.1f} s for {steps} steps of batch 256 (gate + map, held-out included)"
        )


def the_memory(texts: int) -> None:
    """Peak memory of training on states of BERT-base's shape."""
    with tempfile.TemporaryDirectory() as folder:
        synthetic(Path(folder) / "states", *SHAPES["BERT-base"], texts)
        command = [sys.executable, "-m", "benchmarks.adapt", "--only-memory", str(Path(folder) / "states")]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
    print(f"memory, BERT-base's shape, {texts:,} texts: {float(found):,.0f} MB at the peak of training")


def beside_the_host(path: str, *, quick: bool) -> None:
    """STS-B test after adapting, and after fine-tuning in the same time and in ten times the time."""
    data = Path(os.environ["S2SENT_DATA"]) / "nli_10k.csv"

    def score(model: SentenceTransformer) -> float:
        return evaluate(model, "STS-B", cache=False)["STS-B"].headline()

    print(f"\n{name_of(path)} on {data.name}, STS-B test")
    print(f"as it is                               {score(open_encoder(path, device='cpu')):6.2f}")
    with tempfile.TemporaryDirectory() as folder:
        steps = {"steps": 5} if quick else {}
        start = time.perf_counter()
        result = s2sent.adapt(path, data, Path(folder) / "out", device="cpu", states=Path(folder) / "states", **steps)
        spent = time.perf_counter() - start
        shown = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in result.seconds.items())
        print(f"s2sent.adapt ({spent:5.0f} s: {shown})  {score(result.model):6.2f}")
    for times in (1, 10):
        model = open_encoder(path, device="cpu")
        steps_done = fine_tune(model, data, 1.0 if quick else times * spent)
        print(f"fine-tuned, {times:2} times as long ({steps_done} steps)   {score(model):6.2f}")


def fine_tune(model: SentenceTransformer, data: Path, seconds: float, batch_size: int = 32) -> int:
    """Fine-tune the whole encoder with the host's loss for so many seconds; how many steps that was."""
    examples = read_examples([str(data)])
    random = np.random.default_rng(0)
    loss = MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    model.train()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        chosen = examples.rows[random.choice(len(examples), size=batch_size, replace=False)]
        columns = [model.preprocess([examples.texts[row] for row in column]) for column in chosen.T]
        optimizer.zero_grad()
        loss(columns, torch.zeros(batch_size)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
    model.eval()
    return steps


if __name__ == "__main__":
    main()
