"""An exported folder gives the model's vectors, without torch, and is whole or not there."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Module, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

import s2sent
from conftest import FAMILIES, SENTENCES, make_backbone
from model.tiny import enliven
from runtime.exports import distances, exported, shallow
from s2sent.errors import ConfigError, DataError, ModelError
from s2sent.model.folder import EXPORT_CONFIG
from s2sent.model.load import open_encoder
from s2sent.runtime.exported import ExportedEncoder
from s2sent.runtime.onnxruntime import OnnxEncoder

TEMPLATES = {
    "bert": 'This sentence of "{sentence}" means {mask}.',
    "roberta": "This sentence : ' {sentence} ' means{mask}.",
    "xlm-roberta": 'This sentence : "{sentence}" means {mask}.',
}
Made = Callable[..., tuple[SentenceTransformer, ExportedEncoder]]
ODD = [
    *SENTENCES,
    "  white space\taround\nand within  ",
    "a [MASK] and a <mask>, [SEP] </s> <|end|> in the text",
    "ﬁ ligature, e\u0301 accent, \u200bzero width, 👩‍👩‍👧 family, ＦＵＬＬ width",
    "x",
    "word " * 200,
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A family's model and its export, made on first use. `bert prompt` has a template."""
    done: dict[tuple[str, str], tuple[SentenceTransformer, ExportedEncoder]] = {}

    def of(name: str, runtime: str = "onnxruntime") -> tuple[SentenceTransformer, ExportedEncoder]:
        if (name, runtime) not in done:
            family, _, how = name.partition(" ")
            folder = tmp_path_factory.mktemp("export")
            template = {"template": TEMPLATES[family], "max_length": 20} if how == "prompt" else {}
            model = shallow(folder, family, **template)
            done[name, runtime] = model, exported(model, folder / runtime, runtime=runtime)
        return done[name, runtime]

    return of


QUICK = ("bert prompt", "roberta prompt", "qwen3")
LONG = (*(set(FAMILIES) - {"qwen3"}), "xlm-roberta prompt")
RUNTIMES = ("onnxruntime", "openvino")


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in sorted(LONG))])
def test_vectors_are_the_models_own(made: Made, name: str, runtime: str) -> None:
    model, encoder = made(name, runtime)
    want = model.encode(ODD, batch_size=4)
    assert distances(encoder.encode(ODD, batch_size=4), want).max() < 1e-5
    # Alone, in another order, in one batch: the same.
    np.testing.assert_allclose(encoder.encode(ODD, batch_size=100), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(ODD[1]), want[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in sorted(LONG))])
def test_tokens_are_the_models_own(made: Made, name: str) -> None:
    model, encoder = made(name)
    for text in ODD:
        features = model.preprocess([text])
        assert encoder.pipeline.frame(encoder.pipeline.tokenize([text])[0]) == features["input_ids"][0].tolist(), text
    assert encoder.pipeline.max_tokens == max(map(len, encoder.pipeline.token_ids(ODD)))


@pytest.mark.parametrize("name", QUICK)
def test_tokenizer_file_alone_frames_texts(made: Made, name: str) -> None:
    from tokenizers import Tokenizer

    model, encoder = made(name)
    tokenizer = Tokenizer.from_file(str(encoder.folder / "tokenizer.json"))
    texts = [text for text in ODD if "[MASK]" not in text]  # others cannot be told to read those as text
    for text, encoding in zip(texts, tokenizer.encode_batch(texts), strict=True):
        ids = [token for token, real in zip(encoding.ids, encoding.attention_mask, strict=True) if real]
        assert ids == model.preprocess([text])["input_ids"][0].tolist(), text


