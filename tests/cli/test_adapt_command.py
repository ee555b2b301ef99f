"""`s2sent adapt` as a person types it."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import s2sent
from conftest import SENTENCES

WORDS = sorted({word.strip(".,;:!?") for sentence in SENTENCES for word in sentence.split() if word.isascii()})


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


def command(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "S2SENT_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    words = [sys.executable, "-m", "s2sent", "adapt", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, env=environment, check=False)


def test_a_table_a_model_and_the_same_command_again(bert: Path, pairs: Path, tmp_path: Path) -> None:
    line = (bert, pairs, "--output", tmp_path / "out", "--steps", 30, "--batch-size", 64)
    done = command(*line, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("as-is", "as-is+map", "blocks", "blocks+map", "gate", "gate+map"):
        assert any(row.startswith(f"{name} ") for row in done.stdout.splitlines()), done.stdout
    assert "is kept" in done.stdout
    assert "300 pairs" in done.stderr
    vectors = s2sent.load(tmp_path / "out", device="cpu").encode(SENTENCES)
    assert np.isfinite(vectors).all()
    again = command(*line, folder=tmp_path)
    assert again.returncode == 0
    assert "already" in again.stdout
    other = command(*line[:-1], 32, folder=tmp_path)
    assert other.returncode == 1
    assert "another recipe, model or data" in other.stderr
    replaced = command(*line[:-1], 32, "--restart", folder=tmp_path)
    assert replaced.returncode == 0, replaced.stderr


def test_one_form_by_its_options_and_a_recipe_of_it(bert: Path, pairs: Path, tmp_path: Path) -> None:
    options = ("--gate", "sigmoid", "--no-bias", "--blocks", 3, "--reduction", 4, "--steps", 5)
    done = command(bert, pairs, "--output", tmp_path / "out", *options, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    recipe = (tmp_path / "out" / "recipe.toml").read_text()
    assert 'forms = ["gate"]' in recipe
    assert "bias = false" in recipe
    again = command("--recipe", tmp_path / "out" / "recipe.toml", "--output", tmp_path / "b", folder=tmp_path)
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
        (("MODEL", "DATA", "--output", "out", "--temperature", "inf"), "temperature must be a number above 0, got inf"),
        (("MODEL", "DATA", "--output", "out", "--form", "wide"), "no form 'wide'"),
        (("MODEL", "DATA", "--output", "out", "--blocks", "many"), "--blocks must be"),
        (("MODEL", "DATA", "--output", "out", "--depth", "deep"), "depth must be"),
    ],
)
def test_mistakes_are_one_line(
    arguments: tuple[str, ...], message: str, bert: Path, pairs: Path, tmp_path: Path
) -> None:
    places = {"MODEL": str(bert), "DATA": str(pairs), "out": str(tmp_path / "out")}
    done = command(*(places.get(word, word) for word in arguments), folder=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_killed_in_the_pass_it_goes_on(bert: Path, pairs: Path, tmp_path: Path) -> None:
    line = [bert, pairs, "--output", tmp_path / "out", "--form", "blocks", "--steps", 5]
    script = (
        "import sys, time\n"
        "from s2sent.encoding import states; states.LARGEST_PART = 16; run = states.StateEncoder.run\n"
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
    done = command(*line, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    assert (tmp_path / "out" / "modules.json").exists()
