"""From experiments to runs: each run once, however many tables ask for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from s2sent.errors import ConfigError
from s2sent.experiments.catalogue import SELECTION_FIELDS, Catalogue, Experiment, Profile, Row
from s2sent.experiments.inputs import BackboneInput, Evaluation, available, corpus_fingerprint
from s2sent.selection import SelectionConfig
from s2sent.training.recipes import OBJECTIVES, Frozen, Recipe, recipe_class

SIZES = ("steps", "batch_size", "precision")
"""What a person may change of a profile's recipe."""
TRAINED = ("train", "frozen")
"""Kinds of runs that train and score."""
ALL = "all"
"""As `blocks` of a row: every state of the encoder, the embeddings included."""
VERSION = 1
"""Raised when the code computes other results from the same description."""

# Fields that do not decide a result (memory against time), or are described by their content instead.
_NOT_DESCRIBED = {"backbone", "corpus", "dev", "selection", "mini_batch_size", "gradient_checkpointing"}
# What decides nothing about the gradients of one batch before the first step, which is always fp32.
_OF_TRAINING = {
    "learning_rate", "selector_learning_rate", "warmup", "weight_decay", "clip", "epochs", "steps", "by_length",
    "window", "evaluate_every", "precision",
}  # fmt: skip
# What only training the encoder itself knows.
_OF_THE_ENCODER = {
    "head", "selector_learning_rate", "warmup", "weight_decay", "clip", "epochs", "max_length", "by_length", "window",
    "evaluate_every",
}  # fmt: skip
# What descriptions of this version always spell out. A field that is added later is described only where it is not
# at its default: old records keep their keys.
_DESCRIBED = {
    "objective", "columns", "pooling", "head", "temperature", "learning_rate", "selector_learning_rate", "warmup",
    "weight_decay", "clip", "epochs", "steps", "batch_size", "max_length", "by_length", "window", "evaluate_every",
    "seed", "precision", "mlm_weight", "template", "other_template", "denoise", "groups", "views",
    "blocks", "frequencies", "reduction", "squeeze", "scale", "fusion", "activation", "gate", "prior",
}  # fmt: skip


