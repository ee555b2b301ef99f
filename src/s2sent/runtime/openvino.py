"""Exported models that run in OpenVINO, and how they are made from an ONNX graph: fp32, bf16 and int8."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2sent.errors import ConfigError
from s2sent.runtime.exported import ExportedEncoder, Vectors, import_runtime

WEIGHTS = "model.weights"
"""OpenVINO calls it model.bin. A .bin in a model folder is a pickle, and is never opened."""


class OpenVinoEncoder(ExportedEncoder):
    """An exported model in OpenVINO. `s2sent.load` makes one from a folder that `s2sent.export` wrote.

    A text's vector has the same bits whatever texts are encoded with it, and with any number of threads: the weights
    and the scales of int8 are fixed, and `config.bucket` makes a text's own length decide how far it is padded.
    """

    GRAPH = "model.xml"
    FILES = (GRAPH, WEIGHTS)

    streams = 1
    """Batches that can run at once."""

    def _open(self, path: Path, threads: int | None) -> Any:
        if self.config.precision == "bf16":
            check_bf16(self.folder)
        options = {
            # By default OpenVINO takes bf16 where it is fast: the vectors would depend on the processor.
            "INFERENCE_PRECISION_HINT": "bf16" if self.config.precision == "bf16" else "f32",
            "NUM_STREAMS": self.streams,
            **({} if threads is None else {"INFERENCE_NUM_THREADS": threads}),
        }
        core = _core()
        model = core.compile_model(core.read_model(path, path.with_name(WEIGHTS)), "CPU", options)
        self._threads = model.get_property("INFERENCE_NUM_THREADS")
        idle: SimpleQueue[Any] = SimpleQueue()
        for _ in range(self.streams):
            idle.put(model.create_infer_request())  # which one thread at a time can use
        return idle

    @cached_property
    def parallel(self) -> OpenVinoEncoder | None:
        """This model with a batch for each thread instead of all threads for a batch: faster for many batches."""
        if self._threads == 1:
            return None
        other = copy(self)
        other.streams = self._threads
        other._session = other._open(self.folder / self.GRAPH, self._threads)
        return other

    def _run(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> Vectors:
        request = self._session.get()
        try:
            vectors: Vectors = request.infer({"input_ids": input_ids, "attention_mask": attention_mask})[0]
        finally:
            self._session.put(request)
        return vectors


def check_bf16(folder: str | Path) -> None:
    """Raise a `ConfigError` if this processor does not multiply in bf16."""
    if "BF16" not in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise ConfigError(f"{folder} computes in bf16, which this processor does not have. Export in fp32 or int8.")


def _core() -> Any:
    return import_runtime("openvino", "openvino").Core()


def convert(graph: Path, folder: Path) -> None:
    """Write an ONNX graph as OpenVINO's model.xml and its weights, in fp32."""
    _save(_core().read_model(graph), folder)


def quantize(folder: Path, products: Sequence[str], batches: Sequence[dict[str, NDArray[np.int64]]]) -> None:
    """Replace a folder's fp32 graph by one whose backbone multiplies in int8, with scales that do not depend on a text.

    Args:
        folder: Where `convert` wrote.
        products: The names of the backbone's matrix products. Others, those of the selection, stay in fp32: they are
            too small to gain anything.
        batches: Padded batches of typical text, from which the scales are measured.
    """
    from s2sent.runtime.graph import quiet

    nncf = import_runtime("nncf", "openvino")
    model = _core().read_model(folder / OpenVinoEncoder.GRAPH, folder / WEIGHTS)
    others = [op.get_friendly_name() for op in model.get_ops() if op.get_type_name() == "MatMul"]
    others = [name for name in others if name not in products]
    with quiet():
        quantized = nncf.quantize(
            model,
            nncf.Dataset(batches),
            subset_size=len(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            ignored_scope=nncf.IgnoredScope(names=others),
        )
    _save(quantized, folder)


def _save(model: Any, folder: Path) -> None:
    path = folder / "new.xml"  # beside the old files, which may hold the weights of this very model
    import_runtime("openvino", "openvino").save_model(model, path, compress_to_fp16=False)
    path.rename(folder / OpenVinoEncoder.GRAPH)
    path.with_suffix(".bin").rename(folder / WEIGHTS)
