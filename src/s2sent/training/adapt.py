"""Adapt a frozen encoder: one pass over the texts, then seconds for every form of selection, and the best is kept."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from torch import Tensor, nn

import s2sent
from s2sent.atomic import atomic_folder
from s2sent.data.cache import cache_folder
from s2sent.data.examples import Columns, Examples, Kind, crop_pairs, read_examples
from s2sent.errors import ConfigError, S2SentError
from s2sent.listener import Listener
from s2sent.model.backbone import Backbone, check_can_be_cut, keep_blocks
from s2sent.model.build import build, with_modules
from s2sent.model.fingerprint import fingerprint_model
from s2sent.model.load import open_encoder
from s2sent.model.pooling import SelectivePooling
from s2sent.options import to_toml
from s2sent.selection import SelectionConfig, Selector
from s2sent.training.adapt_recipe import AS_IS, DEFAULT_FORMS, GATES, MAP, TEXT_FORMS, AdaptRecipe
from s2sent.training.distributed import bf16_problem, fastest_precision
from s2sent.training.frozen import (
    NOISE,
    Contrast,
    Crops,
    Form,
    FormResult,
    FrozenTrainer,
    Ranking,
    best_of,
    block_scales,
    split,
    text_encoder,
)
from s2sent.untrusted import Table, exists, is_folder
from s2sent.vectors.states import FrozenStates, OnTexts, StateEncoder, Sums, keep_states, states_key

LEAST_HELD_OUT, MOST_HELD_OUT = 8, 2000
MADE = "adapted.json"
"""The file of an output that tells what it was made from: recipe, model and data."""


@dataclass(frozen=True)
class DepthResult:
    """What one depth of the encoder is worth.

    Attributes:
        depth: How many blocks are kept.
        result: The form, trained on the states up to there.
        cost: Blocks that run, relative to the whole encoder.
    """

    depth: int
    result: FormResult
    cost: float


@dataclass(frozen=True)
class AdaptResult:
    """What `adapt` made.

    Attributes:
        model: The adapted model, as it was saved.
        forms: Every form that was trained, the model as it is first. Empty if the run was finished before.
        kept: The form of the model; None if the run was finished before.
        depths: With `depth="auto"`: what every depth is worth.
        speedup: With a depth: how many times as fast the model is as the whole encoder, measured; None without.
        notes: What a person should know.
        seconds: How long each part took: `pass` and `training`.
        output: The model's folder.
        states: Where the encoder's states are kept, for another run.
    """

    model: SentenceTransformer
    forms: tuple[FormResult, ...] = ()
    kept: FormResult | None = None
    depths: tuple[DepthResult, ...] = ()
    speedup: float | None = None
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    output: Path | None = None
    states: Path | None = None
    _encode: Callable[[Sequence[str], FormResult], NDArray[np.float32]] | None = field(default=None, repr=False)

    def summary(self) -> str:
        """Return the forms with their held-out losses, and which was kept, as a few lines of text."""
        if self.kept is None:
            return "\n".join(self.notes)
        lines = [f"{one.form.name:12}{one.loss:.3f} ± {one.error:.3f}" for one in self.forms]
        return "\n".join([*lines, f"kept: {self.kept.form.name}", *self.notes])

    def encode(self, texts: Sequence[str], form: str) -> NDArray[np.float32]:
        """Encode texts with any of the trained forms, also one that was not kept.

        The encoder is run over the texts once and its states are kept, so that another form takes next to no time.
        """
        results = {result.form.name: result for result in self.forms}
        if form not in results or self._encode is None:
            raise ConfigError(
                f"There is no trained form {form!r}. Trained: {', '.join(results) or 'none in this call'}. A run that "
                "was finished before has its kept model alone; restart=True trains the forms again."
            )
        return self._encode(texts, results[form])


def adapt(
    model: str | Path | SentenceTransformer | None = None,
    data: str | Path | Sequence[str | Path] = (),
    output: str | Path | None = None,
    *,
    recipe: AdaptRecipe | None = None,
    restart: bool = False,
    states: str | Path | None = None,
    device: str | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> AdaptResult:
    """Adapt a frozen encoder to some examples: train what selects from its states, and keep the form that is best.

    The encoder is run once over the texts; what the forms need of its states is kept on disk, and a second call with
    the same model and data starts at the training. A form is kept only if it is better than the model as it is on
    held-out examples by more than the noise.

    Args:
        model: The model: a folder, a name on the hub, or a `SentenceTransformer`, whose encoder is then shared.
        data: Files or dataset ids on the hub: triplets (anchor, positive, negative), pairs (anchor, positive), scored
            pairs (sentence1, sentence2, score), or plain text.
        output: The folder for the adapted model; it appears when it is whole. None: nothing is saved.
        recipe: Everything in one, instead of `model`, `data` and `options`.
        restart: Replace the model that an earlier call has put into `output`.
        states: The folder to keep the encoder's states in; by default in the cache.
        device: Where to run; by default the best there is.
        listener: Receives the progress.
        **options: Fields of `AdaptRecipe`.

    Raises:
        DataError: the examples cannot be read, are too few, or have nothing to learn from.
        ModelError: the model cannot be adapted.

    Example:
        >>> result = s2sent.adapt("sentence-transformers/all-MiniLM-L6-v2", "pairs.csv", "adapted")  # doctest: +SKIP
        >>> result.model.encode(["A sentence."])                                                     # doctest: +SKIP
    """
    listener = listener or Listener()
    if recipe is None:
        if model is None:
            raise ConfigError("Give a model to adapt, or a recipe that names one.")
        name = _name_of(model) if isinstance(model, SentenceTransformer) else str(model)
        recipe = AdaptRecipe(model=name, data=data, **options)  # type: ignore[arg-type]
    elif model is not None or options or not isinstance(data, tuple) or data:
        raise ConfigError("Give either a recipe, or a model, data and options.")
    recipe = recipe.with_absolute_paths()
    folder = None if output is None else Path(output)
    if folder is not None:
        _check_output(folder, restart)
    listener.status("Reading the examples")
    examples = read_examples(recipe.data, Columns(recipe.columns, recipe.score_column))
    if examples.kind is Kind.TEXT:
        examples = crop_pairs(examples, recipe.seed)
    listener.note(examples.summary())
    listener.status("Loading the model")
    loaded = model if isinstance(model, SentenceTransformer) else _load(recipe, device)
    adaptation = _Adaptation(recipe, examples, loaded, listener, None if states is None else Path(states))
    if folder is not None and not restart and (folder / MADE).exists():
        if _made(folder) == adaptation.identity:
            note = f"{folder} has the model of this recipe already. To adapt it again: --restart."
            return AdaptResult(open_encoder(folder, device=device), notes=(note,), output=folder)
        raise ConfigError(
            f"{folder} has a model that was adapted from another recipe, model or data. Choose another output, or "
            "--restart."
        )
    return adaptation.run(folder, restart)


def _name_of(model: SentenceTransformer) -> str:
    return str(getattr(model.model_card_data, "base_model", None) or "a model in memory")


def _load(recipe: AdaptRecipe, device: str | None) -> SentenceTransformer:
    return open_encoder(recipe.model, device=device, model_kwargs={"dtype": torch.float32})


def _check_output(output: Path, restart: bool) -> None:
    """Raise unless `output` is free, or holds what an earlier call has put there."""
    if not exists(output):
        return
    if not is_folder(output):
        raise ConfigError(f"{output} is a file; the output is a folder.")
    if any(output.iterdir()) and not (output / MADE).exists():
        what = "--restart replaces only" if restart else "An output is new, empty, or"
        raise ConfigError(f"{output} is not empty. {what} a model that `adapt` has put there. Choose another output.")


def _made(output: Path) -> str | None:
    """What the model in an output was made from."""
    try:
        return Table.read_json(output / MADE).get("identity", str)
    except S2SentError:
        return None


class _Adaptation:
    def __init__(
        self,
        recipe: AdaptRecipe,
        examples: Examples,
        model: SentenceTransformer,
        listener: Listener,
        states: Path | None,
    ) -> None:
        if recipe.precision == "auto":
            recipe = replace(recipe, precision=fastest_precision(model.device))
        self.recipe, self.examples, self.model, self.listener = recipe, examples, model, listener
        self.notes: list[str] = []
        self.seconds: dict[str, float] = {}
        if recipe.precision == "bf16" and (problem := bf16_problem(model.device)):
            raise ConfigError(f"precision='bf16' does not work here: {problem}. Use fp32.")
        self.encoder = StateEncoder(model, precision=recipe.precision)
        self.fingerprint = fingerprint_model(model)
        self.folder = states or cache_folder() / "states"
        depth = recipe.depth
        if isinstance(depth, int) and depth > self.encoder.backbone.depth:
            raise ConfigError(f"depth must be at most {self.encoder.backbone.depth}, got {depth}.")
        if depth is not None:
            encoder: Any = model[0]
            check_can_be_cut(encoder.auto_model)
        self.forms = self._forms(depth if isinstance(depth, int) else None)
        self._split(torch.from_numpy(examples.rows))  # raises if nothing can be held out

    @property
    def identity(self) -> str:
        """A digest of all that decides the result: recipe, model and data."""
        digest = hashlib.sha256(json.dumps([self.recipe.to_dict(), self.fingerprint], default=str).encode())
        for text in self.examples.texts:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(self.examples.rows.tobytes())
        if self.examples.scores is not None:
            digest.update(self.examples.scores.tobytes())
        return digest.hexdigest()

    def run(self, output: Path | None, restart: bool) -> AdaptResult:
        """Do it all."""
        depth, forms = self.recipe.depth, self.forms
        began = time.perf_counter()
        self.listener.status("Encoding")
        states = self._keep_states(self.examples.texts, self.listener.progress)
        self.seconds["pass"] = time.perf_counter() - began
        began = time.perf_counter()
        trainer = self._trainer(states)
        scales = block_scales(states.sizes())
        if scales:
            self._note(
                "The encoder's blocks are of very unequal size: each is divided by its own, measured on the texts."
            )
        results: list[FormResult] = []
        for form in forms:
            self.listener.status(f"Training {form.name}")
            results.append(trainer.fit(self._scaled(form, scales)))
        kept = best_of(results, trainer.objective)
        depths: tuple[DepthResult, ...] = ()
        if depth == "auto":
            depths, kept = self._depths(trainer, kept, results[0])
        self.seconds["training"] = time.perf_counter() - began
        if kept.form.name == AS_IS:
            self._note(self._kept_as_it_is(trainer.objective))
            if isinstance(depth, int):
                self._note("The model as it is needs all of its blocks: none is removed.")
        adapted, speedup = self._assembled(kept, states)
        states.close()
        result = AdaptResult(
            adapted,
            tuple(results),
            kept,
            depths,
            speedup,
            tuple(self.notes),
            self.seconds,
            output,
            states.folder,
            lambda texts, one: self.encode(texts, one, trainer),
        )
        if output is not None:
            self._save(result, output, restart)
        return result

    @staticmethod
    def _kept_as_it_is(objective: Contrast) -> str:
        if isinstance(objective, Crops):
            return (
                "The model as it is finds nearly all crops of text that other forms find: its last block still knows "
                "what a text says, and the model is kept as it is. Pairs or scored pairs can tell more than plain text."
            )
        return (
            f"No form is better than the model as it is by more than {NOISE:g} standard errors on held-out examples: "
            "the model is kept as it is."
        )

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.listener.note(text)

    def _forms(self, depth: int | None) -> list[Form]:
        """The forms to train, the model as it is first: what all others are compared with."""
        deepest = depth or self.encoder.backbone.depth
        chosen = dict(self.recipe.selection)
        blocks = chosen.pop("blocks", None)
        if blocks is None:
            blocks = tuple(range(deepest + 1))
        else:  # counted from the last block that is kept, and then as states of the whole encoder
            kept = Backbone(self.encoder.backbone.name, deepest, None, None)
            blocks = kept.indices(SelectionConfig(blocks=blocks, fusion="average", gate="none"))
        names = self.recipe.forms or (TEXT_FORMS if self.examples.kind is Kind.TEXT else DEFAULT_FORMS)
        forms = [Form(AS_IS)]
        for name in dict.fromkeys(names):
            kind, has_map = name.removesuffix(MAP), name.endswith(MAP)
            if kind == AS_IS:
                forms += [Form(name, map=True)] if has_map and depth is None else []
                continue
            options: dict[str, Any] = {"blocks": blocks, "gate": GATES[kind]}
            if kind == "gate":
                options = {**options, "bias": True, **chosen}
                if options["gate"] not in ("linear", "sigmoid") or options.get("fusion", "stack") != "stack":
                    options["bias"] = chosen.get("bias", False)
            config = SelectionConfig.from_dict(options)
            forms.append(Form(name, config, has_map, () if "prior" in chosen else config.starts))
        for selection in [form.selection for form in forms if form.selection is not None]:
            Selector(self.encoder.dim, selection)  # raises for what does not go with this many features
            if selection.per_token and self.encoder.pooling != "mean":
                raise ConfigError(
                    f"squeeze='none' is adapted with mean pooling, and this model pools {self.encoder.pooling!r}. Use "
                    "squeeze='dct'."
                )
        return forms

    def _scaled(self, form: Form, scales: tuple[float, ...]) -> Form:
        if form.selection is None or not scales or form.selection.block_scales:
            return form
        own = tuple(scales[state] for state in self.encoder.backbone.indices(form.selection))
        return replace(form, selection=replace(form.selection, block_scales=own))

    def _keep_states(self, texts: Sequence[str], on_texts: OnTexts | None = None) -> FrozenStates:
        sums = Sums.of([form.selection for form in self.forms if form.selection], self.encoder.backbone)
        key = states_key(self.fingerprint, texts, sums, pooling=self.encoder.pooling, precision=self.recipe.precision)
        return keep_states(self.encoder, texts, self.folder / key, sums, on_texts=on_texts)

    def encode(self, texts: Sequence[str], result: FormResult, trainer: FrozenTrainer) -> NDArray[np.float32]:
        """Encode texts with a trained form. The encoder's states are kept, so another form need not run it again."""
        head, _ = trainer.head(result.form)
        head.load_state_dict(result.weights)
        unique = list(dict.fromkeys(texts))
        reader = trainer.reader(head, self._keep_states(unique))
        return text_encoder(head, reader, unique)(list(texts))

    def _trainer(self, states: FrozenStates) -> FrozenTrainer:
        rows = torch.from_numpy(self.examples.rows)
        readable = (states.lengths[rows] > 0).all(dim=1)
        if not bool(readable.all()):
            self._note(f"{int((~readable).sum()):,} examples have a text that the tokenizer cannot read: left out.")
        rows = rows[readable]
        train, held_out = self._split(rows)
        temperature = self.recipe.temperature
        objective = (Crops if self.examples.kind is Kind.TEXT else Contrast)(rows, temperature)
        if self.examples.scores is not None:
            scores = torch.from_numpy(self.examples.scores)[readable].float()
            # Groups large enough to rank in, and enough of them to tell the error of their mean.
            objective = Ranking(rows, temperature, group=min(32, max(4, len(held_out) // 16)), scores=scores)
        # Copies of their own: training is on the CPU, wherever the model is, and must not touch it.
        behind = [copy.deepcopy(module).cpu().requires_grad_(False) for module in self.encoder.behind[1:]]
        return FrozenTrainer(
            states, self.encoder.backbone.indices, objective, train, held_out, self.recipe.training, behind
        )

    def _split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        anchors = [self.examples.texts[row] for row in rows[:, 0].tolist()]
        train, held_out = split(anchors, self.recipe.held_out, MOST_HELD_OUT, self.recipe.seed)
        if len(held_out) < LEAST_HELD_OUT:
            raise ConfigError(
                f"held_out={self.recipe.held_out:g} holds {len(held_out)} of {len(anchors)} examples out, and at least "
                f"{LEAST_HELD_OUT} are needed to choose the form by. Hold more out, or give more examples."
            )
        return train, held_out

    def _depths(
        self, trainer: FrozenTrainer, kept: FormResult, base: FormResult
    ) -> tuple[tuple[DepthResult, ...], FormResult]:
        """What every depth is worth, and the shallowest that is within the noise of the best and beats the base."""
        whole = self.encoder.backbone.depth
        if kept.form.selection is None:
            self._note("The model as it is needs all of its blocks: depth is left as it is.")
            return (), kept
        states = trainer.indices(kept.form.selection)
        found = []
        for depth in range(max(1, states[0]), whole + 1):
            self.listener.status(f"Training {kept.form.name} on {depth} of {whole} blocks")
            result = kept if depth == whole else trainer.fit(_up_to(kept.form, states, depth))
            found.append(DepthResult(depth, result, depth / whole))
        best = min((one.result for one in found), key=lambda result: result.loss)
        good = [one for one in found if best_of([base, one.result], trainer.objective) is one.result]
        chosen = next((one for one in good if not best.beats(one.result)), found[-1])
        return tuple(found), chosen.result

    def _assembled(self, kept: FormResult, states: FrozenStates) -> tuple[SentenceTransformer, float | None]:
        """The model of a form, and how much faster it is if blocks were removed."""
        depth = self._depth_of(kept)
        model = self.model
        if depth < self.encoder.backbone.depth:
            cut = copy.deepcopy(model)
            encoder: Any = cut[0]
            keep_blocks(encoder.auto_model, depth)
            adapted = assemble(cut, kept)
            lengths = states.lengths.tolist()
            readable = [text for text, length in zip(self.examples.texts, lengths, strict=True) if length]
            return adapted, _speedup(assemble(model, kept), adapted, readable[:64])
        return assemble(model, kept), None

    def _depth_of(self, kept: FormResult) -> int:
        if kept.form.selection is None or self.recipe.depth is None:
            return self.encoder.backbone.depth
        return max(1, self.encoder.backbone.indices(kept.form.selection)[-1])

    def _save(self, result: AdaptResult, output: Path, restart: bool) -> None:
        """Write the folder whole, then put it into its place."""
        with atomic_folder(output, replace=restart and (output / MADE).exists()) as folder:
            result.model.save(str(folder), create_model_card=False)
            self.recipe.save(folder / "recipe.toml")
            (folder / "README.md").write_text(_card(result, self.recipe, self.examples), encoding="utf-8")
            (folder / MADE).write_text(json.dumps({"identity": self.identity}), encoding="utf-8")


def _speedup(whole: SentenceTransformer, adapted: SentenceTransformer, texts: list[str], rounds: int = 5) -> float:
    """Time two models side by side: how many times as fast the second is."""
    ratios = []
    for _ in range(rounds):
        seconds = []
        for model in (whole, adapted):
            start = time.perf_counter()
            model.encode(texts, show_progress_bar=False)
            seconds.append(time.perf_counter() - start)
        ratios.append(seconds[0] / seconds[1])
    return median(ratios)


def _up_to(form: Form, states: tuple[int, ...], depth: int) -> Form:
    """The form on the states up to a depth."""
    assert form.selection is not None
    kept = [place for place, state in enumerate(states) if state <= depth]
    scales = form.selection.block_scales
    blocks = tuple(states[place] for place in kept)
    if len(blocks) == 1:  # nothing to weigh
        return replace(form, selection=SelectionConfig(blocks=blocks, fusion="last", gate="none"), starts=())
    selection = replace(form.selection, blocks=blocks, block_scales=tuple(scales[p] for p in kept) if scales else ())
    return replace(form, selection=selection)


def assemble(model: SentenceTransformer, result: FormResult) -> SentenceTransformer:
    """Put a trained form behind a model's encoder, which both share."""
    form, weights = result.form, result.weights
    if form.selection is not None:
        model = build(model, selection=form.selection)
        selective = next(module for module in model if isinstance(module, SelectivePooling))
        prefix = "selector."
        selective.selector.load_state_dict(
            {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        )
    if form.map:
        width = len(weights["map.weight"])
        dense = Dense(width, width, bias=False, activation_function=nn.Identity(), init_weight=weights["map.weight"])
        modules = list(model)
        place = len(modules) - isinstance(modules[-1], Normalize)
        model = with_modules(model, [*modules[:place], dense, *modules[place:]])
    return model.eval()


def share_text(shares: Mapping[int, float]) -> str:
    """The shares of the states in percent, in their order; those that were not selected from as a dash."""
    if not shares:
        return ""
    return " ".join(f"{100 * shares[state]:.0f}" if state in shares else "-" for state in range(max(shares) + 1))


_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, sentence-similarity, feature-extraction, s2sent]{base_model}
---

# {title}

The encoder of `{model}`, unchanged, and behind it {what}, trained with s2sent {version} on {data}

```python
import s2sent
model = s2sent.load("{title}")      # or SentenceTransformer("{title}", trust_remote_code=True)
vectors = model.encode(["A sentence.", "Another one."])
```

## Forms

Loss on held-out examples, its standard error, and how much lower it is than that of the model as it is.

| form | held-out loss | error | lower by | error | parameters | share of embeddings and blocks, % |
|---|---:|---:|---:|---:|---:|---|
{forms}

Kept: `{kept}`.{depth}

## Recipe

`s2sent adapt --recipe recipe.toml --output …` repeats it. Here files go by their names alone.

```toml
{recipe}```
"""

_WHAT = {AS_IS: "its own pooling", "blocks": "one weight per block", "features": "one weight per block and feature"}


def _card(result: AdaptResult, recipe: AdaptRecipe, examples: Examples) -> str:
    assert result.kept is not None
    assert result.output is not None
    base, kept = result.forms[0], result.kept
    rows = []
    for one in result.forms:
        gain, error = one.gain(base)
        rows.append(
            f"| {one.form.name} | {one.loss:.4f} | {one.error:.4f} | {gain:+.4f} | {error:.4f} | {one.parameters:,} | "
            f"{share_text(one.shares)} |"
        )
    what = _WHAT.get(kept.form.name.removesuffix(MAP), "a gate that selects, per feature and sentence, from its blocks")
    depth = "" if result.speedup is None else f" The upper blocks are removed: {result.speedup:.2f} times as fast."
    is_local = Path(recipe.model).exists()
    named = recipe.with_basenames()
    return _CARD.format(
        title=result.output.name,
        model=named.model,
        base_model="" if is_local else f"\nbase_model: {recipe.model}",
        what=what + (" and a linear map" if kept.form.map else ""),
        version=s2sent.__version__,
        data=examples.summary(),
        forms="\n".join(rows),
        kept=kept.form.name,
        depth=depth,
        recipe=to_toml(named.to_dict()),
    )
