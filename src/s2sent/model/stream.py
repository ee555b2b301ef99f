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

from s2sent.errors import DataError
from s2sent.model.backbone import Backbone
from s2sent.selection import TokenBasis

if TYPE_CHECKING:
    from s2sent.model.pooling import SelectivePooling

_FINISHED = "streamed_blocks"  # the feature that carries finished passes from the encoder to the selectors behind it


@dataclass
class Pass:
    """One run of the encoder: what one stream has projected of it so far."""

    stream: BlockStream
    basis: TokenBasis
    dtype: torch.dtype = torch.float32
    runs: int = 0
    projections: list[Tensor] = field(default_factory=list)


# The passes under way: per thread, because two threads may encode with one model; and several, because the selectors
# of several models may listen to one encoder.
_running: ContextVar[tuple[Pass, ...]] = ContextVar("s2sent_running_passes", default=())


class BlockStream:
    """Hooks on a host `Transformer` and its blocks that hand one selector the projections of its blocks."""

    def __init__(self, encoder: nn.Module, pooling: SelectivePooling, backbone: Backbone) -> None:
        self.pooling = pooling
        self.backbone = backbone
        self.indices = backbone.indices(pooling.selection)
        # Streamed are weights that do not depend on the token, of blocks whose output is the hidden state.
        self.streams = backbone.blocks is not None and not pooling.selection.per_token
        # Only chosen blocks are watched. Where one block runs several times (ALBERT), all of its runs are seen:
        # `order` has the number of each run that is.
        runs = backbone.blocks if self.streams and backbone.blocks else ()
        watched = dict.fromkeys(runs[index - 1] for index in self.indices if index) if runs else {}
        self.order = tuple(number for number, block in enumerate(runs, start=1) if block in watched)
        self.handles: list[RemovableHandle] = [
            encoder.register_forward_pre_hook(self.begin, with_kwargs=True),
            encoder.register_forward_hook(self.end, always_call=True),
            *(block.register_forward_hook(self.project) for block in watched),
        ]
        if runs and 0 in self.indices:  # the embeddings are what the first block is given
            self.handles.append(runs[0].register_forward_pre_hook(self.project_input, with_kwargs=True))

    def detach(self) -> None:
        """Take the hooks off again."""
        for handle in self.handles:
            handle.remove()

    def begin(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        """Before the encoder: start a pass, or ask for hidden states."""
        if torch.compiler.is_compiling():
            return None
        self._close()  # what an earlier run left, if it was interrupted
        mask = args[0].get("attention_mask")
        if mask is not None and mask.numel() == 0:  # most encoders crash on it
            raise DataError("There is no text in this batch, not even a token. Leave empty sentences out.")
        basis = None if torch.is_grad_enabled() or not self.streams else self.pooling.token_basis(args[0])
        if basis is None:
            return args, {**kwargs, "output_hidden_states": True}
        _running.set((*_running.get(), Pass(self, basis)))
        return args, {"output_hidden_states": False, **kwargs}  # unless another selector has asked for them

    def project(self, _: nn.Module, __: tuple[Any, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        """After a block: if it is a chosen one, keep its sums over the tokens."""
        current = self._current()
        states = output[0] if isinstance(output, tuple) else output
        # Another shape: a run that was interrupted left its pass open, and this is not that run.
        if current is None or states.shape[:2] != current.basis.layout.mask.shape:
            return
        number = self.order[current.runs % len(self.order)]
        current.runs += 1
        if number in self.indices:
            self._keep(current, states, number)

    def project_input(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before the first block: keep the sums over the tokens of what it is given, once."""
        current = self._current()
        states = args[0] if args else kwargs["hidden_states"]
        if current is None or current.projections or states.shape[:2] != current.basis.layout.mask.shape:
            return
        self._keep(current, states, 0)

    def _keep(self, current: Pass, states: Tensor, number: int) -> None:
        states = self.backbone.normed(states, number, from_block=True)
        current.dtype = states.dtype
        current.projections.append(current.basis.project(states))

    def end(self, _: nn.Module, __: tuple[Any, ...], features: dict[str, Any] | None) -> None:
        """After the encoder, even if it failed: close the pass, and hand it on."""
        current = self._current()
        if current is not None:
            self._close()
        if current is not None and features is not None:
            features[_FINISHED] = (*features.get(_FINISHED, ()), current)

    def finished(self, features: dict[str, Any]) -> Pass | None:
        """Take this stream's pass out of what came from the encoder; None if it was not streamed."""
        passes: tuple[Pass, ...] = features.pop(_FINISHED, ())
        done = next((done for done in passes if done.stream is self), None)
        if done is not None and len(done.projections) != len(self.indices):
            # The hooks did not see the blocks: part of the encoder was compiled, or changes the shape of its states.
            self.streams = False
            return None
        return done

    def _current(self) -> Pass | None:
        if torch.compiler.is_compiling():
            return None
        for running in _running.get():
            if running.stream is self:
                return running
        return None

    def _close(self) -> None:
        _running.set(tuple(running for running in _running.get() if running.stream is not self))
