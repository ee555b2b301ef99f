"""Export a model: one graph from token ids to the sentence vector, its tokenizer, and a config."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from tokenizers import Tokenizer, normalizers, processors

from s2sent.atomic import atomic_folder
from s2sent.errors import ConfigError, ModelError
from s2sent.model.load import open_encoder
from s2sent.model.prompts import padded, pipeline_of
from s2sent.runtime import openvino
from s2sent.runtime.calibration import builtin_texts, calibration_batches
from s2sent.runtime.exported import TOKENIZER, ExportConfig, ExportedEncoder, import_runtime
from s2sent.runtime.graph import quantize, write_graph
from s2sent.runtime.load import open_export
from s2sent.runtime.onnxruntime import OnnxEncoder

Precision = Literal["fp32", "bf16", "int8"]
Runtime = Literal["onnxruntime", "openvino"]

TOLERANCE = {"fp32": 1e-4, "bf16": 0.05, "int8": 0.5}
"""The largest cosine distance to torch's vectors. For int8 it finds nonsense only: measure the loss on your task."""
BUCKET = 8
"""Tokens: the lengths that OpenVINO pads to are its multiples."""

_WORDS = "Straße, naïve café and 東京: the committee argued at length about whether the old bridge could carry cars. "
_SAMPLES = (
    "Rain.",
    "A man is playing a guitar.",
    "  Spaces around, and <b>markup</b> & 3.5 % [MASK] <mask> </s> inside;\ttabs\nand lines.  ",
    _WORDS,
    5 * _WORDS,
    50 * _WORDS,
)
"""Texts that every export is checked with: short, odd, and longer than most models take."""


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        folder: The folder.
        runtime: `onnxruntime` or `openvino`.
        precision: `fp32`, `bf16` or `int8`.
        size: Bytes of the graph with its weights.
        distance: The largest cosine distance to torch's vectors over a few texts.
        notes: What to know before it is used.
    """

    folder: Path
    runtime: Runtime
    precision: Precision
    size: int
    distance: float
    notes: tuple[str, ...] = ()


def export(
    model: SentenceTransformer | str | Path,
    folder: str | Path,
    *,
    runtime: Runtime = "onnxruntime",
    precision: Precision = "fp32",
    calibration: Sequence[str] | None = None,
    hub: dict[str, Any] | None = None,
) -> Export:
    """Export a model to a folder that runs with onnxruntime or OpenVINO, and tokenizers, without torch.

    `s2sent.load(folder)` loads it. The graph has everything that the model does from token ids to the vector. Before
    the folder appears, its vectors are compared with the model's own.

    Args:
        model: A model, its folder, or its name on the hub: ours, or any other of sentence-transformers.
        folder: Where to write; must not exist, or be empty.
        runtime: `onnxruntime`, whose graph other programs run, too; or `openvino`, which is faster.
        precision: `fp32`; `bf16` (OpenVINO, on a processor that has it): faster; `int8`: faster still and four times
            smaller, at some loss. Measure it on your own task.
        calibration: For int8 in OpenVINO: texts like those that will be encoded. By default Python's documentation.
        hub: `token`, `revision`, `cache_folder`, `local_files_only` for a model from the hub.

    Raises:
        ConfigError: the folder exists, the extra `onnx` or `openvino` is not installed, or the precision is not for
            this runtime or processor.
        ModelError: the model cannot be exported, or the exported graph gives other vectors.

    Example:
        >>> s2sent.export("out/my-model", "out/onnx")                # doctest: +SKIP
        >>> s2sent.load("out/onnx").encode(["A sentence."])          # doctest: +SKIP
    """
    if runtime not in get_args(Runtime):
        raise ConfigError(f"runtime must be onnxruntime or openvino, got {runtime!r}.")
    legal = ("fp32", "int8") if runtime == "onnxruntime" else get_args(Precision)
    if precision not in legal:
        raise ConfigError(f"precision in {runtime} must be {' or '.join(legal)}, got {precision!r}.")
    static = runtime == "openvino" and precision == "int8"
    if calibration is not None and not static:
        raise ConfigError("calibration is for int8 in OpenVINO: the others have nothing to calibrate.")
    for package in ("onnx", "onnxscript", runtime, *(["nncf"] if static else [])):  # before anything long is done
        import_runtime(package, "onnx" if runtime == "onnxruntime" else "openvino")
    if precision == "bf16":
        openvino.check_bf16(folder)
    if not isinstance(model, SentenceTransformer):
        model = open_encoder(model, device="cpu", hub=hub, model_kwargs={"dtype": torch.float32})
    encoder: Any = model[0]
    config, tokenizer = _config_of(model)
    framing, training = config.framing, model.training
    model.eval()
    try:
        with atomic_folder(Path(folder)) as writing:
            config = replace(
                config,
                prepared=_write_tokenizer(writing, encoder, config, tokenizer),
                runtime=runtime,
                bucket=BUCKET if runtime == "openvino" else 0,
            )
            example = padded(encoder, pipeline_of(model).token_ids(_SAMPLES[:2]))
            products = write_graph(model, **example, path=writing / OnnxEncoder.GRAPH)
            if runtime == "openvino":
                openvino.convert(writing / OnnxEncoder.GRAPH, writing)
                for path in writing.glob(f"{OnnxEncoder.GRAPH}*"):
                    path.unlink()
            # The fp32 graph is checked for int8, too: a wrong graph must not pass for a rounded one.
            distance, exported = _check(writing, model, config, "fp32")
            if static:
                batches = calibration_batches(exported.pipeline, calibration or builtin_texts())
                openvino.quantize(writing, products, batches)
            elif precision == "int8":
                exact = writing / "fp32"
                exact.mkdir()
                for path in writing.glob(f"{OnnxEncoder.GRAPH}*"):
                    path.rename(exact / path.name)
                quantize(exact / OnnxEncoder.GRAPH, writing / OnnxEncoder.GRAPH, products)
                shutil.rmtree(exact)
            if precision != "fp32":
                distance, _ = _check(writing, model, config, precision)
            size = sum(path.stat().st_size for path in writing.glob("model.*"))
    finally:
        model.train(training)
    notes = []
    if framing.prompt:
        notes.append(f"Programs other than s2sent must put the prompt {framing.prompt!r} before every text.")
    if static and calibration is None:
        notes.append("int8 was calibrated with Python's documentation. Calibrate with texts like yours: --calibration.")
    return Export(Path(folder), runtime, precision, size, distance, tuple(notes))


def _check(
    writing: Path, model: SentenceTransformer, config: ExportConfig, precision: Precision
) -> tuple[float, ExportedEncoder]:
    """Write the config, and return the largest distance of the folder's vectors to the model's, and what gave them."""
    replace(config, precision=precision).write(writing)
    exported = open_export(writing)
    distance = _distance(model, exported)
    if not distance <= TOLERANCE[precision]:
        raise ModelError(
            f"The exported graph, in {precision}, does not give this model's vectors (cosine distance {distance:.1e}), "
            "so nothing was written. Encode with the model in torch, and please report it."
        )
    return distance, exported


def _distance(model: SentenceTransformer, exported: ExportedEncoder) -> float:
    """Return the largest cosine distance between the two over the samples, in one ragged batch and one by one."""
    runs = ((list(_SAMPLES), 8), (list(_SAMPLES[:3]), 1))
    wanted = np.concatenate([model.encode(texts, batch_size=n, show_progress_bar=False) for texts, n in runs])
    got = np.concatenate([exported.encode(texts, batch_size=n) for texts, n in runs])
    a, b = wanted.astype(np.float64), got.astype(np.float64)
    cosine = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return float(1 - cosine.min())


def _config_of(model: SentenceTransformer) -> tuple[ExportConfig, Tokenizer]:
    """Return the config of a model's export, and a copy of its tokenizer; or raise why it cannot be exported."""
    encoder = model[0]
    if not isinstance(encoder, Transformer) or getattr(encoder, "tokenizer", None) is None:
        raise ModelError(f"An export needs a Transformer and its tokenizer first; here it is {type(encoder).__name__}.")
    if encoder.backend != "torch":
        raise ModelError(f"This model runs with backend={encoder.backend!r}. Load it with backend='torch'.")
    for weights in model.parameters():
        if weights.device.type != "cpu" or weights.dtype != torch.float32:
            raise ModelError(
                f"An export is made from weights on the CPU in fp32; these are {weights.dtype} on {weights.device}. "
                "Give the model's folder instead, or model.float().to('cpu')."
            )
    for module in model:
        if not getattr(module, "include_prompt", True) and any(model.prompts.values()):
            raise ModelError("This model leaves its prompt out of the pooling, which a graph of token ids cannot.")
    tokenizer: Any = encoder.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"An export needs a fast tokenizer, and this model's is {type(tokenizer).__name__}. transformers can save "
            "most as tokenizer.json."
        )
    prompts = {name: prompt or "" for name, prompt in model.prompts.items()}  # empty ones, too: callers name them
    pipeline = pipeline_of(model)
    config = ExportConfig(
        framing=pipeline.config,
        dimension=int(model.get_embedding_dimension() or 0),
        padding=pipeline.padding,
        special=tuple(sorted(pipeline.special)),
        normalizes=isinstance(list(model)[-1], Normalize) and model.truncate_dim is None,
        needs_text=pipeline.needs_text,
        prompts=prompts,
        similarity=model.similarity_fn_name,
    )
    return config, Tokenizer.from_str(backend.to_str())


