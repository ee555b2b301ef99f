"""From shards to one file of vectors, written in one go and a shard at a time: memory does not grow with the file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from s2sent.atomic import atomic_file
from s2sent.errors import ConfigError, DataError
from s2sent.untrusted import is_folder, shown
from s2sent.vectors.shards import Shards

IDS, TEXTS, VECTORS, SCALES = "id", "text", "embedding", "scale"
_LONGEST_NAME = 200
"""Bytes. File systems take 255, and files beside the output have longer names than it."""


@dataclass(frozen=True)
class Layout:
    """What all shards have in common.

    Attributes:
        width: Values to a vector.
        dtype: Of these values.
        vectors: How many vectors there are.
        id_type: `int64` or `string`.
        with_text: Whether texts are kept.
        note: How the vectors were made, for formats that have a place for it.
    """

    width: int
    dtype: np.dtype[np.generic]
    vectors: int
    id_type: pa.DataType
    with_text: bool
    note: dict[str, str]

    @property
    def has_scale(self) -> bool:
        """Whether each vector has a scale of its own."""
        return self.dtype == np.int8


@dataclass(frozen=True)
class Part:
    """One shard's vectors, with ids that count from the start of all input."""

    ids: pa.Array
    table: pa.Table

    @property
    def vectors(self) -> NDArray[np.generic]:
        """The vectors, (b, width)."""
        column = self.table.column(VECTORS).combine_chunks()
        values: NDArray[np.generic] = column.flatten().to_numpy(zero_copy_only=False)
        return values.reshape(len(column), -1)


Parts = Callable[[], Iterator[Part]]
"""Reads the shards; formats that keep ids and vectors apart read them twice."""


def check_output(path: Path, *, labelled: bool, with_text: bool) -> None:
    """Raise unless what is asked for can be written to this path."""
    if path.suffix not in _WRITERS:
        raise ConfigError(f"{path} does not end in a format for vectors. Legal: {', '.join(_WRITERS)}.")
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise ConfigError(f"The name {shown(path.name)} is too long for a file. Choose a shorter one.")
    if is_folder(path):
        raise ConfigError(f"{path} is a folder. Give the name of a file in it.")
    if with_text and path.suffix not in (".parquet", ".jsonl"):
        raise ConfigError(f"{path} has no place for texts. Write .parquet or .jsonl to keep them.")
    if labelled and path.suffix == ".npy":
        raise ConfigError(f"{path} has no place for ids. Write .parquet, .jsonl or .safetensors to keep them.")


def assemble(shards: Shards, width: int, dtype: np.dtype[np.generic], note: dict[str, str]) -> None:
    """Write the shards, in order, to the output, and what was wrong with lines to its side file."""
    counts = [(shard.vectors, table.schema) for shard, table in shards.tables()]
    schemas = [schema for vectors, schema in counts if vectors]
    first = schemas[0] if schemas else pa.schema([])
    labelled = IDS in first.names
    id_types = {schema.field(IDS).type for schema in schemas} if labelled else {pa.int64()}
    layout = Layout(
        width=width,
        dtype=dtype,
        vectors=sum(vectors for vectors, _ in counts),
        id_type=pa.int64() if id_types <= {pa.int64()} else pa.string(),
        with_text=TEXTS in first.names,
        note=note,
    )

    def parts() -> Iterator[Part]:
        start = 0
        for shard, table in shards.tables():
            if shard.vectors:
                column = table.column(IDS) if labelled else _plus(table.column("row"), start)
                yield Part(column.cast(layout.id_type).combine_chunks(), table)
            start += shard.rows

    _write_problems(shards, labelled)
    with atomic_file(shards.output, shards.folder) as file:
        _WRITERS[shards.output.suffix](file, layout, parts)


def problems_file(output: Path) -> Path:
    """Where lines without a vector are listed."""
    return output.with_name(f"{output.name}.bad.jsonl")


def _write_problems(shards: Shards, labelled: bool) -> None:
    path = problems_file(shards.output)
    start = 0
    with atomic_file(path, shards.folder) as file:
        for shard, _ in shards.tables():
            for problem in shard.problems:
                number = start + problem.row
                line: dict[str, Any] = {"id": problem.label if labelled else number, "row": number}
                line |= {"file": problem.file, "line": problem.line, "reason": problem.reason}
                file.write((json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))
            start += shard.rows
    if not path.stat().st_size:
        path.unlink()


