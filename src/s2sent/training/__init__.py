"""Training on your own text: losses, recipes, and the training loop.

>>> from s2sent.training import SimCSE, train                                          # doctest: +SKIP
>>> train(SimCSE(backbone="bert-base-uncased", corpus=("lines.txt",)), output="out")   # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sent._lazy import lazy

if TYPE_CHECKING:
    from s2sent.training.loop import TrainResult, train
    from s2sent.training.losses import (
        ContrastiveLoss,
        PromptCSELoss,
        SimCSELoss,
        SupervisedLoss,
        WhitenedLoss,
        whiten,
    )
    from s2sent.training.recipes import PromptCSE, Recipe, SimCSE, Supervised, Whitened

__all__ = [
    "ContrastiveLoss",
    "PromptCSE",
    "PromptCSELoss",
    "Recipe",
    "SimCSE",
    "SimCSELoss",
    "Supervised",
    "SupervisedLoss",
    "TrainResult",
    "Whitened",
    "WhitenedLoss",
    "train",
    "whiten",
]

_LOSSES = ("ContrastiveLoss", "PromptCSELoss", "SimCSELoss", "SupervisedLoss", "WhitenedLoss", "whiten")
_RECIPES = ("PromptCSE", "Recipe", "SimCSE", "Supervised", "Whitened")

__getattr__ = lazy(
    __name__,
    {
        "TrainResult": "s2sent.training.loop",
        "train": "s2sent.training.loop",
        **dict.fromkeys(_LOSSES, "s2sent.training.losses"),
        **dict.fromkeys(_RECIPES, "s2sent.training.recipes"),
    },
)
