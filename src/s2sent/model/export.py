"""Export a model: one graph from token ids to the sentence vector, its tokenizer, and what runs the two needs."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from tokenizers import Tokenizer, normalizers, processors

from s2sent.atomic import atomic_folder
from s2sent.errors import ModelError
from s2sent.model.exported import CONFIG, GRAPH, TOKENIZER, ExportConfig, OnnxEncoder
from s2sent.model.framing import framing_of
from s2sent.model.graph import quantize, strip_notes, write_graph
from s2sent.model.load import open_encoder
from s2sent.model.pooling import SelectivePooling
from s2sent.model.prompts import PromptTransformer
from s2sent.model.tokens import padded

AGREEMENT = 1e-4
"""The largest cosine distance between a vector of the fp32 graph and torch's at which an export counts as right."""
INT8_AGREEMENT = 0.5
"""The same for int8, where only nonsense is refused: the loss on a task is what counts, and is to be measured."""

_WORDS = "Straße, naïve café and 東京: the committee argued at length about whether the old bridge could carry cars. "
_SAMPLES = (
    "Rain.",
    "A man is playing a guitar.",
    "  Spaces around, and <b>markup</b> & 3.5 % [MASK] <mask> </s> inside;\ttabs\nand lines.  ",
    _WORDS,
    5 * _WORDS,
    50 * _WORDS,
)
"""Texts that every export is tried on: short, odd, and beyond the limit of most models."""


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        folder: Where.
        precision: `fp32` or `int8`.
        size: Bytes of the graph with its weights.
        distance: The largest cosine distance to torch's vectors over a few texts.
        notes: What somebody who runs it elsewhere should know.
    """

    folder: Path
    precision: str
    size: int
    distance: float
    notes: tuple[str, ...] = ()


def export(
    model: SentenceTransformer | str | Path,
    folder: str | Path,
    *,
    int8: bool = False,
    hub: dict[str, Any] | None = None,
) -> Export:
    """Write a model as a folder that runs with onnxruntime and tokenizers alone.

    `s2sent.load(folder)` opens it, without torch. The graph has all that the model does from token ids to the vector;
    before the folder appears, its vectors are compared with the model's own.

    Args:
        model: A model, its folder, or its name on the hub: ours or any other of sentence-transformers.
        folder: Where to write; must not exist, or be empty. It appears when it is whole.
        int8: Multiply in 8-bit integers: faster and four times smaller, at some loss. Measure it on your own task.
        hub: `token`, `revision`, `cache_folder`, `local_files_only` for a model from the hub.

    Raises:
        ConfigError: the folder is taken, or the extra `onnx` is not installed.
        ModelError: the model cannot be exported, or the exported graph gives other vectors.

    Example:
        >>> s2sent.export("out/my-model", "out/onnx")                # doctest: +SKIP
        >>> s2sent.load("out/onnx").encode(["A sentence."])          # doctest: +SKIP
    """
    folder = Path(folder)
    if not isinstance(model, SentenceTransformer):
        model = open_encoder(model, device="cpu", hub=hub, model_kwargs={"dtype": torch.float32})
    config, tokenizer = _checked(model)
    training = model.training
    model.eval()
    try:
        with atomic_folder(folder) as writing:
            notes = _write_tokenizer(writing, model, config, tokenizer)
            config = replace(config, prepared=_write_fast_tokenizer(writing, tokenizer, config))
            # The fp32 graph is checked in any case: a graph that is wrong must not pass for one that is rounded.
            exact = writing
            if int8:
                exact = writing / "fp32"
                shutil.copytree(writing, exact, ignore=shutil.ignore_patterns(exact.name))
            _write_graph(exact, model, config)
            if not int8:
                strip_notes(writing / GRAPH)  # which tell `quantize` what is what
            distance = _described_and_checked(exact, model, config, "fp32", AGREEMENT)
            if int8:
                quantize(exact / GRAPH, writing / GRAPH)
                strip_notes(writing / GRAPH)
                shutil.rmtree(exact)
                distance = _described_and_checked(writing, model, config, "int8", INT8_AGREEMENT)
            size = sum(path.stat().st_size for path in writing.glob(f"{GRAPH}*"))
    finally:
        model.train(training)
    return Export(folder, "int8" if int8 else "fp32", size, distance, tuple(notes))


def _described_and_checked(
    writing: Path, model: SentenceTransformer, config: ExportConfig, precision: str, agreement: float
) -> float:
    """Write what the folder says of itself, and return its largest distance from the model, which must be small."""
    files = {path.name: path.stat().st_size for path in sorted(writing.iterdir()) if path.is_file()}
    config = replace(config, precision=precision, files=files)
    (writing / CONFIG).write_text(json.dumps(config.to_dict(), indent=1) + "\n", encoding="utf-8")
    distance = _distance(model, OnnxEncoder(writing))
    if not distance <= agreement:
        raise ModelError(
            f"The exported graph, in {precision}, does not give this model's vectors (cosine distance {distance:.1e}), "
            "so nothing was written. Encode with the model in torch, and please report it."
        )
    return distance


def _checked(model: SentenceTransformer) -> tuple[ExportConfig, Tokenizer]:
    """Find out what an export of this model has to say, or why there can be none."""
    encoder = model[0]
    if not isinstance(encoder, Transformer) or getattr(encoder, "tokenizer", None) is None:
        raise ModelError(f"An export begins with a Transformer and its tokenizer; here it is {type(encoder).__name__}.")
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
    text = {tokenizer.unk_token_id, tokenizer.mask_token_id}
    config = ExportConfig(
        framing=framing_of(encoder, prompts.get(model.default_prompt_name or "") or None),
        dimension=int(model.get_embedding_dimension() or 0),
        padding=tokenizer.pad_token_id or 0,
        normalizes=isinstance(list(model)[-1], Normalize) and model.truncate_dim is None,
        needs_text=any(isinstance(module, SelectivePooling | PromptTransformer) for module in model),
        special=tuple(i for i in tokenizer.all_special_ids if i not in text),
        prompts=prompts,
    )
    return config, Tokenizer.from_str(backend.to_str())


def _write_graph(writing: Path, model: SentenceTransformer, config: ExportConfig) -> None:
    framing = config.framing
    encoder: Any = model[0]
    tokens = framing.tokenize(framing.tokenizer(encoder.tokenizer.backend_tokenizer), [_SAMPLES[0], _SAMPLES[1]])
    example = padded(encoder, [framing.frame(row) for row in tokens])
    write_graph(model, example["input_ids"], example["attention_mask"], writing / GRAPH)


def _write_fast_tokenizer(writing: Path, tokenizer: Tokenizer, config: ExportConfig) -> int:
    """Write tokenizer.json so that whoever reads it alone gets whole sequences, cut to what the model takes.

    Returns how many normalizers were put before the tokenizer's own.
    """
    framing = config.framing
    prepared: list[Any] = [normalizers.Strip()] if framing.strip else []
    if framing.lead:
        prepared.append(normalizers.Prepend(framing.lead))
    if framing.strip:  # a template
        halves = {"before": framing.prefix, "behind": framing.suffix}
        tokenizer.post_processor = processors.TemplateProcessing(
            single=["before", "$A", "behind"],
            special_tokens=[
                {"id": name, "ids": list(ids), "tokens": [tokenizer.id_to_token(i) for i in ids]}
                for name, ids in halves.items()
            ],
        )
        own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([*prepared, *own])
    tokenizer.enable_truncation(framing.max_tokens, direction="left" if framing.keep_end else "right")
    tokenizer.enable_padding(pad_id=config.padding, pad_token=tokenizer.id_to_token(config.padding) or "[PAD]")
    tokenizer.save(str(writing / TOKENIZER))
    return len(prepared)


def _write_tokenizer(
    writing: Path, model: SentenceTransformer, config: ExportConfig, tokenizer: Tokenizer
) -> list[str]:
    """Write what fastembed and others read beside tokenizer.json; return what they cannot be told."""
    encoder: Any = model[0]
    own: Any = encoder.tokenizer
    special = {name: str(token) for name, token in own.special_tokens_map.items() if isinstance(token, str)}
    pad_token = tokenizer.id_to_token(config.padding)
    _write_json(
        writing / "tokenizer_config.json",
        {
            **special,
            "pad_token": pad_token,
            "model_max_length": config.framing.max_tokens,
            "padding_side": "right",
            "truncation_side": own.truncation_side,
        },
    )
    _write_json(writing / "special_tokens_map.json", {**special, "pad_token": pad_token})
    _write_json(
        writing / "config.json",
        {
            "model_type": encoder.auto_model.config.model_type,
            "hidden_size": config.dimension,
            "pad_token_id": config.padding,
        },
    )
    if config.framing.prompt:
        return [f"Runtimes other than s2sent must put the prompt {config.framing.prompt!r} before every text."]
    return []


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _distance(model: SentenceTransformer, exported: OnnxEncoder) -> float:
    """Return the largest cosine distance between the two over the samples, in one ragged batch and one by one."""
    runs = ((list(_SAMPLES), 8), (list(_SAMPLES[:3]), 1))
    wanted = np.concatenate([model.encode(texts, batch_size=n, show_progress_bar=False) for texts, n in runs])
    got = np.concatenate([exported.encode(texts, batch_size=n) for texts, n in runs])
    if not np.isfinite(got).all():
        return float("inf")
    a, b = wanted.astype(np.float64), got.astype(np.float64)
    cosine = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return float(1 - cosine.min())
