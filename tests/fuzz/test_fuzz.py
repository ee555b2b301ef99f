"""Whatever is in a file, the outcome is a result or an `S2SentError`, soon; and no line is lost or doubled."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fuzz.mutations import changed_bytes
from fuzz.readers import Reader, csv_records, lines_of
from fuzz.trial import GROUPS, Figures, HangError, try_all, try_reader


@pytest.mark.parametrize("group", GROUPS)
def test_changed_files(group: str) -> None:
    figures = try_all(1500 if group in ("tables", "SentEval") else 600, [group])
    outcomes = {kind for counts in figures.outcomes.values() for kind in counts}
    assert "result" in outcomes  # or nothing but the first check of each reader was tried
    assert outcomes != {"result"}


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_changed_files(capsys: pytest.CaptureFixture[str]) -> None:
    figures = try_all(10_000)
    with capsys.disabled():
        print(f"\n{figures}")
    assert sum(counts.total() for counts in figures.outcomes.values()) >= 10_000


def test_the_other_way_to_count() -> None:
    assert [lines_of(data) for data in (b"", b"a", b"a\n", b"a\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbfa\rb\n")] == [
        0, 1, 1, 2, 0, 1,
    ]  # fmt: skip
    assert csv_records(b'h\n"a\nb"\n"c""d",e\n\nf"g\n') == 4


@pytest.mark.parametrize("fault", ["lost", "doubled", "crash", "hang"])
def test_a_fault_is_found(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial itself: a reader that loses a line, doubles one, crashes or hangs does not pass."""
    path = tmp_path / "x.txt"

    def read() -> int:
        data = path.read_bytes()
        if fault == "hang":
            time.sleep(60)
        if fault == "crash" and b"\xff" in data:
            raise KeyError(data)
        return lines_of(data) + {"lost": -1, "doubled": 1}.get(fault, 0)

    monkeypatch.setattr("fuzz.trial.LIMIT", 0.05)
    reader = Reader(path, read, changed_bytes(b"one\ntwo\n"), lines_of)
    with pytest.raises((AssertionError, KeyError, HangError)):
        try_reader("x", reader, 200, Figures())
