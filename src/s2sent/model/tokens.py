"""Token ids as plain lists, and the padded batch the encoder takes: the two halves of the host's `preprocess`.

Apart, they let training tokenise a text once and put batches together by length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers.base.modules import Transformer
from torch import Tensor

from s2sent.errors import ModelError


def token_ids(encoder: Transformer, texts: Sequence[str], max_length: int) -> list[list[int]]:
    """Tokenise texts as `encoder.preprocess` does, cut to `max_length` tokens, without padding.

    A text that is nothing but special tokens, or that the tokenizer drops (a zero-width space), has no ids at all.
    """
    from s2sent.model.prompts import PromptTransformer

    if isinstance(encoder, PromptTransformer):
        return encoder.token_ids(texts, max_length)
    tokenizer: Any = encoder.tokenizer
    if tokenizer is None:
        raise ModelError(f"The encoder {type(encoder.auto_model).__name__} has no tokenizer.")
    if not texts:
        return []
    ids: list[list[int]] = tokenizer(
        list(texts), truncation=True, max_length=max_length, return_attention_mask=False, return_token_type_ids=False
    )["input_ids"]
    special = set(special_ids(tokenizer))
    return [[] if special.issuperset(row) else row for row in ids]


def special_ids(tokenizer: Any) -> list[int]:
    """Return the ids that are no text. An unknown token stands for text, and a mask token for what a prompt asks."""
    text = {getattr(tokenizer, "unk_token_id", None), getattr(tokenizer, "mask_token_id", None)}
    return [i for i in getattr(tokenizer, "all_special_ids", []) if i not in text]


def padded(encoder: Transformer, ids: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Make one batch of token ids: `input_ids` and `attention_mask` (b, l), padded on the tokenizer's side."""
    tokenizer: Any = encoder.tokenizer
    width = max(map(len, ids))
    left = tokenizer.padding_side == "left"
    rows, mask = [], []
    for row in ids:
        gap = width - len(row)
        fill, none = [tokenizer.pad_token_id or 0] * gap, [0] * gap
        rows.append([*fill, *row] if left else [*row, *fill])
        mask.append([*none, *[1] * len(row)] if left else [*[1] * len(row), *none])
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}
