"""From parts to one file of vectors, a part at a time: memory does not grow with the file."""

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
from s2sent.errors import ConfigError
from s2sent.untrusted import is_folder, shown
from s2sent.vectors.parts import Parts

_LONGEST_NAME = 200
"""Bytes. File systems take 255, and files beside the output have longer names than it."""


@dataclass(frozen=True)
class Layout:
    """What an output has.

    Attributes:
        parts: The parts it is made of.
        width: Values to a vector.
        dtype: Of these values.
        note: How the vectors were made, for formats that have a place for it.
        has_ids: Whether rows have ids of their own; otherwise they are counted.
        with_text: Whether texts are kept.
    """

    parts: Parts
    width: int
    dtype: np.dtype[np.generic]
    note: dict[str, str]
    has_ids: bool
    with_text: bool

    @property
    def has_scale(self) -> bool:
        """Whether each vector has a scale of its own."""
        return self.dtype == np.int8

    @property
    def vectors(self) -> int:
        """How many vectors there are."""
        return sum(part.vectors for part, _ in self.parts.tables())

    @property
    def id_type(self) -> pa.DataType:
        """`int64`, or `string` if any part has texts for ids."""
        types = {table.schema.field("id").type for part, table in self.parts.tables() if self.has_ids and part.vectors}
        return pa.string() if pa.string() in types else pa.int64()

    def tables(self) -> Iterator[pa.Table]:
        """Read the rows with a vector, a part at a time: `id`, `embedding`, and maybe `text` and `scale`.

        Formats that keep ids and vectors apart read them twice.
        """
        start, id_type = 0, self.id_type
        for part, table in self.parts.tables():
            if part.vectors:
                good = table.column("problem").is_null().to_numpy()
                kept = table if good.all() else table.filter(pa.array(good))
                ids = kept.column("id").cast(id_type) if self.has_ids else pa.array(start + np.flatnonzero(good))
                names = ["embedding", *(["text"] if self.with_text else ()), *(["scale"] if self.has_scale else ())]
                yield pa.table({"id": ids, **{name: kept.column(name) for name in names}})
            start += part.rows


def check_output(path: Path, *, has_ids: bool, with_text: bool) -> None:
    """Raise unless what is asked for can be written to this path."""
    if path.suffix not in _WRITERS:
        raise ConfigError(f"{path} must end in a format for vectors: {', '.join(_WRITERS)}.")
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise ConfigError(f"The name {shown(path.name)} is too long for a file. Choose a shorter one.")
    if is_folder(path):
        raise ConfigError(f"{path} is a folder. Give the name of a file in it.")
    if with_text and path.suffix not in (".parquet", ".jsonl"):
        raise ConfigError(f"{path} has no place for texts. Write .parquet or .jsonl to keep them.")
    if has_ids and path.suffix == ".npy":
        raise ConfigError(f"{path} has no place for ids. Write .parquet, .jsonl or .safetensors to keep them.")


def write_output(layout: Layout, path: Path) -> None:
    """Write the vectors in the format of the output, and list rows without one beside it."""
    write_problems(layout)
    with atomic_file(path) as file:
        _WRITERS[layout.parts.output.suffix](file, layout)


def problems_file(output: Path) -> Path:
    """Where lines without a vector are listed."""
    return output.with_name(f"{output.name}.bad.jsonl")


def write_problems(layout: Layout) -> None:
    """List the rows without a vector; no file if there are none."""
    path, start = problems_file(layout.parts.output), 0
    with atomic_file(path, layout.parts.folder) as file:
        for part, table in layout.parts.tables():
            reasons = table.column("problem").to_pylist() if part.vectors < part.rows else []
            for row, text in enumerate(reasons, start):
                if text is not None:
                    problem = json.loads(text)
                    label = problem.pop("id")
                    line = {"id": label if layout.has_ids else row, "row": row, **problem}
                    file.write((json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))
            start += part.rows
    if not path.stat().st_size:
        path.unlink()


def _array(table: pa.Table) -> NDArray[np.generic]:
    """The vectors of a table, (b, width)."""
    column = table.column("embedding").combine_chunks()
    values: NDArray[np.generic] = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(column), -1)


def _write_parquet(file: IO[bytes], layout: Layout) -> None:
    fields = [("id", layout.id_type)]
    if layout.with_text:
        fields.append(("text", pa.string()))
    fields.append(("embedding", pa.list_(pa.from_numpy_dtype(layout.dtype), layout.width)))
    if layout.has_scale:
        fields.append(("scale", pa.float32()))
    schema = pa.schema(fields, metadata={"s2sent": json.dumps(layout.note)})
    # Floats do not compress, and a dictionary of them would be as large as they are. Bytes parquet keeps as four bytes
    # each, unless they are places in a dictionary of all 256.
    is_bytes = layout.dtype.itemsize == 1
    options: dict[str, Any] = {
        "compression": dict.fromkeys(("id", "text"), "zstd"),
        "use_dictionary": ["text", *(["embedding.list.element"] if is_bytes else ())],
    }
    with pq.ParquetWriter(file, schema, **options) as writer:
        for table in layout.tables():
            writer.write_table(pa.table({name: table.column(name) for name in schema.names}, schema=schema))


def _write_npy(file: IO[bytes], layout: Layout) -> None:
    header = {"descr": layout.dtype.str, "fortran_order": False, "shape": (layout.vectors, layout.width)}
    np.lib.format.write_array_header_1_0(file, header)
    for table in layout.tables():
        file.write(_array(table).tobytes())


def _write_safetensors(file: IO[bytes], layout: Layout) -> None:
    names = {"float32": "F32", "float16": "F16", "int8": "I8", "uint8": "U8"}
    vectors = layout.vectors
    tensors = {"ids": ("I64", 8, [vectors])}
    if layout.has_scale:
        tensors["scales"] = ("F32", 4, [vectors])
    tensors["embeddings"] = (names[layout.dtype.name], layout.dtype.itemsize, [vectors, layout.width])
    header: dict[str, Any] = {"__metadata__": layout.note}
    end = 0
    for name, (kind, size, shape) in tensors.items():
        start, end = end, end + size * int(np.prod(shape))
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # tensors are aligned
    file.write(len(encoded).to_bytes(8, "little") + encoded)
    for column in ("id", "scale") if layout.has_scale else ("id",):
        for table in layout.tables():
            file.write(table.column(column).to_numpy().tobytes())
    for table in layout.tables():
        file.write(_array(table).tobytes())


def _write_jsonl(file: IO[bytes], layout: Layout) -> None:
    number = "{:.9g}".format if layout.dtype.kind == "f" else str  # nine digits are a float32 exactly
    for table in layout.tables():
        others = table.drop_columns(["embedding"]).to_pylist()
        for row, vector in zip(others, _array(table), strict=True):
            fields = [
                f'"{name}": {json.dumps(row[name], ensure_ascii=False)}' for name in ("id", "text") if name in row
            ]
            fields.append(f'"embedding": [{", ".join(map(number, vector.tolist()))}]')
            if "scale" in row:
                fields.append(f'"scale": {row["scale"]:.9g}')
            file.write(("{" + ", ".join(fields) + "}\n").encode())


_WRITERS: dict[str, Callable[[IO[bytes], Layout], None]] = {
    ".parquet": _write_parquet,
    ".npy": _write_npy,
    ".safetensors": _write_safetensors,
    ".jsonl": _write_jsonl,
}
