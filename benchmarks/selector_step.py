"""What the selector costs in a training step, against mean pooling of the last block.

    python -m benchmarks.selector_step              40 pairs of steps on wiki_200k.txt: a few minutes

Two models from one backbone take turns on the same batches, every other time in the other order. *whole step* is the
median of the pairs' ratios, with the half-width of its 95 % interval, by the wall clock and by CPU time. *own* is the
selector's forward, backward and optimizer on the blocks of such a batch, less what mean pooling takes for the same, as
a share of the step: it resolves what the noise of whole steps hides.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging

from benchmarks import MINILM, name_of
from s2sent.data.corpus import Corpus
from s2sent.evaluation.cost import count_parameters, interleaved_seconds, median_interval, paired_ratios
from s2sent.model.prompts import padded, pipeline_of
from s2sent.selection import SelectionConfig
from s2sent.training import SimCSE
from s2sent.training.batches import Batch, Batches, Position
from s2sent.training.distributed import Ranks
from s2sent.training.loop import Stepper
from s2sent.training.setup import encoder_of, make_loss, make_model

PLAIN = "mean of the last block"
FORMS = {
    PLAIN: SelectionConfig(blocks=1, fusion="last", gate="none"),
    "Last3 stack + 2D SS": SelectionConfig(blocks=3),
    "Last6 stack + 2D SS": SelectionConfig(blocks=6),
}


class Own:
    """The selection alone: forward, backward and optimizer on hidden states that cost nothing."""

    def __init__(self, stepper: Stepper, batch: Batch) -> None:
        model = stepper.loss.model.train()
        features: dict[str, Any] = dict(padded(encoder_of(model), batch.columns[0] * 2))
        out = model[0](features)
        self.features = {**out, "all_layer_embeddings": ()}
        self.states = [state.detach().requires_grad_() for state in out["all_layer_embeddings"]]
        self.pooling = model[1]
        parameters = list(self.pooling.parameters())
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-9, fused=True) if parameters else None
        self.towards: Tensor | None = None

    def run(self) -> None:
        """One forward and backward, one step of the optimizer."""
        features = {**self.features, "all_layer_embeddings": tuple(self.states), "token_embeddings": self.states[-1]}
        vectors: Tensor = self.pooling(features)["sentence_embedding"]
        if self.towards is None:
            self.towards = torch.randn_like(vectors)
        vectors.backward(self.towards)
        if self.optimizer is not None:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        for state in self.states:
            state.grad = None


def main() -> None:
    """Measure and print markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("S2SENT_DATA", "."))
    parser.add_argument("--corpus", type=Path, default=data / "wiki_200k.txt")
    parser.add_argument("--backbone", default=MINILM)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    logging.disable_progress_bar()
    logging.set_verbosity_error()

    steppers: dict[str, Stepper] = {}
    ranks = Ranks(0, 1, torch.device("cpu"))
    for name, selection in FORMS.items():
        recipe = SimCSE(backbone=options.backbone, corpus=(str(options.corpus),), selection=selection)
        loss = make_loss(recipe, make_model(recipe, ranks.device))
        steppers[name] = Stepper(recipe, loss, ranks, options.steps + 2)
    encoder = encoder_of(steppers[PLAIN].loss.model)
    batches = Batches(
        Corpus([str(options.corpus)]),
        tokenize=pipeline_of(encoder, 32).token_ids,
        size=options.batch_size,
        window=(options.steps + 2) * options.batch_size,
    )
    taken: list[Batch] = list(itertools.islice(batches.epoch(Position()), options.steps + 2))
    wall: dict[str, list[float]] = {name: [] for name in FORMS}
    cpu: dict[str, list[float]] = {name: [] for name in FORMS}
    for number, batch in enumerate(taken):
        for name in list(FORMS)[:: 1 if number % 2 == 0 else -1]:
            start, cpu_start = time.perf_counter(), time.process_time()
            steppers[name].take(batch, number + 1)
            if number >= 2:  # the first ones warm up
                wall[name].append(time.perf_counter() - start)
                cpu[name].append(time.process_time() - cpu_start)
        if number % 10 == 9:
            print(f"{number + 1} of {len(taken)}", flush=True)

    own = {name: Own(stepper, taken[-1]) for name, stepper in steppers.items()}
    own_seconds = interleaved_seconds({name: o.run for name, o in own.items()}, rounds=50)
    alone = {name: statistics.median(seconds) for name, seconds in own_seconds.items()}
    step = statistics.median(wall[PLAIN])
    backbone = count_parameters(encoder)
    print(f"\n{name_of(options.backbone)}, batch {options.batch_size}, {torch.get_num_threads()} threads, ", end="")
    print(f"torch {torch.__version__}: {step:.3f} s a step with the {PLAIN}\n")
    print("| | Δ parameters | whole step, wall | whole step, CPU | own |\n|---|---:|---:|---:|---:|")
    for name in list(FORMS)[1:]:
        cells = [f"{count_parameters(steppers[name].loss.model[1]) / backbone:.2%}"]
        for clock in (wall, cpu):
            ratio, half = median_interval(paired_ratios(clock[name], clock[PLAIN]))
            cells.append(f"{ratio - 1:+.2%} ± {half:.2%}")
        cells.append(f"{(alone[name] - alone[PLAIN]) / step:+.2%}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
