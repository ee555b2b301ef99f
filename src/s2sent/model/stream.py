"""Select while the encoder runs, so that no hidden state outlives its block.

Asking a model for its hidden states keeps all of them alive to the end: on BERT-base thirteen copies of the batch
instead of one. The selector needs only a few sums over the tokens of each chosen block, so during inference they are
taken as the block finishes. With gradients the states are alive anyway, and the model's own hidden states are used.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from s2sent.model.backbone import Backbone
from s2sent.selection import TokenBasis

if TYPE_CHECKING:
    from s2sent.model.pooling import SelectivePooling

STREAMED = "streamed_blocks"
"""The feature that carries a finished `Pass` from the encoder to the selector."""


@dataclass
class Pass:
    """One run of the encoder: what it has projected so far."""

    stream: BlockStream
    basis: TokenBasis
    dtype: torch.dtype | None = None
    blocks_run: int = 0
    projections: list[Tensor] = field(default_factory=list)


# Two threads may encode with one model at a time; each sees the pass it started.
_running: ContextVar[Pass | None] = ContextVar("s2sent_running_pass", default=None)


class BlockStream:
    """Hooks on a host `Transformer` and its blocks that hand the selector the projections of the chosen blocks."""

    def __init__(self, transformer: nn.Module, pooling: SelectivePooling, backbone: Backbone) -> None:
        self.pooling = pooling
        self.backbone = backbone
        self.indices = backbone.indices(pooling.selection)
        self.handles: list[RemovableHandle] = [
            transformer.register_forward_pre_hook(self.begin, with_kwargs=True),
            transformer.register_forward_hook(self.end, always_call=True),
            *(block.register_forward_hook(self.project) for block in dict.fromkeys(backbone.blocks or ())),
        ]

    @staticmethod
    def serves(pooling: SelectivePooling, backbone: Backbone) -> bool:
        """Whether this selection can be streamed: weights that do not depend on the token, from blocks alone."""
        return backbone.blocks is not None and not pooling.selection.per_token and 0 not in pooling.selection.chosen

    def detach(self) -> None:
        """Take the hooks off again."""
        for handle in self.handles:
            handle.remove()

    def begin(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        """Before the encoder: start a pass, and ask the model not to keep hidden states."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return None
        features = args[0]
        basis = self.pooling.token_basis(features)
        if basis is None:
            return None
        _running.set(Pass(self, basis))
        return args, {**kwargs, "output_hidden_states": False}

    def project(self, _: nn.Module, __: tuple[Any, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        """After a block: if it is a chosen one, keep its sums over the tokens."""
        current = _running.get()
        if current is None or current.stream is not self:
            return
        current.blocks_run += 1
        if current.blocks_run in self.indices:
            states = output[0] if isinstance(output, tuple) else output
            states = self.backbone.normed(states, current.blocks_run, from_block=True)
            current.dtype = states.dtype
            with torch.autocast(states.device.type, enabled=False):
                current.projections.append(current.basis.project(states))

    def end(self, _: nn.Module, __: tuple[Any, ...], features: dict[str, Any] | None) -> None:
        """After the encoder, even when it failed: close the pass and hand it on."""
        current = _running.get()
        if current is None or current.stream is not self:
            return
        _running.set(None)
        if features is not None and current.blocks_run == self.backbone.depth:
            features[STREAMED] = current
