"""A folder is loaded whole and without anybody's code, or refused with the file and the reason."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Router, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling, StaticEmbedding

import s2sent
from conftest import DIM, SENTENCES
from model.tiny import edit, enliven, pooling_of, refused, tiny
from s2sent import SelectionConfig
from s2sent.errors import ModelError, S2SentError
from s2sent.model.weights import read_header

BackboneOf = Callable[[str], Path]
SELECTOR = "1_SelectivePooling"


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory, backbone_of: BackboneOf) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    tiny(backbone_of("bert"), normalize=True).save(str(folder))
    return folder


@pytest.fixture
def saved(pristine: Path, tmp_path: Path) -> Path:
    """A saved model to spoil."""
    return Path(shutil.copytree(pristine, tmp_path / "model"))


def edit_module(folder: Path, index: int, **changes: Any) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[index].update(changes)
    (folder / "modules.json").write_text(json.dumps(modules))


# --- saved as it was ----------------------------------------------------------------------------------------------

CONFIGS = [
    SelectionConfig(reduction=4),
    SelectionConfig(blocks=(1, -1), frequencies=3, reduction=5, scale="orthonormal", activation="tanh"),
    SelectionConfig(blocks=2, reduction=4, squeeze="none", gate="linear", prior="last"),
    SelectionConfig(blocks=4, gate="static"),
    SelectionConfig(blocks=3, fusion="average", reduction=4, squeeze="gap"),
    SelectionConfig(blocks=1, fusion="last", gate="none"),
]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_everything_that_decides_a_vector_is_in_the_folder(
    config: SelectionConfig, pooling: Any, bert: Path, tmp_path: Path
) -> None:
    model = enliven(s2sent.build(bert, selection=config, pooling=pooling, max_length=20, device="cpu"))
    before = model.encode(SENTENCES)
    model.save(str(tmp_path))
    again = s2sent.load(tmp_path, device="cpu")
    assert pooling_of(again).selection == config
    assert pooling_of(again).pooling == pooling
    assert again.max_seq_length == 20
    assert np.array_equal(again.encode(SENTENCES), before)
    assert np.array_equal(
        SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu").encode(SENTENCES), before
    )


def test_a_folder_holds_safetensors_whatever_is_asked(bert: Path, tmp_path: Path) -> None:
    tiny(bert).save(str(tmp_path), safe_serialization=False)
    assert (tmp_path / SELECTOR / "model.safetensors").is_file()
    assert not [path for path in (tmp_path / SELECTOR).iterdir() if path.suffix == ".bin"]


def test_saving_a_loaded_model_changes_no_file_that_matters(saved: Path, tmp_path: Path) -> None:
    s2sent.load(saved, device="cpu").save(str(tmp_path / "again"))
    for name in ("modules.json", "model.safetensors", f"{SELECTOR}/config.json", f"{SELECTOR}/model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (saved / name).read_bytes()


def test_a_plain_sentence_model_loads_too(bert: Path, tmp_path: Path) -> None:
    plain = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(DIM), Dense(DIM, 8)], device="cpu")
    plain.save(str(tmp_path))
    assert np.array_equal(s2sent.load(tmp_path, device="cpu").encode(SENTENCES), plain.encode(SENTENCES))


def test_a_moved_folder_is_the_same_model(saved: Path, tmp_path: Path) -> None:
    before = s2sent.load(saved, device="cpu").encode(SENTENCES)
    saved.rename(tmp_path / "elsewhere")
    assert np.array_equal(s2sent.load(str(tmp_path / "elsewhere"), device="cpu").encode(SENTENCES), before)


def test_the_normalisation_may_lack_its_folder(saved: Path) -> None:
    shutil.rmtree(saved / "2_Normalize", ignore_errors=True)
    np.testing.assert_allclose(np.linalg.norm(s2sent.load(saved, device="cpu").encode(SENTENCES), axis=1), 1, rtol=1e-5)


# --- nobody's code ------------------------------------------------------------------------------------------------


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Code that, were it run, would leave this file; importable as `planted`, and copied into folders by `plant`."""
    marker = tmp_path / "was-run"
    source = (
        f"open({str(marker)!r}, 'w').close()\n"
        "from sentence_transformers.base.modules import Transformer, Module\n"
        "class Payload(Transformer): pass\n"
        "class SelectivePooling(Module): pass\n"
    )
    (tmp_path / "importable").mkdir()
    (tmp_path / "importable" / "planted.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path / "importable")
    monkeypatch.delitem(sys.modules, "planted", raising=False)
    return marker


def plant(folder: Path, name: str, tmp_path: Path) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text((tmp_path / "importable" / "planted.py").read_text())


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(
    "kind", ["planted.Payload", "os.system", "s2sent.model.build.build", "s2sentx.Evil", "me/repo--planted.Payload", ""]
)
def test_a_foreign_class_is_refused_and_not_imported(saved: Path, marker: Path, kind: str, index: int) -> None:
    edit_module(saved, index, type=kind)
    refused(saved, str(saved / "modules.json"), repr(kind))
    assert not marker.exists()


def test_an_auto_map_in_a_bare_backbone_is_refused(bert: Path, marker: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bert, tmp_path / "backbone"))
    plant(folder, "planted.py", tmp_path)
    edit(folder / "config.json", auto_map={"AutoModel": "planted.Payload", "AutoConfig": "planted.Payload"})
    with pytest.raises(ModelError, match=re.escape(str(folder / "config.json"))):
        s2sent.build(folder)
    assert not marker.exists()


