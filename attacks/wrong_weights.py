"""Weights that are missing, of another shape, or not finite: vectors would be random or NaN, without an error."""

from collections.abc import Callable

import torch
from common import Attack, Change, Target
from safetensors.torch import load_file, save_file
from torch import Tensor

ENCODER, SELECTOR = "model.safetensors", "1_SelectivePooling/model.safetensors"


def _weights(name: str, edit: Callable[[dict[str, Tensor]], None]) -> Change:
    def change(target: Target) -> None:
        weights = load_file(target.folder / name)
        edit(weights)
        save_file(weights, target.folder / name, metadata={"format": "pt"})

    return change


def _remove(weights: dict[str, Tensor]) -> None:
    for name in [name for name in weights if name.startswith("encoder.layer.1.")][:8]:
        del weights[name]


def _reshape(weights: dict[str, Tensor]) -> None:
    weights["encoder.layer.1.output.dense.bias"] = torch.zeros(3)


def _set_one(value: float) -> Callable[[dict[str, Tensor]], None]:
    def edit(weights: dict[str, Tensor]) -> None:
        max(weights.values(), key=Tensor.numel).view(-1)[-1] = value

    return edit


HARMFUL = (
    "eight are missing",
    "one number of the encoder is NaN",
    "one number of the encoder is infinite",
    "one number of the selector is NaN",
)

ATTACK = Attack(
    {
        "eight are missing": _weights(ENCODER, _remove),
        "one has another shape": _weights(ENCODER, _reshape),
        "one number of the encoder is NaN": _weights(ENCODER, _set_one(float("nan"))),
        "one number of the encoder is infinite": _weights(ENCODER, _set_one(float("inf"))),
        "one number of the selector is NaN": _weights(SELECTOR, _set_one(float("nan"))),
    },
    works_on_host=HARMFUL,
    loading_is_harm=HARMFUL,
)
