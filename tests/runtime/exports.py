"""Exports for these tests, and how far two sets of vectors are apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

import s2sent
from conftest import make_backbone
from model.tiny import tiny
from s2sent.runtime.exported import ExportedEncoder
from s2sent.vectors import EncodeOptions, encode_texts


def shallow(folder: Path, family: str, **options: Any) -> SentenceTransformer:
    """A model of two blocks: exporting takes time with every block."""
    depth = "n_layers" if family == "distilbert" else "num_hidden_layers"
    backbone = make_backbone(folder / "backbone", family, **{} if family == "albert-inner" else {depth: 2})
    return tiny(backbone, **{"blocks": 2, **options})


def exported(model: SentenceTransformer, folder: Path, **options: Any) -> ExportedEncoder:
    s2sent.export(model, folder, **options)
    encoder = s2sent.load(folder)
    assert isinstance(encoder, ExportedEncoder)
    return encoder


def distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Cosine distances, row by row."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return 1 - (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def same_bits(folder: Path, texts: list[str]) -> None:
    """A text alone, beside a long one, in any batch, with one thread and two: the same bits."""
    want = np.stack([s2sent.load(folder).encode(text) for text in texts])
    for threads in (1, 2):
        encoder = s2sent.load(folder, threads=threads)
        assert isinstance(encoder, ExportedEncoder)
        for size in (1, 7, 64):
            assert np.array_equal(encoder.encode(texts, batch_size=size), want)
        for budget in (1, 300, 100_000):
            assert np.array_equal(encode_texts(encoder, texts, EncodeOptions(batch_tokens=budget)), want)
        assert np.array_equal(encoder.embed(encoder.pipeline.token_ids(texts)), want)
        assert np.array_equal(encoder.encode([texts[1], texts[-1]]), want[[1, -1]])
