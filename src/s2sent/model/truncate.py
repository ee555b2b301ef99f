"""An encoder without its upper blocks."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from s2sent.errors import ModelError


def keep_blocks(model: PreTrainedModel, count: int) -> None:
    """Remove all but the first `count` blocks of an encoder, in place. What is saved of it has that many blocks.

    Raises:
        ModelError: the encoder's blocks are not in one list.
    """
    config: Any = model.config.get_text_config()
    depth = config.num_hidden_layers
    if count == depth:
        return
    if config.model_type == "albert":  # one block that runs again and again: there is nothing to remove
        if config.num_hidden_groups != 1:
            raise ModelError(
                f"{type(model).__name__} shares its blocks in groups, and cannot be cut after block {count}."
            )
    else:
        lists = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == depth]
        if len(lists) != 1:
            raise ModelError(f"{type(model).__name__} does not have its {depth} blocks in one list, and cannot be cut.")
        del lists[0][count:]
    config.num_hidden_layers = count
    for name, value in config.to_dict().items():  # what the config says of every block, such as `layer_types`
        if isinstance(value, list) and len(value) == depth:
            setattr(config, name, value[:count])
