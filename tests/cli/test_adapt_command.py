"""`s2sent adapt` as a person types it."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import s2sent
from conftest import SENTENCES
from s2sent.cli import app
from s2sent.cli.screen import errors_as_lines

WORDS = sorted({word.strip(".,;:!?") for sentence in SENTENCES for word in sentence.split() if word.isascii()})


Command = Callable[..., "Done"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "pairs.csv"
    rows = []
    for _ in range(300):
        words = random.choice(WORDS, size=8, replace=False)
        rows.append((" ".join(words), " ".join(random.permutation(words)[:6])))
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("anchor", "positive"), *rows])
    return path


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command in this process, as a shell would see it."""
    monkeypatch.setenv("S2SENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        code = 0
        try:
            with errors_as_lines():
                app(["adapt", *map(str, arguments)], standalone_mode=False)
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    return run


def test_a_table_a_model_and_the_same_command_again(bert: Path, pairs: Path, tmp_path: Path, command: Command) -> None:
    line = (bert, pairs, "--output", tmp_path / "out", "--steps", 30, "--batch-size", 64)
    done = command(*line)
    assert done.returncode == 0, done.stderr
    for name in ("as-is", "as-is+map", "blocks", "blocks+map", "gate", "gate+map"):
        assert any(row.startswith(f"{name} ") for row in done.stdout.splitlines()), done.stdout
    assert "is kept" in done.stdout
    assert "300 pairs" in done.stderr
    vectors = s2sent.load(tmp_path / "out", device="cpu").encode(SENTENCES)
    assert np.isfinite(vectors).all()
    again = command(*line)
    assert again.returncode == 0
    assert "already" in again.stdout
    other = command(*line[:-1], 32)
    assert other.returncode == 1
    assert "another recipe, model or data" in other.stderr
    replaced = command(*line[:-1], 32, "--restart")
    assert replaced.returncode == 0, replaced.stderr


def test_one_form_by_its_options_and_a_recipe_of_it(bert: Path, pairs: Path, tmp_path: Path, command: Command) -> None:
    options = ("--gate", "sigmoid", "--no-bias", "--blocks", 3, "--reduction", 4, "--steps", 5)
    done = command(bert, pairs, "--output", tmp_path / "out", *options)
    assert done.returncode == 0, done.stderr
    recipe = (tmp_path / "out" / "recipe.toml").read_text()
    assert 'forms = ["gate"]' in recipe
    assert "bias = false" in recipe
    again = command("--recipe", tmp_path / "out" / "recipe.toml", "--output", tmp_path / "b")
    assert again.returncode == 0, again.stderr
    one, other = (s2sent.load(tmp_path / name, device="cpu").encode(SENTENCES) for name in ("out", "b"))
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("MODEL", "DATA"), "--output"),
        (("MODEL", "--output", "out"), "examples"),
        (("MODEL", "nothing.csv", "--output", "out"), "nothing.csv"),
        (("nowhere/at/all", "DATA", "--output", "out"), "nowhere/at/all"),
        (("MODEL", "DATA", "--output", "out", "--temperature", "inf"), "temperature must be a finite number"),
        (("MODEL", "DATA", "--output", "out", "--forms", "wide"), "no form 'wide'"),
        (("MODEL", "DATA", "--output", "out", "--blocks", "many"), "--blocks must be"),
        (("MODEL", "DATA", "--output", "out", "--depth", "deep"), "depth must be"),
    ],
)
def test_mistakes_are_one_line(
    arguments: tuple[str, ...], message: str, bert: Path, pairs: Path, tmp_path: Path, command: Command
) -> None:
    places = {"MODEL": str(bert), "DATA": str(pairs), "out": str(tmp_path / "out")}
    done = command(*(places.get(word, word) for word in arguments))
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_killed_in_the_pass_it_goes_on(bert: Path, pairs: Path, tmp_path: Path, command: Command) -> None:
    line = [bert, pairs, "--output", tmp_path / "out", "--forms", "blocks", "--steps", 5]
    script = (
        "import sys, time\n"
        "from s2sent.vectors import states; states.LARGEST_PART = 16; run = states.StateEncoder.run\n"
        "states.StateEncoder.run = lambda *a: (time.sleep(0.05), run(*a))[1]\n"
        "sys.argv[0] = 's2sent'; from s2sent.cli import main; main()"
    )
    environment = {**os.environ, "S2SENT_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", script, "adapt", *map(str, line)]
    slow = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(list((tmp_path / "cache").rglob("*.pooled.npy"))) < 3:
        time.sleep(0.02)
    slow.send_signal(signal.SIGKILL)
    slow.wait()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.pooled.npy")}
    assert len(kept) >= 3
    assert not (tmp_path / "out").exists()
    done = command(*line)
    assert done.returncode == 0, done.stderr
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    assert (tmp_path / "out" / "modules.json").exists()
