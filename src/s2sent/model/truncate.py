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
    blocks = check_can_be_cut(model)
    config: Any = model.config.get_text_config()
    depth = config.num_hidden_layers
    if blocks is not None:
        del blocks[count:]
    config.num_hidden_layers = count
    for name, value in config.to_dict().items():  # what the config says of every block, such as `layer_types`
        if isinstance(value, list) and len(value) == depth:
            setattr(config, name, value[:count])


def check_can_be_cut(model: PreTrainedModel) -> nn.ModuleList | None:
    """Return the list of an encoder's blocks; None where one block runs again and again, and there is none to remove.

    Raises:
        ModelError: the encoder's blocks are not in one list.
    """
    config: Any = model.config.get_text_config()
    if config.model_type == "albert":
        if config.num_hidden_groups == config.inner_group_num == 1:
            return None
    else:
        depth = config.num_hidden_layers
        lists = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == depth]
        if len(lists) == 1:
            return lists[0]
    raise ModelError(f"{type(model).__name__} does not have its blocks in one list, so it cannot be cut.")