def write_router(folder: Path, file: str, **types: str) -> None:
    edit_module(folder, 0, type="sentence_transformers.base.modules.router.Router")
    router = {"types": types, "structure": {"query": [*types]}, "parameters": {}}
    (folder / file).write_text(json.dumps(router))


@pytest.mark.parametrize("file", ["router_config.json", "config.json"])
def test_a_router_with_a_foreign_class_is_refused(saved: Path, marker: Path, file: str) -> None:
    (saved / "router_config.json").write_text("{}")  # the host then reads the other
    write_router(saved, file, query_0_X="planted.Payload")
    refused(saved, file, "planted.Payload")
    assert not marker.exists()


@pytest.mark.parametrize("name", ["", ".", "../elsewhere", "inner/.."])
def test_a_router_looks_nowhere_but_below_itself(saved: Path, name: str) -> None:
    write_router(saved, "router_config.json", **{name: "sentence_transformers.base.modules.router.Router"})
    refused(saved, "router_config.json", repr(name))


def test_the_modules_of_a_router_are_checked(bert: Path, tmp_path: Path, marker: Path) -> None:
    routes = {"query": [Transformer(str(bert)), Pooling(DIM)], "document": [Transformer(str(bert)), Pooling(DIM)]}
    model = SentenceTransformer(modules=[Router(routes, default_route="query")], device="cpu")
    model.save(str(tmp_path / "model"))
    loaded = s2sent.load(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(loaded.encode(SENTENCES), model.encode(SENTENCES), atol=1e-6)
    inner = tmp_path / "model" / "query_0_Transformer"
    plant(inner, "planted.py", tmp_path)
    edit(inner / "config.json", auto_map={"AutoConfig": "planted.Payload", "AutoModel": "planted.Payload"})
    refused(tmp_path / "model", str(inner / "config.json"), "auto_map")
    assert not marker.exists()


def test_a_static_embedding_has_no_config(bert: Path, tmp_path: Path) -> None:
    tokenizer = Transformer(str(bert)).tokenizer.backend_tokenizer
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu")
    model.save(str(tmp_path / "model"))
    loaded = s2sent.load(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(loaded.encode(SENTENCES), model.encode(SENTENCES), atol=1e-6)
    for file in ("tokenizer.json", "model.safetensors"):
        spoiled = Path(shutil.copytree(tmp_path / "model", tmp_path / file))
        (gone,) = spoiled.rglob(file)
        gone.unlink()
        refused(spoiled, str(gone))


@pytest.mark.parametrize("path", ["../other", "/", "1_SelectivePooling/../../other"])
@pytest.mark.parametrize("index", [1, 2])
def test_a_path_out_of_the_folder_is_refused(saved: Path, path: str, index: int) -> None:
    shutil.copytree(saved / SELECTOR, saved.parent / "other")
    edit_module(saved, index, path=path)
    refused(saved, "modules.json", repr(path))


# --- not whole ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["modules.json", "config.json", "model.safetensors", f"{SELECTOR}/config.json", f"{SELECTOR}/model.safetensors"],
)
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    refused(saved, str(saved / name), "missing")


def test_an_empty_folder_and_a_bare_backbone_are_not_models(bert: Path, tmp_path: Path) -> None:
    refused(tmp_path, "modules.json")
    assert "build" in refused(bert, "modules.json")


@pytest.mark.parametrize("place", ["", "1_SelectivePooling", "2_LayerNorm"])
def test_pickled_weights_are_refused(bert: Path, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "model"
    SentenceTransformer(modules=[*tiny(bert), LayerNorm(DIM)], device="cpu").save(str(folder))
    s2sent.load(folder, device="cpu")
    weights = folder / place / "model.safetensors"
    torch.save(load_file(weights), folder / place / "pytorch_model.bin")
    weights.unlink()
    refused(folder, str(folder / place / "pytorch_model.bin"), "pickle")


def test_a_backbone_with_pickled_weights_only_is_refused(bert: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bert, tmp_path / "backbone"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin.*pickle"):
        s2sent.build(folder)


CUTS = [0, 1, 7, 8, 9, *sorted(random.Random(0).uniform(0.001, 1) for _ in range(10)), -1]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", ["model.safetensors", f"{SELECTOR}/model.safetensors"])
def test_weights_cut_short_are_refused(saved: Path, name: str, cut: float) -> None:
    whole = (saved / name).read_bytes()
    (saved / name).write_bytes(whole[: int(cut * len(whole)) if isinstance(cut, float) else cut])
    refused(saved, str(saved / name), "damaged")


@pytest.mark.parametrize("name", ["model.safetensors", f"{SELECTOR}/model.safetensors"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda b: b + b"\0",
        lambda b: b + b,
        lambda b: b[:8] + b"#" * 50 + b[58:],
        lambda b: b"\xff" * 8 + b[8:],
        lambda b: b"\0" * 8 + b[8:],
        lambda b: b"\x02" + b"\0" * 7 + b"{}" + b[10:],
        lambda b: b"<html>not found</html>",
        lambda b: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    ],
)
def test_damaged_weights_are_refused(saved: Path, name: str, spoil: Callable[[bytes], bytes]) -> None:
    (saved / name).write_bytes(spoil((saved / name).read_bytes()))
    refused(saved, str(saved / name), "damaged")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    header=st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.integers(-5, 5) | st.text(max_size=3) | st.floats(allow_nan=False),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.fixed_dictionaries({"data_offsets": st.lists(inner, max_size=3)})
                | st.dictionaries(st.text(max_size=3), inner, max_size=2)
            ),
            max_leaves=6,
        ),
        min_size=1,
        max_size=3,
    )
)
def test_whatever_the_header_says_it_is_whole_or_our_own_error(header: dict[str, Any], tmp_path: Path) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with suppress(ModelError):
        read_header(tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", ["model.safetensors", f"{SELECTOR}/model.safetensors"])
def test_weights_of_another_model_are_refused(saved: Path, name: str) -> None:
    """A file that is whole, but not this model's: never a random encoder, and the file is named."""
    save_file({"something.else": torch.zeros(3)}, saved / name, metadata={"format": "pt"})
    refused(saved, str((saved / name).parent))


@pytest.mark.parametrize("name", ["modules.json", "config.json", "tokenizer.json", f"{SELECTOR}/config.json"])
@pytest.mark.parametrize(
    "spoil", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"\xff\xfe\x80" + b, lambda b: b[:-2] + b",,"]
)
def test_damaged_json_is_refused(saved: Path, name: str, spoil: Callable[[bytes], bytes]) -> None:
    (saved / name).write_bytes(spoil((saved / name).read_bytes()))
    refused(saved, str(saved / name), "damaged")


