"""The training loop: a recipe in, a model folder out.

sentence-transformers' Trainer is not used, for three reasons. Its checkpoints have the model but not the parameters of
the loss, so a train-only head would start untrained on resuming. They are written in place, so a power cut can leave
half a checkpoint. And the optimizer's and random states are pickles. Here checkpoints are atomic and hold everything,
and a step is a function of weights, optimizer state, recipe and step number alone: the data's order comes from the
seed, and every step seeds its own dropout. So a resumed run ends with the same bits as one that was not interrupted.
What sentence-transformers does well is used: its in-batch loss with negatives from all ranks, and GradCache.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from s2sent.atomic import DiskFullError, is_disk_full
from s2sent.data.corpus import Corpus
from s2sent.errors import ConfigError, DataError, S2SentError
from s2sent.listener import Listener
from s2sent.model.prompts import padded, pipeline_of
from s2sent.training.batches import Batch, Batches, Position
from s2sent.training.checkpoint import Checkpoint, Checkpoints, Progress
from s2sent.training.distributed import Ranks, bf16_problem, seed_step, stop_signals
from s2sent.training.log import Log, read_log
from s2sent.training.losses import ContrastiveLoss
from s2sent.training.output import check_output, clear_output, lock_output, model_card, save_model
from s2sent.training.recipes import Precision, Recipe, SimCSE, Whitened
from s2sent.training.setup import encoder_of, has_dropout, make_loss, make_model, make_optimizer
from s2sent.training.validation import Validator, find_validator, resolve_dev, stsb

LOG_EVERY = 10
"""Steps between lines of the log; fewer in a short run, so that its curve has points."""
CHECKPOINT_SECONDS = 300.0
LOW_LOSS = 0.01
"""A mean loss of the first steps below this teaches little."""


class DivergedError(S2SentError):
    """The loss or its gradient is not finite."""


@dataclass(frozen=True)
class TrainResult:
    """The result of `train`.

    Attributes:
        model: The model of the best step, as it was saved. (Of several ranks, the main one has it.)
        steps: How many steps were taken.
        scores: The scores before training and of the best step.
        best_step: The step whose weights these are.
        data: What was read, left out and changed, in a line.
        output: The model's folder.
        is_main: Whether this is the rank that reports, of several that trained together.
    """

    model: SentenceTransformer
    steps: int
    scores: dict[str, float]
    best_step: int
    data: str
    output: Path
    is_main: bool = True


def train(
    recipe: Recipe,
    output: str | Path,
    *,
    restart: bool = False,
    checkpoint_every: int | None = None,
    device: str | None = None,
    listener: Listener | None = None,
) -> TrainResult:
    """Train an encoder and save it; called again after an interruption, continue from the last checkpoint.

    Args:
        recipe: Everything that decides the result.
        output: The folder for the model, its recipe, card and log, and for checkpoints while the run lasts.
        restart: Remove what an earlier run wrote to `output`, as soon as this one is ready to start.
        checkpoint_every: Steps between checkpoints; None: every five minutes, and at the end.
        device: Where to train; by default the best device there is.
        listener: Receives the progress.

    Example:
        >>> from s2sent.training import SimCSE, train                                            # doctest: +SKIP
        >>> recipe = SimCSE(backbone="bert-base-uncased", corpus=("lines.txt",))                 # doctest: +SKIP
        >>> train(recipe, "out").model.encode(["A sentence."])                                   # doctest: +SKIP
    """
    output, recipe = Path(output), recipe.with_absolute_paths()
    if checkpoint_every is not None and checkpoint_every < 1:
        raise ConfigError(f"checkpoint_every must be at least 1 step, got {checkpoint_every}.")
    corpus = Corpus(recipe.corpus, recipe.columns)
    corpus.check()  # first of all: a wrong path should be reported before a model is loaded
    ranks = Ranks.join(device)
    try:
        run = _Run(recipe, output, corpus, ranks, listener if listener and ranks.is_main else Listener(), restart)
        with run.claim_output() as checkpoint:
            run.prepare(checkpoint)
            return run.run(checkpoint_every)
    except OSError as error:  # of the log and other small files; checkpoints raise DiskFullError themselves
        if is_disk_full(error):
            raise DiskFullError(f"The disk is full: {output} cannot be written to. Make room and run again.") from error
        raise
    finally:
        ranks.leave()


class _Run:
    def __init__(
        self, recipe: Recipe, output: Path, corpus: Corpus, ranks: Ranks, listener: Listener, restart: bool
    ) -> None:
        self.recipe, self.output, self.corpus, self.ranks, self.listener = recipe, output, corpus, ranks, listener
        self.restart = restart
        self.checkpoints = Checkpoints(output / "checkpoints")
        self.recent: list[float] = []  # losses since the last line of the log,
        self.tokens = 0  # and tokens

    @contextmanager
    def claim_output(self) -> Iterator[Checkpoint | None]:
        """Lock the output; yield the checkpoint to continue from, if there is one."""
        self._find_checkpoint()  # before anything is written there
        problem = None
        with ExitStack() as stack:
            if self.ranks.is_main:
                try:
                    stack.enter_context(lock_output(self.output))
                except S2SentError as error:
                    problem = error
            if any(self.ranks.any_rank(problem is not None)):  # or the other ranks would wait for ever
                raise problem or ConfigError(f"The first process cannot train in {self.output}.")
            yield self._find_checkpoint()  # again: another process may have finished in the meantime

    def _find_checkpoint(self) -> Checkpoint | None:
        found = None if self.restart else self.checkpoints.newest()
        check_output(self.output, self.recipe, found, restart=self.restart)
        return found

    def prepare(self, checkpoint: Checkpoint | None) -> None:
        """Read the corpus once; build or restore everything."""
        recipe, ranks, listener = self.recipe, self.ranks, self.listener
        before = {} if checkpoint is None else checkpoint.run
        for line in self.checkpoints.skipped:
            listener.note(line)
        if self.checkpoints.skipped and checkpoint is None:
            listener.note("No usable checkpoint is left: starting at the first step.")

        listener.status("Reading the text")
        self.dev = resolve_dev(before.get("dev"), recipe.dev, self.output)
        self.survey = self.corpus.survey()
        self.validator = find_validator(self.dev, self.corpus, self.survey.examples)
        if self.corpus.held_out:
            self.survey = self.corpus.survey()
        if self.validator is not None:
            listener.note(f"The best step is chosen by {self.validator.name}.")
        self.total = self._count_steps()
        if checkpoint is not None:
            self._check_same(before)
        elif recipe.steps and self.total < recipe.steps:
            listener.note(f"{self.total} steps, not {recipe.steps}: the text has no more (--epochs {recipe.epochs}).")

        listener.status("Loading the backbone")
        self.precision: Precision = "fp32" if "fp32" in (recipe.precision, before.get("precision")) else "bf16"
        if self.precision == "bf16" and (problem := bf16_problem(ranks.device)):
            listener.note(f"Training in fp32: {problem}.")
            self.precision = "fp32"
        seed_step(recipe.seed, 0, 0)  # new weights are the same on every rank
        self.model = make_model(recipe, ranks.device)
        self.loss: ContrastiveLoss = make_loss(recipe, self.model).to(ranks.device)
        self.loss.check_batch(recipe.batch_size * ranks.world)
        if isinstance(recipe, SimCSE | Whitened) and not has_dropout(self.model):
            listener.note(
                "The backbone has no dropout, so all views of a sentence are the same vector, and little will be "
                "learned. Set one above 0 in its config.json (0.1 is usual)."
            )
        self.stepper = Stepper(
            recipe, self.loss, ranks, self.total, torch.bfloat16 if self.precision == "bf16" else None
        )
        self.progress = Progress() if checkpoint is None else checkpoint.progress
        self.batches = Batches(
            self.corpus,
            tokenize=pipeline_of(encoder_of(self.model), recipe.max_length).token_ids,
            size=recipe.batch_size,
            seed=recipe.seed,
            window=recipe.window,
            by_length=recipe.by_length,
            rank=ranks.rank,
            world=ranks.world,
            counts=self.progress.counts,
        )
        if checkpoint is not None:
            checkpoint.restore(self.loss, self.stepper.optimizer)
            listener.note(f"Continuing from step {self.progress.step} of {self.total}.")
        else:
            ranks.broadcast_weights(self.loss)
            if ranks.is_main:  # nothing of an earlier run is removed before this one can start
                if self.restart:
                    self.checkpoints.clear()
                clear_output(self.output)
        self.log = Log(self.output / "training", upto=self.progress.step, active=ranks.is_main)
        if checkpoint is None and ranks.is_main:  # after the log, which marks the folder as a run's
            recipe.save(self.output / "recipe.toml")

    def _count_steps(self) -> int:
        size = self.recipe.batch_size * self.ranks.world
        if self.survey.examples < size:
            most = self.survey.examples // self.ranks.world
            raise DataError(
                f"{', '.join(self.recipe.corpus)}: {self.survey.summary} A step takes {size} of them. Give more "
                f"text{f', or a batch size of at most {most}' if most > 1 else ''}."
            )
        steps = self.survey.examples // size * self.recipe.epochs
        return min(steps, self.recipe.steps or steps)

    def _check_same(self, before: dict[str, Any]) -> None:
        if before["checksum"] != self.survey.checksum:
            raise DataError(
                f"{', '.join(self.recipe.corpus)} has changed since the run in {self.output} began. Put the old text "
                "back to continue, or start again with --restart."
            )
        if before["ranks"] != self.ranks.world:
            raise ConfigError(
                f"The run in {self.output} has {before['ranks']} ranks, and this is {self.ranks.world}. Start as many "
                "to continue, or start again with --restart."
            )

    def run(self, checkpoint_every: int | None) -> TrainResult:
        """Take the remaining steps, then save the best model."""
        progress = self.progress
        if progress.step == 0 and self.validator is not None:
            progress.before = self._score(self.validator)
            self.log.write(0, score=progress.before)
            self.listener.evaluated(0, progress.before, is_best=False)
        if not progress.done:
            with stop_signals() as stop:  # the last score, too, is waited for
                self._take_steps(checkpoint_every, stop)
                self._log_loss()
                if progress.step % self.recipe.evaluate_every:
                    self._evaluate()
                self._warn()
                progress.done = True
                self._write_checkpoint()  # from here on, a process that dies has only the model to save again
            if any(self.ranks.any_rank(stop.is_set())):
                self._stop()
        return self._finish()

    def _take_steps(self, checkpoint_every: int | None, stop: threading.Event) -> None:
        progress = self.progress
        if progress.step == self.total:  # interrupted between the last step and the end
            return
        self.listener.progress(progress.step, self.total)
        saved = time.monotonic()
        for batch in self._stream():
            loss = self.stepper.take(batch, progress.step + 1)
            progress.step += 1
            progress.position = batch.position
            self.listener.progress(progress.step, self.total, loss)
            self.recent.append(loss)
            self.tokens += batch.tokens * self.ranks.world
            if progress.step % min(LOG_EVERY, max(self.total // LOG_EVERY, 1)) == 0:
                self._log_loss()
            if progress.step % self.recipe.evaluate_every == 0:
                self._evaluate()
            due = (
                progress.step % checkpoint_every == 0
                if checkpoint_every
                else time.monotonic() - saved > CHECKPOINT_SECONDS
            )
            due, stopped = self.ranks.any_rank(due, stop.is_set())
            if due or stopped:
                self._write_checkpoint()
                saved = time.monotonic()
            if stopped:
                self._stop()
            if progress.step == self.total:
                break
        if progress.step == 0:
            raise DataError(
                f"{', '.join(self.recipe.corpus)}: no batch of {self.recipe.batch_size} different texts could be made. "
                "Are all lines the same, or without text for this tokenizer?"
            )

    def _stream(self) -> Iterator[Batch]:
        start = self.progress.position
        for epoch in range(start.epoch, self.recipe.epochs):
            yield from self.batches.epoch(start if start.epoch == epoch else Position(epoch=epoch))

    def _stop(self) -> None:
        command = f"The same command{' without --restart' if self.restart else ''}"
        self.listener.note(f"Stopped after step {self.progress.step}. {command} continues from there.")
        raise KeyboardInterrupt

    def _log_loss(self) -> None:
        if self.recent:
            self.log.write(
                self.progress.step,
                loss=float(np.mean(self.recent)),
                learning_rate=self.stepper.learning_rate,
                tokens=self.tokens,
                time=round(time.time(), 3),
            )
        self.recent.clear()
        self.tokens = 0

    def _warn(self) -> None:
        """Report a run that learned little."""
        losses = [row["loss"] for row in read_log(self.log.path) if "loss" in row]
        if losses and losses[0] < LOW_LOSS:
            self.listener.note(
                f"The loss was {losses[0]:.2g} from the start: the backbone separates these texts already, and little "
                "was learned. Larger batches, texts more like each other, or hard negatives make it harder."
            )
        before, best = self.progress.before, self.progress.best_score
        if before is not None and best is not None and best < before:
            selection = self.recipe.selection
            could_start = selection.branches > 1 and selection.prior != "last"
            instead = "start from its last block (--gate linear --prior last), or" if could_start else "train it"
            self.listener.note(
                f"No step was better than the model before training: {before:.2f} before, {best:.2f} at best. For an "
                f"encoder that is good already, {instead} with a lower --learning-rate."
            )

    def _score(self, validator: Validator) -> float:
        """Score on the main rank; the others receive the score."""
        self.listener.status(f"Scoring on {validator.name}")
        return self.ranks.broadcast(validator(self.model) if self.ranks.is_main else 0.0)

    def _evaluate(self) -> None:
        if self.validator is None:
            return
        progress, score = self.progress, self._score(self.validator)
        best = progress.best_score
        is_best = best is None or math.isnan(best) or score > best  # any score is better than NaN
        if is_best:
            progress.best_step, progress.best_score = progress.step, score
            if self.ranks.is_main:
                self.checkpoints.write_best(self.loss, progress.step)
        self.log.write(progress.step, score=score)
        self.listener.evaluated(progress.step, score, is_best)

    def _write_checkpoint(self) -> None:
        if self.ranks.is_main:
            run = {
                "recipe": self.recipe.to_dict(),
                "checksum": self.survey.checksum,
                "ranks": self.ranks.world,
                "dev": self.dev,
                "precision": self.precision,
            }
            self.checkpoints.write(self.loss, self.stepper.optimizer, self.progress, run)
        self.ranks.barrier()

    def _finish(self) -> TrainResult:
        progress, counts, data = self.progress, self.progress.counts, self.survey.summary
        if self.validator is None:
            progress.best_step = progress.step
        elif self.ranks.is_main:
            self.checkpoints.restore_best(self.loss, progress.best_step)
        self.model.eval()
        if counts.duplicates:
            data += f" {counts.duplicates:,} times a text was moved to a later batch, because its batch had it already."
        if counts.leftover:
            data += f" {counts.leftover:,} filled no batch."
        if counts.no_text:
            data += f" {counts.no_text:,} times a line was left out, because the tokenizer finds no text in it."
        scores: dict[str, float] = {}
        if self.ranks.is_main:
            scores = self._final_scores()
            has_curve = self._draw_curve()
            self.listener.status("Saving the model")
            step = f"{progress.best_step:,} of {progress.step:,}"
            recipe = replace(self.recipe, precision=self.precision)
            card = model_card(self.output.resolve().name, recipe, data, scores, step, has_curve=has_curve)
            save_model(self.model, self.output, card)
            self.log.close()
            self.checkpoints.clear()
        self.ranks.barrier()
        return TrainResult(
            self.model, progress.step, scores, progress.best_step, data, self.output, is_main=self.ranks.is_main
        )

    def _final_scores(self) -> dict[str, float]:
        """Return the scores before training and of the best step; STS-B test once, if STS-B dev chose the step."""
        if self.validator is None or self.progress.before is None or self.progress.best_score is None:
            return {}
        name = self.validator.name
        scores = {f"{name} before": self.progress.before, name: self.progress.best_score}
        if name == "STS-B dev":
            self.listener.status("Scoring on STS-B test")
            scores["STS-B test"] = stsb("test")(self.model)
        return scores

    def _draw_curve(self) -> bool:
        try:
            self.log.draw(self.output / "training" / "curve.png", self.validator.name if self.validator else "")
        except ConfigError:  # no matplotlib
            self.listener.note("No curve.png: it needs matplotlib (pip install 's2sent[plot]').")
            return False
        return True


class Stepper:
    """Takes training steps.

    Args:
        recipe: Its learning rates, warm-up, clipping and seed are used.
        loss: The loss around the model that is trained.
        ranks: The processes that train together.
        total: How many steps the run has, for the decay of the learning rate.
        autocast: The type to compute in; None: the type of the weights.
    """

    def __init__(
        self, recipe: Recipe, loss: ContrastiveLoss, ranks: Ranks, total: int, autocast: torch.dtype | None = None
    ) -> None:
        self.recipe, self.loss, self.ranks, self.total, self.autocast = recipe, loss, ranks, total, autocast
        self.optimizer = make_optimizer(recipe, loss)
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def learning_rate(self) -> float:
        """The backbone's learning rate in the last step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def take(self, batch: Batch, step: int) -> float:
        """Take the `step`-th step, counted from 1; return the loss, averaged over the ranks.

        Raises:
            DivergedError: The loss or its gradient is not finite. The weights are as they were before.
        """
        seed_step(self.recipe.seed, step, self.ranks.rank)
        self.loss.train()
        factor = learning_rate_factor(step - 1, self.total, self.recipe.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        value = self._backward(batch)
        self.ranks.average_gradients(self.parameters)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip)
        loss = float(self.ranks.mean(value))
        if not (torch.isfinite(norm) and math.isfinite(loss)):
            raise DivergedError(
                f"Training has diverged at step {step}: the loss is {loss:g}, the norm of its gradient {norm:g}. Use a "
                f"smaller learning rate than {self.recipe.learning_rate:g}, and --restart."
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def _backward(self, batch: Batch) -> Tensor:
        device, encoder = self.ranks.device, encoder_of(self.loss.model)
        features = [{key: v.to(device) for key, v in padded(encoder, ids).items()} for ids in batch.columns]
        precision: Any = torch.autocast(device.type, self.autocast) if self.autocast else nullcontext()
        with precision:
            value: Tensor = self.loss(features)
            if self.loss.uses_gradient_cache:  # its backward pass runs the encoder again, in the same precision
                value.backward()  # type: ignore[no-untyped-call]
        if not self.loss.uses_gradient_cache:
            value.backward()  # type: ignore[no-untyped-call]
        return value.detach()


def learning_rate_factor(step: int, total: int, warmup: float) -> float:
    """Return the factor of the base rate: linear warm-up, then linear decay to 0; `step` counts from 0."""
    rising = int(total * warmup)
    if step < rising:
        return (step + 1) / rising
    return max(total - step, 0) / max(total - rising, 1)
