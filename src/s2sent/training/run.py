"""The run: a recipe in, a model folder out, and nothing lost when the machine dies on the way.

Own loop, not the host's Trainer, whose checkpoints leave out the loss's parameters (the train-only heads) and are not
written atomically. Everything a step does is a function of the weights, the optimizer's moments, the recipe and the
step's number: the data's order comes from the seed, and every step seeds its own dropout.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from s2sent.atomic import DiskFullError, is_disk_full
from s2sent.data.corpus import Corpus, Survey
from s2sent.errors import ConfigError, DataError, S2SentError
from s2sent.model.tokens import token_ids
from s2sent.training.batches import Batch, Batches, Position
from s2sent.training.card import model_card
from s2sent.training.checkpoint import Checkpoint, Checkpoints, Progress
from s2sent.training.log import Listener, Log, read_log
from s2sent.training.objectives import ContrastiveLoss
from s2sent.training.output import check_output, claimed, clear_output, save_model
from s2sent.training.precision import bf16_problem
from s2sent.training.process import minutes_since, seed_step, stop_signals
from s2sent.training.ranks import Ranks
from s2sent.training.recipes import Precision, Recipe, SimCSE, Whitened
from s2sent.training.setup import encoder_of, has_dropout, make_loss, make_model
from s2sent.training.step import Stepper
from s2sent.training.validation import Validator, find_validator, has_stsb, stsb

LOG_EVERY = 10
"""Steps to a line of the log; fewer in a run so short that its curve would have no points."""
CHECKPOINT_MINUTES = 5.0
EASY = 0.01
"""A mean loss of the first steps below this teaches little."""


@dataclass(frozen=True)
class Finished:
    """What a run came to.

    Attributes:
        model: The model of the best step, as it was saved. (Of several processes, the one that leads has it.)
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
        restart: Throw away what an earlier run left in `output`, as soon as this one is ready to begin.
        checkpoint_every: Steps between checkpoints; None: every five minutes, and at the end.
        device: Where to run; by default the best there is.
        listener: Hears how it goes.

    Example:
        >>> from s2sent.training import SimCSE, train                                            # doctest: +SKIP
        >>> recipe = SimCSE(backbone="bert-base-uncased", corpus=("lines.txt",))                 # doctest: +SKIP
        >>> train(recipe, "out").model.encode(["A sentence."])                                   # doctest: +SKIP
    """
    output, recipe = Path(output), recipe.anchored()
    if checkpoint_every is not None and checkpoint_every < 1:
        raise ConfigError(f"checkpoint_every must be at least 1 step, got {checkpoint_every}.")
    corpus = Corpus(recipe.corpus, recipe.columns)
    corpus.check()  # first of all: a wrong path should not be found out after a model was loaded
    ranks = Ranks.join(device)
    try:
        run = _Run(recipe, output, corpus, ranks, listener if listener and ranks.leads else Listener(), restart)
        with run.claim() as found:
            run.prepare(found)
            return run.to_the_end(checkpoint_every)
    except OSError as error:  # checkpoints say it themselves; this is for the log and all the small files
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
        self.validator: Validator | None = None
        self.progress = Progress()
        self.recent: list[float] = []  # losses since the log's last line,
        self.tokens = 0  # and tokens

    @contextmanager
    def claim(self) -> Iterator[Checkpoint | None]:
        """Have the output to ourselves; give the checkpoint to go on from, if there is one."""
        self._look()  # before anything is made there
        problem = None
        with ExitStack() as stack:
            if self.ranks.leads:
                try:
                    stack.enter_context(claimed(self.output))
                except S2SentError as error:
                    problem = error
            if any(self.ranks.agree(problem is not None)):  # or the others would wait for one that has gone
                raise problem or ConfigError(f"The first process cannot train in {self.output}.")
            yield self._look()  # again: who had it a moment ago may have come further, or to the end

    def _look(self) -> Checkpoint | None:
        found = None if self.restart else self.checkpoints.newest()
        check_output(self.output, self.recipe, found, restart=self.restart)
        return found

    def prepare(self, found: Checkpoint | None) -> None:
        """Read the corpus once, build or restore everything."""
        recipe, ranks = self.recipe, self.ranks
        for line in self.checkpoints.passed_over:
            self.listener.note(line)
        if self.checkpoints.passed_over and found is None:
            self.listener.note("No checkpoint is left to go on from: beginning at the first step.")

        self.listener.doing("Reading the text")
        self.dev = self._choose_dev(found)
        self.survey = self._read_corpus()
        self.total = self._plan()
        if recipe.steps and self.total < recipe.steps and found is None:
            note = (
                f"{self.total} steps, not {recipe.steps}: that is as far as the text goes (--epochs {recipe.epochs})."
            )
            self.listener.note(note)
        if found is not None:
            self._check_same(found)

        self.listener.doing("Loading the backbone")
        self.precision = self._choose_precision(found)
        autocast = torch.bfloat16 if self.precision == "bf16" else None
        seed_step(recipe.seed, 0, 0)  # new weights are the same on every rank
        self.model = make_model(recipe, ranks.device)
        self.loss: ContrastiveLoss = make_loss(recipe, self.model).to(ranks.device)
        self.loss.check_batch(recipe.batch_size * ranks.world)
        self._say_if_still()
        self.stepper = Stepper(recipe, self.loss, ranks, self.total, autocast)
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
            if ranks.leads:  # nothing an earlier run left is touched before this one can begin
                if self.restart:
                    self.checkpoints.clear()
                clear_output(self.output)
        else:
            self._restore(found)
        self.log = Log(self.output / "training", upto=self.progress.step, active=ranks.leads)
        if found is None and ranks.leads:  # after the log, without which it would be taken for a person's
            recipe.save(self.output / "recipe.toml")

    def _choose_dev(self, found: Checkpoint | None) -> str:
        """Say what `auto` means: once, for steps compare by one score, and held-out lines are not trained on."""
        dev = self.recipe.dev if found is None else found.run.get("dev", self.recipe.dev)
        if dev == "stsb" and self.recipe.dev == "auto" and not has_stsb():
            raise DataError(
                f"The run in {self.output} chooses its best step by STS-B dev, and S2SENT_DATA no longer names a "
                "folder that has it. Set it as it was to go on, or begin anew with --restart."
            )
        return ("stsb" if has_stsb() else "heldout") if dev == "auto" else dev

    def _say_if_still(self) -> None:
        if isinstance(self.recipe, SimCSE | Whitened) and not has_dropout(self.model):
            self.listener.note(
                "The backbone has no dropout, so all views of a sentence are the same vector, and little will be "
                "learned. Set one above 0 in its config.json (0.1 is usual)."
            )

    def _read_corpus(self) -> Survey:
        survey = self.corpus.survey()
        self.validator = find_validator(self.dev, self.corpus, survey.examples)
        if self.corpus.held_out:
            survey = self.corpus.survey()
        if self.validator is not None:
            self.listener.note(f"The best step is chosen by {self.validator.name}.")
        return survey

    def _plan(self) -> int:
        """How many steps there are."""
        together = self.recipe.batch_size * self.ranks.world
        if self.survey.examples < together:
            most = self.survey.examples // self.ranks.world
            raise DataError(
                f"{', '.join(self.recipe.corpus)}: {self.survey.summary} A step takes {together} of them. Give more "
                f"text{f', or a batch size of at most {most}' if most > 1 else ''}."
            )
        steps = self.survey.examples // together * self.recipe.epochs
        return min(steps, self.recipe.steps or steps)

    def _choose_precision(self, found: Checkpoint | None) -> Precision:
        """What the recipe says where the machine can; a run that began in fp32 for want of bf16 goes on in it."""
        began = None if found is None else found.run.get("precision")
        if "fp32" in (self.recipe.precision, began):
            return "fp32"
        if problem := bf16_problem(self.ranks.device):
            self.listener.note(f"{'Training' if found is None else 'Going on'} in fp32: {problem}.")
            return "fp32"
        return "bf16"

    def to_the_end(self, checkpoint_every: int | None) -> Finished:
        """Take all steps that are left, then save the best model."""
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
                self._say_if_easy()
                self._say_if_worse()
                progress.done = True
                self._write_checkpoint()  # dying while the model is saved costs nothing then
            if any(self.ranks.agree(stop.is_set())):
                self._stop()
        return self._finish()

    def _stop(self) -> None:
        command = f"The same command{' without --restart' if self.restart else ''}"
        self.listener.note(f"Stopped after step {self.progress.step}. {command} goes on from there.")
        raise KeyboardInterrupt

    def _take_steps(self, checkpoint_every: int | None, stop: Event) -> None:
        progress = self.progress
        if progress.step == self.total:  # died between the last step and the end
            return
        self.listener.start(progress.step, self.total)
        clock = time.monotonic()
        for batch in self._stream():
            loss = self.stepper.take(batch, progress.step + 1)
            progress.step += 1
            progress.position = batch.position
            self._tell(loss, batch.tokens)
            if progress.step % self.recipe.evaluate_every == 0:
                self._evaluate()
            due = (
                progress.step % checkpoint_every == 0 if checkpoint_every else minutes_since(clock) > CHECKPOINT_MINUTES
            )
            due, stopped = self.ranks.agree(due, stop.is_set())
            if due or stopped:
                self._write_checkpoint()
                clock = time.monotonic()
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
        at = self.progress.position
        for epoch in range(at.epoch, self.recipe.epochs):
            yield from self.batches.epoch(at if at.epoch == epoch else Position(epoch=epoch))

    def _tell(self, loss: float, tokens: int) -> None:
        self.listener.step(self.progress.step, loss)
        self.recent.append(loss)
        self.tokens += tokens * self.ranks.world
        if self.progress.step % min(LOG_EVERY, max(self.total // LOG_EVERY, 1)) == 0:
            self._log_loss()

    def _log_loss(self) -> None:
        """Write what has come together since the last time."""
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

    def _say_if_easy(self) -> None:
        losses = [row["loss"] for row in read_log(self.log.path) if "loss" in row]
        if losses and losses[0] < EASY:
            self.listener.note(
                f"The loss was {losses[0]:.2g} from the start: the backbone tells these texts apart already, and "
                "little was learned. Larger batches, texts more like each other or hard negatives make it harder."
            )

    def _say_if_worse(self) -> None:
        before, best = self.progress.before, self.progress.best_score
        if before is not None and best is not None and best < before:
            selection = self.recipe.selection
            could_start = selection.branches > 1 and selection.prior != "last"
            instead = "start from its last block (--gate linear --prior last), or" if could_start else "train it"
            self.listener.note(
                f"No step was as good as none: {before:.2f} before the first, {best:.2f} at best. To adapt an encoder "
                f"that is good already, {instead} with a lower --learning-rate."
            )

    def _score(self, validator: Validator) -> float:
        """Score on rank 0; the others wait and hear."""
        self.listener.doing(f"Scoring on {validator.name}")
        return self.ranks.from_leader(validator(self.model) if self.ranks.leads else 0.0)

    def _evaluate(self) -> None:
        if self.validator is None:
            return
        progress, score = self.progress, self._score(self.validator)
        best = progress.best_score
        is_best = best is None or math.isnan(best) or score > best  # a score that is none gives way to any other
        if is_best:
            progress.best_step, progress.best_score = progress.step, score
            if self.ranks.leads:
                self.checkpoints.write_best(self.loss, progress.step)
        self.log.write(progress.step, score=score)
        self.listener.evaluated(progress.step, score, is_best)

    def _write_checkpoint(self) -> None:
        progress, batches = self.progress, self.batches
        progress.duplicates, progress.leftover, progress.no_text = batches.duplicates, batches.leftover, batches.no_text
        if self.ranks.leads:
            run = {
                "recipe": self.recipe.to_dict(),
                "checksum": self.survey.checksum,
                "ranks": self.ranks.world,
                "dev": self.dev,
                "precision": self.precision,
            }
            self.checkpoints.write(self.loss, self.stepper.optimizer, progress, run)
        self.ranks.wait()

    def _check_same(self, found: Checkpoint) -> None:
        if found.run["checksum"] != self.survey.checksum:
            raise DataError(
                f"{', '.join(self.recipe.corpus)} is not what it was when the run in {self.output} began. Put the old "
                "text back to go on, or begin anew with --restart."
            )
        if found.run["ranks"] != self.ranks.world:
            raise ConfigError(
                f"The run in {self.output} has {found.run['ranks']} ranks, and this is {self.ranks.world}. Start as "
                "many to go on, or begin anew with --restart."
            )

    def _restore(self, found: Checkpoint) -> None:
        found.restore(self.loss, self.stepper.optimizer)
        self.progress = progress = found.progress
        batches = self.batches
        batches.duplicates, batches.leftover, batches.no_text = progress.duplicates, progress.leftover, progress.no_text
        self.listener.note(f"Going on from step {self.progress.step} of {self.total}.")

    def _finish(self) -> Finished:
        progress, data = self.progress, self.survey.summary
        if self.validator is None:
            progress.best_step = progress.step
        elif self.ranks.leads:
            self.checkpoints.restore_best(self.loss, progress.best_step)
        self.model.eval()
        if self.batches.duplicates:
            data += f" {self.batches.duplicates:,} times a text was moved to a later batch, being in this one already."
        if self.batches.leftover:
            data += f" {self.batches.leftover:,} filled no batch."
        if self.batches.no_text:
            data += f" {self.batches.no_text:,} times a line was left out, for the tokenizer finds no text in it."
        scores: dict[str, float] = {}
        if self.ranks.leads:
            scores = self._last_scores()
            drawn = self._draw()
            self.listener.doing("Saving the model")
            shown = {name: f"{value:.2f}" for name, value in scores.items()}
            step = f"{progress.best_step:,} of {progress.step:,}"
            recipe = replace(self.recipe, precision=self.precision)
            card = model_card(self.output.resolve().name, recipe, data, shown, step, has_curve=drawn)
            save_model(self.model, self.output, card)
            self.log.close()
            self.checkpoints.clear()
        self.ranks.wait()
        return Finished(
            self.model, progress.step, scores, progress.best_step, data, self.output, leads=self.ranks.leads
        )

    def _last_scores(self) -> dict[str, float]:
        """What the model card and the screen show: before, best, and STS-B test once, if dev chose."""
        if self.validator is None or self.progress.before is None or self.progress.best_score is None:
            return {}
        name = self.validator.name
        scores = {f"{name} before": self.progress.before, name: self.progress.best_score}
        if name == "STS-B dev":
            self.listener.doing("Scoring on STS-B test")
            scores["STS-B test"] = stsb("test")(self.model)
        return scores

    def _draw(self) -> bool:
        try:
            self.log.draw(self.output / "training" / "curve.png", self.validator.name if self.validator else "")
        except ConfigError:  # no matplotlib
            self.listener.note("No curve.png: it needs matplotlib (pip install 's2sent[plot]').")
            return False
        return True
