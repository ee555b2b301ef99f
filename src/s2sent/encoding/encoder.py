"""What bulk encoding asks of a model, whatever runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class TextEncoder(Protocol):
    """What bulk encoding needs of a model: tokens of texts, and vectors of batches of tokens."""

    @property
    def dimension(self) -> int:
        """Features of a vector."""

    @property
    def max_tokens(self) -> int:
        """The longest sequence a batch may hold, special tokens and template included."""

    @property
    def room(self) -> int:
        """Content tokens that fit in one sequence."""

    @property
    def normalizes(self) -> bool:
        """Whether the model gives every vector length 1, to which a mean of its vectors must then be brought, too."""

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's content tokens: no special tokens, not truncated."""

    def frame(self, tokens: list[int]) -> list[int]:
        """Return one sequence as the model sees it: special tokens or template around at most `room` content tokens."""

    def embed(self, sequences: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Pad framed sequences to one batch, run it, and return its vectors: (b, dimension)."""
