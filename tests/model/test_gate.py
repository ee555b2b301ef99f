"""What the gate lets through, and what it does not, where `attacks/` does not look."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import (
    CNN,
    LSTM,
    Dropout,
    LayerNorm,
    Pooling,
    WeightedLayerPooling,
)

import s2sent
from conftest import DEPTH, DIM, SENTENCES
from model.tiny import edit, refused, tiny
from s2sent.errors import ModelError
from s2sent.model.allowed import HOST_MODULES, OWN_MODULES
from s2sent.model.fingerprint import fingerprint_folder
from s2sent.model.folder import check_model

BackboneOf = Callable[[str], Path]


@pytest.fixture
def saved(bert: Path, tmp_path: Path) -> Path:
    tiny(bert).save(str(tmp_path / "model"))
    return tmp_path / "model"


# --- let through --------------------------------------------------------------------------------------------------


def test_the_hubs_cache_is_a_folder_of_links_and_loads(saved: Path, tmp_path: Path) -> None:
    before = s2sent.load(saved, device="cpu").encode(SENTENCES)
    repository = tmp_path / "models--me--mine"
    snapshot = repository / "snapshots" / ("0" * 40)
    (repository / "blobs").mkdir(parents=True)
    for number, path in enumerate(sorted(p for p in saved.rglob("*") if p.is_file())):
        blob = repository / "blobs" / f"{number:040x}"
        shutil.copy(path, blob)
        link = snapshot / path.relative_to(saved)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    assert np.array_equal(s2sent.load(snapshot, device="cpu").encode(SENTENCES), before)
    (repository / "refs").mkdir()
    shutil.copy(saved / "config.json", repository / "refs" / "config.json")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(repository / "refs" / "config.json")
    refused(snapshot, "link out of the model's folder")


def test_links_inside_the_folder_and_to_the_folder_are_fine(saved: Path, tmp_path: Path) -> None:
    (saved / "kept").mkdir()
    (saved / "config.json").rename(saved / "kept" / "config.json")
    (saved / "config.json").symlink_to("kept/config.json")
    (tmp_path / "name").symlink_to(saved)
    assert s2sent.load(tmp_path / "name", device="cpu").encode(SENTENCES).shape == (len(SENTENCES), DIM)


def test_a_link_that_leads_nowhere_is_refused(saved: Path) -> None:
    (saved / "extra.json").symlink_to("nowhere")
    refused(saved, "leads nowhere")


def test_pickles_beside_whole_safetensors_do_not_matter(saved: Path) -> None:
    before = fingerprint_folder(saved), s2sent.load(saved, device="cpu").encode(SENTENCES)
    (saved / "pytorch_model.bin").write_bytes(b"not even a pickle")
    assert fingerprint_folder(saved) == before[0]
    assert np.array_equal(s2sent.load(saved, device="cpu").encode(SENTENCES), before[1])


def test_harmless_settings_are_let_through_and_count(saved: Path) -> None:
    edit(saved / "sentence_bert_config.json", model_kwargs={"attn_implementation": "eager", "dtype": "float16"})
    loaded = s2sent.load(saved, device="cpu")
    assert loaded[0].auto_model.config._attn_implementation == "eager"
    assert loaded.dtype == torch.float16
    assert s2sent.load(saved, device="cpu", model_kwargs={"dtype": torch.float32}).dtype == torch.float32


@pytest.mark.parametrize(
    "module",
    [
        lambda: Dense(DIM, 8, activation_function=torch.nn.Identity()),
        lambda: Dense(DIM, 8, activation_function=torch.nn.GELU()),
        lambda: LayerNorm(DIM),
        lambda: Dropout(0.1),
    ],
)
def test_modules_behind_the_pooling_load_as_the_host_saves_them(
    bert: Path, tmp_path: Path, module: Callable[[], torch.nn.Module]
) -> None:
    model = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(DIM), module()], device="cpu")
    model.save(str(tmp_path))
    assert np.array_equal(s2sent.load(tmp_path, device="cpu").encode(SENTENCES), model.encode(SENTENCES))


@pytest.mark.parametrize(
    "module",
    [
        lambda: CNN(DIM, out_channels=8),
        lambda: LSTM(DIM, hidden_dim=8),
        lambda: WeightedLayerPooling(DIM, num_hidden_layers=DEPTH, layer_start=2),
    ],
)
def test_modules_before_the_pooling_pass_as_the_host_saves_them(
    bert: Path, tmp_path: Path, module: Callable[[], torch.nn.Module]
) -> None:
    made: Any = module()
    dimension = getattr(made, "get_embedding_dimension", lambda: DIM)()
    SentenceTransformer(modules=[Transformer(str(bert)), made, Pooling(dimension)], device="cpu").save(str(tmp_path))
    assert len(check_model(tmp_path).modules) == 3


def test_every_class_on_the_list_is_the_hosts_or_ours() -> None:
    from sentence_transformers import models
    from sentence_transformers.util import import_from_string

    for name in HOST_MODULES:
        assert issubclass(getattr(models, name), torch.nn.Module)
    for name in OWN_MODULES:
        assert issubclass(import_from_string(name), torch.nn.Module)


# --- weights ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["albert", "electra", "deberta", "modernbert", "qwen3", "mpnet", "distilbert"])
def test_a_weight_that_is_missing_is_named_in_every_family(
    backbone_of: BackboneOf, tmp_path: Path, family: str
) -> None:
    folder = Path(shutil.copytree(backbone_of(family), tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    spare = {name for name in weights if name.startswith("pooler.")}
    gone = sorted(set(weights) - spare)[-1]
    kept = {name: value for name, value in weights.items() if name != gone and name not in spare}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lacks 1 of the encoder's weights"):
        s2sent.build(folder, device="cpu")


def test_missing_weights_are_found_with_every_logger_silent(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    for name in sorted(weights)[5:13]:
        del weights[name]
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    logging.disable(logging.CRITICAL)
    try:
        refused(saved, "lacks 8 of the encoder's weights")
    finally:
        logging.disable(logging.NOTSET)


def test_old_names_of_weights_are_known(bert: Path, tmp_path: Path) -> None:
    """BERT's first checkpoints say gamma and beta, and put the encoder under a prefix."""
    folder = Path(shutil.copytree(bert, tmp_path / "model"))
    old = {
        f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in load_file(folder / "model.safetensors").items()
    }
    save_file({**old, "cls.predictions.bias": torch.zeros(3)}, folder / "model.safetensors", metadata={"format": "pt"})
    loaded = s2sent.build(folder, blocks=2, reduction=4, device="cpu")
    wanted = s2sent.build(bert, blocks=2, reduction=4, device="cpu")
    for name, value in wanted[0].state_dict().items():
        assert torch.equal(value, loaded[0].state_dict()[name])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_named_by_file_and_tensor(bert: Path, tmp_path: Path, value: float) -> None:
    folder = tmp_path / "model"
    SentenceTransformer(modules=[Transformer(str(bert)), Pooling(DIM), Dense(DIM, 8)], device="cpu").save(str(folder))
    weights = load_file(folder / "2_Dense" / "model.safetensors")
    weights["linear.bias"][3] = value
    save_file(weights, folder / "2_Dense" / "model.safetensors", metadata={"format": "pt"})
    refused(folder, "2_Dense/model.safetensors has 1 numbers in linear.bias that are NaN or infinite")


def test_large_weights_that_only_sum_to_infinity_are_numbers(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    weights["pooler.dense.weight"].fill_(3e38)
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    assert np.isfinite(s2sent.load(saved, device="cpu").encode(SENTENCES)).all()
