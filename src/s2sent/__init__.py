"""S²Sent: sentence vectors that select, per feature, what each block of a Transformer knows.

>>> import s2sent
>>> model = s2sent.build("bert-base-uncased", blocks=3, frequencies=4)  # doctest: +SKIP
>>> model.encode(["A sentence."]); model.save("out")                    # doctest: +SKIP
>>> model = s2sent.load("out")                                          # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sent._lazy import lazy

if TYPE_CHECKING:
    from s2sent.evaluation import evaluate
    from s2sent.experiments.reproduce import reproduce
    from s2sent.model.build import build
    from s2sent.model.pooling import SelectivePooling
    from s2sent.runtime.export import export
    from s2sent.runtime.load import load
    from s2sent.selection import SelectionConfig, Selector
    from s2sent.training.adapt import adapt
    from s2sent.training.loop import train
    from s2sent.vectors.files import encode

__version__ = "0.1.0"
__all__ = [
    "SelectionConfig",
    "SelectivePooling",
    "Selector",
    "adapt",
    "build",
    "encode",
    "evaluate",
    "export",
    "load",
    "reproduce",
    "train",
]

__getattr__ = lazy(
    __name__,
    {
        "SelectionConfig": "s2sent.selection",
        "SelectivePooling": "s2sent.model.pooling",
        "Selector": "s2sent.selection",
        "adapt": "s2sent.training.adapt",
        "build": "s2sent.model.build",
        "encode": "s2sent.vectors.files",
        "evaluate": "s2sent.evaluation",
        "export": "s2sent.runtime.export",
        "load": "s2sent.runtime.load",
        "reproduce": "s2sent.experiments.reproduce",
        "train": "s2sent.training.loop",
    },
)
