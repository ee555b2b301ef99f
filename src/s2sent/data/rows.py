"""The rows of text files, tables and datasets of the hub: their texts, their numbers, and what is wrong with one.

Every reader of examples starts here. A row that cannot be used does not stop the reading: it has a `problem`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from s2sent.errors import DataError
from s2sent.untrusted import exists, is_folder, lone_surrogate, open_file, shown

FORMATS = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")
COMPRESSIONS = (".gz", ".zst")
LONGEST_LINE = 1_000_000
"""In characters. The rest of a longer line is skipped, so that it cannot fill the memory."""
_USUAL_COLUMNS = ("text", "sentence")
_FIRST_ROWS = 100
"""Rows of a jsonl file that tell which fields there are."""

Label = str | int
"""A row's own id."""
Source = str | Path
"""A file, or as `str` also the id of a dataset on the hub."""


@dataclass(frozen=True)
class Row:
    """A row.

    Attributes:
        number: Its line or row number, from 1.
        texts: One text per column.
        problem: Why it cannot be used, to follow "line 3 …"; None if it can.
        label: The value of the label column.
    """

    number: int
    texts: tuple[str, ...]
    problem: str | None = None
    label: Label | None = None


@dataclass(frozen=True)
class _Table:
    """An opened source.

    Attributes:
        names: Its columns; None if it has none.
        read: Gives, for some columns, the number and the values of each row, or a problem instead of values.
        only_text: The one column that has text, if that is known.
    """

    names: list[str] | None
    read: Callable[[list[str]], Iterator[tuple[int, list[Any] | str]]]
    only_text: str | None = None


def read_rows(
    source: Source,
    columns: Sequence[str] | None = None,
    *,
    label: str | None = None,
    numbers: Sequence[str] = (),
    file: IO[bytes] | None = None,
) -> Iterator[Row]:
    """Read the texts of one or several columns, row by row.

    Args:
        source: A .txt (a text a line), .csv, .tsv, .jsonl or .parquet file; also .gz or .zst of these, except of
            parquet; or the id of a dataset on the hub.
        columns: The columns; by default the only one, or `text`, or `sentence`.
        label: A column with a text or a whole number, which becomes the row's label.
        numbers: Those of the columns that may have numbers, which are returned as text.
        file: What to read instead of opening `source`, which then only gives its name and format.

    Raises:
        DataError: the source cannot be read, or does not have the columns.
    """
    with ExitStack() as stack:
        table = stack.enter_context(_open(source, file))
        if table.names is None:
            if named := [*(columns or ()), *([label] if label else ())]:
                raise DataError(f"{source} has a text a line and no columns, but {', '.join(named)} was given.")
            chosen = wanted = [""]
        elif not table.names:  # an empty dataset
            return
        else:
            chosen = [_choose_column(source, table.names, column) for column in columns or (table.only_text,)]
            wanted = chosen if label is None else [*chosen, _choose_column(source, table.names, label)]
        for number, values in table.read(wanted):
            yield _row(number, values, chosen, label, numbers)


def column_names(source: Source) -> list[str] | None:
    """Return the names of a source's columns; None for plain lines, which have none."""
    with _open(source, None) as table:
        return table.names


def is_file_name(source: str) -> bool:
    """Whether a source is a file, existing or not, and not the id of a dataset on the hub."""
    path = Path(source)
    if exists(path) or path.suffix in (*FORMATS, *COMPRESSIONS):
        return True
    return source.startswith((".", "/", "~")) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source)


def format_of(path: Path) -> str:
    """Return which of `FORMATS` a file has, by its ending, below the ending of a compression if there is one."""
    kind = path.with_suffix("").suffix if path.suffix in COMPRESSIONS else path.suffix
    if kind not in FORMATS or (kind == ".parquet" and kind != path.suffix):
        raise DataError(
            f"{path} does not end in a format that can be read. Legal: {', '.join(FORMATS)}, and "
            f"{' or '.join(COMPRESSIONS)} of these (parquet is compressed already)."
        )
    return kind


