from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from conftest import SENTENCES
from model.tiny import pooling_of, tiny
from s2sent.errors import ConfigError, DataError, ModelError
from s2sent.figures import check_figure_path
from s2sent.model.inspection import draw, inspect


def test_shares_are_the_mean_weights_that_encode_uses(bert: Path) -> None:
    model = tiny(bert, frequencies=8)
    inspection = inspect(model, SENTENCES)
    weights = torch.stack(model.encode(SENTENCES, output_value="block_weights"))  # (s, n, d)
    torch.testing.assert_close(inspection.shares, weights.mean(dim=2))
    assert inspection.blocks == (2, 3, 4)
    start = 0
    for m, size in enumerate(inspection.part_sizes):
        part = weights[:, :, start : start + size].mean(dim=(0, 2))
        torch.testing.assert_close(inspection.part_shares[:, m], part)
        start += size
    assert start == 32


def test_spectrum_adds_up_to_the_squeeze_of_a_single_sentence(bert: Path) -> None:
    """For one block, the term of frequency (0, 0) is the mean over tokens itself."""
    model = tiny(bert, blocks=2, frequencies=1)
    tokens = [
        tiny(bert, blocks=(k,), fusion="last", gate="none").encode(SENTENCES[:1])[0] for k in (3, 4)
    ]  # the plain mean of each block
    expected = [np.sqrt(np.mean(np.square(vector))) for vector in tokens]
    spectrum = inspect(model, SENTENCES[:1]).spectrum
    assert spectrum is not None
    np.testing.assert_allclose(spectrum[:, 0].numpy(), expected, rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"frequencies": 8},
        {"blocks": 1},
        {"fusion": "average"},
        {"squeeze": "none"},
        {"gate": "static"},
        {"blocks": (0, 4)},
    ],
)
def test_every_form_can_be_drawn(bert: Path, tmp_path: Path, options: dict[str, object]) -> None:
    draw(inspect(tiny(bert, **options), SENTENCES[:3])).savefig(tmp_path / "a.svg")
    assert "block" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_inspecting_does_not_disturb_the_model(bert: Path) -> None:
    model = tiny(bert)
    before = model.encode(SENTENCES)
    inspect(model, SENTENCES)
    np.testing.assert_array_equal(model.encode(SENTENCES), before)
    assert pooling_of(model)._stream is not None


def test_what_cannot_be_inspected_says_why(backbone_of: Callable[[str], Path], tmp_path: Path) -> None:
    model = tiny(backbone_of("bert"))
    with pytest.raises(DataError, match="no sentence"):
        inspect(model, [])
    from sentence_transformers.sentence_transformer.modules import Pooling

    plain = SentenceTransformer(modules=[model[0], Pooling(32)], device="cpu")
    with pytest.raises(ModelError, match=r"Transformer → Pooling.*no selector"):
        inspect(plain, SENTENCES)
    with pytest.raises(ConfigError, match=r"Legal: \.png"):
        check_figure_path(tmp_path / "a.bmp")
