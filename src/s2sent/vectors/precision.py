"""The form in which vectors are kept: how many features, of which length, in how many bits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from s2sent.errors import ConfigError


class Precision(StrEnum):
    """In how many bits a feature is kept.

    - `float32`, `float16`: as they are.
    - `int8`: each vector divided by its own scale, its largest feature ÷ 127, and rounded. To undo:
      `vector * scale`. Cosines need no undoing.
    - `binary`: one bit, whether a feature is above 0, eight to a byte, first feature in the highest bit. To undo, to
      ±1: `np.unpackbits(vector, axis=-1)[..., :dim] * 2.0 - 1`. Compare by Hamming distance.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
    BINARY = "binary"


@dataclass(frozen=True)
class Packed:
    """Vectors in their form.

    Attributes:
        values: (b, width).
        scale: (b,) with int8, else None.
        bad: (b,) whether a vector has a value that is not finite, or not in this precision.
    """

    values: NDArray[np.generic]
    scale: NDArray[np.float32] | None
    bad: NDArray[np.bool_]


@dataclass(frozen=True)
class Form:
    """What is done to vectors before they are written.

    Args:
        precision: How they are kept.
        dim: Keep the first so many features; None keeps all.
        normalize: Bring each vector, after the cut, to length 1.

    >>> Form("int8", dim=2, normalize=True).pack(np.array([[3.0, -4.0, 9.0]], np.float32)).values
    array([[  95, -127]], dtype=int8)
    """

    precision: str = Precision.FLOAT32
    dim: int | None = None
    normalize: bool = False

    def __post_init__(self) -> None:
        if self.precision not in list(Precision):
            raise ConfigError(f"precision must be one of {', '.join(Precision)}, got {self.precision!r}.")
        if self.dim is not None and self.dim < 1:
            raise ConfigError(f"dim must be at least 1, got {self.dim}. Leave it out to keep all.")

    def check(self, dimension: int) -> None:
        """Raise unless vectors of this dimension can be cut so."""
        if self.dim is not None and self.dim > dimension:
            raise ConfigError(f"dim={self.dim} is more than the model's vectors have: {dimension}.")

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Of the written values."""
        return np.dtype("uint8" if self.precision == Precision.BINARY else self.precision)

    def width(self, dimension: int) -> int:
        """How many values a written vector has."""
        dim = min(self.dim or dimension, dimension)
        return -(-dim // 8) if self.precision == Precision.BINARY else dim

    def pack(self, vectors: NDArray[np.float32]) -> Packed:
        """Bring vectors (b, dimension) to their form."""
        vectors = vectors[:, : self.dim]
        if self.normalize:
            vectors = unit(vectors)
        values: NDArray[np.generic] = vectors
        scale = None
        with np.errstate(over="ignore", invalid="ignore"):
            if self.precision == Precision.FLOAT16:
                values = vectors.astype(np.float16)
                vectors = values.astype(np.float32)  # what is too large for it has become infinite
            bad = np.logical_not(np.isfinite(vectors).all(axis=1))
            if self.precision == Precision.INT8:
                largest = np.abs(vectors).max(axis=1)
                scale = (np.where(largest > 0, largest, 1) / 127).astype(np.float32)
                values = np.rint(vectors / scale[:, None]).astype(np.int8)
            elif self.precision == Precision.BINARY:
                values = np.packbits(vectors > 0, axis=1)
        return Packed(values, scale, bad)


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring vectors to length 1; a zero vector stays."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # an infinite vector has none
        return (vectors / np.where(length > 0, length, 1)).astype(np.float32)