@contextmanager
def _open(source: Source, file: IO[bytes] | None) -> Iterator[_Table]:
    if isinstance(source, str) and not is_file_name(source):
        yield _hub_table(source)
        return
    path = Path(source)
    if file is None and is_folder(path):
        raise DataError(f"{source} is a folder, not a file. Give its files, such as {path / '*.txt'}.")
    kind = format_of(path)
    with ExitStack() as stack:
        opened = file or stack.enter_context(open_file(path))
        if kind == ".parquet":
            yield _parquet_table(path, opened)
            return
        try:
            content = _uncompressed(path, opened)
            if _is_binary(content.peek(4096)[:4096]):
                raise DataError(f"{path} is not text: it has zero bytes. Save it as UTF-8.")
            match kind:
                case ".txt":
                    yield _Table(None, lambda _: ((number, [text]) for number, text in _text_lines(content)))
                case ".jsonl":
                    yield _jsonl_table(content)
                case _:
                    yield _csv_table(path, content, "\t" if kind == ".tsv" else ",")
        except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
            raise DataError(
                f"{path} cannot be read to its end ({shown(str(error))}): it is damaged or cut short."
            ) from error


def _uncompressed(path: Path, file: IO[bytes]) -> io.BufferedReader:
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
    """Whether a file's first bytes are not text: a single zero byte is one bad line, one in ten is UTF-16."""
    lost = sum("\udc80" <= c <= "\udcff" for c in start.decode("utf-8", "surrogateescape"))
    return 0 in start and (start.count(0) + lost) * 10 > len(start)


def _jsonl_table(file: IO[bytes]) -> _Table:
    rows = _json_rows(file)
    first = list(islice(rows, _FIRST_ROWS))  # a single odd row must not decide which fields there are
    names = list(dict.fromkeys(name for _, row in first if isinstance(row, dict) for name in row))

    def read(wanted: list[str]) -> Iterator[tuple[int, list[Any] | str]]:
        for number, row in chain(first, rows):
            if isinstance(row, _Problem):
                yield number, str(row)
            elif isinstance(row, dict):
                yield number, [row.get(name) for name in wanted]
            else:  # a text without a field's name
                yield number, [row, *[None] * (len(wanted) - 1)]

    return _Table(names or None, read)


class _Problem(str):
    """Why a line has no value."""


def _json_rows(file: IO[bytes]) -> Iterator[tuple[int, Any]]:
    for number, raw in _text_lines(file):
        problem = _text_problem(raw)
        if problem is None:
            try:
                yield number, json.loads(raw)
                continue
            except (ValueError, RecursionError):
                problem = "is not JSON" if raw.strip() else "is empty"
                problem = f"is longer than {LONGEST_LINE:,} characters" if len(raw) >= LONGEST_LINE else problem
        yield number, _Problem(problem)


def _csv_table(path: Path, file: IO[bytes], delimiter: str) -> _Table:
    # Tab-separated text is not quoted: a quotation mark there is a quotation mark. In csv a quote that is never closed
    # would contain the rest of the file, so it is an error.
    quoting: Literal[0, 3] = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    # Well above the longest line, so that a text that is too long is one bad line.
    csv.field_size_limit(max(16 * LONGEST_LINE, csv.field_size_limit()))
    rows = csv.reader(_as_text(file), delimiter=delimiter, quoting=quoting, strict=True)

    def following() -> list[str] | None:
        try:
            return next(rows, None)
        except csv.Error as error:
            raise DataError(
                f"{path}, line {rows.line_num} cannot be read as csv ({shown(str(error))}). Correct its quotes."
            ) from error

    header = following() or []
    if not header:
        raise DataError(f"{path} is empty: the first line must name the columns.")

    def read(wanted: list[str]) -> Iterator[tuple[int, list[Any] | str]]:
        places = [header.index(name) for name in wanted]
        while (row := following()) is not None:
            if len(row) == len(header):
                yield rows.line_num, [row[place] for place in places]
            else:
                yield rows.line_num, f"has {len(row)} columns instead of {len(header)}" if row else "is empty"

    return _Table(header, read)


