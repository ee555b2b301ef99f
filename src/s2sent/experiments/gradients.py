"""The gradient that reaches each block (appendix C): how fusion shares it out, measured on one batch."""

from __future__ import annotations

from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from s2sent.experiments.measures import selector_of
from s2sent.training.losses import ContrastiveLoss
from s2sent.training.setup import encoder_of


def block_gradients(loss: ContrastiveLoss, features: dict[str, Tensor]) -> dict[str, Any]:
    """Norms of the loss's gradient by block, of the model as it is.

    `direct`: what the fusion itself sends to a block's output, not what comes down through later blocks: the paper's
    factor K, whose dependence on the block is the point of the appendix. Blocks outside the fusion get 0.
    `total`: the gradient of the block's own parameters, which is what moves it.
    """
    model = loss.model
    loss.train()
    loss.zero_grad(set_to_none=True)
    selector = selector_of(model)
    loss([features]).backward()
    blocks = _blocks(model)
    total = [_norm([p.grad for p in block.parameters() if p.grad is not None]) for block in blocks]
    loss.zero_grad(set_to_none=True)

    states = _HiddenStates(model, selector)
    with states:
        loss([features]).backward()
    direct = states.norms(len(blocks))
    loss.zero_grad(set_to_none=True)
    return {"direct": direct, "total": total, "blocks": list(selector.block_numbers)}


class _HiddenStates:
    """Cuts the graph between encoder and selector, so that what arrives at a hidden state came through the fusion."""

    def __init__(self, model: SentenceTransformer, selector: Any) -> None:
        self.encoder, self.numbers = model[0], selector.block_numbers
        self.leaves: list[Tensor] = []

    def __enter__(self) -> _HiddenStates:
        def cut(_: Any, __: Any, output: dict[str, Any]) -> dict[str, Any]:
            states = tuple(state.detach().requires_grad_() for state in output["all_layer_embeddings"])
            self.leaves = list(states)
            return {**output, "all_layer_embeddings": states}

        self.hook = self.encoder.register_forward_hook(cut)
        return self

    def __exit__(self, *_: object) -> None:
        self.hook.remove()

    def norms(self, depth: int) -> list[float]:
        found = [_norm([leaf.grad]) if leaf.grad is not None else 0.0 for leaf in self.leaves]
        return found[len(found) - depth :]  # without the embeddings


def _blocks(model: SentenceTransformer) -> list[nn.Module]:
    """The encoder's blocks: its longest list of modules of one class."""
    lists = [list(module) for module in encoder_of(model).auto_model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len)


def _norm(tensors: list[Tensor | None]) -> float:
    total = sum(float(tensor.double().square().sum()) for tensor in tensors if tensor is not None)
    return float(total**0.5)
