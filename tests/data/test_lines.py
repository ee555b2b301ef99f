from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sent.data.lines import damage_notes, is_mojibake, read_lines, words
from s2sent.errors import DataError


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "some.txt"
    path.write_bytes(data)
    return path


@given(st.lists(st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=["Cs"])), min_size=1))
def test_lines_come_back_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, rows: list[str]) -> None:
    """Unicode line breaks inside a sentence (U+0085, U+2028, form feed) must not shift what stands below."""
    rows = [row.lstrip("\ufeff") for row in [*rows, "end"]]
    for end in ("\n", "\r\n"):
        path = tmp_path_factory.mktemp("lines") / "some.txt"
        path.write_bytes((end.join(rows) + end).encode())
        assert list(read_lines(path).rows) == rows


def test_a_byte_order_mark_and_a_missing_last_newline(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path, b"\xef\xbb\xbfone\ntwo")).rows == ("one", "two")


def test_a_bad_byte_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, b"fine\nalso fine\nsister\xf0city\n")
    with pytest.raises(DataError, match=r"some\.txt, line 3: byte 0xf0 is not utf-8"):
        read_lines(path)
    assert read_lines(path, "latin-1").rows[2] == "sister\u00f0city"


@pytest.mark.parametrize("data", [b"", b"\n\n  \n"])
def test_an_empty_file_is_an_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DataError, match="is empty"):
        read_lines(write(tmp_path, data))


def test_a_missing_file_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.txt does not exist\. Ask Ada\."):
        read_lines(tmp_path / "nowhere.txt", hint="Ask Ada.")


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder, not a file"):
        read_lines(tmp_path)


@pytest.mark.parametrize("text", ["café", "naïve – “quoted”", "東京", "plain", "Œuvre", "5 €"])
def test_real_text_is_not_mojibake(text: str) -> None:
    assert not is_mojibake(text)


@pytest.mark.parametrize("text", ["café", "“quoted”", "naïve", "Straße"])
def test_text_decoded_wrongly_is(text: str) -> None:
    assert is_mojibake(text.encode().decode("latin-1"))
    assert is_mojibake(text.encode("cp1252").decode("utf-8", "replace"))


def test_damage_is_counted_not_hidden() -> None:
    notes = damage_notes("CR", ["", "fine", "cafÃ©", ""])
    assert notes == [
        "CR: 2 empty sentences, kept as SentEval does; a model that refuses them is shown a full stop",
        "CR: 1 sentence with damaged characters (mojibake), used as written",
    ]
    assert damage_notes("CR", ["fine"]) == []


def test_words_are_joined_by_one_space() -> None:
    assert words("  a\tb \u00a0 c ") == "a b c"
