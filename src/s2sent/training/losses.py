"""Contrastive losses in sentence-transformers' loss API: what data each takes, which paper it is from.

Each loss makes a few views of every sentence, runs them through the encoder in one forward pass, and pulls the views of
one sentence together and those of different sentences apart (InfoNCE). Heads that exist only in training belong to the
loss, so a saved model does not have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util.distributed import all_gather_with_grad
from torch import Tensor, nn

from s2sent.errors import ConfigError
from s2sent.model.backbone import first_position
from s2sent.model.load import SAFE, quiet
from s2sent.model.prompts import Frame, PromptTransformer, Template, empty_rows, padded, published_templates

Features = dict[str, Any]

MASKED = 0.15
"""The share of tokens that the masked language model predicts: 80 % of them masked, 10 % random, 10 % kept, as BERT."""
RIDGE = 1e-5
"""Added to the covariance of every whitened group, relative to its mean variance. It bounds the scale of features that
(nearly) depend on each other in a batch to 1/√RIDGE."""


class ContrastiveLoss(CachedLossMixin, nn.Module):
    """Base class of the losses: views in, one forward pass, InfoNCE out.

    Negatives are gathered from all ranks, with gradient, when torch.distributed runs. Average the gradients over the
    ranks afterwards, as DDP does.

    Args:
        model: The encoder to train.
        temperature: τ, by which cosines are divided.
        head: `mlp`: a train-only Linear + tanh between the sentence vector and the loss. `none`: no head.
        mini_batch_size: GradCache: so many sentences at a time are in memory, at the price of a second forward pass;
            the gradient is the same. None: the whole batch at once.
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
            raise ConfigError(f"head must be 'none' or 'mlp', got {head!r}.")
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
        """Whether the backward pass runs the encoder again; sentence-transformers asks."""
        return self.mini_batch_size is not None

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch: one features dictionary per column, as sentence-transformers' collator makes."""
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
        embeddings: Tensor = self.model(self.stack(views))["sentence_embedding"]
        return self._contrast_in_fp32(list(torch.split(embeddings, rows)))

    def check_batch(self, size: int) -> None:
        """Raise if a step of `size` examples over all ranks would fail; called before anything long begins."""

    def views(self, columns: list[Features]) -> list[Features]:
        """Return the batches to encode, the anchors first; by default the columns as they are."""
        return columns

    def contrast(self, embeddings: list[Tensor]) -> Tensor:
        """Compute the loss from the sentence vectors of the views, (b, d) each, in the order of `views`."""
        return self.info_nce([self.head(view) for view in embeddings])

    def _contrast_in_fp32(self, embeddings: list[Tensor]) -> Tensor:
        # Cosines divided by τ = 0.05, and covariances, need more digits than autocast leaves them.
        with torch.autocast(embeddings[0].device.type, enabled=False):
            return self.contrast([view.float() for view in embeddings])

    def info_nce(self, views: Sequence[Tensor], *, gather: bool = True) -> Tensor:
        """−log softmax of cos(anchor, positive)/τ over all positives, and all negatives if there is a third view."""
        loss = MultipleNegativesRankingLoss(
            self.model, scale=1 / self.temperature, gather_across_devices=gather and is_distributed()
        )
        return loss.compute_loss_from_embeddings(list(views), labels=None)  # type: ignore[arg-type]

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Compute the loss from vectors that were computed a few sentences at a time: the middle step of GradCache."""
        loss = self._contrast_in_fp32([torch.cat(view) for view in reps])
        if with_backward:
            loss.backward()  # type: ignore[no-untyped-call]
            loss = loss.detach()
        return loss

    def stack(self, views: Sequence[Features]) -> Features:
        """Return one batch of all views, padded to the longest."""
        tokenizer: Any = self.model.tokenizer
        pad = {"input_ids": getattr(tokenizer, "pad_token_id", None) or 0}
        left = getattr(tokenizer, "padding_side", "right") == "left"
        width = max(view["input_ids"].shape[1] for view in views)

        def widen(key: str, value: Tensor) -> Tensor:
            gap = width - value.shape[1]
            return F.pad(value, (gap, 0) if left else (0, gap), value=pad.get(key, 0)) if gap else value

        return {
            key: torch.cat([widen(key, view[key]) for view in views]) if isinstance(value, Tensor) else value
            for key, value in views[0].items()
        }


class SimCSELoss(ContrastiveLoss):
    """Unsupervised SimCSE (Gao et al., 2021): a sentence against itself under another dropout mask.

    Data: one column of sentences, no labels. The encoder needs dropout above 0, and a batch should not have a sentence
    twice: the second would count as a negative of the first.

    Args:
        model: The encoder to train.
        auxiliary: Another loss on the same features, such as `MaskedLanguageLoss`.
        auxiliary_weight: How much of it is added.
        **options: See `ContrastiveLoss`. No head with mean pooling is the S²Sent paper's setting; `mlp` with cls
            pooling is SimCSE's.

    Relations:
        - `MultipleNegativesRankingLoss` on a dataset with every sentence in two columns computes the same loss, with
          two tokenisations and two forward passes.

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
        """Return the sentences twice; dropout makes the difference."""
        return [columns[0], columns[0]]

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch, with the auxiliary loss added."""
        columns = list(sentence_features)
        loss = super().forward([dict(column) for column in columns])
        if self.auxiliary is None:
            return loss
        added: Tensor = self.auxiliary(columns[0])
        return loss + self.auxiliary_weight * added


class SupervisedLoss(ContrastiveLoss):
    """Supervised SimCSE (Gao et al., 2021): pairs of the same meaning, or triplets with a hard negative.

    Data: two columns (anchor, positive) or three (anchor, positive, hard negative), no labels. Every positive and hard
    negative of the batch is a negative of all other anchors.

    Args:
        model: The encoder to train.
        **options: See `ContrastiveLoss`; `head="mlp"` with cls pooling is SimCSE's.
    """

    columns = (2, 3)


class PromptCSELoss(ContrastiveLoss):
    """PromptBERT (Jiang et al., 2022), unsupervised: a sentence in one template against itself in another.

    Data: one column of sentences, no labels. The model is built with a template: `s2sent.build(…, template=…)`.

    Template denoising: the vector of the template alone, with the positions it has around a sentence of that length, is
    subtracted from the sentence's vector before the head. It costs one row per template and distinct sentence length in
    the batch, in the same forward pass. (PromptBERT's code runs 50 rows per template and step.)

    Args:
        model: The encoder to train.
        other_template: The second view's template, for training only; by default PromptBERT's for this vocabulary.
        denoise: Whether to subtract the vector of the template alone.
        **options: See `ContrastiveLoss`; `head="mlp"` is PromptBERT's.
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
        self.prompted = [encoder]  # in a list, so that its parameters are not registered twice
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
                f"denoise=True needs absolute positions, and {type(encoder.auto_model).__name__} has relative ones. "
                "Use denoise=False."
            )
        self._lengths: Tensor | None = None
        self._distinct: Tensor | None = None

    def views(self, columns: list[Features]) -> list[Features]:
        """Return the sentences in each template, then each template alone, once per sentence length of the batch."""
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
        return {**padded(self.prompted[0], ids), "position_ids": positions}

    def stack(self, views: Sequence[Features]) -> Features:
        """Return one batch of all views; padding gets a legal position, which has no effect."""
        stacked = super().stack(views)
        if self.denoise:
            stacked["position_ids"] = stacked["position_ids"].clamp_min(self.first_position or 0)
        return stacked

    def contrast(self, embeddings: list[Tensor]) -> Tensor:
        """Subtract the template alone from each view, then contrast."""
        views = embeddings[:2]
        if self.denoise:
            assert self._lengths is not None
            assert self._distinct is not None
            place = torch.searchsorted(self._distinct, self._lengths)
            views = [view - F.embedding(place, alone) for view, alone in zip(views, embeddings[2:], strict=True)]
        return super().contrast(views)


