"""Recipes: everything that decides a training run, one dataclass per objective, checked where it is made.

The defaults are the paper's, except for the form of the selection: see `DEFAULT_SELECTION`. A recipe is saved beside
the model as it was run, and can be run again from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

from s2sent.errors import ConfigError
from s2sent.options import REQUIRED, Options, Rule, above, at_least, option
from s2sent.selection.config import PoolingMode, SelectionConfig
from s2sent.untrusted import shown

Head = Literal["none", "mlp"]
Precision = Literal["fp32", "bf16"]
Family = Literal["bert", "roberta"]
DEFAULT_SELECTION = SelectionConfig(blocks=3, gate="linear", prior="last")
"""Starts as the encoder's own last block. docs/results says why it is not the paper's."""
DEV_CHOICES = ("auto", "stsb", "heldout", "none")
"""What `Recipe.dev` may be besides a file."""

# The headings of `s2sent train --help`.
_OPTIMISATION, _DATA, _VALIDATION, _MODEL = "Optimisation", "Data", "Validation", "Model"


@dataclass(frozen=True, kw_only=True)
class Recipe(Options):
    """What all objectives have in common.

    Args:
        backbone: The encoder to start from: a folder, or a name on the hub.
        corpus: Files (.txt, .csv, .tsv, .jsonl, .parquet, also .gz or .zst), or dataset ids on the hub.
        columns: The columns with the text: one for sentences, two for pairs, three for triplets; none for plain lines.
        selection: How vectors are selected from the blocks; options that are not given are `DEFAULT_SELECTION`'s.
        pooling: How a sentence's tokens become one vector.
        head: `mlp`: a train-only Linear + tanh before the loss.
        temperature: τ, by which cosines are divided.
        learning_rate: Of the backbone and the head; decays linearly to 0.
        selector_learning_rate: Of the selector; by default the same.
        warmup: The share of all steps over which the learning rate rises.
        weight_decay: AdamW's, for matrices only.
        clip: The largest norm of the gradient.
        epochs: Passes over the corpus.
        steps: At most this many steps; by default as many as the epochs have.
        batch_size: Examples per step and device.
        mini_batch_size: GradCache: this many examples in memory at a time; by default the whole batch.
        max_length: Tokens per text in training, special tokens included. The model keeps the backbone's own limit.
        by_length: Whether batches have texts of similar length.
        window: How many examples are shuffled, and sorted by length, together.
        evaluate_every: Steps between validations.
        dev: How the best step is chosen. `stsb`: by STS-B dev, from S2SENT_DATA. `heldout`: by alignment and uniformity
            of held-out lines. `auto`: the first if it is there, else the second. `none`: the last step is kept. Or by
            scored pairs in a table with the columns sentence1, sentence2 and score.
        seed: Decides the data's order, dropout and the new weights.
        precision: `bf16` computes in bfloat16 if the machine can; weights stay in fp32.
        gradient_checkpointing: Compute blocks again in the backward pass instead of keeping their activations.
    """

    objective: ClassVar[str]
    text_columns: ClassVar[tuple[int, ...]] = (1,)

    backbone: str = option(REQUIRED, paths=True)
    corpus: tuple[str, ...] = option(REQUIRED, Rule(bool, "at least one file or dataset"), paths=True)
    columns: tuple[str, ...] = option(())
    selection: SelectionConfig = option(DEFAULT_SELECTION)
    pooling: PoolingMode = option("mean", group=_MODEL)
    head: Head = option("none", group=_MODEL)
    temperature: float = option(0.05, above(0), group=_OPTIMISATION)
    learning_rate: float = option(3e-5, above(0))
    selector_learning_rate: float | None = option(None, above(0), group=_OPTIMISATION)
    warmup: float = option(0.0, Rule(lambda share: 0 <= share < 1, "from 0 to below 1"), group=_OPTIMISATION)
    weight_decay: float = option(0.0, at_least(0), group=_OPTIMISATION)
    clip: float = option(1.0, above(0), group=_OPTIMISATION)
    epochs: int = option(1, at_least(1))
    steps: int | None = option(None, at_least(1))
    batch_size: int = option(64, at_least(2, " (one example has no negatives)"))
    mini_batch_size: int | None = option(None, at_least(1), group=_OPTIMISATION)
    max_length: int = option(32, at_least(3), group=_DATA)
    by_length: bool = option(True, group=_DATA)
    window: int = option(65_536, at_least(1), group=_DATA)
    evaluate_every: int = option(125, at_least(1), group=_VALIDATION)
    dev: str = option("auto", group=_VALIDATION, paths=True, keep=DEV_CHOICES)
    seed: int = option(42)
    precision: Precision = option("fp32", group=_OPTIMISATION)
    gradient_checkpointing: bool = option(False, group=_OPTIMISATION)

    def __post_init__(self) -> None:
        super().__post_init__()
        selection: Any = self.selection
        if not isinstance(selection, SelectionConfig):
            self.check("selection", isinstance(selection, Mapping), "a table of options")
            object.__setattr__(self, "selection", on_default(selection))
        if max(len(self.columns), 1) not in self.text_columns:
            wanted = " or ".join(map(str, self.text_columns))
            raise ConfigError(
                f"The objective {self.objective!r} takes {wanted} column{'s' * (self.text_columns != (1,))} of text, "
                f"and columns={list(self.columns)} names {len(self.columns)}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain values, without those that are None."""
        return {"objective": self.objective, **super().to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make the recipe of these values; `objective` says of which class it is."""
        options = dict(values)
        kind = recipe_class(options.pop("objective", None))
        return cast(Self, super(Recipe, kind).from_dict(options))

    @classmethod
    def preset(cls, name: str, family: Family = "bert", **options: Any) -> Self:
        """Make a recipe from published values; `options` go on top.

        Args:
            name: `paper`: the S²Sent paper's. `original`: what the method's own authors ran. Both start from the
                paper's selection.
            family: The kind of backbone: `bert` or `roberta`.
            **options: `backbone`, `corpus`, and whatever is to differ.
        """
        if name not in PRESETS:
            raise ConfigError(f"preset must be one of {', '.join(map(repr, PRESETS))}, got {name!r}.")
        selection = options.pop("selection", {})
        if not isinstance(selection, SelectionConfig):
            selection = SelectionConfig.from_dict(selection)
        return cls(**{**PRESETS[name].get((cls.objective, family), {}), **options, "selection": selection})


@dataclass(frozen=True, kw_only=True)
class SimCSE(Recipe):
    """Unsupervised SimCSE: two dropout views of every sentence.

    Args:
        mlm_weight: How much of a masked-language loss to add; SimCSE adds 0.1 for transfer tasks.
    """

    objective: ClassVar[str] = "simcse"
    mlm_weight: float = option(0.0, at_least(0))


@dataclass(frozen=True, kw_only=True)
class Supervised(Recipe):
    """Supervised SimCSE: pairs, or triplets with a hard negative. The defaults are the S²Sent authors' code's."""

    objective: ClassVar[str] = "supervised"
    text_columns: ClassVar[tuple[int, ...]] = (2, 3)
    columns: tuple[str, ...] = ("sent0", "sent1", "hard_neg")
    learning_rate: float = 5e-5
    epochs: int = 3
    batch_size: int = 32


@dataclass(frozen=True, kw_only=True)
class PromptCSE(Recipe):
    """PromptBERT: two templates as the two views, each with the vector of the template alone subtracted.

    Args:
        template: The text around every sentence, with {sentence} and {mask}, saved with the model. `auto`: PromptBERT's
            for the vocabulary.
        other_template: The second view's, for training only. `auto`: PromptBERT's second.
        denoise: Whether to subtract the vector of the template alone.
    """

    objective: ClassVar[str] = "promptcse"
    learning_rate: float = 1e-5
    head: Head = "mlp"
    template: str = option("auto")
    other_template: str = option("auto")
    denoise: bool = option(True)


@dataclass(frozen=True, kw_only=True)
class Whitened(Recipe):
    """WhitenedCSE: shuffled group whitening before the head, more than one positive.

    Args:
        groups: How many groups of features are whitened; it must divide the backbone's width. By default groups of two
            features, which are the paper's 384 groups of 768.
        views: Views per sentence, the anchor included: the paper's "positive number".
    """

    objective: ClassVar[str] = "whitened"
    head: Head = "mlp"
    groups: int | None = option(None, at_least(1))
    views: int = option(3, Rule(lambda views: 2 <= views <= 64, "from 2 (the anchor and a positive) to 64"))


@dataclass(frozen=True, kw_only=True)
class Frozen(Recipe):
    """One form of selection behind a frozen encoder, as the experiments have it. Not for `train`: see `s2sent.adapt`.

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
"""What experiments may run: the objectives of `train`, and forms behind a frozen encoder."""

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


def on_default(options: Mapping[str, Any]) -> SelectionConfig:
    """Return the default selection with these options on top."""
    try:
        return SelectionConfig.from_dict({**DEFAULT_SELECTION.to_dict(), **options})
    except ConfigError as error:
        if not any(f"{name}=" in str(error) for name in ("gate", "prior") if name not in options):
            raise
        raise ConfigError(
            f"{error} Options go on top of the default selection, which has gate='linear' and prior='last': give "
            "gate and prior as well (the paper's are 'sigmoid' and 'uniform'), or start from preset='paper'."
        ) from error


def recipe_class(objective: Any, known: Mapping[str, type[Recipe]] = RECIPES) -> type[Recipe]:
    """Return the recipe class of an objective."""
    if not isinstance(objective, str) or objective not in known:
        raise ConfigError(f"objective must be one of {', '.join(map(repr, RECIPES))}, got {shown(repr(objective))}.")
    return known[objective]
