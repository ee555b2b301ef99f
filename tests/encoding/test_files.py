from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import s2sent
from conftest import SENTENCES
from s2sent.encoding import encode_file
from s2sent.errors import DataError


@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_vectors_are_those_of_encode_in_the_order_of_the_texts(bert: Path, tmp_path: Path, ending: str) -> None:
    model = s2sent.build(bert, device="cpu")
    texts = SENTENCES * 9  # more than one window of 32 batches of 2
    done: list[int] = []
    output = tmp_path / f"out{ending}"
    encode_file(model, texts, output, batch_size=2, on_progress=done.append)
    if ending == ".npy":
        vectors = np.load(output)
    else:
        table = pq.read_table(output)
        assert table.column("text").to_pylist() == texts
        assert table.column("id").to_pylist() == list(range(len(texts)))
        vectors = np.array(table.column("embedding").to_pylist(), dtype=np.float32)
    expected = model.encode(texts)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert sum(done) == len(texts)
    assert len(done) > 1


def test_a_failed_run_leaves_what_was_there(bert: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.npy"
    output.write_bytes(b"precious")
    with pytest.raises(DataError, match="no text"):
        encode_file(s2sent.build(bert, device="cpu"), ["fine", ""], output)
    assert output.read_bytes() == b"precious"
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


@pytest.mark.parametrize(("name", "message"), [("out.csv", r"Legal: \.npy"), ("file/out.npy", "cannot be written")])
def test_a_place_that_cannot_be_written_is_said_at_once(bert: Path, tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match=message):
        encode_file(s2sent.build(bert, device="cpu"), ["x"], tmp_path / name)
