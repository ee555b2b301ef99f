"""Encode the texts of a file into a file of vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    if path.is_dir():
        raise DataError(f"{path} is a folder. Give the name of a file in it.")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _unfinished(path).touch()
        _unfinished(path).unlink()


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
        texts: The texts; a .parquet file keeps them beside their vectors, with the number of their row, from 0.
        output: Where to write.
        batch_size: How many texts go through the model at once.
        on_progress: Told how many more texts are done.
    """
    check_output(output)
    window = 32 * batch_size  # the host sorts by length within a call: large enough to fill batches with alike lengths
    vectors = np.empty((len(texts), model.get_embedding_dimension() or 0), dtype=np.float32)
    for start in range(0, len(texts), window):
        chunk = list(texts[start : start + window])
        vectors[start : start + len(chunk)] = _encode(model, chunk, start, batch_size)
        if on_progress is not None:
            on_progress(len(chunk))

    with _writing(output):
        try:
            with _unfinished(output).open("wb") as file:
                if output.suffix == ".npy":
                    np.save(file, vectors)
                else:
                    pq.write_table(_table(texts, vectors), file)
            _unfinished(output).replace(output)
        finally:
            _unfinished(output).unlink(missing_ok=True)
    return vectors


def _encode(model: SentenceTransformer, texts: list[str], start: int, batch_size: int) -> Vectors:
    try:
        return model.encode(texts, batch_size=batch_size, show_progress_bar=False)
    except DataError:
        # The model names a place in a batch that was sorted by length; one by one the text is found.
        for number, text in enumerate(texts, start=start + 1):
            try:
                model.encode([text], show_progress_bar=False)
            except DataError as error:
                raise DataError(f"Text {number}, {text[:60]!r}: {error}") from error
        raise


def _unfinished(output: Path) -> Path:
    return output.with_name(f".{output.name}.{os.getpid()}.part")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}.") from error


def _table(texts: Sequence[str], vectors: Vectors) -> pa.Table:
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    return pa.table({"row": pa.array(range(len(texts)), pa.int64()), "text": list(texts), "embedding": embedding})
