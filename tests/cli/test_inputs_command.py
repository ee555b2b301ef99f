"""Inputs from outside at the command line: one line that says what is wrong, at once, and no traceback."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import s2sent
from conftest import SENTENCES, make_backbone
from s2sent.cli import main
from s2sent.errors import ConfigError, ModelError
from s2sent.evaluation.encoder import Encoder, Vectors
from s2sent.vectors import TorchEncoder, encode, encode_texts
from training.runs import make_lines

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["s2sent", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    backbone = make_backbone(folder / "backbone", "bert", num_hidden_layers=2)
    s2sent.build(backbone, blocks=2, reduction=4, device="cpu").save(str(folder / "model"))
    return folder / "model"


def refused(run: Run, *arguments: str | Path, said: str) -> None:
    started = time.monotonic()
    code, _, err = run(*arguments)
    assert code == 1, err
    assert said in err
    assert "Traceback" not in err
    assert time.monotonic() - started < 20


def test_the_same_encode_again_is_done(run: Run, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    command = ("encode", saved, tmp_path / "in.txt", tmp_path / "out.npy")
    assert run(*command)[0] == 0
    code, out, _ = run(*command)
    assert code == 0
    assert out.startswith(f"Done already: {len(SENTENCES)} lines, {len(SENTENCES)} vectors of 32 → ")
    assert str(tmp_path / "out.npy") in out
    refused(run, *command, "--precision", "int8", said="exists already and was made with other settings (precision")


def test_the_same_train_again_is_done(run: Run, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(make_lines(60)), encoding="utf-8")
    command = ("train", tmp_path / "in.txt", "-b", saved.parent / "backbone", "-o", tmp_path / "out", "--steps",
               "2", "--batch-size", "8", "--dev", "none", "--blocks", "2", "--reduction", "4", "--device",
               "cpu")  # fmt: skip
    assert run(*command)[0] == 0
    code, out, _ = run(*command)
    assert code == 0
    assert " ".join(out.split()).startswith("Done already: the model of this run is in ")
    assert str(tmp_path / "out") in out.replace("\n", "")
    refused(run, *command, "--seed", "7", said="finished model of another recipe")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--temperature", "inf"], "temperature must be a finite number"),
        (["--temperature", "nan"], "temperature must be a finite number"),
        (["--learning-rate", "inf"], "learning_rate must be a finite number"),
        (["--selector-learning-rate", "nan"], "selector_learning_rate must be a finite number"),
        (["--mlm-weight", "inf"], "mlm_weight must be a finite number"),
        (["--frequencies", "1000000000"], "frequencies=1000000000 is more than the 32 features"),
        (["--blocks", "1000000000"], "blocks must be at most 1,024"),
        (["--blocks", "1000"], "2 blocks"),
        (["--reduction", "1000000000"], "reduction=1000000000 leaves no bottleneck"),
        (["--batch-size", "1000000000"], "A step takes 1000000000"),
        (["--max-length", "1000000000"], "max_length=1000000000 is more"),
        (["--objective", "whitened", "--views", "1000000000"], "views must be from 2"),
    ],
)
def test_absurd_options_are_refused_at_once(
    run: Run, saved: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    (tmp_path / "in.txt").write_text("\n".join(make_lines(60)), encoding="utf-8")
    small = [] if "--batch-size" in options else ["--batch-size", "8"]
    arguments = ["train", tmp_path / "in.txt", "-b", saved.parent / "backbone", "-o", tmp_path / "out", "--dev", "none"]
    refused(run, *arguments, "--device", "cpu", "--blocks", "2", "--reduction", "4", *small, *options, said=said)


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("corpus = 5", "recipe.toml: corpus must be a list of texts, got 5"),
        ('corpus = ["c"]\nselection = 5', "recipe.toml: selection must be a table, got 5"),
        ('corpus = ["c"]\ntemperature = inf', "recipe.toml: temperature must be a finite number"),
        ("corpus = " + "[" * 3000, "recipe.toml"),
    ],
)
def test_recipes_that_are_none(run: Run, tmp_path: Path, recipe: str, said: str) -> None:
    (tmp_path / "recipe.toml").write_text(f'objective = "simcse"\nbackbone = "b"\n{recipe}\n')
    refused(run, "train", "--recipe", tmp_path / "recipe.toml", "-o", tmp_path / "out", said=said)


def test_names_that_are_none(run: Run, saved: Path, tmp_path: Path) -> None:
    long = "x" * 300
    (tmp_path / "in.txt").write_text("text")
    out = tmp_path / "out.npy"
    refused(run, "encode", saved, tmp_path / f"{long}.txt", out, said="its name is too long")
    refused(run, "encode", saved, tmp_path / "in.txt", tmp_path / f"{long}.npy", said="is too long for a file")
    refused(run, "encode", saved, tmp_path / "in.txt", tmp_path / long / "out.npy", said="File name too long")
    refused(run, "train", f"{long}.txt", "-b", saved.parent / "backbone", "-o", out, said="its name is too long")
    refused(run, "train", "--recipe", f"{long}.toml", "-o", out, said="its name is too long")
    refused(run, "evaluate", saved, "--data", long, said="is not a folder")
    refused(run, "reproduce", "main", "--catalogue", f"{long}.toml", said="its name is too long")
    refused(run, "reproduce", "main", "--data", long, said="does not exist")


def test_a_file_that_may_not_be_read(run: Run, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.txt"
    path.write_text("text")
    path.chmod(0)
    if os.geteuid() == 0:  # who may read everything
        real = os.open

        def denied(name: object, *rest: int) -> int:
            if str(name) == str(path):
                raise PermissionError(13, "Permission denied", str(path))
            return real(name, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "open", denied)
    refused(run, "encode", saved, path, tmp_path / "out.npy", said="in.txt cannot be read: Permission denied")
    refused(run, "train", path, "-b", "b", "-o", tmp_path / "out", said="in.txt cannot be read: Permission denied")


def test_devices_are_refused_and_a_fifo_is_for_encode_alone(run: Run, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    refused(run, "encode", saved, tmp_path / "zero.txt", out, said="is a device, not a file")
    refused(run, "train", tmp_path / "zero.txt", "-b", "b", "-o", tmp_path / "o", said="is a device, not a file")
    fifo = tmp_path / "fifo.txt"
    os.mkfifo(fifo)
    refused(run, "train", fifo, "-b", "b", "-o", tmp_path / "o", said="is a FIFO, not a file")
    refused(run, "train", "--recipe", fifo, "-o", tmp_path / "o", said="is a FIFO, not a file")
    for _ in range(2):  # the second time it is read and compared
        writer = threading.Thread(target=lambda: fifo.write_text("\n".join(SENTENCES), encoding="utf-8"))
        writer.start()
        code, said, _ = run("encode", saved, fifo, out)
        writer.join()
        assert (code, f"{len(SENTENCES)} vectors of 32" in said) == (0, True)
    np.testing.assert_allclose(np.load(out), s2sent.load(saved, device="cpu").encode(SENTENCES), atol=1e-5)


def test_two_columns_of_one_name(run: Run, saved: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), tmp_path / "in.parquet")
    (tmp_path / "in.csv").write_text("text,text\na,b\n")
    for name in ("in.parquet", "in.csv"):
        refused(run, "encode", saved, tmp_path / name, tmp_path / "out.npy", said="has 2 columns named 'text'")


class Broken:
    """An encoder whose vectors are NaN for texts with a certain token, or for all."""

    def __init__(self, model: TorchEncoder, bad: str | None) -> None:
        self.model, self.bad = model, None if bad is None else model.pipeline.tokenize([bad])[0][0]
        self.fingerprint = "broken"

    def __getattr__(self, name: str) -> object:
        return getattr(self.model, name)

    def embed(self, sequences: list[list[int]]) -> np.ndarray:
        vectors = self.model.embed(sequences)
        vectors[[self.bad is None or self.bad in sequence for sequence in sequences]] = np.nan
        return vectors


@pytest.mark.parametrize("precision", ["float32", "float16", "int8", "binary"])
def test_a_vector_that_is_not_finite_is_never_written(saved: Path, tmp_path: Path, precision: str) -> None:
    (tmp_path / "in.txt").write_text("\n".join(["one", "cat", "two"]))
    encoder = TorchEncoder(s2sent.load(saved, device="cpu"))  # type: ignore[arg-type]
    done = encode(Broken(encoder, "cat"), tmp_path / "in.txt", tmp_path / "a.npy", precision=precision)  # type: ignore[arg-type]
    assert (done.vectors, done.bad) == (2, 1)
    assert done.bad_file is not None
    assert '"line": 2, "reason": "has no finite vector' in done.bad_file.read_text()
    with pytest.raises(ModelError, match=r"in\.txt, line 1: the model gives NaN or infinity for it, and for all 3"):
        encode(Broken(encoder, None), tmp_path / "in.txt", tmp_path / "b.npy", precision=precision)  # type: ignore[arg-type]
    assert not (tmp_path / "b.npy").exists()
    with pytest.raises(ModelError, match="Input 2 of 3, 'cat', has no finite vector"):
        encode_texts(Broken(encoder, "cat"), ["one", "cat", "two"])  # type: ignore[arg-type]


def test_evaluations_cache_holds_no_vector_that_is_not_finite(tmp_path: Path) -> None:
    def half(sentences: list[str]) -> np.ndarray:
        return np.array([[np.nan if text == "b" else 1.0] for text in sentences])

    with pytest.raises(ModelError, match="NaN or infinity for 1 of 2 sentences: 'b'"):
        Vectors(Encoder("m", half), tmp_path).add(["a", "b"])
    assert not list(tmp_path.iterdir())
    good = Vectors(Encoder("m", lambda sentences: np.ones((len(sentences), 2))), tmp_path)
    good.add(["a", "b"])
    (kept,) = tmp_path.glob("*.npz")
    with np.load(kept) as chunk:
        names, vectors = chunk["names"], chunk["vectors"]
    np.savez(kept, names=names, vectors=np.full_like(vectors, np.nan))
    again = Vectors(Encoder("m", lambda sentences: np.full((len(sentences), 2), 5.0)), tmp_path)
    again.add(["a", "b"])
    assert (again[["a", "b"]] == 5).all()


def test_sizes_in_python() -> None:
    for options in ({"frequencies": 10**9}, {"reduction": 10**9}):
        with pytest.raises(ConfigError):
            s2sent.Selector(384, s2sent.SelectionConfig(**options))
    with pytest.raises(ConfigError, match="more than 1,073,741,824 weights"):
        s2sent.Selector(100_000, s2sent.SelectionConfig(blocks=1000, reduction=1))
    for dim in (0, -1, "x", None):
        with pytest.raises(ConfigError, match="dim must be a whole number"):
            s2sent.Selector(dim)  # type: ignore[arg-type]
