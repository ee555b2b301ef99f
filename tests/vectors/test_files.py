"""Files in, files out: against the host's `encode`, and against everything that can happen on the way."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer

import s2sent
from conftest import SENTENCES
from model.tiny import tiny
from s2sent.errors import ConfigError, DataError
from s2sent.vectors import EncodeSummary, encode, files, parts
from s2sent.vectors.parts import Parts
from s2sent.vectors.precision import Form

TEXTS = [f"{text} {number}" for number in range(3) for text in SENTENCES]


@pytest.fixture(scope="module")
def model(backbone_of: Callable[[str], Path]) -> SentenceTransformer:
    return tiny(backbone_of("bert"))


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def vectors_in(path: Path) -> tuple[list[Any] | None, np.ndarray]:
    """The ids and vectors of a file, read by somebody else's reader."""
    match path.suffix:
        case ".parquet":
            table = pq.read_table(path)
            return table.column("id").to_pylist(), np.array(table.column("embedding").to_pylist())
        case ".npy":
            return None, np.load(path)
        case ".safetensors":
            tensors = load_file(path)
            return tensors["ids"].tolist(), tensors["embeddings"]
        case _:
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            return [row["id"] for row in rows], np.array([row["embedding"] for row in rows])


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".safetensors", ".jsonl"])
@pytest.mark.parametrize("precision", ["float32", "float16", "int8", "binary"])
def test_every_output_has_the_vectors_of_encode_in_order(
    model: SentenceTransformer, lines: Path, tmp_path: Path, suffix: str, precision: str
) -> None:
    output = tmp_path / f"out{suffix}"
    done = encode(model, lines, output, precision=precision, dim=12, normalize=True, shard_lines=7)
    ids, vectors = vectors_in(output)
    expected = Form(precision, 12, True).pack(model.encode(TEXTS)).values
    if precision == "binary":
        assert (np.unpackbits(vectors.astype(np.uint8) ^ expected)).mean() < 0.01  # rounding at 0
    else:
        np.testing.assert_allclose(vectors, expected, atol={"float32": 2e-6, "float16": 1e-3, "int8": 1}[precision])
    assert ids in (None, list(range(len(TEXTS))))
    assert (done.lines, done.vectors, done.bad, done.bad_file) == (len(TEXTS), len(TEXTS), 0, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["in.txt", output.name, f".{output.name}.made.json"]
    )