class WhitenedLoss(ContrastiveLoss):
    """WhitenedCSE (Zhuo et al., 2023): several dropout views, each whitened in random groups of features.

    Data: one column of sentences, no labels. The loss is the sum of InfoNCE of the first view with each other view.
    With several ranks the whitening is over the sentences of all ranks, as it would be on one rank that has them all.

    Args:
        model: The encoder to train.
        groups: How many groups of features; see `whiten`. None: groups of two.
        views: How many views of a sentence, the anchor included (the paper's "positive number 3").
        **options: See `ContrastiveLoss`; the head comes after the whitening.
    """

    def __init__(
        self, model: SentenceTransformer, *, groups: int | None = None, views: int = 3, **options: Any
    ) -> None:
        super().__init__(model, **options)
        dim = model.get_embedding_dimension() or 0
        self.groups = groups or dim // 2
        self.width = _group_width(dim, self.groups)
        if views < 2:
            raise ConfigError(f"views must be at least 2 (an anchor and a positive), got {views}.")
        self.n_views = views

    def check_batch(self, size: int) -> None:
        """Raise for a batch that is too small to whiten."""
        _check_rows(size, self.width)

    def views(self, columns: list[Features]) -> list[Features]:
        """Return the sentences several times; dropout makes the difference."""
        return [columns[0]] * self.n_views

    def contrast(self, embeddings: list[Tensor]) -> Tensor:
        """Whiten every view over the batch of all ranks, then sum the anchor's terms."""
        if is_distributed():
            embeddings = [all_gather_with_grad(view) for view in embeddings]
        views = [self.head(whiten(view, self.groups, self._shuffle(view))) for view in embeddings]
        # Every rank computes the loss of all sentences. The gather's backward pass sums the gradients of the ranks, and
        # averaging over ranks afterwards removes that factor.
        return torch.stack([self.info_nce([views[0], other], gather=False) for other in views[1:]]).sum()

    @staticmethod
    def _shuffle(x: Tensor) -> Tensor:
        order = torch.randperm(x.shape[1], device=x.device)
        if is_distributed():  # every rank must whiten the same groups
            dist.broadcast(order, src=0)
        return order


