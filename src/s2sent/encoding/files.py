"""Encode the texts of a file into a file of vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from sentence_transformers import SentenceTransformer

from s2sent.errors import DataError

FORMATS = (".npy", ".parquet")

Vectors = npt.NDArray[np.float32]


def check_output(path: Path) -> None:
    """Raise unless vectors can be written there, before anything long is computed; make the folder."""
    if path.suffix not in FORMATS:
        raise DataError(f"{path} does not end in a format for vectors. Legal: {', '.join(FORMATS)}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.") from error


def encode_file(
    model: SentenceTransformer,
    texts: Sequence[str],
    output: Path,
    *,
    batch_size: int = 32,
    on_progress: Callable[[int], None] | None = None,
) -> Vectors:
    """Encode texts and write their vectors, in the order of the texts, to a .npy or .parquet file.

    The file appears when it is whole; an interrupted run leaves whatever was there before.

    Args:
        model: The model.
        texts: The texts; a .parquet file keeps them beside their vectors and numbers.
        output: Where to write.
        batch_size: How many texts go through the model at once.
        on_progress: Told how many more texts are done.
    """
    check_output(output)
    window = 32 * batch_size  # the host sorts by length within a call: large enough to fill batches with alike lengths
    vectors = np.empty((len(texts), model.get_embedding_dimension() or 0), dtype=np.float32)
    for start in range(0, len(texts), window):
        chunk = list(texts[start : start + window])
        vectors[start : start + len(chunk)] = model.encode(chunk, batch_size=batch_size, show_progress_bar=False)
        if on_progress is not None:
            on_progress(len(chunk))

    unfinished = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            if output.suffix == ".npy":
                np.save(file, vectors)
            else:
                pq.write_table(_table(texts, vectors), file)
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    return vectors


def _table(texts: Sequence[str], vectors: Vectors) -> pa.Table:
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    return pa.table({"id": pa.array(range(len(texts)), pa.int64()), "text": list(texts), "embedding": embedding})
