"""Runs as tasks of a real, local Ray."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.tiny import Bench
from s2sent.cli import app
from s2sent.experiments import runner
from s2sent.experiments.catalogue import read_catalogue
from s2sent.experiments.plan import Run, unique
from s2sent.experiments.run import Folders, perform
from s2sent.experiments.runner import RETRIES, Runner, ray_task
from s2sent.experiments.store import Store
from s2sent.listener import Listener

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    found = pytest.importorskip("ray")
    source = Path(runner.__file__).resolve().parents[2]  # workers are processes of their own: they must find it, too
    environment = {"env_vars": {"PYTHONPATH": str(source)}}
    found.init(num_cpus=2, log_to_driver=False, include_dashboard=False, runtime_env=environment)
    yield found
    found.shutdown()


def test_on_ray_the_store_is_the_same(ray: Any, bench: Bench, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    arguments = ["reproduce", *bench.arguments("pooling", "gradients", store=store), "--engine", "ray"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "9 of 9 runs are done" in result.output
    every = read_catalogue().profile("cpu").recipe["evaluate_every"]
    expected = unique(bench.places("pooling", "gradients", evaluate_every=every))
    assert {path.stem for path in store.glob("*.json")} == {run.key for run in expected}
    run = unique(bench.places("gradients"))[1]
    record, here_too = Store(store).get(run.key), perform(run, bench.folders)
    assert record is not None
    assert record["gradients"]["direct"] == pytest.approx(here_too["gradients"]["direct"], rel=1e-4)
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0, again.output


def test_a_failed_run_is_recorded_and_not_retried(ray: Any, bench: Bench, tmp_path: Path) -> None:
    runs = unique(bench.places("gradients", max_length=200))  # more than the tiny backbone's positions
    store = Store(tmp_path)
    outcome = Runner(runs[:2], store, bench.folders, "cpu").run_on_ray()
    assert set(outcome.failed) == {run.key for run in runs[:2]}
    assert "max_length=200" in str(store.failure(runs[0].key))


def test_a_run_whose_worker_dies_is_begun_again(ray: Any, bench: Bench, tmp_path: Path) -> None:
    run = unique(bench.places("gradients"))[1]

    def dying(run: Run, folder: str, folders: Folders, profile: str) -> tuple[Any, str | None]:
        mark = Path(folder) / "died"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return ray_task(run, folder, folders, profile)

    class Notes(Listener):
        def note(self, text: str) -> None:
            notes.append(text)

    notes: list[str] = []
    store = Store(tmp_path)
    remote = ray.remote(max_retries=RETRIES)(dying)
    outcome = Runner([run], store, bench.folders, "cpu", None, Notes()).submit(ray, remote, room=1)
    assert (tmp_path / "died").exists()
    assert outcome.done == 1
    assert [note.split(": ")[0] for note in notes] == [run.name]
    assert store.has(run.key)