def whiten(x: Tensor, groups: int, order: Tensor) -> Tensor:
    """Whiten groups of features over the batch (WhitenedCSE's shuffled group whitening).

    The features are shuffled by `order` and cut into `groups` of equal width w. Each group is centred and multiplied by
    W = Σ^(-1/2), the symmetric inverse root of its covariance (ZCA), and the shuffle is undone. W is a constant to the
    gradient, as in WhitenedCSE's code.

    Args:
        x: Sentence vectors (b, d).
        groups: How many groups; it divides d. (The paper's 384 and 256 at d = 768: widths 2 and 3.)
        order: A permutation (d,) of the features.

    Returns:
        Whitened vectors (b, d); each group has covariance 1.

    Raises:
        ConfigError: `groups` does not divide d, or the batch has w sentences or fewer, over which w features have no
            covariance of full rank.
    """
    b, d = x.shape
    width = _group_width(d, groups)
    _check_rows(b, width)
    x = x.float()
    grouped = x[:, order].view(b, groups, width)  # (b, g, w)
    centred = grouped - grouped.mean(dim=0)
    with torch.no_grad():
        covariance = torch.einsum("bgv,bgw->gvw", centred, centred) / b
        if x.device.type == "mps":  # which has no float64
            covariance = covariance.cpu()
        scale = covariance.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None]  # (g, 1, 1)
        # A group that is constant over the batch has nothing to whiten: it stays 0, as after centring.
        ridge = RIDGE * scale.clamp_min(torch.finfo(torch.float32).tiny)
        values, vectors = torch.linalg.eigh(covariance.double() + ridge * torch.eye(width, device=ridge.device))
        root = torch.einsum("gvk,gk,gwk->gvw", vectors, values.rsqrt(), vectors).float().to(x.device)  # W (g, w, w)
    whitened = torch.einsum("bgv,gvw->bgw", centred, root).reshape(b, d)
    return whitened[:, order.argsort()]


def _group_width(dim: int, groups: int) -> int:
    if groups < 1 or dim % groups:
        legal = ", ".join(str(n) for n in range(dim, 0, -1) if dim % n == 0 and dim // n <= 8)
        raise ConfigError(f"groups={groups} does not divide the {dim} features. Legal, for example: {legal}.")
    return dim // groups


def _check_rows(rows: int, width: int) -> None:
    if rows <= width:
        raise ConfigError(
            f"A batch of {rows} cannot be whitened in groups of {width} features: it takes more than {width} "
            "sentences. Use a larger batch, or more groups."
        )


class MaskedLanguageLoss(nn.Module):
    """SimCSE's auxiliary loss: the mean cross-entropy of masked tokens, through the encoder that is trained.

    The language model head is the backbone's own if its folder has one, otherwise it starts untrained. It is not saved.

    Args:
        encoder: The encoder.
        folder: The backbone's folder, for its language model head.
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
        # Around the encoder that is trained, with its word vectors as output weights, as in pretraining.
        setattr(self.language_model, self.language_model.base_model_prefix, encoder.auto_model)
        self.language_model.tie_weights()
        self.language_model.to(encoder.auto_model.device)
        self.mask, self.vocabulary = tokenizer.mask_token_id, len(tokenizer)
        self.register_buffer("special", torch.tensor(tokenizer.all_special_ids), persistent=False)

    special: Tensor

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        """Mask tokens of a batch and predict them."""
        ids, mask = features["input_ids"], features["attention_mask"]
        chosen = (torch.rand(ids.shape, device=ids.device) < MASKED) & mask.bool()
        chosen &= ~torch.isin(ids, self.special.to(ids.device))
        kind = torch.rand(ids.shape, device=ids.device)
        random = torch.randint(self.vocabulary, ids.shape, device=ids.device)
        masked = torch.where(chosen & (kind < 0.8), self.mask, ids)
        masked = torch.where(chosen & (kind >= 0.9), random, masked)
        logits = self.language_model(input_ids=masked, attention_mask=mask).logits[chosen].float()
        # Not the mean, which is NaN for a batch of very short texts of which no token was chosen.
        return nn.functional.cross_entropy(logits, ids[chosen], reduction="sum") / max(len(logits), 1)


def is_distributed() -> bool:
    """Whether several ranks train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
