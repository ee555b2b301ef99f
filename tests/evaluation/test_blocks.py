from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import DEPTH, DIM, SENTENCES
from s2sent.evaluation.blocks import BlockEncoder
from s2sent.model.load import open_encoder
from s2sent.vectors.encoder import encode_texts


@pytest.mark.parametrize(("family", "norm"), [("bert", None), ("modernbert", "final_norm"), ("qwen3", "norm")])
def test_blocks_are_on_the_scale_of_the_output(
    backbone_of: Callable[[str], Path], family: str, norm: str | None
) -> None:
    """What each block puts out, taken by hooks, under the final norm of a pre-norm backbone; sentence by sentence."""
    model = open_encoder(backbone_of(family), device="cpu")
    found = encode_texts(BlockEncoder(model), SENTENCES).reshape(len(SENTENCES), DEPTH + 1, DIM)
    encoder = model[0].auto_model
    layers = encoder.encoder.layer if family == "bert" else encoder.layers
    final = getattr(encoder, norm) if norm else torch.nn.Identity()
    seen: list[torch.Tensor] = []
    for layer in layers:
        layer.register_forward_hook(
            lambda *given: seen.append(given[2][0] if isinstance(given[2], tuple) else given[2])
        )
    for text, states in zip(SENTENCES, found, strict=True):
        seen.clear()
        with torch.inference_mode():
            model.encode([text])
            expected = [final(state.reshape(-1, DIM)).mean(0).numpy() for state in seen]
        np.testing.assert_allclose(states[1:], expected, atol=1e-4)
    np.testing.assert_allclose(found[:, -1], model.encode(SENTENCES), atol=1e-4)
