"""SimCSE's auxiliary loss: guess masked tokens, so that the encoder keeps what it knew of words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn

from s2sent.errors import ConfigError
from s2sent.model.load import SAFE, quiet

SHARE = 0.15
"""How many of the tokens are to be guessed: of these 80 % are masked, 10 % are random, 10 % stay (BERT's own)."""


class MaskedLanguageLoss(nn.Module):
    """The mean cross-entropy of masked tokens, through the encoder that is being trained.

    The language head is the backbone's own where its folder has one, else it starts new. It is not saved.

    Args:
        encoder: The encoder.
        folder: The backbone's folder, for its language head.
    """

    def __init__(self, encoder: Transformer, folder: Path) -> None:
        super().__init__()
        from transformers import AutoModelForMaskedLM

        tokenizer: Any = encoder.tokenizer
        if tokenizer.mask_token_id is None:
            raise ConfigError("mlm_weight needs a tokenizer with a mask token, and this backbone's has none.")
        try:
            with quiet():
                self.language_model: Any = AutoModelForMaskedLM.from_pretrained(
                    folder, local_files_only=True, dtype=torch.float32, **SAFE
                )
        except ValueError as error:
            raise ConfigError(
                f"mlm_weight: {type(encoder.auto_model).__name__} has no masked-language form."
            ) from error
        # Around the very encoder that is trained, and with its word vectors as output weights, as pretrained.
        setattr(self.language_model, self.language_model.base_model_prefix, encoder.auto_model)
        self.language_model.tie_weights()
        self.language_model.to(encoder.auto_model.device)
        self.mask, self.vocabulary = tokenizer.mask_token_id, len(tokenizer)
        self.register_buffer("special", torch.tensor(tokenizer.all_special_ids), persistent=False)

    special: Tensor

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        """Mask a batch and guess."""
        ids, mask = features["input_ids"], features["attention_mask"]
        guessed = (torch.rand(ids.shape, device=ids.device) < SHARE) & mask.bool()
        guessed &= ~torch.isin(ids, self.special.to(ids.device))
        kind = torch.rand(ids.shape, device=ids.device)
        random = torch.randint(self.vocabulary, ids.shape, device=ids.device)
        masked = torch.where(guessed & (kind < 0.8), self.mask, ids)
        masked = torch.where(guessed & (kind >= 0.9), random, masked)
        output = self.language_model(input_ids=masked, attention_mask=mask)
        logits = output.logits[guessed].float()
        # The mean over no token would be NaN: a batch of very short texts may have none.
        return nn.functional.cross_entropy(logits, ids[guessed], reduction="sum") / max(len(logits), 1)
