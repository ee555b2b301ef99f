"""Contrastive objectives: losses in the host's API, each of which says what data it takes.

They all make a few views of every sentence, run them through the encoder in one forward, and pull the views of one
sentence together and those of different sentences apart. Heads that exist only in training live in here, so a saved
model has nothing to strip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn

from s2sent.errors import ConfigError

Features = dict[str, Any]


class ContrastiveLoss(CachedLossMixin, nn.Module):
    """What the objectives share: views in, one forward, InfoNCE out.

    Args:
        model: The encoder to train.
        temperature: τ, by which cosines are divided.
        head: `mlp`: a train-only Linear + tanh between the sentence vector and the loss. `none`: no head.
        mini_batch_size: None: the whole batch at once. Otherwise GradCache: so many sentences at a time are in memory,
            for the price of a second forward, with the very same gradient.

    Negatives are gathered from all ranks, with gradient, when torch.distributed runs; average the gradients over the
    ranks afterwards, as DDP does.
    """

    columns: tuple[int, ...] = (1,)
    """How many texts an example may have."""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.05,
        head: str = "none",
        mini_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        if head not in ("none", "mlp"):
            raise ConfigError(f"head={head!r} is not known. Legal: 'none', 'mlp'.")
        if temperature <= 0:
            raise ConfigError(f"temperature must be above 0, got {temperature}.")
        self.model = model
        self.temperature = temperature
        self.mini_batch_size: int | None = mini_batch_size  # type: ignore[assignment]
        dim = model.get_embedding_dimension() or 0
        self.head: nn.Module = nn.Sequential(nn.Linear(dim, dim), nn.Tanh()) if head == "mlp" else nn.Identity()
        self.head.to(model.device)

    @property
    def uses_gradient_cache(self) -> bool:  # type: ignore[override]
        """Whether the backward pass runs the encoder again: the host asks."""
        return self.mini_batch_size is not None

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch: one features dictionary per column, as the host's collator makes them."""
        del labels
        columns = list(sentence_features)
        if len(columns) not in self.columns:
            raise ConfigError(
                f"{type(self).__name__} takes {' or '.join(map(str, self.columns))} text{'s' * (self.columns != (1,))} "
                f"per example, and the data has {len(columns)}."
            )
        views = self.views(columns)
        if self.mini_batch_size is not None:
            return self.forward_cached([dict(view) for view in views])
        rows = [len(view["input_ids"]) for view in views]
        embeddings: Tensor = self.model(self.together(views))["sentence_embedding"]
        return self._contrast_in_fp32(list(torch.split(embeddings, rows)))

    def check_batch(self, size: int) -> None:
        """Raise if a step, of `size` examples over all ranks, would fail: before anything long begins."""

    def views(self, columns: list[Features]) -> list[Features]:
        """Return the batches to encode, the anchors first. By default the columns as they are."""
        return columns

    def contrast(self, embeddings: list[Tensor]) -> Tensor:
        """Compute the loss from the views' sentence vectors, (b, d) each, in the order of `views`."""
        return self.info_nce([self.head(view) for view in embeddings])

    def _contrast_in_fp32(self, embeddings: list[Tensor]) -> Tensor:
        # Cosines divided by τ = 0.05 and covariances want more digits than autocast would leave them.
        with torch.autocast(embeddings[0].device.type, enabled=False):
            return self.contrast([view.float() for view in embeddings])

    def info_nce(self, views: Sequence[Tensor], *, gather: bool = True) -> Tensor:
        """−log softmax of cos(anchor, positive)/τ over everybody's positives, and negatives if there is a third view.

        The host's own in-batch loss, cross-device negatives with gradient included.
        """
        scored = MultipleNegativesRankingLoss(
            self.model, scale=1 / self.temperature, gather_across_devices=gather and is_distributed()
        )
        loss: Tensor = scored.compute_loss_from_embeddings(list(views), labels=None)  # type: ignore[arg-type]
        return loss

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """GradCache's middle step: the loss from vectors that were computed a few sentences at a time."""
        loss = self._contrast_in_fp32([torch.cat(view) for view in reps])
        if with_backward:
            loss.backward()  # type: ignore[no-untyped-call]
            loss = loss.detach()
        return loss

    def together(self, views: Sequence[Features]) -> Features:
        """Put batches one below the other, padded to the widest."""
        tokenizer: Any = self.model.tokenizer
        pad = {"input_ids": getattr(tokenizer, "pad_token_id", None) or 0}
        left = getattr(tokenizer, "padding_side", "right") == "left"
        width = max(view["input_ids"].shape[1] for view in views)
        merged: Features = {}
        for key, value in views[0].items():
            if not isinstance(value, Tensor):
                merged[key] = value
                continue
            parts = []
            for view in views:
                gap = width - view[key].shape[1]
                parts.append(
                    F.pad(view[key], (gap, 0) if left else (0, gap), value=pad.get(key, 0)) if gap else view[key]
                )
            merged[key] = torch.cat(parts)
        return merged


class SimCSELoss(ContrastiveLoss):
    """Unsupervised SimCSE (Gao et al., 2021): a sentence against itself under another dropout.

    Data: one column of sentences, no labels. The encoder needs dropout above 0, and a batch should not hold a sentence
    twice, for the second would count as a negative of the first.

    Args:
        model: The encoder to train.
        temperature: τ.
        head: `none` with mean pooling (the paper's setting); `mlp` with cls pooling is SimCSE's own.
        mini_batch_size: For GradCache; see `ContrastiveLoss`.
        auxiliary: One more loss of the features, such as `MaskedLanguageLoss`, and
        auxiliary_weight: how much of it to add.

    Relations:
        - The host's `MultipleNegativesRankingLoss` on a dataset with every sentence in two columns computes the same
          loss, with two tokenisations and two forwards.

    Example:
        >>> loss = SimCSELoss(model)                                                        # doctest: +SKIP
        >>> trainer = SentenceTransformerTrainer(model, train_dataset=sentences, loss=loss) # doctest: +SKIP
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        auxiliary: nn.Module | None = None,
        auxiliary_weight: float = 0.1,
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        self.auxiliary = auxiliary
        self.auxiliary_weight = auxiliary_weight

    def views(self, columns: list[Features]) -> list[Features]:
        """The same sentences twice: dropout makes the difference."""
        return [columns[0], columns[0]]

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch, and add the auxiliary one."""
        columns = list(sentence_features)
        loss = super().forward([dict(column) for column in columns])
        if self.auxiliary is None:
            return loss
        added: Tensor = self.auxiliary(columns[0])
        return loss + self.auxiliary_weight * added


class SupervisedLoss(ContrastiveLoss):
    """Supervised SimCSE: pairs that mean the same, or triplets with a hard negative.

    Data: two columns (anchor, positive), or three (anchor, positive, hard negative), no labels. All positives and hard
    negatives of the batch are everybody's negatives.

    Args:
        model: The encoder to train.
        temperature: τ.
        head: `mlp` is SimCSE's own with cls pooling.
        mini_batch_size: For GradCache; see `ContrastiveLoss`.
    """

    columns = (2, 3)


def is_distributed() -> bool:
    """Whether several ranks train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
