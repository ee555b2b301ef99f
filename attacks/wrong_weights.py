"""Weights that are missing, of another shape, or no numbers: vectors would be random or NaN, without a word."""

import torch
from common import Attack, Spoil, Target, main
from safetensors.torch import load_file, save_file

ENCODER, SELECTOR = "model.safetensors", "1_SelectivePooling/model.safetensors"


def _missing(target: Target) -> None:
    weights = load_file(target.folder / ENCODER)
    for name in [name for name in weights if name.startswith("encoder.layer.1.")][:8]:
        del weights[name]
    save_file(weights, target.folder / ENCODER, metadata={"format": "pt"})


def _shape(target: Target) -> None:
    weights = load_file(target.folder / ENCODER)
    weights["encoder.layer.1.output.dense.bias"] = torch.zeros(3)
    save_file(weights, target.folder / ENCODER, metadata={"format": "pt"})


def _filled(name: str, value: float) -> Spoil:
    def spoil(target: Target) -> None:
        weights = load_file(target.folder / name)
        largest = max(weights, key=lambda key: weights[key].numel())
        weights[largest].view(-1)[-1] = value
        save_file(weights, target.folder / name, metadata={"format": "pt"})

    return spoil


LIVE = (
    "eight are missing",
    "one number of the encoder is NaN",
    "one number of the encoder is infinite",
    "one number of the selector is NaN",
)

ATTACK = Attack(
    {
        "eight are missing": _missing,
        "one has another shape": _shape,
        "one number of the encoder is NaN": _filled(ENCODER, float("nan")),
        "one number of the encoder is infinite": _filled(ENCODER, float("inf")),
        "one number of the selector is NaN": _filled(SELECTOR, float("nan")),
    },
    live=LIVE,
    loading_is_harm=LIVE,
)

if __name__ == "__main__":
    main({"wrong_weights": ATTACK})
