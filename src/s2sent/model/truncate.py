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
    if config.model_type == "albert":  # one block that runs again and again: there is nothing to remove
        is_cut = config.num_hidden_groups == config.inner_group_num == 1
    else:
        lists = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == depth]
        is_cut = len(lists) == 1
        if is_cut:
            del lists[0][count:]
    if not is_cut:
        raise ModelError(f"{type(model).__name__} does not have its blocks in one list, so it cannot be cut.")
    config.num_hidden_layers = count
    for name, value in config.to_dict().items():  # what the config says of every block, such as `layer_types`
        if isinstance(value, list) and len(value) == depth:
            setattr(config, name, value[:count])
