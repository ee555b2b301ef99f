from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s2sent.errors import ConfigError, DataError
from s2sent.vectors.sources import Source, Window

ROWS = [(f"key {n}", f"Text {n}, with a comma and ünïcode.") for n in range(10)]


def write(path: Path, rows: list[tuple[str, str]] = ROWS) -> Path:
    name = path.name
    content = io.StringIO()
    if ".txt" in name:
        content.writelines(text + "\n" for _, text in rows)
    elif ".tsv" in name:
        content.writelines(f"{key}\t{text}\n" for key, text in [("key", "text"), *rows])
    elif ".csv" in name:
        content.writelines(f'"{key}","{text}"\n' for key, text in [("key", "text"), *rows])
    elif ".jsonl" in name:
        content.writelines(json.dumps({"key": key, "text": text}) + "\n" for key, text in rows)
    else:
        pq.write_table(pa.table({"key": [key for key, _ in rows], "text": [text for _, text in rows]}), path)
        return path
    data = content.getvalue().encode()
    if name.endswith(".gz"):
        data = gzip.compress(data)
    elif name.endswith(".zst"):
        data = pa.compress(data, codec="zstd", asbytes=True)
    path.write_bytes(data)
    return path


def read(source: Source) -> list[Window]:
    return list(source.windows())


def good(window: Window) -> list[str]:
    return [window.texts[place] for place in window.readable]


KINDS = ["txt", "csv", "tsv", "jsonl", "parquet", "txt.gz", "csv.zst", "jsonl.gz", "txt.zst"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_texts_and_ids(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / f"a.{kind}")
    source = Source.of(
        [path], shard_lines=4, id_column=None if "txt" in kind else "key", column=None if "txt" in kind else "text"
    )
    windows = read(source)
    assert [text for window in windows for text in window.texts] == [text for _, text in ROWS]
    assert [window.rows for window in windows] == [4, 4, 2]
    assert [window.last for window in windows] == [False, False, True]
    assert sum(window.share for window in windows) == pytest.approx(1)
    if "txt" not in kind:
        assert [label for window in windows for label in window.ids] == [key for key, _ in ROWS]
    again = read(source)
    assert [window.checksum for window in again] == [window.checksum for window in windows]


def test_globs_are_sorted_and_small_files_share_windows(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        write(tmp_path / f"{name}.txt", [("", f"{name}{n}") for n in range(3)])
    source = Source.of([tmp_path / "*.txt"], shard_lines=4)
    assert [[*window.texts] for window in read(source)] == [["a0", "a1", "a2", "b0"], ["b1", "b2", "c0", "c1"], ["c2"]]
    source = Source.of([tmp_path / "*.txt"], shard_lines=4, group_bytes=20)  # two files of 9 bytes
    groups = [[window.texts for window in source.windows(group)] for group in range(len(source.groups()))]
    assert groups == [[["a0", "a1", "a2", "b0"], ["b1", "b2"]], [["c0", "c1", "c2"]]]


def test_long_texts_end_a_window_early(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", [("", "x" * 3000)] * 4)
    assert [window.rows for window in read(Source.of([tmp_path / "a.txt"], shard_lines=8))] == [2, 2]


def test_what_cannot_be_encoded_is_named_and_nothing_else_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n\nb\xe4d\n \t \nnu\0l\n" + b"x" * 1_000_001 + b"\nlast")
    (window,) = read(Source.of([path]))
    assert (good(window), window.readable, window.rows) == (["good", "last"], [0, 6], 7)
    assert [line for _, line in window.lines] == [1, 2, 3, 4, 5, 6, 7]
    assert window.problems == {
        1: "is empty",
        2: "is not valid UTF-8",
        3: "is empty",
        4: "has a zero byte",
        5: "is longer than 1,000,000 characters",
    }


def test_rows_of_a_table_that_lack_something_are_named(tmp_path: Path) -> None:
    rows: list[Any] = [{"key": 7, "text": "good"}, {"key": 8}, {"text": "no key"}, {"key": 9, "text": 3}, "bare"]
    rows += [{"key": 10, "text": "\ud800"}, {"key": 1.5, "text": "x"}, {"key": 11, "text": "also good"}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{cut")
    (window,) = read(Source.of([path], column="text", id_column="key"))
    assert (good(window), window.readable) == (["good", "also good"], [0, 7])
    assert (window.ids[0], window.ids[7]) == (7, 11)
    assert [(window.ids[place], problem) for place, problem in window.problems.items()] == [
        (8, "has no text in 'text'"),
        (None, "has no 'key'"),
        (9, "has a value of type int in 'text', not text"),
        (None, "has no 'key'"),
        (10, "has half a surrogate pair, which is no character"),
        (None, "has a value of type float in 'key', not a label"),
        (None, "is not JSON"),
    ]


def test_checksums_tell_texts_labels_and_problems_apart(tmp_path: Path) -> None:
    sums = set()
    for content in (b"a\nb\n", b"b\na\n", b"ab\n", b"a\n\xff\n", b"a\n\n", b"a\nb"):
        (tmp_path / "a.txt").write_bytes(content)
        (window,) = read(Source.of([tmp_path / "a.txt"]))
        sums.add((window.rows, window.checksum))
    assert len(sums) == 5  # the missing end of the last line is no difference


def test_an_empty_file_is_one_empty_window(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    (window,) = read(Source.of([tmp_path / "a.txt"]))
    assert (window.rows, window.last) == (0, True)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["nowhere.txt"], "nowhere.txt does not exist"),
        (["*.none"], "No file matches"),
        (["."], r"is a folder. Give its files, such as"),
        (["a.doc"], "Legal: .txt"),
        ([], "nothing to encode"),
    ],
)
def test_inputs_that_cannot_be_read_are_named(tmp_path: Path, inputs: list[str], message: str) -> None:
    (tmp_path / "a.doc").touch()
    with pytest.raises(DataError, match=message):
        Source.of([tmp_path / name for name in inputs])


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(b'{"text": "one"}\n{"text": "two"}\n'))

    monkeypatch.setattr("sys.stdin", Stdin)
    (window,) = read(Source.of(["-"], stdin_format="jsonl"))
    assert (window.texts, window.share) == (["one", "two"], 0)
    with pytest.raises(ConfigError, match="only once"):
        Source.of(["-", "-"])
    with pytest.raises(ConfigError, match="must be txt, csv, tsv, jsonl"):
        Source.of(["-"], stdin_format="parquet")
