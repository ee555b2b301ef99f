"""One step of training: a function of the weights, the optimizer's moments, the recipe, the batch and its number."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from s2sent.errors import S2SentError
from s2sent.model.tokens import padded
from s2sent.training.batches import Batch
from s2sent.training.objectives import ContrastiveLoss
from s2sent.training.process import seed_step
from s2sent.training.ranks import Ranks
from s2sent.training.recipes import Recipe
from s2sent.training.setup import encoder_of, make_optimizer


class DivergedError(S2SentError):
    """The loss or its gradient is no longer a number."""


class Stepper:
    """Takes steps.

    Args:
        recipe: Its learning rates, warm-up, clipping and seed are used.
        loss: The objective around the model that is trained.
        ranks: Who trains together.
        total: How many steps the run has, for the learning rate's decay.
        autocast: The type to compute in; None: that of the weights.
    """

    def __init__(
        self, recipe: Recipe, loss: ContrastiveLoss, ranks: Ranks, total: int, autocast: torch.dtype | None = None
    ) -> None:
        self.recipe, self.loss, self.ranks, self.total, self.autocast = recipe, loss, ranks, total, autocast
        self.optimizer = make_optimizer(recipe, loss)
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def learning_rate(self) -> float:
        """The backbone's, as of the last step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def take(self, batch: Batch, step: int) -> float:
        """Take the `step`-th step, counted from 1; return the loss, averaged over the ranks.

        Raises:
            DivergedError: The loss or its gradient is not finite. The weights are as they were before.
        """
        seed_step(self.recipe.seed, step, self.ranks.rank)
        self.loss.train()
        factor = learning_rate_factor(step - 1, self.total, self.recipe.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        value = self._backward(batch)
        self.ranks.average_gradients(self.parameters)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip)
        loss = float(self.ranks.mean(value))
        if not (torch.isfinite(norm) and torch.isfinite(torch.tensor(loss))):
            raise DivergedError(
                f"Training has diverged at step {step}: the loss is {loss:g}, the norm of its gradient {norm:g}. Use a "
                f"smaller learning rate than {self.recipe.learning_rate:g}, and --restart."
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def _backward(self, batch: Batch) -> Tensor:
        device, encoder = self.ranks.device, encoder_of(self.loss.model)
        features = [{key: v.to(device) for key, v in padded(encoder, ids).items()} for ids in batch.columns]
        precision: Any = torch.autocast(device.type, self.autocast) if self.autocast else nullcontext()
        with precision:
            value: Tensor = self.loss(features)
            if self.loss.uses_gradient_cache:  # its backward pass runs the encoder again, in the same precision
                value.backward()  # type: ignore[no-untyped-call]
        if not self.loss.uses_gradient_cache:
            value.backward()  # type: ignore[no-untyped-call]
        return value.detach()


def learning_rate_factor(step: int, total: int, warmup: float) -> float:
    """Linear warm-up, then linear decay to 0, as a factor of the base rate; `step` counts from 0."""
    rising = int(total * warmup)
    if step < rising:
        return (step + 1) / rising
    return max(total - step, 0) / max(total - rising, 1)
