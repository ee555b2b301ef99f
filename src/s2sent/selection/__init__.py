"""The paper's nested selection on tensors: torch only, nothing of sentence-transformers.

One alphabet of shapes, here and everywhere in the package:

    b  sentence          n  block, or branch of the selection (of N)
    l  token             m  part of the features, and its frequency (of M)
    d  feature (of D)    k  distinct token frequency among the M
    r  reduction ratio   Σ  all tokens of a batch laid end to end
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sent._lazy import lazy

if TYPE_CHECKING:
    from s2sent.selection.config import SelectionConfig
    from s2sent.selection.equations import low_frequencies
    from s2sent.selection.layout import TokenBasis, TokenLayout
    from s2sent.selection.selector import Selection, Selector

__all__ = [
    "Selection",
    "SelectionConfig",
    "Selector",
    "TokenBasis",
    "TokenLayout",
    "low_frequencies",
]

__getattr__ = lazy(
    __name__,
    {
        "Selection": "s2sent.selection.selector",
        "SelectionConfig": "s2sent.selection.config",
        "Selector": "s2sent.selection.selector",
        "TokenBasis": "s2sent.selection.layout",
        "TokenLayout": "s2sent.selection.layout",
        "low_frequencies": "s2sent.selection.equations",
    },
)
