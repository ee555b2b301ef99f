"""Training on one's own text: objectives, recipes, and the run itself.

>>> from s2sent.training import SimCSE, train                                          # doctest: +SKIP
>>> train(SimCSE(backbone="bert-base-uncased", corpus=("lines.txt",)), output="out")   # doctest: +SKIP
"""

from s2sent.training.objectives import ContrastiveLoss, SimCSELoss, SupervisedLoss
from s2sent.training.promptcse import PromptCSELoss
from s2sent.training.recipes import PromptCSE, Recipe, SimCSE, Supervised, Whitened
from s2sent.training.run import Finished, train
from s2sent.training.whitening import WhitenedLoss, whiten

__all__ = [
    "ContrastiveLoss",
    "Finished",
    "PromptCSE",
    "PromptCSELoss",
    "Recipe",
    "SimCSE",
    "SimCSELoss",
    "Supervised",
    "SupervisedLoss",
    "Whitened",
    "WhitenedLoss",
    "train",
    "whiten",
]
