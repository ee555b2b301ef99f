"""What decides an adaptation: a dataclass that checks itself where it is made, saved beside the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from s2sent.errors import ConfigError
from s2sent.options import REQUIRED, Options, Rule, above, at_least, option
from s2sent.selection.config import SelectionConfig

if TYPE_CHECKING:
    from s2sent.training.frozen import TrainingOptions

AS_IS = "as-is"
"""The form that changes nothing."""
MAP = "+map"
"""The end of a form's name that adds a linear map."""
GATES = {"blocks": "static", "features": "per_feature", "gate": "linear"}
"""Forms, and their gates."""
FORMS = tuple(f"{name}{behind}" for name in (AS_IS, *GATES) for behind in ("", MAP))
DEFAULT_FORMS = (AS_IS, f"{AS_IS}{MAP}", "blocks", f"blocks{MAP}", "gate", f"gate{MAP}")
TEXT_FORMS = (AS_IS, "blocks")
"""The default for plain text, where freer forms learn what is easy rather than what is meant."""
_TRAINING = "Training"
"""The heading of `s2sent adapt --help`."""

PATIENCE = 3
"""Evaluations of the held-out loss without an improvement, 20 steps apart, after which a form stops training."""


@dataclass(frozen=True, kw_only=True)
class AdaptRecipe(Options):
    """Everything that decides what `adapt` makes of a model.

    Args:
        model: The model to adapt: a folder, or a name on the hub. Its encoder's weights do not change.
        data: Triplets, pairs, scored pairs or plain text: .csv, .tsv, .jsonl, .parquet, .txt, also .gz or .zst, or
        dataset
            ids on the hub.
        columns: The columns with the texts: one for plain text, two for pairs, three for triplets. By default they
            are found by their names.
        score_column: The column with the score of two texts. By default found by its name, if columns are.
        forms: The forms to train: `as-is`, `blocks` (one weight per block), `features` (one per block and feature) and
            `gate` (weights that depend on the sentence), each also with `+map` for a linear map behind. By default a
            short list.
        selection: Options of `SelectionConfig` for the form `gate`; `blocks` also holds for the others. By default
            all states of the encoder, the embeddings included, and a linear gate with a bias per block.
        depth: Keep this many of the encoder's blocks. `auto`: the fewest with which the held-out loss is within the
            noise of the best. By default all.
        steps: Training steps per form.
        batch_size: Examples per step.
        temperature: τ, by which cosines are divided.
        gate_learning_rate: Of the gate's matrices.
        bias_learning_rate: Of the logits per block or feature.
        map_learning_rates: Of the linear map; each is tried.
        held_out: The share of the examples that is held out, to stop training and to choose the form by; at most 2,000
            examples are.
        seed: Decides which examples are held out, their order, and the new weights.
        precision: `bf16` runs the encoder in bfloat16, if the machine can. `auto`: where that is faster; the saved
            recipe says which it was.
    """

    model: str = option(REQUIRED, paths=True)
    data: tuple[str, ...] = option(REQUIRED, Rule(bool, "at least one file or dataset"), paths=True)
    columns: tuple[str, ...] = option((), Rule(lambda names: len(names) <= 3, "at most three"))
    score_column: str | None = option(None)
    forms: tuple[str, ...] = option(())
    selection: Mapping[str, Any] = field(default_factory=dict)
    depth: int | str | None = option(
        None, Rule(lambda depth: depth == "auto" or _is_count(depth), "'auto' or a number of blocks")
    )
    steps: int = option(200, Rule(lambda steps: 1 <= steps <= 1_000_000, "from 1 to 1,000,000"), group=_TRAINING)
    batch_size: int = option(256, at_least(2), group=_TRAINING)
    temperature: float = option(0.05, above(0), group=_TRAINING)
    gate_learning_rate: float = option(3e-3, above(0), group=_TRAINING)
    bias_learning_rate: float = option(3e-2, above(0), group=_TRAINING)
    map_learning_rates: tuple[float, ...] = option(
        (1e-3, 1e-4),
        Rule(lambda rates: rates and all(0 < r < math.inf for r in rates), "numbers above 0"),
        group=_TRAINING,
    )
    held_out: float = option(0.2, Rule(lambda share: 0 < share <= 0.5, "above 0 and at most 0.5"), group=_TRAINING)
    seed: int = option(0, Rule(lambda seed: 0 <= seed < 2**32, "from 0 to 2³² - 1"), group=_TRAINING)
    precision: Literal["fp32", "bf16", "auto"] = option("auto", group=_TRAINING)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("selection", isinstance(self.selection, Mapping), "a table of options")
        lists = {name: tuple(value) if isinstance(value, list) else value for name, value in self.selection.items()}
        object.__setattr__(self, "selection", lists)
        SelectionConfig.from_dict({"blocks": 2, **lists, "prior": "uniform", "fusion": "stack"})  # raises for mistakes
        if unknown := [name for name in self.forms if name not in FORMS]:
            raise ConfigError(f"There is no form {unknown[0]!r}. Forms: {', '.join(FORMS)}.")

    @property
    def training(self) -> TrainingOptions:
        """How every form is trained."""
        from s2sent.training.frozen import TrainingOptions

        names = {one.name for one in fields(TrainingOptions)} & {one.name for one in fields(self)}
        return TrainingOptions(patience=PATIENCE, **{name: getattr(self, name) for name in names})

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain values, without those that are None or empty."""
        return {name: value for name, value in super().to_dict().items() if value not in ([], {})}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
