"""Training on one's own text: objectives, recipes, and the run itself.

>>> from s2sent.training import SimCSE, train                                          # doctest: +SKIP
>>> train(SimCSE(backbone="bert-base-uncased", corpus=("lines.txt",)), output="out")   # doctest: +SKIP
"""

from s2sent.training.loop import TrainResult, train
from s2sent.training.losses import ContrastiveLoss, PromptCSELoss, SimCSELoss, SupervisedLoss, WhitenedLoss, whiten
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
