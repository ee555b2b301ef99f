"""What bulk encoding asks of a model, whatever runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from s2sent.errors import ModelError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


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


def open_text_encoder(
    model: SentenceTransformer | TextEncoder | str | Path, device: str | None = None, threads: int | None = None
) -> tuple[TextEncoder, str]:
    """Return an encoder and a fingerprint of all that decides its vectors.

    Args:
        model: A model's folder, its name on the hub, or the model itself: a `SentenceTransformer`, or an encoder that
            has a `fingerprint`.
        device: Where to run what is loaded; by default the best there is.
        threads: How many threads an exported model may use; by default one for each core.
    """
    from s2sent.model.fingerprint import fingerprint_folder, fingerprint_model

    fingerprint: str | None = None
    loaded: Any = model
    if isinstance(model, str | Path):
        from s2sent.model.folder import is_export, locate
        from s2sent.runtime.load import load_folder

        folder = locate(model)
        loaded = load_folder(folder, device=device, threads=threads if is_export(folder) else None)
        fingerprint = fingerprint_folder(folder)
    if hasattr(loaded, "frame") and hasattr(loaded, "embed"):
        fingerprint = fingerprint or getattr(loaded, "fingerprint", None)
        if fingerprint is None:
            raise ModelError("This encoder has no fingerprint, so a run could not go on safely. Give its folder.")
        return loaded, fingerprint

    from s2sent.vectors.torch_encoder import TorchEncoder

    return TorchEncoder(loaded), fingerprint or fingerprint_model(loaded)
