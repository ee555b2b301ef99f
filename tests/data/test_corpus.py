"""Corpora good and bad: what is read, what is left out and counted, what is an error."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s2sent.data.corpus import LONGEST_TEXT, Corpus
from s2sent.data.rows import LONGEST_LINE, read_rows
from s2sent.errors import DataError

LINES = ["One sentence.", "Another one.", "Straße und 東京."]


def compressed(path: Path, data: bytes) -> None:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(data))
    elif path.suffix == ".zst":
        with pa.output_stream(str(path), compression="zstd") as file:
            file.write(data)
    else:
        path.write_bytes(data)


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", ["txt", "csv", "tsv", "jsonl", "parquet"])
def test_every_format_reads_the_same(kind: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"corpus.{kind}{ending}"
    match kind:
        case "txt":
            text = "\n".join(LINES)
        case "csv" | "tsv":
            mark, quote = (",", '"') if kind == "csv" else ("\t", "")
            rows = [f"{n}{mark}{quote}{line}{quote}" for n, line in enumerate(LINES)]
            text = "\r\n".join([f"id{mark}text", *rows])
        case "jsonl":
            text = "\n".join(json.dumps({"id": n, "text": line}) for n, line in enumerate(LINES))
        case _:
            if ending:
                return
            pq.write_table(pa.table({"id": [1, 2, 3], "text": LINES}), path)
            text = ""
    if kind != "parquet":
        compressed(path, text.encode())
    corpus = Corpus([str(path), str(path)])
    assert [example[0] for example in corpus] == LINES * 2


def test_triplets(tmp_path: Path) -> None:
    path = tmp_path / "nli.csv"
    path.write_text('sent0,sent1,hard_neg\n"a, b",c,d\ne,f,\ng,h,i\n')
    corpus = Corpus([str(path)], ["sent0", "sent1", "hard_neg"])
    assert list(corpus) == [("a, b", "c", "d"), ("g", "h", "i")]
    assert corpus.counts["empty"] == 1
    assert [len(example) for example in Corpus([str(path)], ["sent0", "sent1"])] == [2, 2, 2]


def test_what_is_dealt_with_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "dirty.txt"
    path.write_bytes(
        b"\xef\xbb\xbffirst\n\n   \nbad \xff byte\nbell\x07 rings\n"
        + b"x" * (LONGEST_TEXT + 5)
        + b"\n"
        + b"y" * (LONGEST_LINE * 2 + 3)
        + b"\nlast"
    )
    corpus = Corpus([str(path)])
    texts = [example[0] for example in corpus]
    assert texts == ["first", "bell  rings", "x" * LONGEST_TEXT, "y" * LONGEST_TEXT, "last"]
    assert corpus.counts == {"examples": 5, "empty": 2, "unreadable": 1, "control": 1, "long": 2}
    said = corpus.survey().summary
    assert said.startswith("5 examples; 2 empty left out; 1 not valid UTF-8 left out; 1 with control characters")


def test_half_a_surrogate_pair_is_one_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_text('{"text": "whole \\ud83d\\ude00"}\n{"text": "cut \\ud83d"}\n{"text": "last"}\n')
    corpus = Corpus([str(path)])
    assert corpus.survey().summary == "2 examples; 1 rows without a text left out."
    assert [row.problem is None for row in read_rows(path)] == [True, False, True]


def test_held_out_examples_are_not_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join([f"line {n}" for n in range(1000)] * 2))
    corpus = Corpus([str(path)], held_out=2**32 // 10)
    held, kept = set(corpus.held_out_examples(10_000)), set(corpus)
    assert 60 < len(held) < 140
    assert not held & kept
    assert len(held) + len(kept) == 1000


def broken(tmp_path: Path, name: str) -> tuple[str, tuple[str, ...]]:
    path = tmp_path / name
    columns: tuple[str, ...] = ()
    match name:
        case "empty.txt" | "empty.csv":
            path.write_bytes(b"")
        case "binary.txt":
            path.write_bytes(bytes(range(256)) * 10)
        case "columns.csv":
            path.write_text("a,b\n1,2\n")
            columns = ("text",)
        case "columns.jsonl":
            path.write_text('{"a": "1"}\n')
            columns = ("text",)
        case "several.csv":
            path.write_text("a,b\n1,2\n")
        case "cut.txt.gz":
            path.write_bytes(gzip.compress(b"line\n" * 100_000)[:-200])
        case "not.txt.zst" | "not.parquet" | "not.txt.gz":
            path.write_bytes(b"plain text, whatever the name says\n" * 10)
        case "folder":
            path.mkdir()
        case "word.docx":
            path.write_bytes(b"x")
    return str(path), columns


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("empty.txt", "is empty"),
        ("empty.csv", "is empty"),
        ("missing.txt", "does not exist"),
        ("binary.txt", "is not text"),
        ("columns.csv", "has no column 'text'. It has: a, b"),
        ("columns.jsonl", "has no column 'text'. It has: a"),
        ("several.csv", "several columns"),
        ("cut.txt.gz", "damaged or cut short"),
        ("not.txt.gz", "damaged or cut short"),
        ("not.txt.zst", "damaged or cut short"),
        ("not.parquet", "cannot be read as parquet"),
        ("folder", "is a folder"),
        ("word.docx", "does not end in a format"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_why(name: str, said: str, tmp_path: Path) -> None:
    source, columns = broken(tmp_path, name)
    corpus = Corpus([source], columns)
    with pytest.raises(DataError) as error:
        corpus.survey() if name == "cut.txt.gz" else corpus.check()  # the beginning of that one is fine
    assert said in str(error.value)
    assert Path(source).name in str(error.value)


def test_a_dataset_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": "x", "text": line} for line in LINES]

    def load(name: str, **options: Any) -> list[dict[str, str]]:
        assert (name, options) == ("someone/lines", {"split": "train", "streaming": True})
        return rows

    monkeypatch.setattr("datasets.load_dataset", load)
    assert [example[0] for example in Corpus(["someone/lines"])] == LINES
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: [{"id": 1, "body": line} for line in LINES])
    assert [example[0] for example in Corpus(["someone/lines"])] == LINES  # the only column with text
    monkeypatch.setattr("datasets.load_dataset", load)
    with pytest.raises(DataError, match=r"has no column 'body'\. It has: id, text"):
        Corpus(["someone/lines"], ["body"]).check()


def test_a_dataset_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", load)
    with pytest.raises(DataError, match=r"'someone/lines' is neither a file .*ConnectionError: no route"):
        Corpus(["someone/lines"]).check()
