"""Recipes: everything that decides a training run, one dataclass per objective, checked where it is made.

The defaults are the paper's, but for the form of the selection: see `DEFAULT_SELECTION`. A recipe is saved beside the
model as it was run, and can be run again from there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from s2sent.errors import ConfigError
from s2sent.model.pooling import PoolingMode
from s2sent.selection import SelectionConfig
from s2sent.untrusted import exists, read_toml, shown

Head = Literal["none", "mlp"]
Precision = Literal["fp32", "bf16"]
Family = Literal["bert", "roberta"]
DEFAULT_SELECTION = SelectionConfig(blocks=3, gate="linear", prior="last")
"""Begins as the encoder's own last block, and is free to move away. docs/results says why it is not the paper's."""
DEV_CHOICES = ("auto", "stsb", "heldout", "none")
"""What `Recipe.dev` may be besides a file."""

_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a text"),
}
_LARGEST_INT = 2**53
"""Beyond it a float no longer counts in ones."""
_MOST_VIEWS = 64
"""Each view is a pass of the encoder over the batch."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What all objectives have in common.

    Args:
        backbone: The encoder to start from: a folder, or a name on the hub.
        corpus: Files, or dataset ids on the hub. With several, one after the other.
        columns: The columns with the text: none for plain lines, else one for sentences, two for pairs, three for
            triplets.
        selection: How vectors are selected from the blocks. Of a mapping, what it leaves out is the default's; where
            the two do not go together, the paper's.
        pooling: How a sentence's tokens become one vector.
        head: `mlp`: a train-only Linear + tanh before the loss.
        temperature: τ.
        learning_rate: Of the backbone and the head; decays linearly to 0.
        selector_learning_rate: Of the selector; None: the same.
        warmup: The share of all steps over which the learning rate rises.
        weight_decay: AdamW's, for matrices alone.
        clip: The largest norm of the gradient.
        epochs: Passes over the corpus.
        steps: At most so many steps; None: as many as the epochs have.
        batch_size: Examples per step and rank.
        mini_batch_size: GradCache: so many at a time in memory. None: the whole batch.
        max_length: Tokens per text in training, special tokens included. The model itself keeps the backbone's limit.
        by_length: Whether batches have texts of like length.
        window: How many examples are shuffled, and sorted by length, together.
        evaluate_every: Steps between validations.
        dev: What decides which step is best. `stsb`: STS-B dev, which S2SENT_DATA must have. `heldout`: alignment and
            uniformity on held-out lines. `auto`: the first where it is there, else the second. `none`: the last step
            is kept. Or a file with two sentences and a score per row (.csv or .tsv with a header: sentence1,
            sentence2, score).
        seed: Decides the data's order, dropout and the new weights.
        precision: `bf16` computes in bfloat16 where the machine can; weights stay fp32.
        gradient_checkpointing: Compute blocks again in the backward pass instead of keeping their activations.
    """

    objective: ClassVar[str]
    text_columns: ClassVar[tuple[int, ...]] = (1,)

    backbone: str
    corpus: tuple[str, ...]
    columns: tuple[str, ...] = ()
    selection: SelectionConfig = DEFAULT_SELECTION
    pooling: PoolingMode = "mean"
    head: Head = "none"
    temperature: float = 0.05
    learning_rate: float = 3e-5
    selector_learning_rate: float | None = None
    warmup: float = 0.0
    weight_decay: float = 0.0
    clip: float = 1.0
    epochs: int = 1
    steps: int | None = None
    batch_size: int = 64
    mini_batch_size: int | None = None
    max_length: int = 32
    by_length: bool = True
    window: int = 65_536
    evaluate_every: int = 125
    dev: str = "auto"
    seed: int = 42
    precision: Precision = "fp32"
    gradient_checkpointing: bool = False

    def __post_init__(self) -> None:
        for name in ("corpus", "columns"):
            value = getattr(self, name)
            texts = [value] if isinstance(value, str | Path) else value
            fits = isinstance(texts, list | tuple) and all(isinstance(text, str | Path) for text in texts)
            self._check(name, fits, "a list of texts")
            object.__setattr__(self, name, tuple(map(str, texts)))
        self._check("backbone", isinstance(self.backbone, str | Path), "a text")
        object.__setattr__(self, "backbone", str(self.backbone))  # paths are welcome, too
        selection: Any = self.selection
        self._check("selection", isinstance(selection, SelectionConfig | Mapping), "a table of options")
        if not isinstance(selection, SelectionConfig):
            object.__setattr__(self, "selection", _over_default(selection))
        self._check_types()
        for name in ("batch_size", "epochs", "max_length", "window", "evaluate_every"):
            self._check(name, getattr(self, name) >= 1, "at least 1")
        for name in ("steps", "mini_batch_size"):
            value = getattr(self, name)
            self._check(name, value is None or value >= 1, "at least 1, or not given")
        self._check("batch_size", self.batch_size >= 2, "at least 2 (one example has no negatives)")
        self._check("max_length", self.max_length >= 3, "at least 3")
        for name in ("temperature", "learning_rate", "clip"):
            self._check(name, getattr(self, name) > 0, "above 0")
        if self.selector_learning_rate is not None:
            self._check("selector_learning_rate", self.selector_learning_rate > 0, "above 0")
        self._check("weight_decay", self.weight_decay >= 0, "at least 0")
        self._check("warmup", 0 <= self.warmup < 1, "a share of the steps, from 0 to below 1")
        self._check("corpus", bool(self.corpus), "at least one file or dataset")
        for name, legal in (("pooling", PoolingMode), ("head", Head), ("precision", Precision)):
            choices = get_args(legal)
            self._check(name, getattr(self, name) in choices, f"one of {', '.join(map(repr, choices))}")
        if max(len(self.columns), 1) not in self.text_columns:
            wanted = " or ".join(map(str, self.text_columns))
            raise ConfigError(
                f"The objective {self.objective!r} takes {wanted} column{'s' * (self.text_columns != (1,))} of text, "
                f"and columns={list(self.columns)} names {len(self.columns)}."
            )

    def _check_types(self) -> None:
        """A recipe may come from a file, where a number in quotes is a text."""
        for option in fields(self):
            kind, _, optional = str(option.type).partition(" | ")
            value = getattr(self, option.name)
            if kind not in _TYPES or (optional and value is None):
                continue
            types, what = _TYPES[kind]
            fits = isinstance(value, types) and (isinstance(value, bool) == (kind == "bool"))
            self._check(option.name, fits, what)
            if kind in ("int", "float"):
                largest = _LARGEST_INT if kind == "int" else sys.float_info.max
                self._check(option.name, -largest <= value <= largest, f"a finite number of at most {largest}")

    def _check(self, name: str, legal: bool, what: str) -> None:
        if not legal:
            raise ConfigError(f"{name} must be {what}, got {shown(repr(getattr(self, name)))}.")

    def with_absolute_paths(self) -> Self:
        """Return the recipe with the paths of what is there made absolute: it can be run again from any folder."""
        return self._with_places(lambda path: str(path.absolute()))

    def with_basenames(self) -> Self:
        """Return the recipe with the names of what is there instead of its paths: for readers elsewhere."""
        return self._with_places(lambda path: path.name)

    def _with_places(self, told: Callable[[Path], str]) -> Self:
        def tell(name: str) -> str:
            return told(Path(name)) if exists(Path(name)) else name

        dev = self.dev if self.dev in DEV_CHOICES else tell(self.dev)
        return replace(self, backbone=tell(self.backbone), corpus=tuple(map(tell, self.corpus)), dev=dev)

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain values, without what is not set."""
        values = {"objective": self.objective, **asdict(self)}
        return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items() if v is not None}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Recipe:
        """Make the recipe that `values` describe; `objective` says which kind."""
        options = dict(values)
        kind = recipe_class(options.pop("objective", None))
        known = [f.name for f in fields(kind)]
        if unknown := sorted(set(options) - set(known)):
            raise ConfigError(
                f"The recipe for {kind.objective!r} has no {', '.join(unknown)}. Legal: {', '.join(known)}."
            )
        if missing := [name for name in ("backbone", "corpus") if name not in options]:
            raise ConfigError(f"The recipe does not say its {' and '.join(missing)}.")
        return kind(**options)

    def save(self, path: Path) -> None:
        """Write the recipe as TOML."""
        path.write_text(to_toml(self.to_dict()), encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Recipe:
        """Read a recipe that `save` wrote, or a person."""
        return Recipe.in_file(path, read_toml(path))

    @staticmethod
    def in_file(path: Path, values: Mapping[str, Any]) -> Recipe:
        """Make the recipe that a file's values describe; an error names the file."""
        try:
            return Recipe.from_dict(values)
        except ConfigError as error:
            raise ConfigError(f"{shown(path)}: {error}") from error

    @classmethod
    def preset(cls, name: str, family: Family = "bert", **options: Any) -> Self:
        """Make a recipe from published values; `options` go on top.

        Args:
            name: `paper`: the S²Sent paper's. `original`: what the method's own authors ran. The selection is the
                paper's in both.
            family: The kind of backbone: `bert` or `roberta`.
            **options: `backbone`, `corpus`, and whatever is to differ.
        """
        if name not in PRESETS:
            raise ConfigError(f"preset={name!r} is not known. Legal: {', '.join(map(repr, PRESETS))}.")
        selection = options.pop("selection", {})
        if not isinstance(selection, SelectionConfig):
            selection = SelectionConfig.from_dict(selection)
        return cls(**{**PRESETS[name].get((cls.objective, family), {}), **options, "selection": selection})


@dataclass(frozen=True, kw_only=True)
class SimCSE(Recipe):
    """Unsupervised SimCSE: two dropout views of every sentence.

    Args:
        mlm_weight: How much of a masked-language loss to add, as SimCSE does for transfer tasks (0.1); 0: none.
    """

    objective: ClassVar[str] = "simcse"
    mlm_weight: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("mlm_weight", self.mlm_weight >= 0, "at least 0")


@dataclass(frozen=True, kw_only=True)
class Supervised(Recipe):
    """Supervised SimCSE: pairs, or triplets with a hard negative. The defaults are the S²Sent authors' release."""

    objective: ClassVar[str] = "supervised"
    text_columns: ClassVar[tuple[int, ...]] = (2, 3)
    columns: tuple[str, ...] = ("sent0", "sent1", "hard_neg")
    learning_rate: float = 5e-5
    epochs: int = 3
    batch_size: int = 32


@dataclass(frozen=True, kw_only=True)
class PromptCSE(Recipe):
    """PromptBERT: two templates as the two views, their own share taken out.

    Args:
        template: Around every sentence, saved with the model; `auto`: PromptBERT's for the vocabulary.
        other_template: The second view's, for training alone; `auto`: PromptBERT's second.
        denoise: Whether to subtract what the template alone gives.
    """

    objective: ClassVar[str] = "promptcse"
    learning_rate: float = 1e-5
    head: Head = "mlp"
    template: str = "auto"
    other_template: str = "auto"
    denoise: bool = True


@dataclass(frozen=True, kw_only=True)
class Whitened(Recipe):
    """WhitenedCSE: shuffled group whitening before the head, more than one positive.

    Args:
        groups: How many groups of features are whitened; it must divide the backbone's width. None: pairs of
            features, which are the paper's 384 groups of 768.
        views: Views per sentence, the anchor included: the paper's "positive number".
    """

    objective: ClassVar[str] = "whitened"
    head: Head = "mlp"
    groups: int | None = None
    views: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("groups", self.groups is None or self.groups >= 1, "at least 1, or not given")
        self._check("views", 2 <= self.views <= _MOST_VIEWS, f"from 2 (the anchor and a positive) to {_MOST_VIEWS}")


@dataclass(frozen=True, kw_only=True)
class Frozen(Recipe):
    """Not for `train`: one form of selection behind a frozen encoder, as the experiments have it. See `s2sent.adapt`.

    Args:
        learning_rate: Of the gate's matrices.
        bias_learning_rate: Of the logits per block or per feature.
        map_learning_rates: Of the linear map; each is tried, and the best on held-out examples kept.
        map: Whether a linear map follows the selection.
        single: Whether the form is the one state that is best on held-out examples.
        shuffled: Whether every sentence is scored with another one's weights: a control.
        held_out: How many examples are held out.
    """

    objective: ClassVar[str] = "frozen"
    text_columns: ClassVar[tuple[int, ...]] = (2, 3)
    columns: tuple[str, ...] = ("sent0", "sent1", "hard_neg")
    learning_rate: float = 1e-2
    bias_learning_rate: float = 3e-2
    map_learning_rates: tuple[float, ...] = (1e-3, 1e-4)
    map: bool = False
    single: bool = False
    shuffled: bool = False
    held_out: int = 1000
    steps: int | None = 200
    batch_size: int = 256


RECIPES: dict[str, type[Recipe]] = {kind.objective: kind for kind in (SimCSE, Supervised, PromptCSE, Whitened)}
OBJECTIVES: dict[str, type[Recipe]] = {**RECIPES, Frozen.objective: Frozen}
"""What experiments may run: all that `train` does, and forms behind a frozen encoder."""

# (objective, family): what differs from the defaults. `paper` is S²Sent's section "Experimental Setup": its only
# difference between families is the number of groups.
PRESETS: dict[str, dict[tuple[str, str], dict[str, Any]]] = {
    "paper": {
        ("whitened", "bert"): {"groups": 384},
        ("whitened", "roberta"): {"groups": 256},
    },
    "original": {
        ("simcse", "bert"): {"pooling": "cls", "head": "mlp"},
        ("simcse", "roberta"): {"pooling": "cls", "head": "mlp", "batch_size": 512, "learning_rate": 1e-5},
        ("supervised", "bert"): {"pooling": "cls", "head": "mlp", "batch_size": 512},
        ("supervised", "roberta"): {"pooling": "cls", "head": "mlp", "batch_size": 512},
        ("promptcse", "bert"): {"pooling": "mask", "batch_size": 256},
        ("promptcse", "roberta"): {"pooling": "mask", "batch_size": 256},
        ("whitened", "bert"): {"pooling": "cls", "batch_size": 128, "learning_rate": 1e-5, "groups": 128},
        ("whitened", "roberta"): {"pooling": "cls", "batch_size": 128, "learning_rate": 1e-5, "groups": 128},
    },
}


def _over_default(changes: Mapping[str, Any]) -> SelectionConfig:
    """Return the default form with changes; the paper's form with them where they rule the default out."""
    try:
        return SelectionConfig.from_dict({**DEFAULT_SELECTION.to_dict(), **changes})
    except ConfigError:
        return SelectionConfig.from_dict(changes)


def recipe_class(objective: Any, known: Mapping[str, type[Recipe]] = RECIPES) -> type[Recipe]:
    """Return the recipe class of an objective."""
    if not isinstance(objective, str) or objective not in known:
        raise ConfigError(f"objective must be one of {', '.join(map(repr, RECIPES))}, got {shown(repr(objective))}.")
    return known[objective]


def to_toml(values: Mapping[str, Any]) -> str:
    """Write plain values as TOML: scalars and lists first, then tables."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in values.items() if not isinstance(value, Mapping)]
    for name, table in values.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{name}]", *(f"{key} = {_toml_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's strings and booleans are TOML's