def _parquet_table(path: Path, file: IO[bytes]) -> _Table:
    number = 0

    def failed(error: Exception) -> DataError:
        where = f" after row {number}" if number else ""
        return DataError(f"{path} cannot be read as parquet{where} ({shown(str(error))}).")

    def read(wanted: list[str]) -> Iterator[tuple[int, list[Any] | str]]:
        nonlocal number
        try:
            for batch in table.iter_batches(columns=list(dict.fromkeys(wanted)), batch_size=8192):
                for values in zip(*(_arrow_values(batch.column(name)) for name in wanted), strict=True):
                    number += 1
                    yield number, list(values)
        except (pa.ArrowException, OSError) as error:
            raise failed(error) from error

    try:
        table = pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)  # or a whole row group is in memory
        return _Table(table.schema_arrow.names, read)
    except (pa.ArrowException, OSError) as error:
        raise failed(error) from error


def _arrow_values(column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:  # some writers do not check their strings
        values = column.cast(pa.large_binary()).to_pylist()
        values = [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]
    return values


def _hub_table(source: str) -> _Table:
    """Stream the `train` split of a dataset on the hub."""
    from datasets import load_dataset

    try:
        rows: Iterable[dict[str, Any]] = load_dataset(source, split="train", streaming=True)
    except Exception as error:  # the hub's client raises a dozen unrelated types
        raise DataError(
            f"{source!r} is neither a file nor a dataset with a train split that could be fetched from the hub "
            f"({type(error).__name__}: {' '.join(str(error).split())}). Check the path; for a dataset, its id and the "
            "connection."
        ) from error
    remaining = iter(rows)
    first = list(islice(remaining, 1))

    def read(wanted: list[str]) -> Iterator[tuple[int, list[Any] | str]]:
        for number, row in enumerate(chain(first, remaining), start=1):
            yield number, [row.get(name) for name in wanted]

    texts = [name for row in first for name, value in row.items() if isinstance(value, str)]
    return _Table([name for row in first for name in row], read, texts[0] if len(texts) == 1 else None)


def _row(number: int, values: list[Any] | str, columns: list[str], label: str | None, numbers: Sequence[str]) -> Row:
    """Make a row of values that can be anything; one without a text, or without its label, has a problem."""
    if isinstance(values, str):
        return Row(number, (), values)
    name = None if label is None else values[-1]
    if label is not None and (isinstance(name, bool) or not isinstance(name, str | int)):
        return Row(number, (), f"has no {label!r}" if name is None else f"has {_kind(name)} in {label!r}, not a label")
    texts: list[str] = []
    for column, value in zip(columns, values, strict=False):  # of which the last may be the label
        if column in numbers and isinstance(value, int | float) and not isinstance(value, bool):
            value = repr(value)
        if not isinstance(value, str):
            where = f" in {column!r}" if column else ""
            problem = f"has no text{where}" if value is None else f"has {_kind(value)}{where}, not text"
            return Row(number, (), problem, name)
        texts.append(value)
    checked = [*texts, name] if isinstance(name, str) else texts
    return Row(number, tuple(texts), next(filter(None, map(_text_problem, checked)), None), name)


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _text_problem(text: str) -> str | None:
    lone = lone_surrogate(text)
    if lone is None:
        return None
    # Bytes that are not UTF-8 come as these; JSON can have any half of a pair.
    return "is not valid UTF-8" if "\udc80" <= lone <= "\udcff" else "has half a surrogate pair, which is no character"


def _choose_column(source: Source, columns: list[str], column: str | None) -> str:
    listed = shown(", ".join(columns))
    if column is None:
        usual = columns if len(columns) == 1 else [name for name in _USUAL_COLUMNS if name in columns]
        if not usual:
            raise DataError(
                f"{source} has several columns ({listed}). Name the one with the text: --column in encode, --columns "
                "elsewhere."
            )
        column = usual[0]
    if column not in columns:
        raise DataError(f"{source} has no column {column!r}. It has: {listed}. Name one of these.")
    if columns.count(column) > 1:
        raise DataError(f"{source} has {columns.count(column)} columns named {column!r}. Rename or remove the others.")
    return column
