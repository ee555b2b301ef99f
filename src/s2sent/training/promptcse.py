"""PromptBERT's objective ("PromptCSE"): two templates as two views, with the templates' own share taken out."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor

from s2sent.errors import ConfigError
from s2sent.model.backbone import first_position
from s2sent.model.prompts import Frame, PromptTransformer, Template, empty_rows, published_templates
from s2sent.model.tokens import padded
from s2sent.training.objectives import ContrastiveLoss, Features


class PromptCSELoss(ContrastiveLoss):
    """PromptBERT (Jiang et al., 2022), unsupervised: a sentence in one template against itself in another.

    Data: one column of sentences, no labels. The model comes from `s2sent.build(…, template=…)`.

    Template denoising: what the model makes of the template alone, with the positions it has around a sentence of that
    length, is subtracted from the sentence's vector before the head. It costs one more row per template and distinct
    sentence length in the batch, in the same forward; with batches of like lengths that is next to nothing. (The
    authors run 50 rows per template and step, one for each length up to 49.)

    Args:
        model: The encoder to train.
        other_template: The second view's; by default PromptBERT's second for this vocabulary. Only for training.
        denoise: Whether to take the templates' own share out.
        temperature: τ.
        head: `mlp` is PromptBERT's.
        mini_batch_size: For GradCache; see `ContrastiveLoss`.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        other_template: str | None = None,
        denoise: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        encoder = model[0]
        if not isinstance(encoder, PromptTransformer):
            raise ConfigError(
                "PromptCSE needs a model with a template: build it with s2sent.build(…, template='auto')."
            )
        self.prompted = [encoder]  # in a list, so that the encoder's parameters do not count twice
        other = Template(other_template or published_templates(encoder.tokenizer)[1])
        if other.has_mask != encoder.parsed.has_mask:
            raise ConfigError(
                f"The templates {encoder.template!r} and {other.text!r} must both have a mask, or neither."
            )
        self.frames = (encoder.frame, other.around(encoder.tokenizer))
        self.denoise = denoise
        self.first_position = first_position(encoder.auto_model)
        if denoise and self.first_position is None:
            raise ConfigError(
                f"{type(encoder.auto_model).__name__} sees distances, not positions, so the template cannot be taken "
                "out. Use denoise=False."
            )
        self._lengths: Tensor | None = None
        self._distinct: Tensor | None = None

    def views(self, columns: list[Features]) -> list[Features]:
        """The sentences in each template, then each template alone for every sentence length there is."""
        encoder = self.prompted[0]
        device = columns[0]["input_ids"].device
        first = {key: columns[0][key] for key in ("input_ids", "attention_mask")}
        second = padded(encoder, encoder.reframe(columns[0], self.frames[1]))
        views = [first, second]
        if self.denoise:
            start = self.first_position or 0
            for view in views:
                positions = torch.arange(view["input_ids"].shape[1], device=view["input_ids"].device) + start
                view["position_ids"] = positions.expand_as(view["input_ids"])
            self._lengths = encoder.sentence_lengths(columns[0])
            self._distinct = torch.unique(self._lengths)
            views += [self._alone(frame, self._distinct.tolist(), start) for frame in self.frames]
        return [{key: value.to(device) for key, value in view.items()} for view in views]

    def _alone(self, frame: Frame, lengths: list[int], start: int) -> Features:
        ids, positions = empty_rows(frame, lengths, start)
        features: Features = dict(padded(self.prompted[0], ids))
        return {**features, "position_ids": positions}

    def together(self, views: list[Features]) -> Features:  # type: ignore[override]
        """One below the other; padding gets a legal position, though nobody looks at it."""
        merged = super().together(views)
        if self.denoise:
            merged["position_ids"] = merged["position_ids"].clamp_min(self.first_position or 0)
        return merged

    def contrast(self, embeddings: list[Tensor]) -> Tensor:
        """Take the template alone out of each view, then contrast as ever."""
        views = embeddings[:2]
        if self.denoise:
            assert self._lengths is not None
            assert self._distinct is not None
            place = torch.searchsorted(self._distinct, self._lengths)
            views = [view - F.embedding(place, alone) for view, alone in zip(views, embeddings[2:], strict=True)]
        return super().contrast(views)
