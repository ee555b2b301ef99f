"""Many processes, killed at random: what is done is done once, and nothing is lost."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.tiny import Bench
from s2sent.atomic import DiskFullError
from s2sent.experiments import runner
from s2sent.experiments.plan import Run, unique
from s2sent.experiments.run import Folders
from s2sent.experiments.runner import Outcome, Runner, status
from s2sent.experiments.store import Store
from s2sent.listener import Listener
from training.runs import ended, start

Perform = Callable[..., dict[str, Any]]


def quick(journal: Path, seconds: float = 0.02) -> Perform:
    """A run that only writes down that it was done; its result is a function of its key."""

    def perform(run: Run, places: object, listener: Listener) -> dict[str, Any]:
        time.sleep(random.Random(run.key).uniform(0, 2 * seconds))
        with journal.open("a") as file:
            file.write(f"{run.key}\n")
        return {"run": run.name, "scores": {"STS-B": int(run.key[:6], 16) / 1e6}, "seconds": {"total": seconds}}

    return perform


def run_all(
    runs: list[Run], store: Store, folders: Folders, profile: str, budget: float | None = None, **options: Any
) -> Outcome:
    return Runner(runs, store, folders, profile, budget, **options).run()


@pytest.fixture
def runs(bench: Bench) -> list[Run]:
    found = unique(bench.places("pooling", seeds=3))
    for run in found:
        _ = run.key  # computed before processes are forked
    return found


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*.json")}


def test_processes_that_share_a_store_do_every_run_once(
    runs: list[Run], bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    monkeypatch.setattr(runner, "perform", quick(journal))
    monkeypatch.setattr(runner, "WAIT", 0.01)
    pids = [start(lambda: run_all(runs, Store(tmp_path / "store"), bench.folders, profile="cpu")) for _ in range(4)]
    assert [ended(pid) for pid in pids] == [0] * 4
    assert sorted(journal.read_text().split()) == sorted(run.key for run in runs)


def test_killed_at_random_and_started_again_it_ends_with_the_same_store(
    runs: list[Run], bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    monkeypatch.setattr(runner, "perform", quick(journal))
    monkeypatch.setattr(runner, "WAIT", 0.01)
    run_all(runs, Store(tmp_path / "whole"), bench.folders, profile="cpu")
    journal.unlink()
    chance = random.Random(1)

    def work() -> None:
        run_all(runs, Store(tmp_path / "store"), bench.folders, profile="cpu")

    kills = 0
    for _ in range(60):
        pids = [start(work) for _ in range(2)]
        time.sleep(chance.uniform(0.0, 0.12))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        kills += sum(ended(pid) == -signal.SIGKILL for pid in pids)
        if len(contents(tmp_path / "store")) == len(runs):
            break
    assert kills > 1
    work()
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")
    again = len(journal.read_text().split()) - len(runs)
    assert again <= kills  # a kill costs at most the run that was under way
    assert not list((tmp_path / "store").glob(".*.writing"))


def test_a_failed_run_is_recorded_does_not_stop_the_others_and_is_tried_again(
    runs: list[Run], bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = quick(tmp_path / "journal", 0), runs[1].key

    def perform(run: Run, places: object, listener: Listener) -> dict[str, Any]:
        if run.key == bad:
            raise RuntimeError(f"no luck with {bench.corpus}")
        return good(run, places, listener)

    store = Store(tmp_path / "store")
    monkeypatch.setattr(runner, "perform", perform)
    outcome = run_all(runs, store, bench.folders, profile="cpu")
    assert list(outcome.failed) == [bad]
    assert outcome.done == len(runs) - 1
    failure = store.failure(bad)
    assert failure is not None
    assert failure["error"] == f"RuntimeError: no luck with {bench.corpus.name}"
    assert str(bench.root) not in str(failure)
    found = status(runs, store)
    assert [run.key for run in found.failed] == [run.key for run in found.missing] == [bad]

    monkeypatch.setattr(runner, "perform", good)
    assert run_all(runs, store, bench.folders, profile="cpu").done == 1
    assert store.has(bad)
    assert store.failure(bad) is None


def test_what_failed_in_one_process_is_not_tried_by_another(
    runs: list[Run], bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"

    def perform(run: Run, places: object, listener: Listener) -> dict[str, Any]:
        quick(journal)(run, places, listener)
        raise RuntimeError("no luck")

    class Together(Store):
        """Both look at what had failed before either begins."""

        def failed_at(self, key: str) -> int | None:
            found = super().failed_at(key)
            if not self.waited:
                self.waited = True
                (tmp_path / f"ready-{os.getpid()}").touch()
                while len(list(tmp_path.glob("ready-*"))) < 2:
                    time.sleep(0.001)
                time.sleep(0.2)  # for the rest of the look
            return found

        waited = False

    monkeypatch.setattr(runner, "perform", perform)
    monkeypatch.setattr(runner, "WAIT", 0.01)

    def work() -> None:
        assert len(run_all(runs, Together(tmp_path / "store"), bench.folders, profile="cpu").failed) == len(runs)

    pids = [start(work) for _ in range(2)]
    assert [ended(pid) for pid in pids] == [0, 0]
    assert sorted(journal.read_text().split()) == sorted(run.key for run in runs)
    work()
    assert len(journal.read_text().split()) == 2 * len(runs)  # the same command tries them again


def test_when_the_time_is_up_no_run_is_begun(
    runs: list[Run], bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    good = quick(tmp_path / "journal", 0)

    def perform(run: Run, places: object, listener: Listener) -> dict[str, Any]:
        clock[0] += 10
        return good(run, places, listener)

    monkeypatch.setattr(runner, "perform", perform)
    monkeypatch.setattr("s2sent.experiments.runner.time.monotonic", lambda: clock[0])
    store = Store(tmp_path / "store")
    outcome = run_all(runs, store, bench.folders, profile="cpu", budget=25)
    assert outcome.out_of_time
    assert outcome.done == 3  # begun at 0, 10 and 20 seconds
    assert [run.key for run in status(runs, store).done] == [run.key for run in runs[:3]]


def test_the_time_left_comes_from_the_finished_runs(runs: list[Run], tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert status(runs, store).seconds_left is None
    train = [run for run in runs if run.kind == "train"]
    for run, seconds in zip(train[:2], (100.0, 200.0), strict=True):
        store.put(run.key, {"seconds": {"total": seconds}})
    assert status(train, store).seconds_left == 150 * (len(train) - 2)
    longer = replace(train[-1], recipe=replace(train[-1].recipe, steps=120))
    store.put(longer.key, {"seconds": {"total": 900.0}})  # says nothing about the short ones, but all of the long
    assert status([*train, longer], store).seconds_left == 150 * (len(train) - 2)
    another = replace(longer, recipe=replace(longer.recipe, seed=7))
    assert status([*train, longer, another], store).seconds_left == 150 * (len(train) - 2) + 900
    assert status([*train[:2], replace(train[0], kind="cost")], store).seconds_left == 0


def test_the_listener_gets_a_line_for_every_run(
    runs: list[Run], bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Notes(Listener):
        def note(self, text: str) -> None:
            notes.append(text)

        def status(self, what: str) -> None:
            statuses.append(what)

    notes: list[str] = []
    statuses: list[str] = []
    good = quick(tmp_path / "journal", 0)

    def perform(run: Run, folders: object, listener: Listener) -> dict[str, Any]:
        listener.status("training")
        listener.note("a warning")
        return good(run, folders, listener)

    monkeypatch.setattr(runner, "perform", perform)
    run_all(runs[:4], Store(tmp_path / "store"), bench.folders, profile="cpu", listener=Notes())
    assert [note.startswith(f"{run.name}: STS-B ") for note, run in zip(notes, runs[:4], strict=True)] == [True] * 4
    assert [note.endswith(f" for {left} more)") for note, left in zip(notes[:3], (3, 2, 1), strict=True)] == [True] * 3
    assert statuses[:2] == [f"1/4 {runs[0].name}: training", f"1/4 {runs[0].name}: a warning"]


def test_a_score_that_is_not_a_number_is_a_failed_run(
    runs: list[Run], bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "perform", lambda *_: {"scores": {"STS-B": float("nan")}})
    store = Store(tmp_path)
    outcome = run_all(runs[:1], store, bench.folders, profile="cpu")
    assert outcome.done == 0
    assert "ValueError" in str(store.failure(runs[0].key))


def test_a_full_disk_stops_everything_and_blames_no_run(
    runs: list[Run], bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "perform", quick(tmp_path / "journal", 0))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("s2sent.atomic.os.fsync", full)
    with pytest.raises(DiskFullError, match="Free some space"):
        run_all(runs, Store(tmp_path / "store"), bench.folders, profile="cpu")
    assert [path.name for path in (tmp_path / "store").iterdir()] == [".claims"]
