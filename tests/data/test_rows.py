from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sent.data.rows import LONGEST_LINE, read_rows
from s2sent.errors import DataError

TEXTS = [
    "A plain one.",
    'He said: "no, never"',
    "tab\tand, comma",
    "naïve 東京 Ω",
    "line separator \u2028 and \x85 inside",
]


def texts_of(path: Path, *columns: str) -> list[str]:
    rows = list(read_rows(path, columns))
    assert all(row.problem is None for row in rows)
    return [row.texts[0] for row in rows]


def write(path: Path, texts: list[str]) -> Path:
    match path.suffix:
        case ".txt":
            path.write_text("\n".join(texts) + "\n", encoding="utf-8", newline="")
        case ".jsonl":
            path.write_text("".join(json.dumps({"id": 1, "text": t}) + "\n" for t in texts), encoding="utf-8")
        case ".parquet":
            pq.write_table(pa.table({"id": list(range(len(texts))), "text": texts}), path)
        case _:
            quote = "{}".format if path.suffix == ".tsv" else '"{}"'.format
            separator = "\t" if path.suffix == ".tsv" else ","
            doubled = '"' if path.suffix == ".tsv" else '""'  # a quote inside quotes is written twice
            rows = [separator.join(("1", quote(t.replace('"', doubled)))) for t in texts]
            path.write_text(f"id{separator}text\n" + "\n".join(rows) + "\n", encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("ending", [".txt", ".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_gives_the_same_texts(tmp_path: Path, ending: str) -> None:
    texts = [text for text in TEXTS if ending != ".tsv" or "\t" not in text]
    assert texts_of(write(tmp_path / f"a{ending}", texts)) == texts


def test_windows_line_ends_and_byte_order_mark_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nlast without an end")
    assert texts_of(path) == ["one", "two", "last without an end"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1))
def test_jsonl_brings_back_any_text(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = write(tmp_path_factory.mktemp("t") / "a.jsonl", texts)
    assert [row.texts[0] for row in read_rows(path)] == texts


def test_a_bad_line_is_named_and_does_not_stop_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\nb\xe4d\ngood again\n")
    rows = list(read_rows(path))
    assert [(row.number, row.problem) for row in rows] == [(1, None), (2, "is not valid UTF-8"), (3, None)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"GIF89a\0\0", "not text"),
        ("a.doc", b"x", r"Legal: \.txt"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b'text\n"never closed\nabc\n', "line 3 cannot be read as csv"),
        ("a.csv", b"a,b\n1,2\n", r"several columns \(a, b\)"),
        ("a.parquet", b"PAR1 but not really", "cannot be read as parquet"),
    ],
)
def test_bad_files_say_what_is_wrong_and_where(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        list(read_rows(path))
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": 3}\n', (2, "has a value of type int in 'text', not text")),
        ("a.jsonl", b'{"text": "x"}\n{"other": "y"}\n', (2, "has no text in 'text'")),
        ("a.jsonl", b'{"text": "x"}\n{"text"', (2, "is not JSON")),
        ("a.jsonl", b'{"text": "x"}\n\n', (2, "is empty")),
        ("a.csv", b"id,text\n1,x\n2\n", (3, "has 1 columns instead of 2")),
        ("a.csv", b"id,text\n1,x\n\n", (3, "is empty")),
    ],
)
def test_bad_rows_say_what_is_wrong(tmp_path: Path, name: str, content: bytes, problem: tuple[int, str]) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    good, bad = read_rows(path, ("text",))
    assert (good.texts, good.problem) == (("x",), None)
    assert (bad.number, bad.problem) == problem


def test_a_missing_file_and_a_missing_column_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt does not exist"):
        texts_of(tmp_path / "none.txt")
    with pytest.raises(DataError, match=r"no column 'body'. It has: id, text"):
        texts_of(write(tmp_path / "a.csv", TEXTS), "body")


@pytest.mark.parametrize("columns", [{"sentence": ["x"], "id": [1]}, {"body": ["x"]}])
def test_the_usual_or_only_column_needs_no_name(tmp_path: Path, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert texts_of(tmp_path / "a.parquet") == ["x"]


@pytest.mark.data
def test_real_text_is_read_line_by_line(data_folder: Path) -> None:
    lines = list(read_rows(data_folder / "wiki1m_for_simcse_head.txt"))
    assert len(lines) == 11_914
    raw = (data_folder / "wiki1m_for_simcse_head.txt").read_bytes().decode().split("\n")
    assert [line.texts[0] for line in lines] == raw[: len(lines)]


def test_one_odd_line_of_jsonl_does_not_decide_for_all(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": "1"}\n{"id": "2", "text": "two"}\n')
    for column in (None, ("text",)):
        rows = list(read_rows(path, column, label="id"))
        assert [(row.texts, row.problem) for row in rows] == [((), "has no text in 'text'"), (("two",), None)]
    with pytest.raises(DataError, match="no column 'key'"):
        list(read_rows(path, label="key"))


def test_text_in_parquet_that_is_not_utf8_is_one_bad_line(tmp_path: Path) -> None:
    raw = pa.array([b"good", b"b\xffd", None], pa.binary())
    strings = pa.StringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])
    pq.write_table(pa.table({"text": strings}), tmp_path / "in.parquet")
    problems = [row.problem for row in read_rows(tmp_path / "in.parquet")]
    assert problems == [None, "is not valid UTF-8", "has no text in 'text'"]


def test_a_text_that_is_too_long_is_one_bad_line(tmp_path: Path) -> None:
    long = "x" * (LONGEST_LINE + 5)
    (tmp_path / "in.csv").write_text(f"text\nshort\n{long}\nlast\n")
    assert [len(row.texts[0]) for row in read_rows(tmp_path / "in.csv")] == [5, len(long), 4]
    (tmp_path / "in.jsonl").write_text(f'{{"text": "short"}}\n{{"text": "{long}"}}\n')
    assert [row.problem for row in read_rows(tmp_path / "in.jsonl")] == [None, "is longer than 1,000,000 characters"]
