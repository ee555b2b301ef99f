from pathlib import Path

import pytest

from s2sent.data.senteval import TRANSFER_TASKS, in_order, read_transfer
from s2sent.data.sources import Source
from s2sent.errors import ConfigError, DataError
from tiny_senteval import put, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path)


@pytest.mark.parametrize("name", TRANSFER_TASKS)
def test_samples_are_sorted_by_words_then_class_and_keep_their_labels(folder: Path, name: str) -> None:
    task = read_transfer(folder, name)
    for samples in task.splits.values():
        keys = []
        for index, text in enumerate(samples.first):
            lengths = [len(text.split())] + ([len(samples.second[index].split())] if samples.second else [])
            keys.append((*lengths, samples.labels[index]))
        assert keys == sorted(keys)
        if name in ("MR", "CR", "SUBJ", "MPQA", "SST-2"):  # the tiny folder writes the class into the sentence
            for text, label in zip(samples.first, samples.labels, strict=True):
                assert text.endswith("good") == (label == 1)


def test_equals_stay_in_the_order_of_the_files() -> None:
    samples = in_order([(1, "b b", None), (1, "a a", None), (1, "c", None), (0, "d d", None)])
    assert samples.first == ("c", "d d", "b b", "a a")


def test_empty_lines_count(folder: Path) -> None:
    task = read_transfer(folder, "CR")
    assert len(task.splits["train"]) == 60
    assert task.splits["train"].first[0] == ""
    assert "CR: 1 empty sentence, kept as SentEval does; a model that refuses them is shown a full stop" in task.notes


def test_trec_is_latin_1_and_loses_its_fine_type(folder: Path) -> None:
    samples = read_transfer(folder, "TREC").splits["train"]
    assert all("sister\u00f0city" in text and ":" not in text for text in samples.first)
    assert set(samples.labels) == set(range(6))


@pytest.mark.parametrize(
    ("task", "file", "line", "problem"),
    [
        ("SST-2", "SST/binary/sentiment-dev", "a fine film", "a sentence, a tab and a label"),
        ("SST-2", "SST/binary/sentiment-dev", "a fine film\t2", "neither 0 nor 1"),
        ("TREC", "TREC/TREC_10.label", "WHAT:ever is it ?", "question type"),
        ("TREC", "TREC/TREC_10.label", "no type at all", "question type"),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", "1\t2\t3\tone", "5 tab-separated columns"),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", "yes\t2\t3\tone\ttwo", "neither 0 nor 1"),
    ],
)
def test_a_bad_line_is_named(folder: Path, task: str, file: str, line: str, problem: str) -> None:
    lines = (folder / file).read_bytes().decode("latin-1").splitlines()
    lines[3] = line
    put(folder, file, lines, encoding="latin-1")
    with pytest.raises(DataError, match=rf"{Path(file).name}, line 4: .*{problem}"):
        read_transfer(folder, task)


def test_one_class_is_nothing_to_learn(folder: Path) -> None:
    put(folder, "SST/binary/sentiment-test", ["fine\t1", "good\t1"])
    with pytest.raises(DataError, match="SST-2: every sample of the test split has the class"):
        read_transfer(folder, "SST-2")


def test_unknown_tasks_and_the_wrong_source(folder: Path) -> None:
    with pytest.raises(ConfigError, match="not a transfer task"):
        read_transfer(folder, "SNLI")
    with pytest.raises(ConfigError, match="STS-B alone"):
        Source("pypi").read("MR")