@pytest.mark.parametrize(
    "content",
    ["{}", "[]", "[1]", "null", '[{"type": 1, "path": ""}]', '[{"idx": 0, "name": "0", "type": "x.Y", "path": 3}]'],
)
def test_a_modules_json_of_another_shape_is_refused(saved: Path, content: str) -> None:
    (saved / "modules.json").write_text(content)
    refused(saved, str(saved / "modules.json"))


def test_a_class_that_the_host_does_not_have_is_refused(saved: Path) -> None:
    edit_module(saved, 2, type="sentence_transformers.no.such.Module")
    refused(saved, str(saved / "modules.json"), "sentence_transformers.no.such.Module")


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": "../x.safetensors"}}'])
def test_a_shard_index_of_another_shape_is_refused(saved: Path, content: str) -> None:
    (saved / "model.safetensors").unlink()
    (saved / "model.safetensors.index.json").write_text(content)
    refused(saved, str(saved))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"squeeze": "fft"}, "squeeze must be one of 'dct'.*'fft'"),
        ({"blocks": 0}, "blocks must be .*got 0"),
        ({"blocks": "3"}, "blocks must be .*got '3'"),
        ({"reduction": 1000}, "reduction=1000"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_selection_option_is_refused_with_its_file(saved: Path, changes: dict[str, Any], message: str) -> None:
    path = saved / SELECTOR / "config.json"
    edit(path, selection={**json.loads(path.read_text())["selection"], **changes})
    assert re.search(message, refused(saved, str(path)))


@pytest.mark.parametrize(
    "changes", [{"pooling": "max"}, {"dim": "wide"}, {"dim": None}, {"selection": 3}, {"another": 1}, {"dim": 0}]
)
def test_a_wrong_module_option_is_refused_with_its_file(saved: Path, changes: dict[str, Any]) -> None:
    path = saved / SELECTOR / "config.json"
    edit(path, **changes)
    refused(saved, str(path))


@pytest.mark.parametrize("changes", [{"dim": 48}, {"selection": {"blocks": 9, "reduction": 4}}])
def test_a_selection_that_does_not_fit_the_folders_encoder_or_weights_is_refused(
    saved: Path, changes: dict[str, Any]
) -> None:
    edit(saved / SELECTOR / "config.json", **changes)
    with pytest.raises(S2SentError):
        s2sent.load(saved, device="cpu")


def test_a_path_that_is_not_a_folder_is_refused(saved: Path, tmp_path: Path) -> None:
    refused(saved / "modules.json", "is a file")
    refused(tmp_path / "nowhere", "nowhere")
