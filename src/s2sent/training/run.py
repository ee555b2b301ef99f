"""The run: a recipe in, a model folder out, and nothing lost when the machine dies on the way.

Own loop, not the host's Trainer, whose checkpoints leave out the loss's parameters (the train-only heads) and are not
written atomically. Everything a step does is a function of the weights, the optimizer's moments, the recipe and the
step's number: the data's order comes from the seed, and every step seeds its own dropout.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from s2sent.data.corpus import Corpus, Survey
from s2sent.disk import DiskFullError, is_full
from s2sent.errors import ConfigError, DataError, S2SentError
from s2sent.model.tokens import padded, token_ids
from s2sent.training.batches import Batch, Batches, Position
from s2sent.training.card import model_card
from s2sent.training.checkpoint import Checkpoint, Checkpoints
from s2sent.training.log import Listener, Log
from s2sent.training.objectives import ContrastiveLoss
from s2sent.training.output import check_output, clear_output, save_model
from s2sent.training.precision import bf16_problem
from s2sent.training.process import minutes_since, seed_step, stop_signals
from s2sent.training.ranks import Ranks
from s2sent.training.recipes import Recipe
from s2sent.training.setup import encoder_of, learning_rate_factor, make_loss, make_model, make_optimizer
from s2sent.training.validation import Validator, find_validator, stsb

LOG_EVERY = 10
CHECKPOINT_MINUTES = 5.0


class DivergedError(S2SentError):
    """The loss is no longer a number."""


@dataclass(frozen=True)
class Finished:
    """What a run came to.

    Attributes:
        model: The model of the best step, as it was saved.
        steps: How many steps were taken.
        scores: What it was scored on, before and after.
        best_step: The step whose weights these are.
        data: What became of the corpus, in a line.
        output: The model's folder.
        leads: Whether this process is the one that speaks, of several that trained together.
    """

    model: SentenceTransformer
    steps: int
    scores: dict[str, float]
    best_step: int
    data: str
    output: Path
    leads: bool = True


def train(
    recipe: Recipe,
    output: str | Path,
    *,
    restart: bool = False,
    checkpoint_every: int | None = None,
    device: str | None = None,
    listener: Listener | None = None,
) -> Finished:
    """Train an encoder and save it; called again after an interruption, go on from the last checkpoint.

    Args:
        recipe: Everything that decides the result.
        output: The folder for the model, its recipe, card and log. While the run lasts, also for checkpoints.
        restart: Throw away what an earlier run left in `output`.
        checkpoint_every: Steps between checkpoints; None: every five minutes, and at the end.
        device: Where to run; by default the best there is.
        listener: Hears how it goes.

    Example:
        >>> from s2sent.training import SimCSE, train                                            # doctest: +SKIP
        >>> recipe = SimCSE(backbone="bert-base-uncased", corpus=("lines.txt",))                 # doctest: +SKIP
        >>> train(recipe, "out").model.encode(["A sentence."])                                   # doctest: +SKIP
    """
    output = Path(output)
    corpus = Corpus(recipe.corpus, recipe.columns)
    corpus.check()  # first of all: a wrong path should not be found out after a model was loaded
    ranks = Ranks.join(device)
    try:
        run = _Run(recipe, output, corpus, ranks, listener if listener and ranks.leads else Listener())
        run.prepare(restart)
        return run.to_the_end(checkpoint_every)
    except OSError as error:  # checkpoints say it themselves; this is for the log and all the small files
        if is_full(error):
            raise DiskFullError(f"The disk is full: {output} cannot be written to. Make room and run again.") from error
        raise
    finally:
        ranks.leave()


class _Run:
    def __init__(self, recipe: Recipe, output: Path, corpus: Corpus, ranks: Ranks, listener: Listener) -> None:
        self.recipe, self.output, self.corpus, self.ranks, self.listener = recipe, output, corpus, ranks, listener
        self.checkpoints = Checkpoints(output / "checkpoints")
        self.validator: Validator | None = None
        self.position = Position()
        self.best_step, self.best_score = 0, float("-inf")
        self.before: float | None = None
        self.step = 0
        self.done = False
        self.recent: list[float] = []  # losses since the log's last line,
        self.tokens = 0  # and tokens

    def prepare(self, restart: bool) -> None:
        """Read the corpus once, build or restore everything."""
        recipe, ranks = self.recipe, self.ranks
        if ranks.leads and restart:
            clear_output(self.output)
        ranks.wait()
        found = self.checkpoints.newest()
        check_output(self.output, recipe, found)

        self.survey = self._read_corpus()
        self.total = self._plan()
        if found is not None:
            self._check_same(found)

        self.autocast = self._precision()
        seed_step(recipe.seed, 0, 0)  # new weights are the same on every rank
        self.model = make_model(recipe, ranks.device)
        self.loss: ContrastiveLoss = make_loss(recipe, self.model).to(ranks.device)
        self.optimizer = make_optimizer(recipe, self.loss)
        self.batches = Batches(
            self.corpus,
            tokenize=lambda texts: token_ids(encoder_of(self.model), texts, recipe.max_length),
            size=recipe.batch_size,
            seed=recipe.seed,
            window=recipe.window,
            by_length=recipe.by_length,
            rank=ranks.rank,
            world=ranks.world,
        )
        if found is None:
            ranks.share_weights(self.loss)
            if ranks.leads:
                self.output.mkdir(parents=True, exist_ok=True)
                recipe.save(self.output / "recipe.toml")
        else:
            self._restore(found)
        self.log = Log(self.output / "training", upto=self.step, active=ranks.leads)

    def _read_corpus(self) -> Survey:
        survey = self.corpus.survey()
        self.validator = find_validator(self.recipe.dev, self.corpus, survey.examples)
        if self.corpus.held_out:
            survey = self.corpus.survey()
        if self.validator is not None:
            self.listener.note(f"The best step is chosen by {self.validator.name}.")
        return survey

    def _plan(self) -> int:
        """How many steps there are."""
        together = self.recipe.batch_size * self.ranks.world
        if self.survey.examples < together:
            raise DataError(
                f"{', '.join(self.recipe.corpus)}: {self.survey.summary} A step takes {together} of them. Give more "
                f"text, or a batch size of at most {self.survey.examples // self.ranks.world}."
            )
        steps = self.survey.examples // together * self.recipe.epochs
        return min(steps, self.recipe.steps or steps)

    def _precision(self) -> torch.dtype | None:
        if self.recipe.precision == "fp32":
            return None
        if problem := bf16_problem(self.ranks.device):
            self.listener.note(f"Training in fp32: {problem}.")
            return None
        return torch.bfloat16

    def to_the_end(self, checkpoint_every: int | None) -> Finished:
        """Take all steps that are left, then save the best model."""
        if self.step == 0 and self.validator is not None:
            self.before = self._score()
            self.log.write(0, score=self.before)
            self.listener.evaluated(0, self.before, is_best=False)
        if not self.done:
            self._take_steps(checkpoint_every)
            self._log_loss()
            if self.step % self.recipe.evaluate_every:
                self._evaluate()
            self.done = True
            self._write_checkpoint()  # dying while the model is saved costs nothing then
        return self._finish()

    def _take_steps(self, checkpoint_every: int | None) -> None:
        if self.step == self.total:  # died between the last step and the end
            return
        self.listener.start(self.step, self.total)
        clock = time.monotonic()
        with stop_signals() as stop:
            for batch in self._stream():
                loss = self._take_step(batch)
                self.step += 1
                self.position = batch.position
                self._tell(loss, batch.tokens)
                if self.step % self.recipe.evaluate_every == 0:
                    self._evaluate()
                due = (
                    self.step % checkpoint_every == 0 if checkpoint_every else minutes_since(clock) > CHECKPOINT_MINUTES
                )
                due, stopped = self.ranks.agree(due, stop.is_set())
                if due or stopped:
                    self._write_checkpoint()
                    clock = time.monotonic()
                if stopped:
                    self.listener.note(f"Stopped after step {self.step}. The same command goes on from there.")
                    raise KeyboardInterrupt
                if self.step == self.total:
                    break
        if self.step == 0:
            raise DataError(
                f"{', '.join(self.recipe.corpus)}: no batch of {self.recipe.batch_size} different texts could be made. "
                "Are all lines the same?"
            )

    def _stream(self) -> Iterator[Batch]:
        for epoch in range(self.position.epoch, self.recipe.epochs):
            start = self.position if self.position.epoch == epoch else Position(epoch=epoch)
            yield from self.batches.epoch(start)

    def _take_step(self, batch: Batch) -> torch.Tensor:
        recipe, loss = self.recipe, self.loss
        seed_step(recipe.seed, self.step + 1, self.ranks.rank)
        loss.train()
        factor = learning_rate_factor(self.step, self.total, recipe.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        features = [
            {key: value.to(self.ranks.device) for key, value in padded(encoder_of(self.model), ids).items()}
            for ids in batch.columns
        ]
        precision: Any = torch.autocast(self.ranks.device.type, self.autocast) if self.autocast else nullcontext()
        with precision:
            value = loss(features)
            if loss.uses_gradient_cache:  # its backward pass runs the encoder again, and must find the same precision
                value.backward()
        if not loss.uses_gradient_cache:
            value.backward()
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.ranks.average_gradients(parameters)
        torch.nn.utils.clip_grad_norm_(parameters, recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return self.ranks.mean(value.detach())

    def _tell(self, loss: torch.Tensor, tokens: int) -> None:
        value = float(loss)
        if not np.isfinite(value):
            raise DivergedError(
                f"The loss is {value} at step {self.step}: training has diverged. Use a smaller learning rate than "
                f"{self.recipe.learning_rate:g}; the last checkpoint is of before."
            )
        self.listener.step(self.step, value)
        self.recent.append(value)
        self.tokens += tokens * self.ranks.world
        if self.step % LOG_EVERY == 0:
            self._log_loss()

    def _log_loss(self) -> None:
        """Write what has come together since the last time."""
        if self.recent:
            rate = self.optimizer.param_groups[0]["lr"]
            loss = float(np.mean(self.recent))
            self.log.write(self.step, loss=loss, learning_rate=rate, tokens=self.tokens, seconds=round(time.time(), 3))
        self.recent.clear()
        self.tokens = 0

    def _score(self) -> float:
        """Score on rank 0; the others wait and hear."""
        score = torch.zeros((), dtype=torch.float64, device=self.ranks.device)
        if self.ranks.leads and self.validator is not None:
            score += self.validator(self.model)
        return float(self.ranks.mean(score)) * self.ranks.world

    def _evaluate(self) -> None:
        if self.validator is None:
            return
        score = self._score()
        is_best = score > self.best_score
        if is_best:
            self.best_step, self.best_score = self.step, score
            if self.ranks.leads:
                self.checkpoints.write_best(self.loss, self.step)
        self.log.write(self.step, score=score)
        self.listener.evaluated(self.step, score, is_best)

    def _write_checkpoint(self) -> None:
        if self.ranks.leads:
            state = {
                "step": self.step,
                "position": self.position.to_dict(),
                "best_step": self.best_step,
                "best_score": self.best_score if self.best_step else None,
                "before": self.before,
                "done": self.done,
                "duplicates": self.batches.duplicates,
                "leftover": self.batches.leftover,
                "recipe": self.recipe.to_dict(),
                "checksum": self.survey.checksum,
                "ranks": self.ranks.world,
            }
            self.checkpoints.write(self.loss, self.optimizer, state)
        self.ranks.wait()

    def _check_same(self, found: Checkpoint) -> None:
        if found.state["checksum"] != self.survey.checksum:
            raise DataError(
                f"{', '.join(self.recipe.corpus)} is not what it was when the run in {self.output} began. Put the old "
                "text back to go on, or begin anew with --restart."
            )
        if found.state["ranks"] != self.ranks.world:
            raise ConfigError(
                f"The run in {self.output} has {found.state['ranks']} ranks, and this is {self.ranks.world}. Start as "
                "many to go on, or begin anew with --restart."
            )

    def _restore(self, found: Checkpoint) -> None:
        found.restore(self.loss, self.optimizer)
        state = found.state
        self.step = found.step
        self.position = Position.from_dict(state["position"])
        self.before, self.best_step, self.done = state["before"], state["best_step"], state["done"]
        self.best_score = float("-inf") if state["best_score"] is None else state["best_score"]
        self.batches.duplicates, self.batches.leftover = state["duplicates"], state["leftover"]
        self.listener.note(f"Going on from step {self.step} of {self.total}.")

    def _finish(self) -> Finished:
        if self.validator is not None:
            if self.ranks.leads:
                self.checkpoints.restore_best(self.loss, self.best_step)
        else:
            self.best_step = self.step
        self.model.eval()
        recipe, ranks, scores, data = self.recipe, self.ranks, dict[str, float](), self.survey.summary
        if self.batches.duplicates:
            data += f" {self.batches.duplicates:,} times a text was moved to a later batch, being in this one already."
        if self.batches.leftover:
            data += f" {self.batches.leftover:,} filled no batch."
        if self.ranks.leads:
            if self.validator is not None and self.before is not None:
                scores = {f"{self.validator.name} before": self.before, self.validator.name: self.best_score}
            if self.validator is not None and self.validator.name == "STS-B dev":
                scores["STS-B test"] = stsb("test")(self.model)
            self._draw()
            shown = {name: f"{value:.2f}" for name, value in scores.items()}
            card = model_card(self.output.resolve().name, recipe, data, {**shown, "best step": str(self.best_step)})
            save_model(self.model, self.output, card)
            self.checkpoints.clear()
        self.ranks.wait()
        return Finished(self.model, self.step, scores, self.best_step, data, self.output, ranks.leads)

    def _draw(self) -> None:
        try:
            self.log.draw(self.output / "training" / "curve.png", self.validator.name if self.validator else "")
        except ConfigError:  # no matplotlib
            self.listener.note("No curve.png: it needs matplotlib (pip install 's2sent[plot]').")
