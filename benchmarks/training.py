"""Steps per second of `s2sent train` beside sentence-transformers' own SimCSE, in one interleaved run.

    python -m benchmarks.training                   both corpora of S2SENT_DATA, 5 rounds of 16 steps each
    python -m benchmarks.training --cpu-time        on a machine that others use, too

The host: `SentenceTransformerTrainer` with `MultipleNegativesRankingLoss` on every sentence in two columns. Ours: the
same backbone, batch, tokens, sentences and pooling (mean of the last block), by `s2sent.training.train`. Tokenising and
data loading count on both sides; loading the model and saving do not. All run in one process with the same threads,
and so with the same allocator. Each way is run once per round, every other round backwards, and a ratio is
the median of the rounds' ratios, so that whatever else the machine does cancels.

Between the two, ours with one thing after the other taken away: where the time goes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import PrinterCallback, TrainerCallback
from transformers.utils import logging

from benchmarks import MINILM, name_of
from s2sent.data.corpus import Corpus
from s2sent.listener import Listener
from s2sent.selection import SelectionConfig
from s2sent.training import SimCSE, SimCSELoss, train
from s2sent.training.loop import Stepper

LAST_BLOCK = SelectionConfig(blocks=1, fusion="last", gate="none")


class Clock(TrainerCallback, Listener):
    """From the start of training to the end of its last step, for the host and for us."""

    now = staticmethod(time.perf_counter)

    def __init__(self) -> None:
        self.began = self.ended = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The host starts."""
        self.began = Clock.now()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """The host ends a step."""
        self.ended = Clock.now()

    def progress(self, done: int, total: int, loss: float | None = None) -> None:
        """We start, or end a step."""
        del done, total
        if loss is None:
            self.began = Clock.now()
        self.ended = Clock.now()

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


class TwoForwards(SimCSELoss):
    """Each view on its own through the encoder, as the host does it."""

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Any = None) -> torch.Tensor:
        """Compute the loss of a batch."""
        del labels
        (column,) = sentence_features
        return self._contrast_in_fp32([self.model(dict(column))["sentence_embedding"] for _ in range(2)])


class Phases:
    """Where the time of our steps goes: each phase without those inside it."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.inside = ["elsewhere"]
        self.since = Clock.now()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Time the phases of all steps taken meanwhile."""
        with (
            patch.object(SimCSELoss, "forward", self._timed("forward", SimCSELoss.forward)),
            patch.object(Stepper, "_backward", self._timed("backward", Stepper._backward)),
            patch.object(Stepper, "take", self._timed("clipping and optimiser", Stepper.take)),
        ):
            yield

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self._turn()
            self.inside.append(name)
            try:
                return function(*args, **kwargs)
            finally:
                self._turn()
                self.inside.pop()

        return run

    def _turn(self) -> None:
        now = Clock.now()
        self.seconds[self.inside[-1]] += now - self.since
        self.since = now

    def shares(self, whole: float) -> dict[str, float]:
        """Return what each phase is of `whole` seconds."""
        named = {name: self.seconds[name] / whole for name in ("forward", "backward", "clipping and optimiser")}
        return {**named, "the rest (tokenising, padding, log)": 1 - sum(named.values())}


