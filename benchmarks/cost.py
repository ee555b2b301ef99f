"""What the selector costs over mean pooling of the last block: parameters, latency, peak memory.

    python -m benchmarks.cost            the paper's rows on BERT-base, RoBERTa-base (random weights) and MiniLM
    python -m benchmarks.cost --quick    fewer rounds

Latency comes in two columns. *paired* is the median, over the rounds, of the ratio of a whole run of the pipeline to
mean pooling's in the same round: it includes everything, and the machine's noise, given as the half-width of a 95 %
interval.
*own* is the time spent in the selector (and its hooks), measured inside those same runs, less the time that mean
pooling takes in its own: it resolves what the noise hides.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedModel, RobertaConfig, RobertaModel
from transformers.utils import logging

from benchmarks import MINILM, name_of
from s2sent.evaluation.cost import count_parameters, interleaved_seconds, median_interval, paired_ratios, peak_memory
from s2sent.model.backbone import Backbone
from s2sent.model.pooling import SelectivePooling
from s2sent.model.stream import BlockStream
from s2sent.selection import SelectionConfig

ROWS: dict[str, SelectionConfig] = {
    "Last1 + 1D SS": SelectionConfig(blocks=1, fusion="last"),
    "Last3 average": SelectionConfig(blocks=3, fusion="average", gate="none"),
    "Last3 average + 1D SS": SelectionConfig(blocks=3, fusion="average"),
    "Last3 stack + 2D SS": SelectionConfig(blocks=3),
    "Last6 average": SelectionConfig(blocks=6, fusion="average", gate="none"),
    "Last6 average + 1D SS": SelectionConfig(blocks=6, fusion="average"),
    "Last6 stack + 2D SS": SelectionConfig(blocks=6),
}
BASE = "Last1 mean pooling"


class Clock:
    """Adds up the time spent inside the functions it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


class Pipeline:
    """An encoder and what pools it, run as the host runs them.

    Several share one encoder, so only one of them has its hooks on it at a time.
    """

    def __init__(self, encoder: torch.nn.Module, config: SelectionConfig | None) -> None:
        self.encoder = encoder
        self.clock = Clock()
        self.own_seconds: list[float] = []
        dim = encoder.model.config.hidden_size
        self.pooling: Any = Pooling(dim) if config is None else SelectivePooling(dim, config)
        self.pool = self.clock.wrap(self.pooling)
        if config is not None:
            self.backbone = Backbone.of(encoder.model)
            self.pooling._backbone = self.backbone

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Have the selector listen to the encoder, as it does in a model."""
        if isinstance(self.pooling, Pooling):
            yield
            return
        # What the host's on_model_ready does, with a stream that is timed.
        self.pooling._stream = _TimedStream(self.encoder, self.pooling, self.backbone, self.clock)
        try:
            yield
        finally:
            self.pooling.detach()

    def run(self, features: dict[str, Tensor]) -> Tensor:
        """Encode a batch, noting the time that is not the encoder's."""
        self.clock.seconds = 0.0
        with torch.inference_mode():
            embedding: Tensor = self.pool(self.encoder(dict(features)))["sentence_embedding"]
        self.own_seconds.append(self.clock.seconds)
        return embedding


class _TimedStream(BlockStream):
    def __init__(self, encoder: torch.nn.Module, pooling: SelectivePooling, backbone: Backbone, clock: Clock) -> None:
        self.begin, self.project, self.end = (clock.wrap(f) for f in (self.begin, self.project, self.end))  # type: ignore[method-assign]
        super().__init__(encoder, pooling, backbone)


class _Encoder(torch.nn.Module):
    """The host's Transformer without its tokenizer, for a backbone of random weights."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        features["token_embeddings"] = self.model(
            input_ids=features["input_ids"], attention_mask=features["attention_mask"], **kwargs
        ).last_hidden_state
        return features


def backbones() -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the encoders to measure on."""
    yield "BERT-base (random weights)", _Encoder(BertModel(BertConfig()))
    yield (
        "RoBERTa-base (random weights)",
        _Encoder(RobertaModel(RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1))),
    )
    yield name_of(MINILM), Transformer.load(MINILM)


def batch(size: int, tokens: int, vocabulary: int) -> dict[str, Tensor]:
    """Return a batch of random tokens, a quarter of them padding, as in text of mixed length."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(tokens // 2, tokens + 1, (size, 1), generator=generator)
    lengths[0] = tokens
    return {
        "input_ids": torch.randint(1000, vocabulary, (size, tokens), generator=generator),
        "attention_mask": (torch.arange(tokens) < lengths).long(),
    }


def measure(name: str, encoder: torch.nn.Module, size: int, tokens: int, rounds: int) -> Table:
    """Measure every row on one encoder and one shape of batch."""
    encoder.eval()
    features = batch(size, tokens, vocabulary=encoder.model.config.vocab_size)
    pipelines = {BASE: Pipeline(encoder, None), **{row: Pipeline(encoder, config) for row, config in ROWS.items()}}
    state_bytes = size * tokens * encoder.model.config.hidden_size * 4

    runs = {row: partial(pipeline.run, features) for row, pipeline in pipelines.items()}
    seconds = interleaved_seconds(runs, rounds, around=lambda row: pipelines[row].attached())
    base = pipelines[BASE]
    base_own = statistics.median(base.own_seconds[1:])
    base_total = statistics.median(seconds[BASE])
    memory = {}
    for row, pipeline in pipelines.items():
        with pipeline.attached():
            memory[row] = peak_memory(runs[row])

    table = Table(title=f"{name}, batch {size} × {tokens} tokens: {base_total * 1e3:.1f} ms", title_justify="left")
    for column in ("", "Δ parameters", "Δ latency, paired", "Δ latency, own", "Δ peak memory"):
        table.add_column(column, justify="left" if column == "" else "right")
    for row, pipeline in pipelines.items():
        if row == BASE:
            continue
        parameters = count_parameters(pipeline.pooling) / count_parameters(encoder)
        ratio, half = median_interval(paired_ratios(seconds[row], seconds[BASE]))
        own = (statistics.median(pipeline.own_seconds[1:]) - base_own) / base_total
        extra = memory[row] - memory[BASE]
        table.add_row(
            row,
            f"{parameters:.2%}",
            f"{ratio - 1:+.2%} ± {half:.2%}",
            f"{own:+.3%}",
            f"{extra / 2**20:+.2f} MiB = {extra / state_bytes:+.2f} block states",
        )
    return table


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="a third of the rounds")
    arguments.add_argument("--only", help="only backbones with this in their name")
    options = arguments.parse_args()
    logging.disable_progress_bar()
    console = Console(width=130)
    machine = f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, {platform.machine()}"
    console.print(f"torch {torch.__version__}, {machine}, load {os.getloadavg()[0]:.1f}")
    for name, encoder in backbones():
        if options.only and options.only.lower() not in name.lower():
            continue
        for size, rounds in ((32, 12), (1, 90)):
            if "MiniLM" in name:
                rounds *= 4
            console.print(measure(name, encoder, size, 32, rounds // 3 if options.quick else rounds))


if __name__ == "__main__":
    main()
