"""A run with the encoder frozen: one form, trained and scored on states that all runs of an encoder share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch

from s2sent.data.examples import Columns, Examples, Kind, read_examples
from s2sent.data.senteval import TRANSFER_TASKS
from s2sent.errors import ConfigError
from s2sent.evaluation.encoder import Encoder, Vectors
from s2sent.experiments.inputs import BackboneInput
from s2sent.experiments.measures import spread
from s2sent.experiments.plan import Run
from s2sent.listener import Listener
from s2sent.model.backbone import Backbone
from s2sent.selection.config import PoolingMode, SelectionConfig
from s2sent.training.frozen import Contrast, Form, FormResult, FrozenTrainer, TrainingOptions, split, text_encoder
from s2sent.training.recipes import Frozen
from s2sent.vectors.states import FrozenStates, StateEncoder, Sums, is_whole, keep_states, states_key


@dataclass
class FrozenEncoder:
    """A frozen encoder, and the states of texts: computed when they are asked for the first time, and kept.

    Attributes:
        backbone: The encoder.
        pooling: How its states are pooled.
        precision: `fp32` or `bf16`.
        folder: Where states are kept.
    """

    backbone: BackboneInput
    pooling: PoolingMode
    precision: str
    folder: Path

    @property
    def blocks(self) -> Backbone:
        """The encoder as a stack of blocks, without having loaded it."""
        return Backbone(self.backbone.name, self.backbone.depth, None, None)

    def sums(self, *, every: bool) -> Sums:
        """Return which sums are kept of a text: the usual ones, or with `every` all that the paper's forms need."""
        selections = []
        if every:
            numbers = [number for number in (1, 3, 6, 9, 12) if number <= self.backbone.depth]
            selections = [SelectionConfig(blocks=number, frequencies=16) for number in numbers]
            selections.append(SelectionConfig(blocks=min(3, self.backbone.depth), squeeze="none"))
        return Sums.of(selections, self.blocks)

    def states(self, texts: Sequence[str], listener: Listener, *, every: bool) -> FrozenStates:
        """Return the states of some texts; the encoder is loaded and run only where they are not there yet."""
        sums = self.sums(every=every)
        key = states_key(self.backbone.fingerprint, texts, sums, pooling=self.pooling, precision=self.precision)
        folder = self.folder / key
        if is_whole(folder):
            return _open(folder)

        def tell(done: int, of: int) -> None:
            listener.note(f"encoding {done:,} of {of:,} texts")

        encoder = StateEncoder(_model(self.backbone.path), self.pooling, self.precision)
        return keep_states(encoder, texts, folder, sums, on_texts=tell)


@cache
def _open(folder: Path) -> FrozenStates:
    return FrozenStates.open(folder)


@cache
def _model(path: str) -> Any:
    from s2sent.model.load import open_encoder

    return open_encoder(path, model_kwargs={"dtype": torch.float32})


@cache
def _examples(sources: tuple[str, ...], columns: tuple[str, ...]) -> Examples:
    found = read_examples(sources, Columns(columns))
    if found.kind not in (Kind.PAIRS, Kind.TRIPLETS):
        raise ConfigError(f"{', '.join(sources)}: the frozen regime is trained on pairs or triplets.")
    return found


def train_frozen(run: Run, work: Path, sentences: Iterable[str], listener: Listener) -> tuple[Vectors, dict[str, Any]]:
    """Train a run's form; return the vectors of `sentences`, and what a record says of it beside scores."""
    recipe = cast(Frozen, run.recipe)
    encoder = FrozenEncoder(run.backbone, recipe.pooling, recipe.precision, work.parent / "states")
    examples = _examples(recipe.corpus, recipe.columns)
    states = encoder.states(examples.texts, listener, every=True)
    texts = sorted({sentence or "." for sentence in sentences})  # an empty one is shown as a full stop
    # Transfer tasks have a hundred thousand texts, and the forms that they score need only the usual sums.
    is_transfer = any(name in run.evaluation.tasks for name in TRANSFER_TASKS)
    scored = encoder.states(texts, listener, every=not is_transfer)
    trainer = _trainer(recipe, examples, states, encoder.blocks)
    listener.note("training")
    result = _fitted(recipe, trainer, run.backbone.depth)
    head, _ = trainer.head(result.form)
    head.load_state_dict(result.weights)
    reader = trainer.reader(head, scored)
    if recipe.shuffled:
        reader.shuffle(recipe.seed)
    encode = text_encoder(head, reader, texts)
    vectors = Vectors(Encoder(run.name, lambda given: encode([text or "." for text in given])))
    found: dict[str, Any] = {
        "parameters": {"added": result.parameters, "backbone": states.parameters},
        "held_out": {
            "loss": round(result.loss, 5),
            "error": round(result.error, 5),
            "step": result.step,
            "seconds": round(result.seconds, 2),
        },
    }
    if result.map_learning_rate is not None:
        found["held_out"]["map_learning_rate"] = result.map_learning_rate
    if result.form.selection is not None:
        rows = torch.arange(0, len(texts), max(1, len(texts) // 256))[:256]
        with torch.inference_mode():
            found["weights"] = spread(head.select(reader, rows).weights)
        found["held_out"]["start"] = result.form.selection.prior
        if recipe.single:
            found["held_out"]["state"] = reader.indices[0]
    return vectors, found


def _trainer(recipe: Frozen, examples: Examples, states: FrozenStates, blocks: Backbone) -> FrozenTrainer:
    rows = torch.from_numpy(examples.rows)
    anchors = [examples.texts[row] for row in examples.rows[:, 0].tolist()]
    train, held_out = split(anchors, 0.5, recipe.held_out, recipe.seed)
    options = TrainingOptions(
        steps=recipe.steps or 200,
        batch_size=recipe.batch_size,
        temperature=recipe.temperature,
        gate_learning_rate=recipe.learning_rate,
        bias_learning_rate=recipe.bias_learning_rate,
        map_learning_rates=recipe.map_learning_rates,
        seed=recipe.seed,
    )
    return FrozenTrainer(states, blocks.indices, Contrast(rows, recipe.temperature), train, held_out, options)


def _fitted(recipe: Frozen, trainer: FrozenTrainer, depth: int) -> FormResult:
    selection = recipe.selection
    if recipe.single:
        plain = SelectionConfig(fusion="last", gate="none")
        forms = [Form("single", replace(plain, blocks=(state,))) for state in range(depth + 1)]
        best = min((trainer.fit(form) for form in forms), key=lambda result: result.loss)
        return trainer.fit(replace(best.form, map=True)) if recipe.map else best
    return trainer.fit(Form("form", selection, recipe.map, selection.starts))
