"""Text from files: a sentence a line, or a column of a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from s2sent.errors import DataError

FORMATS = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")
_USUAL_COLUMNS = ("text", "sentence")


@dataclass(frozen=True)
class Line:
    """A line of a text file, or a row of a table: its number, from 1, and its text, or why it has none."""

    number: int
    text: str
    problem: str | None = None


def read_texts(path: Path, column: str | None = None) -> list[str]:
    """Read all texts of a file; one that cannot be used is an error that names the line.

    Args:
        path: A .txt (a text a line), .csv, .tsv, .jsonl or .parquet file.
        column: Which column or field has the text. By default the only one, or `text`, or `sentence`.
    """
    texts = []
    for line in read_lines(path, column):
        problem = line.problem or ("is empty" if not line.text.strip() else None)
        if problem:
            raise DataError(f"{path}, line {line.number} {problem}. Mend or remove the line.")
        texts.append(line.text)
    if not texts:
        raise DataError(f"{path} has no text in it.")
    return texts


def read_lines(path: Path, column: str | None = None) -> Iterator[Line]:
    """Read a file's texts one by one, with a `problem` where a line has none that can be used."""
    if path.suffix not in FORMATS:
        raise DataError(f"{path} does not end in a format that can be read. Legal: {', '.join(FORMATS)}.")
    if not path.is_file():
        raise DataError(f"{path} does not exist." if not path.exists() else f"{path} is not a file.")
    if path.suffix == ".parquet":
        yield from _read_parquet(path, column)
        return
    with path.open("rb") as file:
        if b"\0" in file.read(4096):
            raise DataError(f"{path} is not text: it has zero bytes. Save it as UTF-8.")
        file.seek(0)
        match path.suffix:
            case ".txt":
                yield from (Line(number, text, _bytes_problem(text)) for number, text in _text_lines(file))
            case ".jsonl":
                yield from _read_jsonl(path, file, column)
            case _:
                yield from _read_csv(path, file, column, delimiter="\t" if path.suffix == ".tsv" else ",")


def _text_lines(file: IO[bytes]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(_as_text(file), start=1):
        yield number, line.rstrip("\r\n")


def _as_text(file: IO[bytes]) -> io.TextIOWrapper:
    # Bytes that are not UTF-8 come through as lone surrogates, so that one bad line does not stop the reading.
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="\n")


def _bytes_problem(text: str) -> str | None:
    return None if text.isascii() or not any("\udc80" <= c <= "\udcff" for c in text) else "is not valid UTF-8"


def _read_jsonl(path: Path, file: IO[bytes], column: str | None) -> Iterator[Line]:
    for number, raw in _text_lines(file):
        if problem := _bytes_problem(raw):
            yield Line(number, "", problem)
            continue
        try:
            row = json.loads(raw)
        except ValueError:
            yield Line(number, "", "is not JSON")
            continue
        if isinstance(row, dict):
            if column is None:
                column = _choose_column(path, list(row), None)
            row = row.get(column)
        yield _line_of(number, row, column)


def _read_csv(path: Path, file: IO[bytes], column: str | None, delimiter: str) -> Iterator[Line]:
    rows = csv.reader(_as_text(file), delimiter=delimiter)
    header = next(rows, None)
    if not header:
        raise DataError(f"{path} is empty: the first line must name the columns.")
    place = header.index(_choose_column(path, header, column))
    try:
        for row in rows:
            text = row[place] if len(row) > place else ""
            problem = None if len(row) == len(header) else f"has {len(row)} columns instead of {len(header)}"
            yield Line(rows.line_num, text, problem or _bytes_problem(text))
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num} cannot be read as csv ({error}).") from error


def _read_parquet(path: Path, column: str | None) -> Iterator[Line]:
    try:
        table = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet ({str(error).splitlines()[0]}).") from error
    column = _choose_column(path, table.schema_arrow.names, column)
    number = 0
    for batch in table.iter_batches(columns=[column], batch_size=8192):
        for value in batch.column(0).to_pylist():
            number += 1
            yield _line_of(number, value, column)


def _line_of(number: int, value: Any, column: str | None) -> Line:
    if isinstance(value, str):
        return Line(number, value)
    place = f" in {column!r}" if column else ""
    return Line(
        number, "", f"has no text{place}" if value is None else f"has a {type(value).__name__}{place}, not text"
    )


def _choose_column(path: Path, columns: list[str], column: str | None) -> str:
    if column is not None and column in columns:
        return column
    listed = ", ".join(columns)
    if column is not None:
        raise DataError(f"{path} has no column {column!r}. It has: {listed}.")
    if len(columns) == 1:
        return columns[0]
    for usual in _USUAL_COLUMNS:
        if usual in columns:
            return usual
    raise DataError(f"{path} has several columns ({listed}). Say which one has the text.")
