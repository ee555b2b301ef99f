"""Text from files: a sentence a line, or a column of a table."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from s2sent.errors import DataError
from s2sent.untrusted import lone_surrogate, open_file, shown

FORMATS = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")
COMPRESSIONS = (".gz", ".zst")
LONGEST_LINE = 1_000_000
"""In characters. What is longer is no line of text, and must not fill the memory: the rest of it is skipped."""
_USUAL_COLUMNS = ("text", "sentence")
_LOOKED_AT = 100
"""Lines of a jsonl file that tell which fields there are."""


def read_texts(path: Path, column: str | None = None) -> list[str]:
    """Read all texts of a file; one that cannot be used is an error that names the line.

    Args:
        path: A .txt (a text a line), .csv, .tsv, .jsonl or .parquet file; also .gz or .zst of these, but of parquet.
        column: Which column or field has the text. By default the only one, or `text`, or `sentence`.
    """
    texts = []
    for row in read_rows(path, None if column is None else (column,)):
        problem = row.problem or ("is empty" if not row.texts[0].strip() else None)
        if problem:
            raise DataError(f"{path}, line {row.number} {problem}. Mend or remove the line.")
        texts.append(row.texts[0])
    if not texts:
        raise DataError(f"{path} has no text in it.")
    return texts


Label = str | int
"""What somebody calls a row: a key of their own."""


@dataclass(frozen=True)
class Row:
    """A line of a text file, or a row of a table: its number, from 1, and its texts, or why it has none."""

    number: int
    texts: tuple[str, ...]
    problem: str | None = None
    label: Label | None = None


def read_rows(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    label: str | None = None,
    file: IO[bytes] | None = None,
    numbers: Sequence[str] = (),
) -> Iterator[Row]:
    """Read the texts of one column, or of several at once, row by row.

    Args:
        path: As of `read_texts`.
        columns: The columns; None is the one that has the text, as `read_texts` finds it.
        label: A column with a text or a whole number that comes along as the row's label.
        file: What to read instead of opening `path`, which then only names it and tells its format.
        numbers: Those of the columns that may have numbers, which come as text.
    """
    kind = format_of(path)
    if file is not None:
        yield from _read_file(path, file, kind, columns, label, numbers)
        return
    with open_file(path) as opened:
        yield from _read_file(path, opened, kind, columns, label, numbers)


def _read_file(
    path: Path,
    file: IO[bytes],
    kind: str,
    columns: Sequence[str] | None,
    label: str | None,
    numbers: Sequence[str] = (),
) -> Iterator[Row]:
    if kind == ".parquet":
        yield from _read_parquet(path, file, columns, label, numbers)
        return
    try:
        content = _uncompressed(path, file)
        if _is_binary(content.peek(4096)[:4096]):
            raise DataError(f"{path} is not text: it has zero bytes. Save it as UTF-8.")
        match kind:
            case ".txt":
                if named := [*(columns or ()), *([label] if label else ())]:
                    raise DataError(f"{path} has a text a line and no columns, but {', '.join(named)} was given.")
                yield from (Row(number, (text,), _bytes_problem(text)) for number, text in _text_lines(content))
            case ".jsonl":
                yield from _read_jsonl(path, content, columns, label, numbers)
            case _:
                yield from _read_csv(path, content, columns, label, delimiter="\t" if kind == ".tsv" else ",")
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise DataError(
            f"{path} cannot be read to its end ({shown(str(error))}): it is damaged or cut short."
        ) from error


def column_names(path: Path) -> list[str] | None:
    """Return the names of a table's columns; None for plain lines, which have none."""
    kind = format_of(path)
    if kind == ".txt":
        return None
    with open_file(path) as file:
        try:
            if kind == ".parquet":
                return list(pq.read_schema(file).names)
            content = _uncompressed(path, file)
            if kind == ".jsonl":
                rows = [row for _, row in islice(_json_rows(content), _LOOKED_AT)]
                return list(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row)) or None
            return next(csv.reader(_as_text(content), delimiter="\t" if kind == ".tsv" else ","), [])
        except (OSError, EOFError, zlib.error, csv.Error, pa.ArrowException) as error:
            raise DataError(f"{path} cannot be read ({error}): it is damaged or cut short.") from error


