"""The command as people start it: in a process of its own, or in several, killed by whatever kills processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import s2sent
from training.runs import make_lines

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ALONE = [sys.executable, "-m", "s2sent", "train"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "s2sent", "train"]
# As for two GPUs, but the run is told to use the CPU. (With --cpu, accelerate starts several processes by MPI only.)
ACCELERATE = [
    sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
    "--mixed_precision", "no", "--dynamo_backend", "no", "-m", "s2sent", "train",
]  # fmt: skip


@pytest.fixture
def options(bert: Path, tmp_path: Path) -> list[str]:
    """A run of 20 steps, or 10 of two processes, validated now and then; without its output."""
    corpus = tmp_path / "lines.txt"
    corpus.write_text("\n".join(make_lines(200)), encoding="utf-8")
    words: list[object] = [
        corpus, "-b", bert, "--blocks", 2, "--head", "mlp", "--batch-size", 8, "--learning-rate", 0.001,
        "--dev", "heldout", "--evaluate-every", 7, "--checkpoint-every", 1, "--device", "cpu", "--output",
    ]  # fmt: skip
    return [str(word) for word in words]


def weights(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


def finish(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kill_with_children(pid: int) -> None:
    """Kill a launcher and, its workers being in sessions of their own, all below it: none may say goodbye."""
    below = [pid]
    for parent in below:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            below += map(int, task.read_text().split())
    for one in below:
        os.kill(one, signal.SIGKILL)


def killed(command: list[str], output: Path, at_step: int, chance: random.Random) -> None:
    """Start a run and kill it at a random instant behind `at_step`."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if any(int(path.name[5:]) >= at_step for path in (output / "checkpoints").glob("step-*")):
            break
        time.sleep(0.001)
    assert process.poll() is None, "it came to its end before it was killed"
    time.sleep(chance.uniform(0, 0.05))
    kill_with_children(process.pid)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("launcher", [ALONE, TORCHRUN], ids=["alone", "torchrun"])
def test_killed_at_random_points_it_ends_with_the_same_bytes(
    launcher: list[str], options: list[str], tmp_path: Path
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish([*launcher, *options, str(whole)])
    chance = random.Random(launcher[2])
    for at_step in sorted(chance.sample(range(1, 16), 4) if launcher is ALONE else chance.sample(range(1, 8), 2)):
        killed([*launcher, *options, str(cut)], cut, at_step, chance)
    finish([*launcher, *options, str(cut)])
    assert weights(cut)
    assert weights(cut) == weights(whole)


@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate"])
def test_two_processes_make_one_model(launcher: list[str], options: list[str], tmp_path: Path) -> None:
    said = finish([*launcher, *options, str(tmp_path / "out")])
    assert said.count("→") == 1
    assert "of 10" in said  # by one process, it would be 20
    assert s2sent.load(tmp_path / "out").encode(["a"]).shape == (1, 32)
