"""What decides a selection: the paper's hyper-parameters, the choices it leaves open, and ours beyond it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

from s2sent.errors import ConfigError
from s2sent.untrusted import shown

Squeeze = Literal["dct", "gap", "none"]
Scale = Literal["mean", "orthonormal", "sum"]
Fusion = Literal["stack", "average", "last"]
Activation = Literal["relu", "tanh"]
Gate = Literal["sigmoid", "linear", "static", "per_feature", "none"]
Prior = Literal["uniform", "last"]
PoolingMode = Literal["mean", "cls", "mask"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "squeeze": get_args(Squeeze),
    "scale": get_args(Scale),
    "fusion": get_args(Fusion),
    "activation": get_args(Activation),
    "gate": get_args(Gate),
    "prior": get_args(Prior),
}
_MOST_BLOCKS = 1024
"""More than any Transformer has; the selector's own backbone sets the limit that counts."""


@dataclass(frozen=True)
class SelectionConfig:
    """How sentence vectors are selected from a Transformer's blocks. The defaults are the paper's 2D SS.

    Args:
        blocks: The paper's N: the last N blocks. Or the blocks themselves, counted from 1, with 0 for the embedding
            output and negative numbers from the end: `(1, -1)` is the first and the last block.
        frequencies: The paper's m: how many low-frequency DCT bases share the features among them.
        reduction: The paper's r: the bottleneck is ⌊D/r⌋ wide.
        squeeze: What the gate sees of a sentence. `dct`: Frequency Selection. `gap`: the plain average, the same as
            one frequency. `none`: no squeeze; every token is gated by itself.
        scale: The constant of the DCT, which the paper leaves out. `mean` divides by N·L, so that the lowest
            frequency is the average exactly; `orthonormal` is the DCT-II's own; `sum` has no constant.
        fusion: `stack`: blocks compete, feature by feature (2D SS). `average`: the blocks' average, gated (1D SS).
            `last`: the last of the blocks alone, gated (Last1, 1D SS).
        activation: Of the bottleneck: `relu` as in the paper's equation or `tanh` as in its symbol table.
        gate: `sigmoid` is the paper's. `linear` leaves the sigmoid out, which otherwise keeps every block's share
            in a narrow band. `static` learns one weight per block, the same for all sentences and features;
            `per_feature` one per block and feature, the same for all sentences. `none` has nothing to learn: with
            `fusion="last"` or `"average"` these are the plain baselines.
        prior: Where training starts. `uniform`: near equal shares (the paper). `last`: one learned logit per block
            gives the last block 0.99 of the weight and the excitation starts at zero, so that the untrained selector
            is the encoder itself. For an encoder that is already good.
        bias: Whether one learned logit per block is added to the excitation before the softmax, so that the gate can
            prefer a block for all sentences and features at once. Beyond the paper; `prior="last"` has it in any case.
        block_scales: What each block is divided by before anything else, one number per block. Empty: nothing, which
            is right where blocks are of about one size. `s2sent adapt` measures it.
    """

    blocks: int | tuple[int, ...] = 3
    frequencies: int = 4
    reduction: int = 12
    squeeze: Squeeze = "dct"
    scale: Scale = "mean"
    fusion: Fusion = "stack"
    activation: Activation = "relu"
    gate: Gate = "sigmoid"
    prior: Prior = "uniform"
    bias: bool = False
    block_scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", _checked_blocks(self.blocks))
        for name in ("frequencies", "reduction"):
            check_positive(name, getattr(self, name))
        for name, legal in _CHOICES.items():
            value = getattr(self, name)
            if value not in legal:
                raise ConfigError(f"{name} must be one of {', '.join(map(repr, legal))}, got {shown(repr(value))}.")
        if self.fusion == "stack" and self.gate == "none":
            raise ConfigError(
                "gate='none' leaves fusion='stack' nothing to weigh the blocks with. Use fusion='average' for their "
                "plain average, or gate='static' for learned weights."
            )
        if not isinstance(self.bias, bool):
            raise ConfigError(f"bias must be true or false, got {self.bias!r}.")
        if self.bias and not (self.gated and self.fusion == "stack"):
            raise ConfigError(
                f"bias=True adds a logit per block to the excitation of fusion='stack', and gate={self.gate!r} with "
                f"fusion={self.fusion!r} has none. Use gate='linear' or 'sigmoid' with fusion='stack'."
            )
        object.__setattr__(self, "block_scales", _checked_scales(self.block_scales, len(self.chosen)))
        if self.branches == 1:
            for name, instead in (("gate", "'sigmoid' or 'none'"), ("prior", "'uniform'"), ("bias", "False")):
                if (value := getattr(self, name)) in ("linear", "static", "per_feature", "last", True):
                    raise ConfigError(
                        f"{name}={value!r} weighs blocks against each other, but fusion={self.fusion!r} over "
                        f"{len(self.chosen)} of them has a single branch. Use fusion='stack' over several blocks, or "
                        f"{name}={instead}."
                    )

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> Self:
        """Make a config from plain values, as a json file has them; an option that does not exist is an error."""
        given: object = options
        if not isinstance(given, Mapping):
            raise ConfigError(f"selection must be a table of options, got {shown(repr(options))}.")
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(options) - set(known)):
            raise ConfigError(
                f"Unknown selection option{'s' * (len(unknown) > 1)}: {', '.join(unknown)}. Legal: {', '.join(known)}."
            )
        return cls(**options)

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain values for a json file; `from_dict` is the way back."""
        return asdict(self)

    @property
    def listed(self) -> tuple[int, ...]:
        """`blocks` written out, oldest first."""
        return tuple(range(-self.blocks, 0)) if isinstance(self.blocks, int) else self.blocks

    @property
    def chosen(self) -> tuple[int, ...]:
        """The listed blocks that take part: all of them, or for `fusion="last"` only the last."""
        return self.listed[-1:] if self.fusion == "last" else self.listed

    @property
    def branches(self) -> int:
        """How many branches the squeeze and the gate see: N for 2D SS; 1 for 1D SS, whose blocks are averaged first."""
        return len(self.chosen) if self.fusion == "stack" else 1

    @property
    def gated(self) -> bool:
        """Whether there is an excitation, that is, weights that depend on the sentence."""
        return self.gate in ("sigmoid", "linear")

    @property
    def has_block_logits(self) -> bool:
        """Whether there is one learned logit per block."""
        return self.gate == "static" or (self.gated and (self.bias or self.prior == "last"))

    @property
    def starts(self) -> tuple[str, ...]:
        """Values of `prior` that training can start from, where there is a choice: forms with learned logits."""
        return ("uniform", "last") if self.has_block_logits or self.gate == "per_feature" else ()

    @property
    def per_token(self) -> bool:
        """Whether the weights depend on the token, so that blocks cannot be pooled before they are fused."""
        return self.gated and self.squeeze == "none"


def check_positive(name: str, value: object) -> None:
    """Raise a `ConfigError` unless an option is a whole number above 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, got {shown(repr(value))}.")