def format_of(path: Path) -> str:
    """Return which of `FORMATS` a file has, by its ending, under a compression's ending if there is one."""
    kind = path.with_suffix("").suffix if path.suffix in COMPRESSIONS else path.suffix
    if kind not in FORMATS or (kind == ".parquet" and kind != path.suffix):
        raise DataError(
            f"{path} does not end in a format that can be read. Legal: {', '.join(FORMATS)}, and "
            f"{' or '.join(COMPRESSIONS)} of these (parquet is compressed already)."
        )
    return kind


def _uncompressed(path: Path, file: IO[bytes]) -> io.BufferedReader:
    """Read through the compression that the path's ending tells of."""
    if path.suffix == ".gz":
        return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=file)))
    if path.suffix == ".zst":
        return io.BufferedReader(pa.input_stream(file, compression="zstd"))
    return file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, file))


def _text_lines(file: IO[bytes]) -> Iterator[tuple[int, str]]:
    text, number = _as_text(file), 0
    while line := text.readline(LONGEST_LINE):
        number += 1
        yield number, line.rstrip("\r\n")
        while not line.endswith("\n") and (line := text.readline(LONGEST_LINE)):
            pass


def _as_text(file: IO[bytes]) -> io.TextIOWrapper:
    # Bytes that are not UTF-8 come through as lone surrogates, so that one bad line does not stop the reading.
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="\n")


def _is_binary(start: bytes) -> bool:
    """Whether a file's first bytes are no text at all: a stray zero byte is one bad line, but one in ten is UTF-16."""
    lost = sum("\udc80" <= c <= "\udcff" for c in start.decode("utf-8", "surrogateescape"))
    return 0 in start and (start.count(0) + lost) * 10 > len(start)


def _bytes_problem(text: str) -> str | None:
    lone = lone_surrogate(text)
    if lone is None:
        return None
    # Bytes that are not UTF-8 come as these; JSON can write any half of a pair.
    return "is not valid UTF-8" if "\udc80" <= lone <= "\udcff" else "has half a surrogate pair, which is no character"


def _read_jsonl(
    path: Path, file: IO[bytes], columns: Sequence[str] | None, label: str | None, numbers: Sequence[str] = ()
) -> Iterator[Row]:
    rows = _json_rows(file)
    # One odd line, were it the first, must not decide which fields there are.
    first = list(islice(rows, _LOOKED_AT))
    names = list(dict.fromkeys(name for _, row in first if isinstance(row, dict) for name in row))
    if names:
        columns = [_choose_column(path, names, column) for column in columns or (None,)]
        if label is not None:
            _choose_column(path, names, label)
    for number, row in chain(first, rows):
        if isinstance(row, Row):
            yield row
        elif isinstance(row, dict) and columns is not None:
            yield row_of(number, [row.get(column) for column in columns], columns, row, label, numbers)
        else:
            yield row_of(number, [row], None, {}, label)