def _plus(column: pa.ChunkedArray, start: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(column.to_numpy().astype(np.int64) + start)])


def _write_parquet(file: IO[bytes], layout: Layout, parts: Parts) -> None:
    fields = [(IDS, layout.id_type)]
    if layout.with_text:
        fields.append((TEXTS, pa.string()))
    fields.append((VECTORS, pa.list_(pa.from_numpy_dtype(layout.dtype), layout.width)))
    if layout.has_scale:
        fields.append((SCALES, pa.float32()))
    schema = pa.schema(fields, metadata={"s2sent": json.dumps(layout.note)})
    # Floats do not compress, and a dictionary of them would be as large as they are. Bytes parquet keeps as four bytes
    # each, unless they are places in a dictionary of all 256.
    is_bytes = layout.dtype.itemsize == 1
    options: dict[str, Any] = {
        "compression": dict.fromkeys((IDS, TEXTS), "zstd"),
        "use_dictionary": [TEXTS, *([f"{VECTORS}.list.element"] if is_bytes else ())],
    }
    with pq.ParquetWriter(file, schema, **options) as writer:
        for part in parts():
            columns = {IDS: part.ids, **{name: part.table.column(name) for name in schema.names if name != IDS}}
            writer.write_table(pa.table(columns, schema=schema))


def _write_npy(file: IO[bytes], layout: Layout, parts: Parts) -> None:
    header = {"descr": layout.dtype.str, "fortran_order": False, "shape": (layout.vectors, layout.width)}
    np.lib.format.write_array_header_1_0(file, header)
    for part in parts():
        file.write(part.vectors.tobytes())


def _write_safetensors(file: IO[bytes], layout: Layout, parts: Parts) -> None:
    if layout.id_type != pa.int64():
        raise DataError("safetensors has no place for ids that are not whole numbers. Write .parquet or .jsonl.")
    names = {"float32": "F32", "float16": "F16", "int8": "I8", "uint8": "U8"}
    tensors = {"ids": ("I64", 8, [layout.vectors])}
    if layout.has_scale:
        tensors["scales"] = ("F32", 4, [layout.vectors])
    tensors["embeddings"] = (names[layout.dtype.name], layout.dtype.itemsize, [layout.vectors, layout.width])
    header: dict[str, Any] = {"__metadata__": layout.note}
    end = 0
    for name, (kind, size, shape) in tensors.items():
        start, end = end, end + size * int(np.prod(shape))
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # tensors are aligned
    file.write(len(encoded).to_bytes(8, "little") + encoded)
    for part in parts():
        file.write(part.ids.to_numpy().tobytes())
    if layout.has_scale:
        for part in parts():
            file.write(part.table.column(SCALES).to_numpy().tobytes())
    for part in parts():
        file.write(part.vectors.tobytes())


def _write_jsonl(file: IO[bytes], layout: Layout, parts: Parts) -> None:
    number = "{:.9g}".format if layout.dtype.kind == "f" else str  # nine digits are a float32 exactly
    for part in parts():
        ids = part.ids.to_pylist()
        texts = part.table.column(TEXTS).to_pylist() if layout.with_text else None
        scales = part.table.column(SCALES).to_pylist() if layout.has_scale else None
        for place, vector in enumerate(part.vectors):
            fields = [f'"id": {json.dumps(ids[place], ensure_ascii=False)}']
            if texts is not None:
                fields.append(f'"text": {json.dumps(texts[place], ensure_ascii=False)}')
            fields.append(f'"embedding": [{", ".join(map(number, vector.tolist()))}]')
            if scales is not None:
                fields.append(f'"scale": {scales[place]:.9g}')
            file.write(("{" + ", ".join(fields) + "}\n").encode())


_WRITERS: dict[str, Callable[[IO[bytes], Layout, Parts], None]] = {
    ".parquet": _write_parquet,
    ".npy": _write_npy,
    ".safetensors": _write_safetensors,
    ".jsonl": _write_jsonl,
}