def host_seconds(backbone: str, sentences: list[str], batch_size: int, max_length: int) -> float:
    """Train with the host's trainer, as its SimCSE example does, one pass over `sentences`."""
    encoder = Transformer(backbone, max_seq_length=max_length)
    model = SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension())])
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            per_device_train_batch_size=batch_size,
            num_train_epochs=1,
            learning_rate=3e-5,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        model.model_card_data.generate_widget_examples = False
        trainer = SentenceTransformerTrainer(
            model,
            arguments,
            train_dataset=Dataset.from_dict({"anchor": sentences, "positive": sentences}),
            loss=MultipleNegativesRankingLoss(model, scale=20),
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return clock.seconds


def our_seconds(
    backbone: str,
    sentences: list[str],
    batch_size: int,
    max_length: int,
    *,
    by_length: bool = True,
    one_forward: bool = True,
) -> float:
    """Train with ours, one pass over `sentences`."""
    clock = Clock()
    make_loss: Any = lambda recipe, model: (SimCSELoss if one_forward else TwoForwards)(model)  # noqa: E731
    with tempfile.TemporaryDirectory() as folder, patch("s2sent.training.loop.make_loss", make_loss):
        corpus = Path(folder) / "corpus.txt"
        corpus.write_text("\n".join(sentences), encoding="utf-8")
        recipe = SimCSE(
            backbone=backbone,
            corpus=(str(corpus),),
            selection=LAST_BLOCK,
            batch_size=batch_size,
            max_length=max_length,
            by_length=by_length,
            dev="none",
        )
        train(recipe, Path(folder) / "out", listener=clock)
    return clock.seconds


WAYS: dict[str, Callable[..., float]] = {
    "sentence-transformers": host_seconds,
    "ours, two forwards, shuffled": partial(our_seconds, by_length=False, one_forward=False),
    "ours, shuffled": partial(our_seconds, by_length=False),
    "ours": our_seconds,
}


def padding(backbone: str, sentences: list[str], batch_size: int, max_length: int) -> float:
    """The share of tokens that are padding when sentences are put into batches as they come."""
    tokenizer: Any = Transformer(backbone).tokenizer
    lengths = [len(ids) for ids in tokenizer(sentences, truncation=True, max_length=max_length)["input_ids"]]
    batches = [lengths[i : i + batch_size] for i in range(0, len(lengths) - batch_size + 1, batch_size)]
    return 1 - sum(map(sum, batches)) / sum(max(batch) * len(batch) for batch in batches)


def measure(path: Path, options: argparse.Namespace) -> None:
    """Measure every way on one corpus, and print."""
    count = options.steps * options.batch_size  # sentences in a round
    lines = [example[0] for example in itertools.islice(Corpus([str(path)]), (options.rounds + 1) * count)]
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    phases = Phases()
    for number in range(options.rounds + 1):
        sentences = lines[number * count : (number + 1) * count]
        common = (options.backbone, sentences, options.batch_size, options.max_length)
        for name in list(WAYS)[:: 1 if number % 2 == 0 else -1]:
            with phases.measured() if number and name == "ours" else nullcontext():
                taken = WAYS[name](*common)
            if number:  # the first round warms up
                seconds[name].append(taken)
        print(f"{path.name}, round {number} of {options.rounds}", flush=True)
    print(f"\n**{path.name}**: {padding(*common):.0%} of the tokens of plain batches are padding.\n")
    print("| | steps/s | × host, median | lowest | highest |\n|---|---:|---:|---:|---:|")
    for name, taken in seconds.items():
        faster = [host / own for host, own in zip(seconds["sentence-transformers"], taken, strict=True)]
        rate = options.steps / statistics.median(taken)
        print(f"| {name} | {rate:.2f} | {statistics.median(faster):.2f} | {min(faster):.2f} | {max(faster):.2f} |")
    shares = phases.shares(sum(seconds["ours"]))
    print(f"\nOf our time: {', '.join(f'{name} {share:.0%}' for name, share in shares.items())}.\n")


def main() -> None:
    """Measure and print markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("S2SENT_DATA", "."))
    corpora = [data / "wiki_200k.txt", data / "wiki1m_for_simcse_head.txt"]
    parser.add_argument("--corpus", nargs="+", type=Path, default=corpora)
    parser.add_argument("--backbone", default=MINILM)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-length", type=int, default=32)
    parser.add_argument("--steps", type=int, default=16, help="per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds: for a machine that others use, too")
    options = parser.parse_args()
    if options.cpu_time:
        Clock.now = staticmethod(time.process_time)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    clock = "CPU seconds" if options.cpu_time else "wall-clock seconds"
    print(f"{name_of(options.backbone)}, batch {options.batch_size}, {options.max_length} tokens, ", end="")
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {clock}\n")
    for path in options.corpus:
        measure(path, options)


if __name__ == "__main__":
    main()
