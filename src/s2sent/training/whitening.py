"""Shuffled group whitening (WhitenedCSE, Zhuo et al., 2023): a train-only transform, and the loss around it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather_with_grad
from torch import Tensor

from s2sent.errors import ConfigError
from s2sent.training.objectives import ContrastiveLoss, Features, is_distributed

RIDGE = 1e-5
"""Added to every group's covariance, relative to its mean variance: features that (nearly) depend on each other in a
batch are scaled by at most 1/√RIDGE instead of dividing by zero."""


def whiten(x: Tensor, groups: int, order: Tensor) -> Tensor:
    """Whiten groups of features over the batch; (b, d) → (b, d), each group with covariance 1.

    The features are shuffled by `order`, cut into `groups` of equal width w, and each group x_g is centred and turned
    by W = Σ^(-1/2), its covariance's symmetric inverse root (ZCA), after which the shuffle is undone. W is a constant
    to the gradient, as in WhitenedCSE's release.

    Args:
        x: Sentence vectors (b, d).
        groups: How many groups; it divides d. (The paper's 384 and 256 at d = 768: widths 2 and 3.)
        order: A permutation (d,) of the features.

    Raises:
        ConfigError: `groups` does not divide d, or the batch has w sentences or fewer: w features have no covariance
            of full rank over so few.
    """
    b, d = x.shape
    width = group_width(d, groups)
    check_rows(b, width)
    x = x.float()
    grouped = x[:, order].view(b, groups, width)  # (b, g, w)
    centred = grouped - grouped.mean(dim=0)
    with torch.no_grad():
        covariance = torch.einsum("bgv,bgw->gvw", centred, centred) / b
        if x.device.type == "mps":  # which has no float64
            covariance = covariance.cpu()
        scale = covariance.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None]  # (g, 1, 1)
        # A group that is constant over the batch has nothing to whiten; it stays the zero it is after centring.
        ridge = RIDGE * scale.clamp_min(torch.finfo(torch.float32).tiny)
        values, vectors = torch.linalg.eigh(covariance.double() + ridge * torch.eye(width, device=ridge.device))
        root = torch.einsum("gvk,gk,gwk->gvw", vectors, values.rsqrt(), vectors).float().to(x.device)  # W (g, w, w)
    whitened = torch.einsum("bgv,gvw->bgw", centred, root).reshape(b, d)
    return whitened[:, order.argsort()]


def group_width(dim: int, groups: int) -> int:
    """Return how many features a group has; raise unless groups of equal width come out."""
    if groups < 1 or dim % groups:
        raise ConfigError(
            f"groups={groups} does not divide the {dim} features. Legal, for example: "
            f"{', '.join(str(n) for n in range(dim, 0, -1) if dim % n == 0 and dim // n <= 8)}."
        )
    return dim // groups


def check_rows(rows: int, width: int) -> None:
    """Raise unless so many sentences are enough to whiten groups of `width` features."""
    if rows <= width:
        raise ConfigError(
            f"A batch of {rows} cannot be whitened in groups of {width} features: it takes more than {width} "
            "sentences. Use a larger batch, or more groups."
        )


class WhitenedLoss(ContrastiveLoss):
    """WhitenedCSE: several dropout views of a sentence, each whitened in its own random groups before the head.

    Data: one column of sentences, no labels. The loss is a sum of InfoNCE terms, the first view against each other.
    With several ranks the whitening is over everybody's sentences, so it is the same as on one rank with all of them.

    Args:
        model: The encoder to train.
        groups: How many groups of features; see `whiten` for what is legal. None: pairs.
        views: How many views of a sentence, the anchor included (the paper's "positive number 3").
        temperature: τ.
        head: `mlp`: Linear + tanh behind the whitening.
        mini_batch_size: For GradCache; see `ContrastiveLoss`.
    """

    def __init__(
        self, model: SentenceTransformer, *, groups: int | None = None, views: int = 3, **options: Any
    ) -> None:
        super().__init__(model, **options)
        dim = model.get_embedding_dimension() or 0
        groups = groups or dim // 2
        self.width = group_width(dim, groups)
        if views < 2:
            raise ConfigError(f"views={views} is not legal: an anchor and at least one positive make 2.")
        self.groups = groups
        self.n_views = views

    def check_batch(self, size: int) -> None:
        """Raise for a batch that is too small to whiten."""
        check_rows(size, self.width)

    def views(self, columns: list[Features]) -> list[Features]:
        """The same sentences several times: dropout makes the difference."""
        return [columns[0]] * self.n_views

    def contrast(self, embeddings: list[Tensor]) -> Tensor:
        """Whiten every view over the whole batch of all ranks, then sum the anchor's terms."""
        if is_distributed():
            embeddings = [all_gather_with_grad(view) for view in embeddings]
        views = [self.head(whiten(view, self.groups, self._shuffle(view))) for view in embeddings]
        # The loss of all ranks' sentences is computed on every rank. The gather's backward pass sums the ranks'
        # gradients, and averaging over ranks afterwards takes that factor out again.
        return torch.stack([self.info_nce([views[0], other], gather=False) for other in views[1:]]).sum()

    @staticmethod
    def _shuffle(x: Tensor) -> Tensor:
        order = torch.randperm(x.shape[1], device=x.device)
        if is_distributed():  # every rank must whiten the same groups
            dist.broadcast(order, src=0)
        return order
