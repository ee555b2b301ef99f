"""What the selector needs to know of an encoder. Where a family of models needs special care, the care is here."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from s2sent.errors import ConfigError, ModelError
from s2sent.selection import SelectionConfig


@dataclass(frozen=True)
class Backbone:
    """A Transformer seen as a stack of blocks.

    Attributes:
        name: What to call it in a message.
        depth: How many blocks it has.
        final_norm: The norm after the last block of a pre-norm model; None where every block ends in a norm.
        blocks: The blocks in the order they run, a shared one as often as it runs; None where a hidden state is not
            simply a block's output, so that one must ask the model for its hidden states.
    """

    name: str
    depth: int
    final_norm: nn.Module | None
    blocks: tuple[nn.Module, ...] | None

    @classmethod
    def of(cls, model: PreTrainedModel) -> Backbone:
        """Look at a model."""
        config = model.config.get_text_config()
        name = f"{type(model).__name__} {config.name_or_path}".strip()
        blocks = _blocks(model)
        depth = len(blocks) if blocks else config.num_hidden_layers
        if blocks is None:
            return cls(name, depth, None, None)
        inputs, outputs, last = _run(model, blocks)
        # Whether a hidden state is what its block returns: DeBERTa-v2 may add a convolution to the first one's, and
        # Longformer pads inside.
        plain = len(outputs) == depth and all(map(_same, outputs[:-1], inputs[1:])) and outputs[-1].shape == last.shape
        return cls(name, depth, _final_norm(model, name, outputs[-1], last), blocks if plain else None)

    def indices(self, selection: SelectionConfig) -> tuple[int, ...]:
        """Find the chosen blocks among the hidden states: 0 is the embedding output, `depth` the last block."""
        numbers = tuple(n if n >= 0 else self.depth + 1 + n for n in selection.listed)
        lowest = 1 if isinstance(selection.blocks, int) else 0
        if min(numbers) < lowest or max(numbers) > self.depth:
            raise ConfigError(
                f"blocks={selection.blocks} reaches beyond {self.name}, which has {self.depth} blocks. Give 1 to "
                f"{self.depth} for the last so many, or their numbers from 1 to {self.depth} (0: the embeddings)."
            )
        if list(numbers) != sorted(set(numbers)):
            raise ConfigError(
                f"blocks={selection.blocks} are the blocks {numbers} of {self.name}. Name each one once, oldest first."
            )
        return numbers[-len(selection.chosen) :]

    def normed(self, states: Tensor, index: int, *, from_block: bool = False) -> Tensor:
        """Bring hidden state `index` to the model's own scale.

        Args:
            states: The hidden states.
            index: Which they are; the model itself has normed the last ones,
            from_block: unless they were taken from the block directly.
        """
        if self.final_norm is None or (index == self.depth and not from_block):
            return states
        normed: Tensor = self.final_norm(states)
        return normed

    def choose(self, hidden_states: Sequence[Tensor | None], indices: tuple[int, ...]) -> list[Tensor]:
        """Pick the chosen blocks from all hidden states of the model."""
        if len(hidden_states) != self.depth + 1:
            raise ModelError(
                f"{self.name} gave {len(hidden_states)} hidden states; {self.depth} blocks and the embeddings make "
                f"{self.depth + 1}. Its config must have output_hidden_states=True."
            )
        chosen = []
        for index in indices:
            states = hidden_states[index]
            if states is None:
                raise ModelError(
                    f"{self.name} left out hidden state {index}. Set its config's output_hidden_states=True."
                )
            chosen.append(self.normed(states, index))
        return chosen


def _blocks(model: PreTrainedModel) -> tuple[nn.Module, ...] | None:
    """The blocks in the order they run."""
    config = model.config.get_text_config()
    depth = config.num_hidden_layers
    if config.model_type == "albert":  # one block, or a few, that run again and again
        encoder: Any = model.encoder
        groups = encoder.albert_layer_groups
        runs = [groups[i * len(groups) // depth] for i in range(depth)]
        return tuple(layer for group in runs for layer in group.albert_layers)
    stack = _stack(model)
    return None if stack is None else tuple(stack)


def _stack(model: PreTrainedModel) -> nn.ModuleList | None:
    """The list of blocks; None if there is not exactly one list of that length."""
    depth = model.config.get_text_config().num_hidden_layers
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == depth]
    return stacks[0] if len(stacks) == 1 else None


def check_can_be_cut(model: PreTrainedModel) -> nn.ModuleList | None:
    """Return the list of an encoder's blocks; None where one block runs again and again, and there is none to remove.

    Raises:
        ModelError: the encoder's blocks are not in one list.
    """
    config: Any = model.config.get_text_config()
    if config.model_type == "albert" and config.num_hidden_groups == config.inner_group_num == 1:
        return None
    blocks = None if config.model_type == "albert" else _stack(model)
    if blocks is None:
        raise ModelError(f"{type(model).__name__} does not have its blocks in one list, so it cannot be cut.")
    return blocks


def keep_blocks(model: PreTrainedModel, count: int) -> None:
    """Remove all but the first `count` blocks of an encoder, in place. What is saved of it has that many blocks.

    Raises:
        ModelError: the encoder's blocks are not in one list.
    """
    blocks = check_can_be_cut(model)
    config: Any = model.config.get_text_config()
    depth = config.num_hidden_layers
    if blocks is not None:
        del blocks[count:]
    config.num_hidden_layers = count
    for name, value in config.to_dict().items():  # what the config says of every block, such as `layer_types`
        if isinstance(value, list) and len(value) == depth:
            setattr(config, name, value[:count])


def _run(model: PreTrainedModel, blocks: Sequence[nn.Module]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Run three tokens through the model: every block's input and output, and what comes out in the end.

    Rather than asking for hidden states, which leaves hooks on the model that cannot be pickled.
    """
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []

    def watch(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        inputs.append(args[0] if args else kwargs["hidden_states"])
        outputs.append(output[0] if isinstance(output, tuple) else output)

    handles = [block.register_forward_hook(watch, with_kwargs=True) for block in dict.fromkeys(blocks)]
    training = [(module, module.training) for module in model.modules()]
    padding = getattr(model.config.get_text_config(), "pad_token_id", None)
    ids = torch.tensor([[i for i in range(4) if i != padding][:3]], device=model.device)
    try:
        model.train(False)
        with torch.inference_mode():
            last = model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=False)[0]
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in training:
            module.training = mode
    return inputs, outputs, last


