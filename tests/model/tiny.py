"""Tiny models for these tests, and what transformers itself says about their blocks."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoTokenizer

import s2sent
from conftest import DEPTH, PRE_NORM
from s2sent import SelectivePooling
from s2sent.errors import ModelError
from selection import oracle

OPTIONS: dict[str, Any] = {"blocks": 3, "frequencies": 4, "reduction": 4}


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a json file, which may be new."""
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**values, **changes}))


def refused(folder: Path, *named: str) -> str:
    """Loading fails with our error, which names all of `named`."""
    with pytest.raises(ModelError) as error:
        s2sent.load(folder, device="cpu")
    for name in named:
        assert name in str(error.value)
    return str(error.value)


def pooling_of(model: SentenceTransformer) -> SelectivePooling:
    return next(module for module in model if isinstance(module, SelectivePooling))


def enliven(model: SentenceTransformer, seed: int = 0) -> SentenceTransformer:
    """Give the selector weights so large that every part of it shows in the vectors."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in pooling_of(model).selector.parameters():
            parameter.normal_(0, 0.4, generator=generator)
    return model


def tiny(backbone: Path | SentenceTransformer, seed: int = 0, **options: Any) -> SentenceTransformer:
    """Build with the tests' usual options and a lively selector."""
    return enliven(s2sent.build(backbone, device="cpu", **{**OPTIONS, **options}), seed)


def with_gradients(model: SentenceTransformer, texts: list[str]) -> torch.Tensor:
    """Vectors as training sees them: from the model's own hidden states."""
    model.eval()
    with torch.enable_grad():
        embedding: torch.Tensor = model(model.preprocess(texts))["sentence_embedding"]
    assert embedding.requires_grad
    return embedding.detach()


def block_states(folder: Path, family: str, texts: list[str], max_length: int) -> list[np.ndarray]:
    """`_block_states`, computed once."""
    return _block_states(folder, family, tuple(texts), max_length)


@lru_cache
def _block_states(folder: Path, family: str, texts: tuple[str, ...], max_length: int) -> list[np.ndarray]:
    """All hidden states of each text by itself (depth + 1, l, d), every block on the scale of the model's output.

    For a pre-norm model, block k is what comes out of the model when it has no more than k blocks.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if family in PRE_NORM:
        encoders = [_cut(folder, k) for k in range(1, DEPTH + 1)]
    else:
        encoders = [AutoModel.from_pretrained(folder).eval()]
    states = []
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=max_length)
        with torch.no_grad():
            if family in PRE_NORM:
                every = [encoder(**inputs).last_hidden_state for encoder in encoders]
                every.insert(0, torch.full_like(every[0], torch.nan))  # embeddings: not asked for here
            else:
                out = encoders[0](**inputs, output_hidden_states=True)
                every = list(out.hidden_states)
                assert torch.equal(every[-1], out.last_hidden_state)
        states.append(torch.cat(every).double().numpy())
    return states


def _cut(folder: Path, blocks: int) -> torch.nn.Module:
    config = AutoConfig.from_pretrained(folder)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:blocks]
    config.num_hidden_layers = blocks
    model: torch.nn.Module = AutoModel.from_pretrained(folder, config=config)
    return model.eval()


def expected(model: SentenceTransformer, states: list[np.ndarray], numbers: list[int]) -> np.ndarray:
    """The oracle's vectors from the chosen of all hidden states."""
    embeddings, _, _ = oracle.answers(pooling_of(model).selector, [u[numbers] for u in states])
    return embeddings