def _json_rows(file: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """What each line holds: any value of JSON, or a `Row` that says why there is none."""
    for number, raw in _text_lines(file):
        problem = _bytes_problem(raw)
        if problem is None:
            try:
                yield number, json.loads(raw)
                continue
            except (ValueError, RecursionError):
                problem = "is not JSON" if raw.strip() else "is empty"
                problem = f"is longer than {LONGEST_LINE:,} characters" if len(raw) >= LONGEST_LINE else problem
        yield number, Row(number, (), problem)


def _read_csv(
    path: Path, file: IO[bytes], columns: Sequence[str] | None, label: str | None, delimiter: str
) -> Iterator[Row]:
    # Tab-separated text is not quoted: a quotation mark there is a quotation mark. In csv a quote that is never closed
    # would swallow the rest of the file, so it is an error.
    quoting: Literal[0, 3] = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    # Some way beyond the longest line, so that a text that is too long is one bad line.
    csv.field_size_limit(max(16 * LONGEST_LINE, csv.field_size_limit()))
    rows = csv.reader(_as_text(file), delimiter=delimiter, quoting=quoting, strict=True)
    try:
        header = next(rows, None)
        if not header:
            raise DataError(f"{path} is empty: the first line must name the columns.")
        places = [header.index(_choose_column(path, header, column)) for column in columns or (None,)]
        key = None if label is None else header.index(_choose_column(path, header, label))
        for row in rows:
            if not row:
                yield Row(rows.line_num, (), "is empty")
                continue
            texts = tuple(row[place] if len(row) > place else "" for place in places)
            name = row[key] if key is not None and len(row) > key else None
            problem = None if len(row) == len(header) else f"has {len(row)} columns instead of {len(header)}"
            problem = problem or next(filter(None, map(_bytes_problem, (*texts, name or ""))), None)
            yield Row(rows.line_num, texts, problem, name)
    except csv.Error as error:
        raise DataError(
            f"{path}, line {rows.line_num} cannot be read as csv ({shown(str(error))}). Mend its quotes."
        ) from error


def _read_parquet(
    path: Path, file: IO[bytes], columns: Sequence[str] | None, label: str | None, numbers: Sequence[str] = ()
) -> Iterator[Row]:
    number = 0
    try:
        table = pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)  # or a whole row group is in memory
        chosen = [_choose_column(path, table.schema_arrow.names, column) for column in columns or (None,)]
        wanted = chosen if label is None else [*chosen, _choose_column(path, table.schema_arrow.names, label)]
        for batch in table.iter_batches(columns=list(dict.fromkeys(wanted)), batch_size=8192):
            for values in zip(*(_values(batch.column(name)) for name in wanted), strict=True):
                number += 1
                yield row_of(number, values[: len(chosen)], chosen, {label: values[-1]}, label, numbers)
    except (pa.ArrowException, OSError) as error:
        where = f" beyond row {number}" if number else ""
        raise DataError(f"{path} cannot be read as parquet{where} ({shown(str(error))}).") from error


def _values(column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:  # some writers do not look at what they call a string
        values = column.cast(pa.large_binary()).to_pylist()
        values = [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]
    return values


def row_of(
    number: int,
    values: Sequence[Any],
    columns: Sequence[str] | None,
    row: Mapping[Any, Any] | None = None,
    label: str | None = None,
    numbers: Sequence[str] = (),
) -> Row:
    """A row of a table whose values can be anything: a row without a text, or without its label, has a problem."""
    name = row.get(label) if row is not None and label is not None else None
    if label is not None and (isinstance(name, bool) or not isinstance(name, str | int)):
        missing = f"has no {label!r}"
        return Row(number, (), missing if name is None else f"has a {type(name).__name__} in {label!r}, not a label")
    if columns and numbers:
        values = [
            repr(value) if name in numbers and isinstance(value, int | float) and not isinstance(value, bool) else value
            for name, value in zip(columns, values, strict=True)
        ]
    for place, value in enumerate(values):
        where = f" in {columns[place]!r}" if columns else ""
        if not isinstance(value, str):
            what = f"has no text{where}" if value is None else f"has a {type(value).__name__}{where}, not text"
            return Row(number, (), what, name)
    return Row(number, tuple(values), next(filter(None, map(_bytes_problem, values)), None), name)


def _choose_column(path: Path, columns: list[str], column: str | None) -> str:
    if column is None:
        usual = columns if len(columns) == 1 else [name for name in _USUAL_COLUMNS if name in columns]
        if not usual:
            raise DataError(
                f"{path} has several columns ({_listed(columns)}). Name the one with "
                "the text: --column in encode, --columns elsewhere."
            )
        column = usual[0]
    if column not in columns:
        raise DataError(f"{path} has no column {column!r}. It has: {_listed(columns)}. Name the one that is meant.")
    if columns.count(column) > 1:
        raise DataError(f"{path} has {columns.count(column)} columns named {column!r}. Rename or remove the others.")
    return column


def _listed(columns: list[str]) -> str:
    return shown(", ".join(columns))