@dataclass(frozen=True)
class Digests:
    """Inputs known by their content."""

    corpus: str
    evaluation: Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One run: everything that decides its result, and where its inputs are.

    Attributes:
        kind: `train`: train and score. `frozen`: the same with the encoder frozen. `gradients`: the gradient per block
            on one batch. `cost`: parameters and time.
        backbone: The encoder.
        recipe: How it is trained: selection, pooling and seed included.
        evaluation: What it is scored on.
        digests: The content of the text and of the evaluation data, which is what the description has of them.
        changes: What its row changes of the profile's recipe, which is part of the name.
    """

    kind: str
    backbone: BackboneInput
    recipe: Recipe
    evaluation: Evaluation
    digests: Digests
    changes: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def description(self) -> dict[str, Any]:
        """Exactly what decides the result, and nothing about places, names or profiles."""
        described: dict[str, Any] = {
            "version": VERSION,
            "kind": self.kind,
            "backbone": self.backbone.fingerprint,
            "selection": _described(self.recipe.selection),
        }
        if self.kind == "cost":  # depends on no training: a selector costs the same behind a prompt
            return described | {"pooling": self.recipe.pooling}
        recipe = _described(self.recipe)
        if self.kind in TRAINED:
            described["evaluation"] = self.digests.evaluation
        left_out = {"train": set(), "frozen": _OF_THE_ENCODER}.get(self.kind, _OF_TRAINING)
        recipe = {name: value for name, value in recipe.items() if name not in left_out}
        return described | {"corpus": self.digests.corpus, "recipe": recipe}

    @cached_property
    def key(self) -> str:
        """A digest of the description: the name of the run's record."""
        text = json.dumps(self.description, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def name(self) -> str:
        """What it is, for a person."""
        parts = [self.kind] if self.kind not in TRAINED else []
        parts += [self.backbone.name, *([self.recipe.objective] if self.kind != "cost" else [])]
        parts += [describe(self.recipe.selection), *([self.recipe.pooling] if self.recipe.pooling != "mean" else [])]
        if self.kind == "cost":
            return ", ".join(parts)
        if self.recipe.selector_learning_rate is not None:
            parts.append(f"selector lr {self.recipe.selector_learning_rate:g}")
        said = {"pooling", "selector_learning_rate"}
        parts += [f"{name.replace('_', ' ')} {value}" for name, value in self.changes.items() if name not in said]
        return ", ".join([*parts, f"seed {self.recipe.seed}"])


def _described(options: Recipe | SelectionConfig) -> dict[str, Any]:
    defaults = {field.name: field.default for field in fields(options)}
    values = options.to_dict()
    return {
        name: value
        for name, value in values.items()
        if name not in _NOT_DESCRIBED and (name in _DESCRIBED or value != defaults[name])
    }


def describe(selection: SelectionConfig) -> str:
    """A selection in a few words.

    >>> describe(SelectionConfig(blocks=6, gate="linear"))
    '2D SS of 6, m 4, linear gate'
    """
    blocks = selection.blocks if isinstance(selection.blocks, int) else "+".join(map(str, selection.blocks))
    what = {"last": "last block", "average": f"average of {blocks}", "stack": f"2D SS of {blocks}"}[selection.fusion]
    if selection.gate == "none":
        return what
    if selection.gate == "static":
        what = f"static weights of {blocks}"
    if selection.gate == "per_feature":
        what = f"weights per feature of {blocks}"
    parts = [what + (" + 1D SS" if selection.fusion != "stack" else "")]
    if selection.gated:
        parts.append("no FS" if selection.squeeze == "none" else f"m {selection.frequencies}")
        parts += [f"r {selection.reduction}"] if selection.reduction != 12 else []
        parts += [selection.scale] if selection.scale != "mean" else []
        parts += [selection.activation] if selection.activation != "relu" else []
        parts += ["linear gate"] if selection.gate == "linear" else []
        parts += ["bias"] if selection.bias else []
    parts += ["prior last"] if selection.prior == "last" else []
    return ", ".join(parts)


def canonical(selection: SelectionConfig, neutral: Mapping[str, Any]) -> SelectionConfig:
    """One config for all that give the same model: options without effect take their neutral value."""
    changes: dict[str, Any] = {}
    if selection.fusion == "last" or len(selection.listed) == 1:  # of one block, stack and average are that block
        last = selection.listed[-1]
        changes |= {"fusion": "last", "blocks": 1 if last == -1 else (last,)}
    if not selection.gated:
        changes |= {name: neutral[name] for name in ("frequencies", "reduction", "squeeze", "scale", "activation")}
    elif selection.squeeze == "gap":
        changes |= {"squeeze": "dct", "frequencies": 1}
    elif selection.squeeze == "none":
        changes |= {"frequencies": neutral["frequencies"], "scale": neutral["scale"]}
    return replace(selection, **changes)


def scale_blocks(blocks: int | Sequence[int], meant: int, depth: int) -> int | Sequence[int]:
    """The number of last blocks for a backbone of another depth: as given where they are there, else in proportion.

    >>> scale_blocks(6, meant=6, depth=12), scale_blocks(6, meant=6, depth=4), scale_blocks(3, meant=6, depth=4)
    (6, 4, 2)
    """
    if not isinstance(blocks, int) or depth >= meant:
        return blocks
    return max(1, round(blocks * depth / meant))


@dataclass(frozen=True)
class Entry:
    """A run's place in a table: which experiment, backbone, objective, row and seed ask for it."""

    experiment: str
    backbone: str
    objective: str
    row: str
    seed: int
    run: Run


@dataclass(frozen=True)
class Settings:
    """What a person chose: sizes and places.

    Attributes:
        profile: The profile.
        backbones: The encoders.
        corpus: The text.
        seeds: How many seeds, from 0 on.
        recipe: On top of the profile's recipe.
        data: Where the evaluation data is; None: S2SENT_DATA.
        text: Which text of it.
        digests: Of the inputs, by suite of tasks; None: they are looked at.
    """

    profile: Profile
    backbones: tuple[BackboneInput, ...]
    corpus: tuple[str, ...]
    seeds: int
    recipe: Mapping[str, Any]
    data: str | None = None
    text: str = "file"
    digests: Mapping[str, Digests] | None = None


def expand(catalogue: Catalogue, experiments: Iterable[Experiment], settings: Settings) -> list[Entry]:
    """Every place of every table, seed by seed: what is done first is a whole table of few seeds."""
    experiments = list(experiments)
    return [
        Entry(experiment.name, backbone.name, objective, row.name, seed, run)
        for seed in range(settings.seeds)
        for experiment in experiments
        for backbone in settings.backbones
        for objective in experiment.objectives
        for row in experiment.rows
        for run in _runs(catalogue, experiment, settings, backbone, objective, row, seed)
    ]


def unique(entries: Iterable[Entry]) -> list[Run]:
    """The runs behind the entries, each once, in order."""
    runs: dict[str, Run] = {}
    for entry in entries:
        runs.setdefault(entry.run.key, entry.run)
    return list(runs.values())


def _runs(
    catalogue: Catalogue,
    experiment: Experiment,
    settings: Settings,
    backbone: BackboneInput,
    objective: str,
    row: Row,
    seed: int,
) -> list[Run]:
    from s2sent.data.senteval import task_names

    trains = experiment.kind == "train"
    profile = settings.profile
    try:
        recipe = _recipe(catalogue, settings, backbone, objective, row, seed)
    except ConfigError as error:
        raise ConfigError(f"{catalogue.source}: {experiment.name}: the row {row.name!r}: {error}") from error
    tasks = available(task_names(experiment.tasks), settings.data) if trains else ()
    evaluation = Evaluation(tasks, profile.every, profile.dev_every, profile.probes, settings.data, settings.text)
    if settings.digests is None:
        digests = Digests(corpus_fingerprint(recipe.corpus), evaluation.description() if trains else {})
    elif experiment.tasks in settings.digests:
        digests = settings.digests[experiment.tasks]
    else:
        digests = Digests("", {})
    kind = "frozen" if objective == Frozen.objective else experiment.kind
    kinds = [kind, *(["cost"] if experiment.cost and seed == 0 else [])]
    changes = {name: value for name, value in row.changes.items() if name not in SELECTION_FIELDS}
    return [Run(kind, backbone, recipe, evaluation, digests, changes) for kind in kinds]


def _recipe(
    catalogue: Catalogue, settings: Settings, backbone: BackboneInput, objective: str, row: Row, seed: int
) -> Recipe:
    """The paper's recipe with what the profile, a person and the row change of it, in this order."""
    profile = settings.profile
    chosen = {**catalogue.selection, **{k: v for k, v in row.changes.items() if k in SELECTION_FIELDS}}
    if chosen["blocks"] == ALL:
        chosen["blocks"] = tuple(range(backbone.depth + 1))
    chosen["blocks"] = scale_blocks(chosen["blocks"], profile.depth, backbone.depth)
    if isinstance(chosen["blocks"], int) and chosen["blocks"] > backbone.depth:
        raise ConfigError(f"blocks = {chosen['blocks']}, but {backbone.name} has {backbone.depth}.")
    if isinstance(chosen["blocks"], list):
        chosen["blocks"] = tuple(chosen["blocks"])
    selection = canonical(SelectionConfig.from_dict(chosen), catalogue.selection)
    changes = {k: v for k, v in row.changes.items() if k not in SELECTION_FIELDS}
    kind = recipe_class(objective, OBJECTIVES)
    family = "roberta" if "roberta" in backbone.name.lower() else "bert"
    recipe = kind.preset(
        "paper",
        family,  # type: ignore[arg-type]
        **{
            "backbone": backbone.path,
            "corpus": settings.corpus,
            **profile.recipe,
            **settings.recipe,
            **changes,
            "selection": selection,
            "seed": seed,
        },
    )
    if recipe.selector_learning_rate == recipe.learning_rate or selection.gate == "none":
        recipe = replace(recipe, selector_learning_rate=None)
    return recipe