def test_parquet_keeps_types_ids_texts_and_scales(model: SentenceTransformer, tmp_path: Path) -> None:
    rows = [{"name": f"n{number}", "text": text} for number, text in enumerate(TEXTS)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "out.parquet"
    encode(model, tmp_path / "in.jsonl", output, id_column="name", with_text=True, precision="int8", shard_lines=9)
    table = pq.read_table(output)
    assert [str(kind) for kind in table.schema.types] == [
        "string",
        "string",
        "fixed_size_list<element: int8>[32]",
        "float",
    ]
    assert table.column("id").to_pylist() == [row["name"] for row in rows]
    assert table.column("text").to_pylist() == TEXTS
    undone = np.array(table.column("embedding").to_pylist()) * np.array(table.column("scale").to_pylist())[:, None]
    np.testing.assert_allclose(undone, model.encode(TEXTS), atol=0.05)
    assert json.loads(table.schema.metadata[b"s2sent"])["precision"] == "int8"
    assert pq.ParquetFile(output).num_row_groups == 4  # a shard at a time, not all at once


def test_bad_lines_are_listed_and_ids_stay_aligned(model: SentenceTransformer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n\ntw\xf6\nthree\n")
    (tmp_path / "b.txt").write_bytes("four\n[SEP]\n\u200b\nfive".encode())
    output = tmp_path / "out.parquet"
    done = encode(model, [tmp_path / "a.txt", tmp_path / "b.txt"], output, shard_lines=3)
    ids, vectors = vectors_in(output)
    assert ids == [0, 3, 4, 7]
    np.testing.assert_allclose(vectors, model.encode(["one", "three", "four", "five"]), atol=2e-6)
    assert done.bad_file == tmp_path / "out.parquet.bad.jsonl"
    bad = [json.loads(line) for line in done.bad_file.read_text().splitlines()]
    assert [(row["id"], Path(row["file"]).name, row["line"]) for row in bad] == [
        (1, "a.txt", 2),
        (2, "a.txt", 3),
        (5, "b.txt", 2),
        (6, "b.txt", 3),
    ]
    reasons = ["is empty", "is not valid UTF-8", "only special tokens", "nothing in it"]
    assert all(reason in row["reason"] for row, reason in zip(bad, reasons, strict=True))
    assert (done.lines, done.vectors, done.bad) == (8, 4, 4)


def test_bad_rows_are_listed_with_their_ids(model: SentenceTransformer, tmp_path: Path) -> None:
    pairs = [(7, "one"), ("b", ""), ("\ud800", "two"), ("c", "x")]
    rows = [{"key": key, "text": text} for key, text in pairs]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = encode(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl", id_column="key", shard_lines=2)
    assert vectors_in(tmp_path / "out.jsonl")[0] == ["7", "c"]  # a text among the ids makes all of them texts
    assert done.bad_file is not None
    bad = [json.loads(line) for line in done.bad_file.read_text().splitlines()]
    assert [(row["id"], row["row"], row["line"]) for row in bad] == [("b", 1, 2), ("\ud800", 2, 3)]


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".safetensors", ".jsonl"])
def test_nothing_to_encode_is_an_output_with_nothing_in_it(
    model: SentenceTransformer, tmp_path: Path, suffix: str
) -> None:
    (tmp_path / "in.txt").write_text("\n\n")
    output = tmp_path / f"out{suffix}"
    assert encode(model, tmp_path / "in.txt", output).bad == 2
    ids, vectors = vectors_in(output)
    assert (ids or [], len(vectors)) == ([], 0)


def test_progress_ends_at_the_number_of_lines(model: SentenceTransformer, lines: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    encode(model, lines, tmp_path / "out.npy", shard_lines=7, on_progress=lambda *told: seen.append(told))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (len(TEXTS), len(TEXTS))
    assert len(seen) > 5


def in_a_child(work: Callable[[], Any], die_at: int) -> int:
    """Do some work in a fork that is killed before its `die_at`-th sync, rename or removal; return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = die_at

    def deadly(name: str, owner: Any) -> None:
        real = getattr(owner, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        setattr(owner, name, step)

    try:
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "rename"), (os, "unlink"), (os, "rmdir")):
            deadly(name, owner)
        work()
        os._exit(0)
    except BaseException:
        os._exit(1)


def test_killed_before_any_write_the_same_call_goes_on_to_the_same_bytes(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("\n".join([*TEXTS[:8], "", *TEXTS[8:11]]), encoding="utf-8")

    def work(output: Path) -> EncodeSummary:
        return encode(model, tmp_path / "in.txt", output, shard_lines=4)

    whole = tmp_path / "whole.parquet"
    work(whole)
    deaths = 0
    for die_at in range(1, 100):
        output = tmp_path / f"{die_at}.parquet"
        code = in_a_child(lambda output=output: work(output), die_at)  # type: ignore[misc]
        if code == 0:
            break
        assert code == -signal.SIGKILL
        deaths += 1
        assert work(output).vectors == len(TEXTS[:11])
        assert output.read_bytes() == whole.read_bytes()
        assert len(Path(f"{output}.bad.jsonl").read_text().splitlines()) == 1
        names = {path.name for path in tmp_path.iterdir() if path.name.lstrip(".").startswith(f"{die_at}.")}
        assert names == {output.name, f"{output.name}.bad.jsonl", f".{output.name}.made.json"}
    assert deaths > 20


def test_resumed_lines_are_not_encoded_again(
    model: SentenceTransformer, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.npy"
    stop_after(monkeypatch, count=2)
    with pytest.raises(KeyboardInterrupt):
        encode(model, lines, output, shard_lines=7)
    assert not output.exists()
    monkeypatch.undo()
    # A shard that a disk has cut is made again.
    Parts(output).path(0, 1).write_bytes(Parts(output).path(0, 1).read_bytes()[:-100])
    done = encode(model, lines, output, shard_lines=7)
    assert done.resumed == 7
    np.testing.assert_allclose(np.load(output), model.encode(TEXTS), atol=2e-6)


def stop_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    real, left = Parts.write, [count]

    def write(*args: Any, **kwargs: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(*args, **kwargs)

    monkeypatch.setattr(Parts, "write", write)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("option", r"precision: float32 then, float16 now"),
        ("model", r"other model"),
        ("grown", r"other files"),
        ("content", r"input has changed.*in\.txt from line 1 on"),
        ("lines", r"--shard-lines: 7 then, 8 now"),
    ],
)
def test_a_changed_model_input_or_option_is_never_mixed_in(
    model: SentenceTransformer,
    backbone_of: Callable[[str], Path],
    lines: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    message: str,
) -> None:
    output = tmp_path / "out.npy"
    stop_after(monkeypatch, count=2)
    with pytest.raises(KeyboardInterrupt):
        encode(model, lines, output, shard_lines=7)
    monkeypatch.undo()
    options: dict[str, Any] = {"shard_lines": 7}
    other = model
    match change:
        case "option":
            options["precision"] = "float16"
        case "model":
            other = tiny(backbone_of("bert"), seed=1)
        case "grown":
            lines.write_text(lines.read_text() + "one more\n")
        case "content":
            lines.write_text(lines.read_text().replace("Rain", "Snow"))
        case "lines":
            options["shard_lines"] = 8
    with pytest.raises(ConfigError, match=message) as error:
        encode(other, lines, output, **options)
    assert "--restart" in str(error.value)
    assert not output.exists()
    done = encode(other, lines, output, restart=True, **options)
    assert done.resumed == 0
    texts = lines.read_text(encoding="utf-8").splitlines()
    np.testing.assert_allclose(np.load(output), other.encode(texts), atol=1e-2 if change == "option" else 2e-6)


def test_standard_input_goes_on_when_it_is_fed_again_and_only_then(
    model: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.npy"

    def feed(texts: list[str]) -> None:
        class Stdin:
            buffer = io.BufferedReader(io.BytesIO("\n".join(texts).encode()))

        monkeypatch.setattr("sys.stdin", Stdin)

    with monkeypatch.context() as stopping:
        stop_after(stopping, count=2)
        feed(TEXTS)
        with pytest.raises(KeyboardInterrupt):
            encode(model, "-", output, shard_lines=7)
    feed(TEXTS[7:])
    with pytest.raises(ConfigError, match="input has changed"):
        encode(model, "-", output, shard_lines=7)
    feed(TEXTS)
    assert encode(model, "-", output, shard_lines=7).resumed == 14
    np.testing.assert_allclose(np.load(output), model.encode(TEXTS), atol=2e-6)


def test_a_finished_output_is_written_over_only_when_asked(
    model: SentenceTransformer, lines: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.npy"
    output.write_bytes(b"precious")
    with pytest.raises(ConfigError, match=r"exists already.*--restart"):
        encode(model, lines, output)
    assert output.read_bytes() == b"precious"
    encode(model, lines, output, restart=True)
    assert len(np.load(output)) == len(TEXTS)


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".safetensors", ".jsonl"])
def test_the_same_call_after_a_finished_one_has_nothing_to_do(
    model: SentenceTransformer, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.txt").write_text("\n".join([*TEXTS, "", TEXTS[2] * 5]), encoding="utf-8")
    output = tmp_path / f"out{suffix}"
    first = encode(model, tmp_path / "in.txt", output, shard_lines=7)
    whole = output.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(Parts, "write", lambda *_: pytest.fail("a vector was computed again"))
        again = encode(model, tmp_path / "in.txt", output, shard_lines=7)
    assert again.done_before
    assert not first.done_before
    assert first.long == 1
    names = ("lines", "vectors", "bad", "bad_file", "long", "width", "output")
    assert [getattr(again, name) for name in names] == [getattr(first, name) for name in names]
    assert output.read_bytes() == whole
    assert not Parts(output).folder.exists()


def test_another_call_on_a_finished_output_is_refused(
    model: SentenceTransformer, backbone_of: Callable[[str], Path], lines: Path, tmp_path: Path
) -> None:
    output, record = tmp_path / "out.npy", tmp_path / ".out.npy.made.json"
    encode(model, lines, output)
    whole, text = output.read_bytes(), lines.read_text(encoding="utf-8")

    def refused(message: str, other: Any = model, **options: Any) -> None:
        with pytest.raises(ConfigError, match=f"exists already{message}.*--restart"):
            encode(other, lines, output, **options)
        assert output.read_bytes() == whole

    refused(r" and was made with other settings \(precision: float32 then, float16 now\)", precision="float16")
    refused(r" and was made with other settings \(another model\)", tiny(backbone_of("bert"), blocks=2))
    lines.write_text(text.replace("Rain", "Snow"), encoding="utf-8")
    refused(", and the input has changed since it was made")
    lines.write_text(text + "more", encoding="utf-8")
    refused(" and was made with other settings .other files, or of other sizes: .*in.txt")
    lines.write_text(text, encoding="utf-8")
    assert encode(model, lines, output).done_before
    for content in (b"", b"[]", b'{"version": 1}', b"\xff"):  # a record that cannot be read is none
        record.write_bytes(content)
        refused("")
    encode(model, lines, output, restart=True)
    assert encode(model, lines, output).done_before
    output.write_bytes(whole[:-1] + b"!")  # somebody has changed it
    whole = output.read_bytes()
    refused("")


def test_a_stream_that_is_fed_again_is_compared(
    model: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def feed(texts: list[str]) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))

    feed(TEXTS)
    encode(model, "-", tmp_path / "out.npy")
    feed(TEXTS)
    assert encode(model, "-", tmp_path / "out.npy").done_before
    feed(TEXTS[:-1])
    with pytest.raises(ConfigError, match="the input has changed"):
        encode(model, "-", tmp_path / "out.npy")


def test_two_processes_do_not_write_one_output(model: SentenceTransformer, lines: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.npy"

    def interfere(*_: object) -> None:
        for restart in (False, True):
            with pytest.raises(ConfigError, match="Another process is at work"):
                encode(model, lines, output, restart=restart)

    encode(model, lines, output, on_progress=interfere)
    assert len(np.load(output)) == len(TEXTS)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("out.csv", {}, r"must end in a format for vectors: \.parquet"),
        ("folder.npy", {}, "is a folder"),
        ("in.txt/out.npy", {}, "cannot be written"),
        ("out.npy", {"with_text": True}, "no place for texts"),
        ("out.npy", {"id_column": "id"}, "no place for ids"),
        ("out.npy", {"dim": 33}, "more than the model's vectors have: 32"),
        ("out.npy", {"long": "drop"}, "must be 'truncate' or 'mean', got 'drop'"),
        ("out.npy", {"engine": "spark"}, "engine must be 'local' or 'ray'"),
        ("out.npy", {"engine": "ray"}, "model's folder or name"),
        ("out.npy", {"batch_tokens": 0}, "batch_tokens must be at least 1, got 0"),
        ("out.npy", {"shard_lines": 0}, "shard_lines must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_computed(
    model: SentenceTransformer, lines: Path, tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(ValueError, match=message):
        encode(model, lines, tmp_path / name, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.npy", "in.txt"]


def test_ids_that_safetensors_cannot_hold_are_found_at_the_first(model: SentenceTransformer, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("key,text\nk1,one\n")
    with pytest.raises(ConfigError, match="not whole numbers"):
        encode(model, tmp_path / "in.csv", tmp_path / "out.safetensors", id_column="key", column="text")


def test_the_output_is_not_an_input(model: SentenceTransformer, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(ConfigError, match="among the inputs"):
        encode(model, tmp_path / "*.jsonl", tmp_path / "a.jsonl")


def test_a_shard_that_is_lost_while_the_output_is_put_together_is_made_again(
    model: SentenceTransformer, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.parquet"
    encode(model, lines, tmp_path / "whole.parquet", shard_lines=5)
    with monkeypatch.context() as patched:
        patched.setattr(files, "write_output", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            encode(model, lines, output, shard_lines=5)
    shard = sorted(Parts(output).folder.glob("*.arrow"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    assert encode(model, lines, output, shard_lines=5).vectors == len(TEXTS)
    assert output.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_an_output_that_another_process_finishes_meanwhile_stays_as_it_is(
    model: SentenceTransformer, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.parquet"
    with monkeypatch.context() as patched:
        patched.setattr(files, "write_output", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            encode(model, lines, output)  # all shards are there, and the state says so
    whole: list[bytes] = []
    real = parts.lock

    def slow(path: Path, *, wait: bool) -> Any:
        if not whole:  # the other process goes first
            whole.append(b"")
            encode(model, lines, output)
            whole[0] = output.read_bytes()
            path.parent.mkdir()
        return real(path, wait=wait)

    monkeypatch.setattr(parts, "lock", slow)
    assert encode(model, lines, output).done_before
    assert output.read_bytes() == whole[0]
    assert not Parts(output).folder.exists()


def test_a_side_file_that_a_glob_would_find_is_no_input(model: SentenceTransformer, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "one"}\n{"text": ""}\n')
    for _ in range(2):
        done = encode(model, str(tmp_path / "*.jsonl"), tmp_path / "out.parquet", restart=True)
        assert (done.lines, done.bad) == (2, 1)


def test_safetensors_takes_whole_numbers_from_csv(model: SentenceTransformer, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("key,text\n7,one\n-3,two\n")
    encode(model, tmp_path / "in.csv", tmp_path / "out.safetensors", id_column="key")
    assert vectors_in(tmp_path / "out.safetensors")[0] == [7, -3]
    (tmp_path / "in.csv").write_text(f"key,text\n{1 << 63},one\n")
    with pytest.raises(ConfigError, match="64 bits, such as '9223372036854775808'"):
        encode(model, tmp_path / "in.csv", tmp_path / "other.safetensors", id_column="key")


def test_ctrl_c_does_not_wait_for_a_silent_standard_input(model: SentenceTransformer, tmp_path: Path) -> None:
    saved = tmp_path / "model"
    model.save(str(saved))
    command = [sys.executable, "-m", "s2sent", "encode", str(saved), "-", str(tmp_path / "out.npy")]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # Whoever starts the tests in the background may have them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as child:
        assert child.stdin is not None
        assert child.stderr is not None
        while not (tmp_path / "out.npy.parts").exists():
            time.sleep(0.05)
        time.sleep(0.2)  # so that it waits for the first line
        child.send_signal(signal.SIGINT)
        # It ends though standard input is open; if it did not, the test would hang here until its time is up.
        assert child.wait(timeout=120) != 0
        assert b"What is done is kept" in child.stderr.read()


def test_a_mistake_leaves_nothing_behind_that_the_mended_command_meets(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("url,body\nu,one\n")
    output = tmp_path / "out.npy"
    with pytest.raises(DataError, match="several columns"):
        encode(model, tmp_path / "in.csv", output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv"]
    begun = Parts(output)
    begun.folder.mkdir()
    begun.begin({"column": None}, restart=False)  # as a kill before the first part leaves it
    assert encode(model, tmp_path / "in.csv", output, column="body").vectors == 1


def test_texts_in_memory_are_returned_as_vectors(model: SentenceTransformer, tmp_path: Path) -> None:
    expected = model.encode(TEXTS)
    np.testing.assert_allclose(s2sent.encode(model, TEXTS), expected, atol=2e-6)
    assert s2sent.encode(model, TEXTS[0]).shape == (32,)
    assert s2sent.encode(model, []).size == 0
    cut = s2sent.encode(model, TEXTS, dim=5, normalize=True)
    np.testing.assert_allclose(cut, expected[:, :5] / np.linalg.norm(expected[:, :5], axis=1, keepdims=True), atol=1e-5)
    model.save(str(tmp_path / "saved"))
    np.testing.assert_allclose(s2sent.encode(tmp_path / "saved", TEXTS[:2], device="cpu"), expected[:2], atol=2e-6)
    with pytest.raises(ConfigError, match="precision must be float32 without an output file"):
        s2sent.encode(model, TEXTS, precision="int8")
    with pytest.raises(ConfigError, match="dim=33 is more than"):
        s2sent.encode(model, TEXTS, dim=33)