@pytest.mark.parametrize("name", ["bert prompt", "roberta prompt"])
def test_fastembed_runs_it(made: Made, name: str) -> None:
    fastembed = pytest.importorskip("fastembed")
    from fastembed.common.model_description import ModelSource, PoolingType

    model, encoder = made(name)
    fastembed.TextEmbedding.add_custom_model(
        model=f"own/{name}",
        pooling=PoolingType.DISABLED,
        normalization=False,
        sources=ModelSource(url="file://nowhere"),
        dim=encoder.dimension,
        model_file=OnnxEncoder.GRAPH,
    )
    embedding = fastembed.TextEmbedding(f"own/{name}", specific_model_path=str(encoder.folder))
    texts = [text for text in ODD if "[MASK]" not in text]
    got = np.array(list(embedding.embed(texts, batch_size=4)))
    np.testing.assert_allclose(got, model.encode(texts), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_runs_without_torch(made: Made, tmp_path: Path, runtime: str) -> None:
    model, encoder = made("bert prompt", runtime)
    code = (
        "import sys, numpy, s2sent\n"
        "encoder = s2sent.load(sys.argv[1], threads=1)\n"
        "numpy.save(sys.argv[2], encoder.encode(sys.argv[3:], normalize_embeddings=True))\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'onnx', 'openvino_telemetry'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    vectors = tmp_path / "vectors.npy"
    subprocess.run([sys.executable, "-c", code, str(encoder.folder), str(vectors), *SENTENCES], check=True)
    want = model.encode(SENTENCES, normalize_embeddings=True)
    np.testing.assert_allclose(np.load(vectors), want, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[SentenceTransformer, Path]:
    """A model without a selector, with a Dense and prompts; and its export."""
    folder = tmp_path_factory.mktemp("plain")
    transformer = open_encoder(make_backbone(folder / "backbone", "bert", num_hidden_layers=2))[0]
    assert isinstance(transformer, Transformer)
    torch.manual_seed(0)
    model = SentenceTransformer(
        modules=[transformer, Pooling(32, pooling_mode="cls"), Dense(32, 12), Normalize()],
        device="cpu",
        prompts={"query": "who: ", "passage": "it was: ", "title": ""},
        default_prompt_name="query",
        truncate_dim=8,
        similarity_fn_name="euclidean",
    )
    assert s2sent.export(model, folder / "onnx").notes  # of the prompt, which other programs do not know
    return model, folder / "onnx"


def test_a_plain_model_with_dense_and_prompts(plain: tuple[SentenceTransformer, Path]) -> None:
    model, encoder = plain[0], s2sent.load(plain[1])
    assert encoder.get_embedding_dimension() == model.get_embedding_dimension()
    texts = [*SENTENCES, ""]
    for options in ({}, {"prompt": "it: "}, {"prompt_name": "query"}, {"prompt_name": "title"}):
        for method in ("encode", "encode_query", "encode_document"):
            want = getattr(model, method)(texts, **options)
            np.testing.assert_allclose(getattr(encoder, method)(texts, **options), want, rtol=1e-4, atol=1e-5)
    for options in ({"normalize_embeddings": True}, {"truncate_dim": 5}):
        want = model.encode(texts, **options)
        np.testing.assert_allclose(encoder.encode(texts, **options), want, rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match=r"no prompt named 'corpus'\. It has: 'query', "):
        encoder.encode(SENTENCES, prompt_name="corpus")


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarity_is_the_hosts(plain: tuple[SentenceTransformer, Path], name: Any, tmp_path: Path) -> None:
    model, encoder = plain[0], s2sent.load(plain[1])
    assert isinstance(encoder, OnnxEncoder)
    assert encoder.similarity_fn_name == "euclidean"
    host = SentenceTransformer(modules=[*model], device="cpu", similarity_fn_name=name)
    encoder.similarity_fn_name = name
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 8)).astype(np.float32), rng.normal(size=(5, 8)).astype(np.float32)
    for one, two in ((a, b), (a[0], b), (a.tolist(), b)):
        np.testing.assert_allclose(encoder.similarity(one, two), host.similarity(one, two), atol=1e-5)
    for one, two in ((a, b[:3]), (a[0], b[0])):
        np.testing.assert_allclose(encoder.similarity_pairwise(one, two), host.similarity_pairwise(one, two), atol=1e-5)


def test_an_export_of_the_first_format_loads(made: Made, tmp_path: Path) -> None:
    encoder = made("bert prompt")[1]
    folder = Path(shutil.copytree(encoder.folder, tmp_path / "old"))
    values = json.loads((folder / EXPORT_CONFIG).read_text())
    old = {key: value for key, value in values.items() if key not in ("runtime", "similarity", "bucket")}
    (folder / EXPORT_CONFIG).write_text(json.dumps({**old, "format": 1}))
    assert np.array_equal(s2sent.load(folder).encode(SENTENCES), encoder.encode(SENTENCES))


@pytest.mark.long
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "options",
    [
        {"squeeze": "none"},
        {"fusion": "average"},
        {"fusion": "last"},
        {"gate": "static"},
        {"scale": "sum"},
        {"scale": "orthonormal", "frequencies": 9},
        {"pooling": "cls", "normalize": True},
        {"blocks": (0, 2), "activation": "tanh", "prior": "last"},
    ],
    ids=str,
)
def test_every_form_of_selection(tmp_path: Path, options: dict[str, Any], runtime: str) -> None:
    model = shallow(tmp_path, "bert", **options)
    encoder = exported(model, tmp_path / "exported", runtime=runtime)
    np.testing.assert_allclose(encoder.encode(ODD), model.encode(ODD), rtol=1e-3, atol=1e-4)