def _final_norm(model: PreTrainedModel, name: str, raw: Tensor, last: Tensor) -> nn.Module | None:
    """Find what a pre-norm model does to its last block's states.

    Such a model adds up a residual stream and normalises it once, at the end, so that only the last of its hidden
    states is on the scale that the model means.
    """
    if raw.shape != last.shape or _same(raw, last):
        return None
    with torch.inference_mode():
        for module in model.modules():
            if "norm" in type(module).__name__.lower() and not list(module.children()):
                try:
                    normed = module(raw)
                except (RuntimeError, TypeError):  # a norm of another width, or with other arguments
                    continue
                if isinstance(normed, Tensor) and _same(normed, last):
                    return module
    raise ModelError(
        f"{name} does something to its last block's states that is not one of its norms, so the states of its other "
        "blocks cannot be brought to the same scale. This backbone cannot be used."
    )


def _same(a: Tensor, b: Tensor) -> bool:
    tolerance = 1e-4 if a.dtype == torch.float32 else 2e-2
    return a.shape == b.shape and torch.allclose(a.float(), b.float(), rtol=tolerance, atol=tolerance)


def max_tokens(model: PreTrainedModel) -> int | None:
    """Return the longest text that a model has positions for; None if there is no limit."""
    positions: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    return positions - (first_position(model) or 0)


def first_position(model: PreTrainedModel) -> int | None:
    """Return the position id of a text's first token; None where one cannot give the model its positions."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return None
    if not getattr(model.config, "position_biased_input", True):  # DeBERTa: distances between tokens, no positions
        return None
    # RoBERTa and its kin count positions from padding_idx + 1, so that many rows of the table are never reached.
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding_idx = table.padding_idx if isinstance(table, nn.Embedding) else None
    return 0 if padding_idx is None else padding_idx + 1
