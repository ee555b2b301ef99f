"""A million lines through the command, killed at random: nothing lost or doubled, and memory stays flat."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import s2sent
from conftest import SENTENCES, make_backbone
from s2sent.vectors.parts import Parts

pytestmark = [pytest.mark.long, pytest.mark.timeout(0)]

LINES = 1_000_000
KILLS = 4
WORDS = " ".join(SENTENCES).split()


def line(number: int) -> str:
    """A line of 1 to 60 words that nobody else has."""
    draw = random.Random(number)
    return " ".join([str(number), *draw.choices(WORDS, k=min(60, 1 + int(draw.expovariate(1 / 12))))])


def parts(output: Path) -> int:
    return len(list(Parts(output).folder.glob("*.arrow")))


def test_a_million_lines_with_random_kills(tmp_path: Path) -> None:
    backbone = make_backbone(tmp_path / "backbone", "bert", num_hidden_layers=1, intermediate_size=32)
    model = s2sent.build(backbone, blocks=1, device="cpu")
    model.save(str(tmp_path / "model"))
    with (tmp_path / "in.txt").open("w", encoding="utf-8") as file:
        file.writelines(f"{line(number)}\n" for number in range(LINES))
    output = tmp_path / "out.parquet"
    command = [sys.executable, "-m", "s2sent", "encode", "model", "in.txt", output.name]
    here = {**os.environ, "PYTHONPATH": str(Path(s2sent.__file__).parents[1])}  # not whatever else is installed
    draw = random.Random(0)
    peak = 0
    for run in range(KILLS + 1):
        before = parts(output)
        child = subprocess.Popen(
            command, cwd=tmp_path, env=here, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        if run < KILLS:
            wanted = before + draw.randint(1, LINES // 8192 // (KILLS + 1))
            while parts(output) < wanted and child.poll() is None:
                time.sleep(draw.random() / 10)
            assert child.returncode is None
            child.send_signal(signal.SIGKILL)
        assert child.stdout is not None
        said = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == (-signal.SIGKILL if run < KILLS else 0)
        peak = max(peak, usage.ru_maxrss)
    assert f"{LINES:,} vectors of 32" in said
    assert "done before" in said
    print(f"peak memory {peak / 1024:.0f} MB; {said.strip()}")
    assert peak < 1.5 * 1024**2  # in kB

    table = pq.read_table(output)
    np.testing.assert_array_equal(table.column("id").to_numpy(), np.arange(LINES))
    chosen = sorted(draw.sample(range(LINES), 500))
    vectors = np.array(table.column("embedding").take(chosen).to_pylist())
    np.testing.assert_allclose(vectors, model.encode([line(number) for number in chosen]), atol=2e-6)
