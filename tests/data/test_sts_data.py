import os
from pathlib import Path

import numpy as np
import pytest

from s2sent.data.senteval import (
    EXTRA_TASKS,
    OFFICIAL_COUNTS,
    STS_TASKS,
    SUBSETS,
    Text,
    find_folder,
    read_sts,
    task_names,
)
from s2sent.data.sources import Source
from s2sent.errors import ConfigError, DataError
from tiny_senteval import put, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "senteval")


def test_pairs_without_gold_are_dropped_and_counted(folder: Path) -> None:
    task = read_sts(folder, "STS16")
    assert [len(subset) for subset in task.subsets] == [12] * 5
    lines = (folder / "STS/STS16-en-test/STS.input.headlines.txt").read_text().splitlines()
    kept = [line for index, line in enumerate(lines) if index not in (1, 13)]
    headlines = next(subset for subset in task.subsets if subset.name == "headlines")
    assert [f"{a}\t{b}" for a, b in zip(headlines.first, headlines.second, strict=True)] == kept
    assert "STS16: 10 pairs without a gold score dropped, as SentEval does" in task.notes
    assert any("60 samples where SentEval has 1,186" in note for note in task.notes)
    assert task.text is Text.FILE


def test_sick_has_a_header_and_windows_line_ends(folder: Path) -> None:
    task = read_sts(folder, "SICK-R")
    assert len(task) == 12
    assert task.subsets[0].gold.min() >= 1


def test_input_and_gold_must_be_as_long_as_each_other(folder: Path) -> None:
    put(folder, "STS/STS12-en-test/STS.gs.MSRvid.txt", ["1.0"] * 5)
    with pytest.raises(DataError, match=r"MSRvid\.txt has 14 lines but .*gs\.MSRvid\.txt has 5"):
        read_sts(folder, "STS12")


@pytest.mark.parametrize("score", ["5.01", "-1", "nan", "inf", "four"])
def test_a_score_out_of_range_names_its_line(folder: Path, score: str) -> None:
    name = "STS/STS13-en-test/STS.gs.FNWN.txt"
    lines = (folder / name).read_text().splitlines()
    lines[4] = score
    put(folder, name, lines)
    with pytest.raises(DataError, match=r"STS\.gs\.FNWN\.txt, line 5: the gold score"):
        read_sts(folder, "STS13")


def test_sick_scores_start_at_one(folder: Path) -> None:
    name = "SICK/SICK_test_annotated.txt"
    lines = (folder / name).read_text().splitlines()
    put(folder, name, [*lines, "9\ta b\tc d\t0.5\tNEUTRAL"])
    with pytest.raises(DataError, match=r"line 14: the gold score 0\.5 is outside 1 to 5"):
        read_sts(folder, "SICK-R")


@pytest.mark.parametrize(("line", "problem"), [("only one sentence", "two sentences"), ("left\t ", "without text")])
def test_gold_without_text_names_its_line(folder: Path, line: str, problem: str) -> None:
    name = "STS/STS14-en-test/STS.input.images.txt"
    lines = (folder / name).read_text().splitlines()
    lines[2] = line
    put(folder, name, lines)
    with pytest.raises(DataError, match=rf"images\.txt, line 3: .*{problem}"):
        read_sts(folder, "STS14")
    lines[1], lines[2] = line, lines[3]  # the same damage on a pair without gold harms nobody
    put(folder, name, lines)
    assert len(read_sts(folder, "STS14")) == 12 * len(SUBSETS["STS14"])


def test_too_few_columns(folder: Path) -> None:
    put(folder, "STS/STSBenchmark/sts-test.csv", ["a\tb\tc\td\t3.0\tonly one"])
    with pytest.raises(DataError, match="line 1: 7 tab-separated columns were expected, here are 6"):
        read_sts(folder, "STS-B")


def test_a_missing_file_is_named_with_the_way_to_get_it(folder: Path) -> None:
    (folder / "STS/STS15-en-test/STS.input.belief.txt").unlink()
    with pytest.raises(DataError, match=r"STS\.input\.belief\.txt does not exist\. SentEval's folder"):
        read_sts(folder, "STS15")


def test_where_the_folder_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_folder(folder) == find_folder(folder.parent) == folder
    monkeypatch.setenv("S2SENT_DATA", str(folder.parent))
    assert find_folder() == folder
    monkeypatch.delenv("S2SENT_DATA")
    with pytest.raises(DataError, match="neither --data nor S2SENT_DATA"):
        find_folder()
    with pytest.raises(DataError, match="is not a folder"):
        find_folder(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="none of SentEval's task folders"):
        find_folder(tmp_path / "empty")


def test_names_of_tasks() -> None:
    assert task_names("sts") == (*STS_TASKS, *EXTRA_TASKS)
    assert task_names(["mrpc", "STSB", "sts-b"]) == ("STS-B", "MRPC")
    with pytest.raises(ConfigError, match="no task 'STS17'"):
        task_names("STS12,STS17")


def test_raw_text_is_never_taken_from_a_tokenised_folder(folder: Path) -> None:
    with pytest.raises(ConfigError, match="tokenised, lower-cased text only"):
        Source(folder, Text.RAW).read("STS12")
    with pytest.raises(ConfigError, match="must be one of file, raw"):
        Source(folder, "cooked")  # type: ignore[arg-type]


@pytest.mark.data
@pytest.mark.skipif("S2SENT_DATA" not in os.environ, reason="S2SENT_DATA is not set")
@pytest.mark.parametrize("name", [*STS_TASKS, *EXTRA_TASKS])
def test_the_real_files_have_their_official_counts(name: str) -> None:
    task = read_sts(find_folder(), name)
    assert (len(task),) == OFFICIAL_COUNTS[name]
    assert not any("not comparable" in note for note in task.notes)


JACCARD = {"STS12": 43.0, "STS13": 48.9, "STS14": 51.2, "STS15": 67.5, "STS16": 57.5, "STS-B": 52.6, "SICK-R": 57.3}


@pytest.mark.data
@pytest.mark.skipif("S2SENT_DATA" not in os.environ, reason="S2SENT_DATA is not set")
@pytest.mark.parametrize(("name", "expected"), JACCARD.items())
def test_word_overlap_correlates_with_gold_as_it_is_known_to(name: str, expected: float) -> None:
    """Any slip of a line, a column or a subset would show here."""
    from scipy.stats import spearmanr

    overlap, gold = [], []
    for subset in read_sts(find_folder(), name).subsets:
        for first, second in zip(subset.first, subset.second, strict=True):
            a, b = set(first.lower().split()), set(second.lower().split())
            overlap.append(len(a & b) / len(a | b))
        gold.append(subset.gold)
    assert 100 * spearmanr(overlap, np.concatenate(gold)).statistic == pytest.approx(expected, abs=0.06)
