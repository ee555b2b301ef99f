"""What decides an adaptation: a dataclass that checks itself where it is made, saved beside the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from s2sent.errors import ConfigError
from s2sent.selection import SelectionConfig
from s2sent.training.frozen import AS_IS, TrainingOptions
from s2sent.untrusted import read_toml

MAP = "+map"
"""The end of a form's name that adds a linear map."""
GATES = {"blocks": "static", "features": "per_feature", "gate": "linear"}
"""Forms, and their gates."""
FORMS = tuple(f"{name}{behind}" for name in (AS_IS, *GATES) for behind in ("", MAP))
DEFAULT_FORMS = (AS_IS, f"{AS_IS}{MAP}", "blocks", f"blocks{MAP}", "gate", f"gate{MAP}")
TEXT_FORMS = (AS_IS, "blocks")
"""The default for plain text, where freer forms learn what is easy rather than what is meant."""
Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True, kw_only=True)
class AdaptRecipe:
    """Everything that decides what `adapt` makes of a model.

    Args:
        model: The model to adapt: a folder, or a name on the hub. Its encoder's weights do not change.
        data: Files, or dataset ids on the hub: triplets, pairs, scored pairs or plain text.
        columns: The columns with the texts: one for plain text, two for pairs, three for triplets. Empty: they are
            found by their names.
        score_column: The column with the score of two texts. None: found by its name, if columns are.
        forms: The forms to train: `as-is`, `blocks` (one weight per block), `features` (one per block and feature) and
            `gate` (weights that depend on the sentence), each also with `+map` for a linear map behind.
        selection: Options of `SelectionConfig` for the form `gate`; `blocks` also holds for the others. By default
            all states of the encoder, the embeddings included, and a linear gate with a bias per block.
        depth: Keep so many of the encoder's blocks. `auto`: the fewest with which the held-out loss is within the noise
            of the best. None: all.
        steps: Training steps of a form.
        batch_size: Examples to a step.
        temperature: τ.
        gate_learning_rate: Of the gate's matrices.
        bias_learning_rate: Of the logits per block or feature.
        map_learning_rates: Of the linear map; each is tried.
        held_out: The share of the examples that is held out, to stop training and to choose the form by; at most 2,000
            examples are.
        seed: Decides which examples are held out, their order, and the new weights.
        precision: `bf16` runs the encoder in bfloat16 where the machine can.
    """

    model: str
    data: tuple[str, ...]
    columns: tuple[str, ...] = ()
    score_column: str | None = None
    forms: tuple[str, ...] = ()
    selection: Mapping[str, Any] = field(default_factory=dict)
    depth: int | str | None = None
    steps: int = 200
    batch_size: int = 256
    temperature: float = 0.05
    gate_learning_rate: float = 3e-3
    bias_learning_rate: float = 3e-2
    map_learning_rates: tuple[float, ...] = (1e-3, 1e-4)
    held_out: float = 0.2
    seed: int = 0
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", str(self.model))
        for name in ("data", "columns", "forms"):
            value = getattr(self, name)
            texts = [value] if isinstance(value, str | Path) else value
            is_list = isinstance(texts, list | tuple) and all(isinstance(text, str | Path) for text in texts)
            self._check(name, is_list, "must be a list of texts")
            object.__setattr__(self, name, tuple(map(str, texts)))
        rates = self.map_learning_rates
        object.__setattr__(self, "map_learning_rates", tuple(rates) if isinstance(rates, list | tuple) else (rates,))
        self._check("score_column", self.score_column is None or isinstance(self.score_column, str), "must be a text")
        for name in ("steps", "batch_size", "seed"):
            value = getattr(self, name)
            self._check(name, isinstance(value, int) and not isinstance(value, bool), "must be a whole number")
        for name in ("gate_learning_rate", "bias_learning_rate", "temperature", "held_out"):
            self._check(name, _is_positive(getattr(self, name)), "must be a number above 0")
        self._check("map_learning_rates", bool(self.map_learning_rates), "must have at least one number")
        self._check("map_learning_rates", all(map(_is_positive, self.map_learning_rates)), "must be numbers above 0")
        self._check("seed", 0 <= self.seed < 2**32, "must be from 0 to 2³² - 1")
        self._check("steps", self.steps >= 1, "must be at least 1")
        self._check("steps", self.steps <= 1_000_000, "must be at most a million")
        self._check("batch_size", self.batch_size >= 2, "must be at least 2")
        self._check("held_out", self.held_out <= 0.5, "must be at most 0.5")
        self._check("data", bool(self.data), "must have at least one file or dataset")
        self._check("columns", len(self.columns) <= 3, "must be at most three")
        self._check("precision", self.precision in get_args(Precision), f"must be one of {get_args(Precision)}")
        if not isinstance(self.selection, Mapping):
            raise ConfigError(f"selection must be a table of options, got {self.selection!r}.")
        lists = {name: tuple(value) if isinstance(value, list) else value for name, value in self.selection.items()}
        object.__setattr__(self, "selection", lists)
        SelectionConfig.from_dict({"blocks": 2, **lists, "prior": "uniform", "fusion": "stack"})  # raises for mistakes
        depth = self.depth
        is_count = isinstance(depth, int) and not isinstance(depth, bool) and depth >= 1
        self._check("depth", depth is None or depth == "auto" or is_count, "must be 'auto' or a number of blocks")
        if unknown := [name for name in self.forms if name not in FORMS]:
            raise ConfigError(f"There is no form {unknown[0]!r}. Forms: {', '.join(FORMS)}.")

    def _check(self, name: str, legal: bool, rule: str) -> None:
        if not legal:
            raise ConfigError(f"{name} {rule}, got {getattr(self, name)!r}.")

    @property
    def training(self) -> TrainingOptions:
        """How every form is trained."""
        names = {option.name for option in fields(TrainingOptions)} & {option.name for option in fields(self)}
        return TrainingOptions(**{name: getattr(self, name) for name in names})

    def with_absolute_paths(self) -> AdaptRecipe:
        """Return the recipe with the paths of files that exist made absolute: it runs from any folder."""

        def absolute(name: str) -> str:
            return str(Path(name).absolute()) if Path(name).exists() else name

        return replace(self, model=absolute(self.model), data=tuple(map(absolute, self.data)))

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain values, without what is not set."""
        values = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}
        values["selection"] = {k: list(v) if isinstance(v, tuple) else v for k, v in self.selection.items()}
        return {key: value for key, value in values.items() if value is not None and value not in ([], {})}

    @staticmethod
    def from_dict(values: Mapping[str, Any], source: object = "The recipe") -> AdaptRecipe:
        """Make a recipe from plain values."""
        known = [option.name for option in fields(AdaptRecipe)]
        if unknown := sorted(set(values) - set(known)):
            raise ConfigError(f"{source} has {', '.join(unknown)}. Known options: {', '.join(known)}.")
        if missing := [name for name in ("model", "data") if name not in values]:
            raise ConfigError(f"{source} does not say its {' and '.join(missing)}.")
        return AdaptRecipe(**values)

    @staticmethod
    def load(path: Path) -> AdaptRecipe:
        """Read a recipe that `adapt` saved, or a person wrote."""
        return AdaptRecipe.from_dict(read_toml(path), path)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
