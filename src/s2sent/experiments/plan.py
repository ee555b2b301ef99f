"""From experiments to runs with keys: rows × backbones × seeds, each run once however many tables ask for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from s2sent.data.senteval import task_names
from s2sent.errors import ConfigError
from s2sent.experiments.catalogue import SELECTION_FIELDS, Catalogue, Experiment, Profile, Row
from s2sent.experiments.inputs import BackboneInput, Evaluation, available, corpus_fingerprint
from s2sent.selection import SelectionConfig
from s2sent.training.recipes import OBJECTIVES, Frozen, Recipe

SIZES = ("steps", "batch_size", "precision")
"""Options of a profile's recipe that a user may change."""
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
# What only training the encoder itself uses.
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
    """Digests of the content of inputs."""

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
        """Exactly what decides the result, and nothing about paths, names or profiles."""
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
        """The run in a line."""
        parts = [self.kind] if self.kind not in TRAINED else []
        parts += [self.backbone.name, *([self.recipe.objective] if self.kind != "cost" else [])]
        parts += [describe(self.recipe.selection), *([self.recipe.pooling] if self.recipe.pooling != "mean" else [])]
        if self.recipe.selector_learning_rate is not None:
            parts.append(f"selector lr {self.recipe.selector_learning_rate:g}")
        named = {"pooling", "selector_learning_rate"}
        parts += [f"{name.replace('_', ' ')} {value}" for name, value in self.changes.items() if name not in named]
        return ", ".join([*parts, f"seed {self.recipe.seed}"])


def _described(options: Recipe | SelectionConfig) -> dict[str, Any]:
    defaults = {field.name: field.default for field in fields(options)}
    return {
        name: value
        for name, value in options.to_dict().items()
        if name not in _NOT_DESCRIBED and (name in _DESCRIBED or value != defaults[name])
    }


def describe(selection: SelectionConfig) -> str:
    """Return a selection in a few words.

    >>> describe(SelectionConfig(blocks=6, gate="linear"))
    '2D SS of 6, m 4, linear gate'
    """
    blocks = selection.blocks if isinstance(selection.blocks, int) else "+".join(map(str, selection.blocks))
    what = {"last": "last block", "average": f"average of {blocks}", "stack": f"2D SS of {blocks}"}[selection.fusion]
    if selection.gate == "none":
        return what
    what = {"static": f"static weights of {blocks}", "per_feature": f"weights per feature of {blocks}"}.get(
        selection.gate, what
    )
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
    """Return one config for all that give the same model: options without effect take their neutral value."""
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
    """Return the number of last blocks for a backbone of another depth: as given if it has them, else in proportion.

    >>> scale_blocks(6, meant=6, depth=12), scale_blocks(6, meant=6, depth=4), scale_blocks(3, meant=6, depth=4)
    (6, 4, 2)
    """
    if not isinstance(blocks, int) or depth >= meant:
        return blocks
    return max(1, round(blocks * depth / meant))


@dataclass(frozen=True)
class Place:
    """A run's place in a table: the experiment, backbone, objective, row and seed that need it."""

    experiment: str
    backbone: str
    objective: str
    row: str
    seed: int
    run: Run


@dataclass(frozen=True)
class Settings:
    """What is run: sizes and inputs.

    Attributes:
        profile: The profile.
        backbones: The encoders.
        corpus: The text.
        seeds: How many seeds, from 0 on.
        recipe: On top of the profile's recipe.
        data: Where the evaluation data is; None: S2SENT_DATA.
        text: Which text of it.
        digests: Of the inputs, by suite of tasks; None: computed from the inputs.
    """

    profile: Profile
    backbones: tuple[BackboneInput, ...]
    corpus: tuple[str, ...]
    seeds: int
    recipe: Mapping[str, Any]
    data: str | None = None
    text: str = "file"
    digests: Mapping[str, Digests] | None = None


def expand(catalogue: Catalogue, experiments: Iterable[Experiment], settings: Settings) -> list[Place]:
    """Return every place of every table, seed by seed: the first runs fill whole tables with few seeds."""
    experiments = list(experiments)
    return [
        Place(experiment.name, backbone.name, objective, row.name, seed, run)
        for seed in range(settings.seeds)
        for experiment in experiments
        for backbone in settings.backbones
        for objective in experiment.objectives
        for row in experiment.rows
        for run in _runs(catalogue, experiment, settings, backbone, objective, row, seed)
    ]


def unique(places: Iterable[Place]) -> list[Run]:
    """Return the runs of the places, each once, in order."""
    runs: dict[str, Run] = {}
    for place in places:
        runs.setdefault(place.run.key, place.run)
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
    trains = experiment.kind == "train"
    profile = settings.profile
    changes = {name: value for name, value in row.changes.items() if name not in SELECTION_FIELDS}
    try:
        selection = _selection(catalogue, profile, backbone, row)
        options = {**profile.recipe, **settings.recipe, **changes, "selection": selection, "seed": seed}
        recipe = OBJECTIVES[objective].preset(
            "paper", backbone.family, **{"backbone": backbone.path, "corpus": settings.corpus, **options}
        )
    except ConfigError as error:
        raise ConfigError(f"{catalogue.source}: {experiment.name}: the row {row.name!r}: {error}") from error
    if recipe.selector_learning_rate == recipe.learning_rate or selection.gate == "none":
        recipe = replace(recipe, selector_learning_rate=None)
    tasks = available(task_names(experiment.tasks), settings.data) if trains else ()
    evaluation = Evaluation(tasks, profile.every, profile.dev_every, profile.probes, settings.data, settings.text)
    if settings.digests is None:
        digests = Digests(corpus_fingerprint(recipe.corpus), evaluation.description() if trains else {})
    else:
        digests = settings.digests.get(experiment.tasks, Digests("", {}))
    kind = "frozen" if objective == Frozen.objective else experiment.kind
    kinds = [kind, *(["cost"] if experiment.cost and seed == 0 else [])]
    return [Run(kind, backbone, recipe, evaluation, digests, changes) for kind in kinds]


def _selection(catalogue: Catalogue, profile: Profile, backbone: BackboneInput, row: Row) -> SelectionConfig:
    options = {**catalogue.selection, **{k: v for k, v in row.changes.items() if k in SELECTION_FIELDS}}
    blocks = tuple(range(backbone.depth + 1)) if options["blocks"] == ALL else options["blocks"]
    blocks = scale_blocks(blocks, profile.depth, backbone.depth)
    if isinstance(blocks, int) and blocks > backbone.depth:
        raise ConfigError(f"blocks = {blocks}, but {backbone.name} has {backbone.depth}.")
    options["blocks"] = tuple(blocks) if isinstance(blocks, list) else blocks
    return canonical(SelectionConfig.from_dict(options), catalogue.selection)
