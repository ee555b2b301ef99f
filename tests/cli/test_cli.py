from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import s2sent
from conftest import SENTENCES
from s2sent.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command as the shell would: exit code, output, errors."""

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


@pytest.fixture(scope="session")
def saved(backbone_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    s2sent.build(backbone_of("bert"), blocks=3, reduction=4, device="cpu").save(str(folder))
    return folder


def test_inspect_shows_a_share_per_block_and_draws(run: Run, saved: Path, tmp_path: Path) -> None:
    picture = tmp_path / "shares.png"
    code, out, _ = run("inspect", saved, *SENTENCES[:2], "--plot", picture)
    assert code == 0
    rows = [line.split() for line in out.splitlines() if line.strip().startswith(("The cat", "Rain"))]
    assert len(rows) == 2
    for row in rows:
        assert sum(map(float, row[-3:])) == pytest.approx(100, abs=0.2)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_encode_writes_the_vectors_of_the_model(run: Run, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    code, out, _ = run("encode", saved, tmp_path / "in.txt", tmp_path / "out.npy")
    assert code == 0
    assert f"{len(SENTENCES)} vectors of 32" in out
    expected = s2sent.load(saved, device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)


def test_encode_says_what_it_did_and_strictly_so(run: Run, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"good\n\nalso good\n" + b"and long " * 200)
    for arguments, expected in ((("--long", "mean"), 0), (("--strict", "--restart"), 3)):
        code, out, _ = run("encode", saved, tmp_path / "in.txt", tmp_path / "out.jsonl", *arguments)
        assert code == expected
        assert out.startswith("4 lines, 3 vectors of 32, 1 longer than the model takes, ")
        assert "1 without a vector, listed in " in out
        assert out.count("\n") == 1
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3
    code, _, err = run(
        "encode", saved, tmp_path / "in.txt", tmp_path / "out.jsonl", "--engine", "ray", "--workers", "9:3"
    )
    assert (code, "got 9:3" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "MODEL", "x", "--plot", "shares.xls"], "Legal: .png"),
        (["inspect", "nowhere/at/all", "x"], "There is no model folder nowhere/at/all."),
        (["inspect", "nobody/nothing", "x"], "neither a folder nor a model"),
        (["inspect", "BACKBONE", "x"], "has no selector"),
        (["encode", "MODEL", "none.txt", "out.npy"], "none.txt does not exist"),
        (["encode", "MODEL", "none.txt", "out.xls"], "must end in a format for vectors: .parquet"),
        (["encode", "MODEL", "in.parquet", "in.parquet"], "is among the inputs"),
    ],
)
def test_mistakes_are_one_line_without_a_traceback(
    run: Run,
    saved: Path,
    bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.parquet").touch()
    names = {"MODEL": str(saved), "BACKBONE": str(bert)}
    code, out, err = run(*(names.get(argument, argument) for argument in arguments))
    assert code == 1
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_version(run: Run) -> None:
    assert run("--version")[:2] == (0, s2sent.__version__ + "\n")
