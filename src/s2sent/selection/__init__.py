"""The paper's nested selection on tensors: torch only, nothing of the host library.

One alphabet of shapes, here and everywhere in the package:

    b  sentence          n  block, or branch of the selection (of N)
    l  token             m  part of the features, and its frequency (of M)
    d  feature (of D)    k  distinct token frequency among the M
    r  reduction ratio   Σ  all tokens of a batch laid end to end
"""

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
