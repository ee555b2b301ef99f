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
