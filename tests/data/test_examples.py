"""Examples to adapt with: found by their columns in every format, and refused before anything long is done."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s2sent.data.examples import Columns, Kind, crop_pairs, find_columns, read_examples
from s2sent.errors import DataError

TRIPLETS = [(f"anchor {i}", f"positive {i}", f"negative {i}") for i in range(60)]
SCORED = [(f"one {i}", f"two {i}", i % 6) for i in range(60)]


def write(path: Path, names: list[str], rows: list[tuple[object, ...]]) -> str:
    kind = path.suffixes[0]
    if kind == ".parquet":
        pq.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}), path)
        return str(path)
    if kind == ".jsonl":
        text = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    else:
        lines = [names, *[[str(value) for value in row] for row in rows]]
        text = "".join(("\t" if kind == ".tsv" else ",").join(line) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.csv.gz"])
@pytest.mark.parametrize(
    ("columns", "rows", "kind"),
    [
        (["anchor", "positive", "negative"], TRIPLETS, Kind.TRIPLETS),
        (["sent0", "sent1", "hard_neg"], TRIPLETS, Kind.TRIPLETS),
        (["Query", "Answer"], [row[:2] for row in TRIPLETS], Kind.PAIRS),
        (["sentence1", "sentence2", "score"], SCORED, Kind.SCORED),
        (["sentence1", "sentence2", "score"], [(a, b, s + 0.25) for a, b, s in SCORED], Kind.SCORED),
        (["text"], [row[:1] for row in TRIPLETS], Kind.TEXT),
    ],
)
def test_every_kind_is_found_by_its_columns_in_every_format(
    name: str, columns: list[str], rows: list[tuple[object, ...]], kind: Kind, tmp_path: Path
) -> None:
    found = read_examples([write(tmp_path / name, columns, rows)])
    assert found.kind is kind
    texts = 2 if kind is Kind.SCORED else len(columns)
    assert [[found.texts[number] for number in row] for row in found.rows] == [list(row[:texts]) for row in rows]
    if kind is Kind.SCORED:
        assert found.scores is not None
        assert found.scores.tolist() == [row[2] for row in rows]


def test_columns_can_be_named(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", ["id", "left", "right", "gold"], [(i, *row) for i, row in enumerate(SCORED)])
    with pytest.raises(DataError, match=r"id, left, right, gold.*--columns"):
        read_examples([source])
    found = read_examples([source], Columns(("left", "right"), "gold"))
    assert found.kind is Kind.SCORED
    assert found.texts[:2] == ["one 0", "two 0"]
    known = write(tmp_path / "b.csv", ["sentence1", "sentence2", "gold"], SCORED)
    assert read_examples([known], Columns(score="gold")).kind is Kind.SCORED
    labelled = write(tmp_path / "c.csv", ["sentence1", "sentence2", "label"], SCORED)
    with pytest.raises(DataError, match="'label' beside two texts"):
        read_examples([labelled])
    with pytest.raises(DataError, match="'middle'"):
        read_examples([source], Columns(("left", "middle")))


def test_plain_lines_need_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(row[0] for row in TRIPLETS))
    assert find_columns(str(path)) == Columns()
    assert read_examples([str(path)]).kind is Kind.TEXT


def test_bad_rows_are_counted_and_left_out(tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [*SCORED, ("", "x", 1), ("x", "y", "many"), ("x", "y", "nan"), ("x", "y", "inf")]
    found = read_examples([write(tmp_path / "a.csv", ["sentence1", "sentence2", "score"], rows)])
    assert len(found) == 60
    assert found.counts["empty"] == 1
    assert found.counts["unscored"] == 3
    assert "3 without a score left out" in found.summary()


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (["anchor", "positive"], [row[:2] for row in TRIPLETS[:20]], "At least 50 examples"),
        (["sentence1", "sentence2", "score"], [(a, b, 3) for a, b, _ in SCORED], "every score is 3"),
        (["anchor", "positive"], [("same", "pair")] * 60, "examples are the same"),
        (["anchor", "positive"], [(row[0], row[0]) for row in TRIPLETS], "both texts of every pair are the same"),
        (["anchor", "positive"], [(f"a {i % 3}", f"b {i % 3}") for i in range(60)], "only 6 texts are different"),
    ],
)
def test_what_nothing_can_be_learned_from_is_refused(
    columns: list[str], rows: list[tuple[object, ...]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        read_examples([write(tmp_path / "a.csv", columns, rows)])


def test_sources_of_two_kinds_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "a.csv", ["anchor", "positive", "negative"], TRIPLETS)
    other = write(tmp_path / "b.csv", ["sentence1", "sentence2", "score"], SCORED)
    with pytest.raises(DataError, match="scored pairs and triplets"):
        read_examples([one, other])
    assert len(read_examples([one, one])) == 120


def test_pieces_are_runs_of_a_lines_own_words(tmp_path: Path) -> None:
    lines = [" ".join(f"w{i}_{k}" for k in range(6 + i % 20)) for i in range(80)]
    path = tmp_path / "a.txt"
    path.write_text("\n".join([*lines, "too short", lines[0]]))
    pairs = crop_pairs(read_examples([str(path)]), seed=3)
    assert len(pairs) == 80
    assert pairs.counts["short"] == 1
    for line, row in zip(lines, pairs.rows, strict=True):
        words = len(line.split())
        for piece in (pairs.texts[number] for number in row):
            assert f" {piece} " in f" {line} "
            assert 0.5 * words - 0.5 <= len(piece.split()) <= 0.9 * words + 0.5
    again = crop_pairs(read_examples([str(path)]), seed=3)
    assert again.texts == pairs.texts
    assert np.array_equal(again.rows, pairs.rows)


@pytest.mark.data
def test_the_real_triplets(data_folder: Path) -> None:
    source = data_folder / "nli_10k.csv"
    found = read_examples([str(source)])
    with source.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert found.kind is Kind.TRIPLETS
    assert len(found) == len(rows) == 10361
    for number in (0, 9, len(rows) - 1):
        assert [found.texts[t] for t in found.rows[number]] == [text.strip() for text in rows[number].values()]
