"""A sentence-transformers model, ours or anybody's, as bulk encoding wants it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer

from s2sent.errors import ModelError
from s2sent.model.framing import framing_of
from s2sent.model.tokens import padded

_SAMPLES = ("A man is playing a guitar.", " Straße, naïve café; 東京 [MASK] <mask> ", "one two three four ")
"""Texts on which our tokens must be the host's: plain; odd letters, spaces and special tokens; and, repeated, long."""


class TorchEncoder:
    """Tokens and vectors of a `SentenceTransformer`, the same as its `encode` gives, without the work around it.

    Any modules may follow the first, which must be a text `Transformer`.

    Args:
        model: The model. It is put into evaluation mode.

    Raises:
        ModelError: the model does something to text that is not known here, so its vectors would be others.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        encoder = model[0]
        if not isinstance(encoder, Transformer) or getattr(encoder, "tokenizer", None) is None:
            raise ModelError(
                f"Bulk encoding needs a Transformer with a tokenizer in front, and this model begins with "
                f"{type(encoder).__name__}. Encode with model.encode instead."
            )
        model.eval()
        self.model = model
        self.encoder = encoder
        self.device = model.device
        self.prompt = model.prompts.get(model.default_prompt_name or "", None) or None
        self.framing = framing_of(encoder, self.prompt)
        self.normalizes = isinstance(list(model)[-1], Normalize) and model.truncate_dim is None
        self.max_tokens = self.framing.max_tokens
        self.room = self.framing.room
        backend = getattr(encoder.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(
                f"Bulk encoding needs a fast tokenizer, and this model's is {type(encoder.tokenizer).__name__}. "
                "Convert it (transformers can save most as tokenizer.json), or encode with model.encode."
            )
        self._tokenizer = self.framing.tokenizer(backend)
        self._constant = self._check_tokens()
        self.dimension = self.embed([self.frame(self.tokenize([_SAMPLES[0]])[0])]).shape[1]

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's content tokens: no special tokens, not truncated."""
        return self.framing.tokenize(self._tokenizer, texts)

    def frame(self, tokens: list[int]) -> list[int]:
        """Return one sequence as the model sees it."""
        return self.framing.frame(tokens)

    @torch.inference_mode()
    def embed(self, sequences: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Pad framed sequences to one batch, run it, and return its vectors: (b, dimension)."""
        vectors = self.model(self.features(sequences))["sentence_embedding"][:, : self.model.truncate_dim]
        result: NDArray[np.float32] = vectors.float().cpu().numpy()
        return result

    def features(self, sequences: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Pad framed sequences to one batch, as the host's own preprocessing would."""
        batch = padded(self.encoder, sequences)
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()} | self._constant

    def _check_tokens(self) -> dict[str, Any]:
        """Compare with the host's own preprocessing, and return what it adds that is the same for every text."""
        for sample in (*_SAMPLES[:2], _SAMPLES[2] * min(self.max_tokens, 5000)):
            host = dict(self.model.preprocess([sample], prompt=self.prompt))
            ours = dict(padded(self.encoder, [self.frame(self.tokenize([sample])[0])]))
            alike = all(torch.equal(host[name].cpu(), tensor) for name, tensor in ours.items() if name in host)
            tensors = [name for name, value in host.items() if isinstance(value, torch.Tensor) and name not in ours]
            if "input_ids" not in host or not alike or any(bool(host[name].any()) for name in tensors):
                raise ModelError(
                    f"{type(self.encoder.tokenizer).__name__} does something to a text that bulk encoding does not "
                    "know: its vectors would not be the model's. Encode with model.encode instead."
                )
        return {name: value for name, value in host.items() if name not in ours and name not in tensors}
