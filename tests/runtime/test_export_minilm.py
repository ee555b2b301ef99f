"""The real all-MiniLM-L6-v2, exported: real text of every length."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from model.tiny import enliven
from runtime.exports import distances, exported, same_bits
from s2sent.evaluation.suite import evaluate
from s2sent.model.build import build
from s2sent.model.prompts import pipeline_of
from s2sent.runtime.exported import ExportedEncoder
from s2sent.vectors import TorchEncoder, encode_texts

pytestmark = [pytest.mark.backbone, pytest.mark.data]

TEMPLATE = 'This sentence of "{sentence}" means {mask}.'


def lines_of(data_folder: Path, count: int) -> list[str]:
    with (data_folder / "wiki_200k.txt").open(encoding="utf-8") as file:
        return [text for line in islice(file, count) if (text := line.strip())]


@pytest.fixture(scope="module")
def model(minilm: str) -> SentenceTransformer:
    return enliven(build(minilm, device="cpu"))


@pytest.fixture(scope="module")
def encoder(model: SentenceTransformer, tmp_path_factory: pytest.TempPathFactory) -> ExportedEncoder:
    return exported(model, tmp_path_factory.mktemp("minilm") / "onnx")


def test_vectors_agree_from_1_to_256_tokens(
    model: SentenceTransformer, encoder: ExportedEncoder, data_folder: Path
) -> None:
    words = " ".join(lines_of(data_folder, 400)).split()
    cuts = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 200, 300]
    texts = [" ".join(words[100 * i : 100 * i + n]) for i, n in enumerate(cuts)] + lines_of(data_folder, 60)
    lengths = [len(encoder.pipeline.frame(tokens)) for tokens in encoder.pipeline.tokenize(texts)]
    assert min(lengths) <= 4
    assert max(lengths) == 256
    assert distances(encoder.encode(texts, batch_size=8), model.encode(texts, batch_size=8)).max() < 1e-6


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_tokens_agree_on_thousands_of_real_lines(
    minilm: str, encoder: ExportedEncoder, data_folder: Path, template: str | None
) -> None:
    model = build(minilm, template=template, device="cpu")
    pipeline = pipeline_of(model)
    if template is None:
        assert pipeline == encoder.pipeline
    texts = [*lines_of(data_folder, 3000), "x" * 50, "東京 " * 400]
    host = model.preprocess(texts)
    hosts = [ids[mask.bool()].tolist() for ids, mask in zip(host["input_ids"], host["attention_mask"], strict=True)]
    if template is None:
        assert pipeline.token_ids(texts) == hosts
        pipeline = replace(pipeline, tokenizer=encoder.pipeline.tokenizer)
    assert pipeline.token_ids(texts) == hosts


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_openvino_agrees_on_10_000_lines_and_gives_the_same_bits_in_any_batch(
    model: SentenceTransformer, data_folder: Path, tmp_path: Path, precision: str
) -> None:
    lines = lines_of(data_folder, 11_000)
    options = {"calibration": lines[10_000:]} if precision == "int8" else {}
    encoder = exported(model, tmp_path / "openvino", runtime="openvino", precision=precision, **options)
    limit = {"fp32": 1e-5, "bf16": 1e-3, "int8": 0.05}[precision]
    assert (
        distances(encode_texts(encoder, lines[:10_000]), encode_texts(TorchEncoder(model), lines[:10_000])).max()
        < limit
    )
    same_bits(encoder.folder, [*lines[:200], " ".join(lines[:20])])


@pytest.mark.long
def test_int8_costs_little_on_stsb(model: SentenceTransformer, data_folder: Path, tmp_path: Path) -> None:
    encoder = exported(model, tmp_path / "int8", precision="int8")
    before, after = (
        evaluate(one, "STS-B", data=data_folder, cache=False)["STS-B"].headline() for one in (model, encoder)
    )
    assert after > before - 0.5
    assert (encoder.folder / "model.onnx").stat().st_size < 60e6
    texts = lines_of(data_folder, 100)
    assert np.mean(distances(encoder.encode(texts), model.encode(texts))) < 0.01
