"""A real Ray on this machine: two workers, one of which is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import s2sent
from conftest import SENTENCES
from model.tiny import tiny
from s2sent.errors import ConfigError
from s2sent.vectors import encode
from vectors.test_files import stop_after

ray: Any = pytest.importorskip("ray")
pytestmark = pytest.mark.long

TEXTS = [f"{text} {number}" for number in range(60) for text in SENTENCES]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def folder(backbone_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny(backbone_of("bert")).save(str(folder))
    return folder


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    half = len(TEXTS) // 2
    for name, texts in (("a", TEXTS[:half]), ("b", TEXTS[half:])):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts) + "\n\n", encoding="utf-8")
    return [tmp_path / "a.txt", tmp_path / "b.txt"]


def workers() -> set[int]:
    """The processes of actors that this test's own Ray runs."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes().startswith(b"ray::MapWorker") and _is_ours(int(entry.name)):
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def _is_ours(process: int) -> bool:
    while process > 1:
        if process == os.getpid():
            return True
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def test_a_worker_that_is_killed_costs_nothing(
    cluster: None, folder: Path, inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s2sent.vectors.sources.GROUP_BYTES", 1)  # two files, two readers
    killed: list[int] = []

    def kill(lines: int, expected: int | None) -> None:
        if not killed:
            assert lines < len(TEXTS) / 2
            found = workers()
            assert len(found) == 2
            killed.append(found.pop())
            os.kill(killed[0], signal.SIGKILL)

    options: dict[str, Any] = {"engine": "ray", "workers": (2, 2), "shard_lines": 4}
    done = encode(folder, inputs, tmp_path / "ray.parquet", on_progress=kill, **options)
    assert killed
    assert (done.lines, done.vectors, done.bad) == (len(TEXTS) + 2, len(TEXTS), 2)

    encode(folder, inputs, tmp_path / "local.parquet", shard_lines=4)
    ray_bytes, local_bytes = ((tmp_path / f"{name}.parquet").read_bytes() for name in ("ray", "local"))
    assert ray_bytes == local_bytes
    sides = [(tmp_path / f"{name}.parquet.bad.jsonl").read_text() for name in ("ray", "local")]
    assert sides[0] == sides[1]


def test_ray_goes_on_where_one_machine_stopped_and_minds_the_same_changes(
    cluster: None, folder: Path, inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.npy"
    stop_after(monkeypatch, count=20)
    with pytest.raises(KeyboardInterrupt):
        encode(folder, inputs, output, shard_lines=8)
    monkeypatch.undo()
    text = inputs[0].read_text(encoding="utf-8")
    inputs[0].write_text(text.replace("Rain", "Snow"), encoding="utf-8")
    with pytest.raises(ConfigError, match="input has changed"):
        encode(folder, inputs, output, shard_lines=8, engine="ray", workers=(1, 2))
    inputs[0].write_text(text, encoding="utf-8")
    done = encode(folder, inputs, output, shard_lines=8, engine="ray", workers=(1, 2))
    assert done.resumed == 160
    np.testing.assert_allclose(np.load(output), s2sent.load(folder, device="cpu").encode(TEXTS), atol=2e-6)


def test_standard_input_is_not_for_workers(cluster: None, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="standard input"):
        encode(folder, "-", tmp_path / "out.npy", engine="ray")
