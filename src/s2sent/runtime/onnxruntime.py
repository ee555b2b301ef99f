"""Exported models that run in onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2sent.runtime.exported import ExportedEncoder, Vectors, import_runtime


class OnnxEncoder(ExportedEncoder):
    """An exported model in onnxruntime. `s2sent.load` makes one from a folder that `s2sent.export` wrote.

    Example:
        >>> encoder = s2sent.load("out/onnx")                        # doctest: +SKIP
        >>> encoder.encode(["A sentence.", "Another."]).shape        # doctest: +SKIP
        (2, 384)
    """

    GRAPH = "model.onnx"
    FILES = (GRAPH,)

    def _open(self, path: Path, threads: int | None) -> Any:
        onnxruntime = import_runtime("onnxruntime", "onnx")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # its warnings are about its own optimisations
        # A thread that spins while it waits takes the core from one that works: in some processes a third of the speed.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if threads is not None:
            options.intra_op_num_threads = threads
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def _run(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> Vectors:
        vectors: Vectors = self._session.run(None, {"input_ids": input_ids, "attention_mask": attention_mask})[0]
        return vectors