def _checked_blocks(blocks: object) -> int | tuple[int, ...]:
    if not isinstance(blocks, list | tuple):
        check_positive("blocks", blocks)
        if blocks > _MOST_BLOCKS:  # type: ignore[operator]
            raise ConfigError(f"blocks must be at most {_MOST_BLOCKS:,}, got {shown(repr(blocks))}.")
        return blocks  # type: ignore[return-value]
    if not blocks or any(not isinstance(number, int) or isinstance(number, bool) for number in blocks):
        raise ConfigError(
            f"blocks must be how many of the last blocks to use (3), or the numbers of the blocks ((1, -1) for the "
            f"first and the last), got {shown(repr(blocks))}."
        )
    if len(set(blocks)) < len(blocks):
        raise ConfigError(f"blocks={blocks!r} names a block twice. Name each one once, oldest first.")
    return tuple(blocks)


def _checked_scales(scales: object, blocks: int) -> tuple[float, ...]:
    if not isinstance(scales, list | tuple) or any(
        isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < math.inf for scale in scales
    ):
        raise ConfigError(f"block_scales must be a list of finite numbers above 0, got {scales!r}.")
    if scales and len(scales) != blocks:
        raise ConfigError(f"block_scales has {len(scales)} numbers for {blocks} blocks. Give one for each, or none.")
    return tuple(map(float, scales))
