"""What the selector needs to know of an encoder. Where a family of models needs special care, the care is here."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from s2sent.errors import ConfigError, ModelError
from s2sent.selection import SelectionConfig

# Pre-norm models add up a residual stream and normalise it once, after the last block, so that only the last of
# their hidden states is on the scale that the model means. This is where they keep that norm.
_FINAL_NORMS = (
    "final_norm",
    "norm",
    "ln_f",
    "final_layer_norm",
    "encoder.final_layer_norm",
    "decoder.final_layer_norm",
)


@dataclass(frozen=True)
class Backbone:
    """A Transformer seen as a stack of blocks.

    Attributes:
        name: What to call it in a message.
        depth: How many blocks it has.
        final_norm: The norm after the last block of a pre-norm model; None where every block ends in a norm.
        blocks: The blocks in the order they run, a shared one as often as it runs; None where a hidden state is not
            simply a block's output, so that one must ask the model for its hidden states.
        max_tokens: The longest text it has positions for; None if there is no limit.
        first_position: The position id of a text's first token; None where one cannot give the model its positions.
    """

    name: str
    depth: int
    final_norm: nn.Module | None
    blocks: tuple[nn.Module, ...] | None
    max_tokens: int | None = None
    first_position: int | None = 0

    @classmethod
    def of(cls, model: PreTrainedModel) -> Backbone:
        """Look at a model."""
        config = model.config.get_text_config()
        depth: int = config.num_hidden_layers
        blocks: tuple[nn.Module, ...] | None
        if config.model_type == "albert":  # one block, or a few, that run again and again
            depth *= config.inner_group_num
            encoder: Any = model.encoder
            groups = encoder.albert_layer_groups
            runs = [groups[i * len(groups) // config.num_hidden_layers] for i in range(config.num_hidden_layers)]
            blocks = tuple(layer for group in runs for layer in group.albert_layers)
        elif getattr(config, "conv_kernel_size", 0):  # DeBERTa-v2: a convolution is added to the first block's output
            blocks = None
        else:
            stacks = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == depth]
            blocks = tuple(stacks[0]) if len(stacks) == 1 else None
        name = f"{type(model).__name__} {config.name_or_path}".strip()
        return cls(name, depth, _final_norm(model), blocks, _max_tokens(model), _first_position(model))

    def indices(self, selection: SelectionConfig) -> tuple[int, ...]:
        """Find the chosen blocks among the hidden states: 0 is the embedding output, `depth` the last block."""
        numbers = tuple(n if n >= 0 else self.depth + 1 + n for n in selection.listed)
        lowest = 1 if isinstance(selection.blocks, int) else 0
        if min(numbers) < lowest or max(numbers) > self.depth:
            raise ConfigError(
                f"blocks={selection.blocks} reaches beyond {self.name}, which has {self.depth} blocks. Legal: 1 to "
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


def _final_norm(model: PreTrainedModel) -> nn.Module | None:
    modules = dict(model.named_modules())
    return next((modules[name] for name in _FINAL_NORMS if name in modules), None)


def _max_tokens(model: PreTrainedModel) -> int | None:
    positions: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    return positions - (_first_position(model) or 0)


def _first_position(model: PreTrainedModel) -> int | None:
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return None
    if not getattr(model.config, "position_biased_input", True):  # DeBERTa: distances between tokens, no positions
        return None
    # RoBERTa and its kin count positions from padding_idx + 1, so that many rows of the table are never reached.
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding_idx = table.padding_idx if isinstance(table, nn.Embedding) else None
    return 0 if padding_idx is None else padding_idx + 1
