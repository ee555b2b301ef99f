"""The real all-MiniLM-L6-v2: what its users rely on is still there."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import s2sent
from conftest import SENTENCES

pytestmark = pytest.mark.backbone


@pytest.fixture(scope="module")
def host(minilm: str) -> SentenceTransformer:
    return SentenceTransformer(minilm, device="cpu")


@pytest.fixture(scope="module")
def selecting(minilm: str) -> SentenceTransformer:
    torch.manual_seed(0)
    return s2sent.build(minilm, blocks=3, frequencies=4, device="cpu")


def test_its_parameters_grow_by_what_the_paper_counts(
    host: SentenceTransformer, selecting: SentenceTransformer
) -> None:
    extra = sum(p.numel() for p in selecting.parameters()) - sum(p.numel() for p in host.parameters())
    assert extra == 384 * 32 * 4


def test_last_block_alone_gives_its_own_vectors(host: SentenceTransformer, minilm: str) -> None:
    plain = s2sent.build(minilm, blocks=1, fusion="last", gate="none", device="cpu")
    np.testing.assert_allclose(plain.encode(SENTENCES), host.encode(SENTENCES), rtol=1e-6, atol=1e-6)


def test_prior_last_starts_as_the_encoder_itself(host: SentenceTransformer, minilm: str) -> None:
    model = s2sent.build(minilm, blocks=3, gate="linear", prior="last", device="cpu")
    own, given = (torch.tensor(m.encode(SENTENCES)) for m in (host, model))
    assert torch.cosine_similarity(own, given).min() > 0.999


def test_a_saved_model_is_bit_identical(selecting: SentenceTransformer, tmp_path: Path) -> None:
    before = selecting.encode(SENTENCES)
    selecting.save(str(tmp_path))
    assert np.array_equal(s2sent.load(tmp_path, device="cpu").encode(SENTENCES), before)


@pytest.mark.data
def test_real_sentences_do_not_depend_on_their_batch(selecting: SentenceTransformer, data_folder: Path) -> None:
    with (data_folder / "wiki_200k.txt").open(encoding="utf-8") as lines:
        texts = [line.strip() for line in islice(lines, 64)]
    together = selecting.encode(texts, batch_size=64)
    alone = selecting.encode(texts, batch_size=1)
    np.testing.assert_allclose(together, alone, atol=1e-5)
