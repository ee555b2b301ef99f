from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from s2sent.errors import ConfigError, DataError
from s2sent.experiments.store import Store
from training.runs import ended, start


def test_what_is_put_is_got_and_reads_line_by_line(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    store.put("abc", {"scores": {"STS-B": 56.2}, "run": "naïve · ½"})
    assert store.get("abc") == {"key": "abc", "scores": {"STS-B": 56.2}, "run": "naïve · ½"}
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_file()] == ["abc.json"]
    assert len((tmp_path / "runs" / "abc.json").read_text().splitlines()) == 5
    assert store.get("abd") is None


def test_a_success_takes_the_failure_away(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put_failure("abc", {"error": "no"})
    assert store.failure("abc") == {"key": "abc", "error": "no"}
    assert not store.has("abc")
    store.put("abc", {})
    assert store.failure("abc") is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"key": "other"}', "<<<<<<< HEAD\n{}"])
def test_a_damaged_record_is_said_and_kept(tmp_path: Path, content: str) -> None:
    store = Store(tmp_path)
    (tmp_path / "abc.json").write_text(content)
    with pytest.raises(DataError, match=r"abc\.json.*Delete it"):
        store.get("abc")
    assert (tmp_path / "abc.json").read_text() == content


def test_not_a_number_is_no_record(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        Store(tmp_path).put("abc", {"score": float("nan")})
    assert list(tmp_path.glob("*")) == [tmp_path / ".claims"]


def test_a_store_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        Store(tmp_path / "file")


def test_a_claim_is_of_one_process_and_dies_with_it(tmp_path: Path) -> None:
    store, sign = Store(tmp_path), tmp_path / "claimed"

    def hold() -> None:
        with Store(tmp_path).claim("abc") as ours:
            assert ours
            sign.write_text("")
            time.sleep(600)

    pid = start(hold)
    while not sign.exists():
        time.sleep(0.005)
    with store.claim("abc") as ours:
        assert not ours
    with store.claim("other") as ours:
        assert ours
    os.kill(pid, signal.SIGKILL)
    assert ended(pid) == -signal.SIGKILL
    with store.claim("abc") as ours:
        assert ours


def test_a_writer_killed_anywhere_leaves_a_whole_record_or_none(tmp_path: Path) -> None:
    chance = random.Random(0)
    record = {"values": list(range(20_000))}

    def write() -> None:
        store = Store(tmp_path)
        for number in range(10_000):
            with store.claim("abc"):
                store.put("abc", {**record, "number": number})

    for _ in range(12):
        pid = start(write)
        time.sleep(chance.uniform(0.0, 0.06))
        os.kill(pid, signal.SIGKILL)
        ended(pid)
        path = tmp_path / "abc.json"
        if path.exists():
            assert json.loads(path.read_text())["values"] == record["values"]
    with Store(tmp_path).claim("abc") as ours:
        assert ours
    assert not list(tmp_path.glob(".*.writing"))