def _write_tokenizer(writing: Path, encoder: Any, config: ExportConfig, tokenizer: Tokenizer) -> int:
    """Write tokenizer.json, which alone gives whole sequences that fit the model, and what fastembed reads beside it.

    Returns how many normalizers were put before the tokenizer's own.
    """
    framing, tokenizer = config.framing, Tokenizer.from_str(tokenizer.to_str())
    prepared: list[Any] = []
    if framing.strip:  # a template
        prepared = [normalizers.Strip(), *([normalizers.Prepend(framing.lead)] if framing.lead else [])]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=["before", "$A", "behind"],
            special_tokens=[
                {"id": name, "ids": list(ids), "tokens": [tokenizer.id_to_token(i) for i in ids]}
                for name, ids in (("before", framing.prefix), ("behind", framing.suffix))
            ],
        )
        own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([*prepared, *own])
    pad_token = tokenizer.id_to_token(config.padding)
    tokenizer.enable_truncation(framing.max_tokens, direction="left" if framing.keep_end else "right")
    tokenizer.enable_padding(pad_id=config.padding, pad_token=pad_token or "[PAD]")
    tokenizer.save(str(writing / TOKENIZER))

    named = encoder.tokenizer.special_tokens_map.items()
    special = {**{name: token for name, token in named if isinstance(token, str)}, "pad_token": pad_token}
    model_config = {
        "model_type": encoder.auto_model.config.model_type,
        "hidden_size": config.dimension,
        "pad_token_id": config.padding,
    }
    tokenizer_config = {
        **special,
        "model_max_length": framing.max_tokens,
        "padding_side": "right",
        "truncation_side": encoder.tokenizer.truncation_side,
    }
    for name, values in (
        ("config.json", model_config),
        ("tokenizer_config.json", tokenizer_config),
        ("special_tokens_map.json", special),
    ):
        (writing / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    return len(prepared)
