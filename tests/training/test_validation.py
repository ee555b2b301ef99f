"""Scored pairs of one's own: what is read as it stands, and what is refused before anything is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from s2sent.errors import DataError
from s2sent.training.validation import read_pairs

HEAD = "sentence1,sentence2,score\n"
GOOD = "a,b,1\nc,d,2\ne,f,3\n"


def test_pairs_are_read_as_they_stand(tmp_path: Path) -> None:
    quoted = tmp_path / "pairs.csv"
    quoted.write_text('\ufeffscore,sentence1,sentence2,more\r\n1,"a, ""b""",c,x\r\n2.5,d,e,x\r\n0,f,g,x\r\n')
    plain = tmp_path / "pairs.tsv"  # where a quotation mark is one, and need not be closed
    plain.write_text('sentence1\tsentence2\tscore\n"a\tb\t1\nc\t"d\t2\ne\tf\t3\n')
    assert read_pairs(quoted).first == ['a, "b"', "d", "f"]
    assert read_pairs(quoted).gold == [1, 2.5, 0]
    assert (read_pairs(plain).first, read_pairs(plain).second) == (['"a', "c", "e"], ["b", '"d', "f"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEAD + GOOD + "g,h,nan\n", "line 5 has the score 'nan', which is not a number"),
        (HEAD + GOOD + "g,h,high\n", "line 5 has the score 'high', which is not a number"),
        (HEAD + GOOD + "g,h\n", "line 5 has 2 columns instead of 3"),
        (HEAD + GOOD + "g, ,1\n", "line 5 has an empty sentence"),
        (HEAD + GOOD + "g,\udcff,1\n", "line 5 is not valid UTF-8"),
        (HEAD + GOOD + '"g,h,1\n', "Correct its quotes"),
        (HEAD + "a,b,1\nc,d,1\ne,f,1\n", "nothing to rank"),
        (HEAD + "a,b,1\nc,d,2\n", "nothing to rank"),
        ("sentence1,sentence2\na,b\n", "has no column 'score'"),
        ("", "is empty"),
    ],
)
def test_what_cannot_be_ranked_is_refused_with_its_line(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=said) as error:
        read_pairs(path)
    assert str(path) in str(error.value)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a folder, not a file"):
        read_pairs(tmp_path / "folder.csv")
    (tmp_path / "pairs.txt").write_text("a line\n")
    with pytest.raises(DataError, match="a text a line and no columns"):
        read_pairs(tmp_path / "pairs.txt")