def test_int8_keeps_the_direction_and_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = shallow(tmp_path, "bert").train()
    attention = model[0].auto_model.config._attn_implementation
    before = {name: value.clone() for name, value in model.state_dict().items()}
    encoder = exported(model, tmp_path / "onnx", precision="int8")
    assert model.training
    assert model[0].auto_model.config._attn_implementation == attention
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    assert distances(encoder.encode(SENTENCES), model.encode(SENTENCES)).max() < 0.05
    graph = onnx.load(encoder.folder / OnnxEncoder.GRAPH).graph
    operators = [node.op_type for node in graph.node]
    assert operators.count("MatMulInteger") == 2 * 6  # all of the backbone's products with weights, and no others
    vocabulary = next(table for table in graph.initializer if table.name.endswith("word_embeddings.weight_int8"))
    assert vocabulary.data_type == onnx.TensorProto.INT8
    assert sorted(path.name for path in encoder.folder.iterdir()) == [
        "config.json",
        OnnxEncoder.GRAPH,
        EXPORT_CONFIG,
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_attention_is_one_operator(made: Made) -> None:
    onnx = pytest.importorskip("onnx")
    _, encoder = made("bert prompt")
    graph = onnx.load(encoder.folder / OnnxEncoder.GRAPH).graph
    assert [node.op_type for node in graph.node].count("MultiHeadAttention") == 2
    assert [
        [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*graph.input, *graph.output)
    ] == [
        ["batch", "length"],
        ["batch", "length"],
        ["batch", 32],
    ]


def test_what_is_no_text_is_refused(made: Made) -> None:
    for name in ("bert prompt", "qwen3"):
        _, encoder = made(name)
        with pytest.raises(DataError, match="has no text"):
            encoder.encode(["fine", ""])
        with pytest.raises(DataError, match="Input 2 of 2 must be a text, got a value of type float"):
            encoder.encode(["fine", float("nan")])  # type: ignore[list-item]
        assert encoder.encode([]).shape == (0,)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_damaged_folder_is_named_by_its_file(made: Made, tmp_path: Path, runtime: str) -> None:
    encoder = made("bert prompt", runtime)[1]
    whole = encoder.folder

    def broken(change: Callable[[Path], object]) -> Path:
        folder = tmp_path / "broken"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        change(folder)
        return folder

    def write(folder: Path, **changes: object) -> None:
        values = json.loads((folder / EXPORT_CONFIG).read_text())
        (folder / EXPORT_CONFIG).write_text(json.dumps({**values, **changes}))

    for name in (*encoder.FILES, "tokenizer.json"):
        with pytest.raises(ModelError, match=f"{name} is missing"):
            s2sent.load(broken(lambda folder: (folder / name).unlink()))  # noqa: B023
        with pytest.raises(ModelError, match=f"{name} is damaged: it has 100 bytes"):
            s2sent.load(broken(lambda folder: os.truncate(folder / name, 100)))  # noqa: B023
    with pytest.raises(ModelError, match=f"{EXPORT_CONFIG} is not valid json.*damaged"):
        s2sent.load(broken(lambda folder: os.truncate(folder / EXPORT_CONFIG, 100)))
    with pytest.raises(ModelError, match="has format 99, and this version of s2sent reads up to 3"):
        s2sent.load(broken(lambda folder: write(folder, format=99)))
    with pytest.raises(ModelError, match=f"{EXPORT_CONFIG}: unheard is not known"):
        s2sent.load(broken(lambda folder: write(folder, unheard=1)))

    def garbage(folder: Path) -> None:
        size = (folder / encoder.GRAPH).stat().st_size
        (folder / encoder.GRAPH).write_bytes(b"\0" * size)

    with pytest.raises(ModelError, match=f"{encoder.GRAPH} cannot be run"):
        s2sent.load(broken(garbage))


def test_waiting_threads_do_not_spin(made: Made) -> None:
    options = made("bert prompt")[1]._session.get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_what_a_graph_cannot_do_is_said(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made("bert prompt")[1].folder
    with pytest.raises(ModelError, match="is an exported model"):
        s2sent.build(folder)
    with pytest.raises(ConfigError, match="runs on the CPU"):
        s2sent.load(folder, device="cuda")
    with pytest.raises(ConfigError, match="threads must be from 1"):
        s2sent.load(folder, threads=0)
    for runtime, extra in (("onnxruntime", "onnx"), ("openvino", "openvino")):
        folder = made("bert prompt", runtime)[1].folder
        monkeypatch.setitem(sys.modules, runtime, None)
        with pytest.raises(ConfigError, match=rf"pip install 's2sent\[{extra}\]'"):
            s2sent.load(folder)


class Undecided(Module):
    """Decides by looking at the numbers, which no graph can."""

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        if float(features["sentence_embedding"].sum()) > 0:
            features["sentence_embedding"] = -features["sentence_embedding"]
        return features

    def save(self, *_: Any, **__: Any) -> None: ...


def test_what_cannot_be_traced_is_said_in_a_line(made: Made, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = SentenceTransformer(modules=[*made("bert prompt")[0], Undecided()], device="cpu")
    with pytest.raises(ModelError, match="BertModel → SelectivePooling → Undecided cannot be exported") as error:
        s2sent.export(model, tmp_path / "onnx")
    assert len(str(error.value)) < 300
    assert not list(tmp_path.iterdir())
    assert len("".join(capfd.readouterr()).splitlines()) < 5


def test_an_export_never_overwrites(made: Made, tmp_path: Path) -> None:
    model, _ = made("bert prompt")
    (tmp_path / "mine.txt").write_text("mine")
    for taken in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(ConfigError, match="exists already"):
            s2sent.export(model, taken)
    with pytest.raises(ModelError, match="made from weights on the CPU in fp32"):
        s2sent.export(SentenceTransformer(modules=[*model]).half(), tmp_path / "half")
    model.float()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_another_vector_is_never_exported(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that computes something else than the model is found before anybody can use it."""
    model, encoder = made("bert prompt")
    graph = encoder.folder / OnnxEncoder.GRAPH
    monkeypatch.setattr("s2sent.runtime.export.write_graph", lambda *_, path, **__: shutil.copy(graph, path))
    s2sent.export(model, tmp_path / "right")
    other = enliven(s2sent.load(save(model, tmp_path / "model")), seed=1)
    for precision in ("fp32", "int8"):
        with pytest.raises(ModelError, match="in fp32, does not give this model's vectors"):
            s2sent.export(other, tmp_path / "wrong", precision=precision)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("s2sent.runtime.export._distance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        s2sent.export(model, tmp_path / "interrupted")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "right"]


def save(model: SentenceTransformer, folder: Path) -> Path:
    model.save(str(folder))
    return folder


def _export_slowly(model: str, folder: str) -> None:
    from s2sent.runtime import export

    export._distance = lambda *_: time.sleep(600)  # type: ignore[assignment]
    export.export(model, folder)


@pytest.mark.long
def test_killed_before_it_is_whole_nothing_is_there(made: Made, tmp_path: Path) -> None:
    model, _ = made("bert prompt")
    save(model, tmp_path / "model")
    target = tmp_path / "onnx"
    process = multiprocessing.get_context("spawn").Process(
        target=_export_slowly, args=(str(tmp_path / "model"), str(target))
    )
    process.start()
    while not (tmp_path / ".onnx.writing" / EXPORT_CONFIG).exists():
        assert process.is_alive()
        time.sleep(0.05)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not target.exists()
    exported(model, target)  # clears what was left
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "onnx"]
