import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from s2sent.errors import DataError, ModelError, S2SentError
from s2sent.untrusted import (
    MAX_DEPTH,
    Table,
    exists,
    is_file,
    is_folder,
    open_file,
    read_json,
    read_text,
    read_toml,
    shown,
)

NO_FILE_NAMES = ["a\0b", "a\ud800b", "x" * 300]


@pytest.mark.parametrize("name", [*NO_FILE_NAMES, "missing", "file/below"])
def test_a_name_that_no_file_has_is_an_error_in_one_printable_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("{}")
    with pytest.raises(DataError, match=r"does not exist|cannot be a file") as caught:
        read_json(tmp_path / name)
    assert str(caught.value).isprintable()
    assert not is_file(tmp_path / name)
    assert not is_folder(tmp_path / name)
    assert not exists(tmp_path / name)


@pytest.mark.timeout(20)
def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    for path, what in [
        (tmp_path / "fifo", "is a FIFO"),
        (tmp_path, "is a folder"),
        (Path("/dev/zero"), "is a device"),
        (tmp_path / "loop", "cannot be read"),
    ]:
        with pytest.raises(ModelError, match=what):
            open_file(path, error=ModelError)


def test_the_hint_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not exist\. Make it first\.$"):
        read_json(tmp_path / "x", hint="Make it first.")


def test_a_file_larger_than_its_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("12345")
    assert read_text(tmp_path / "x", limit=5) == "12345"
    with pytest.raises(DataError, match="too large"):
        read_text(tmp_path / "x", limit=4)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", "{}".encode("utf-16"), b'{"a": "\\ud800"}', b'{"\\ud800": 1}', b"1" * 5000, b"[" * 100_000],
)
def test_json_that_is_no_plain_json_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.json"):
        read_json(tmp_path / "x.json")


def test_depth_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for depth in (MAX_DEPTH, MAX_DEPTH + 1):
        path.write_text("[" * depth + "]" * depth)
        if depth > MAX_DEPTH:
            with pytest.raises(DataError, match="levels deep"):
                read_json(path)
        else:
            assert read_json(path) == json.loads(path.read_text())


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "a=" + "[" * 100_000,
        "a." * 100_000 + "b=1",
        "a={" + "'a'." * 50_000 + "b=1}",
        "[" + '"a" . ' * 50_000 + "b]",
        "a",
    ],
)
def test_toml_that_is_too_deep_or_damaged_is_an_error_at_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(DataError, match=r"x\.toml"):
        read_toml(tmp_path / "x.toml")


def test_ordinary_toml_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("text = '''" + "One. Two. " * 100 + "'''\n[a.b]\nc.d = [1.5, 2.5]")
    assert read_toml(tmp_path / "x.toml")["a"] == {"b": {"c": {"d": [1.5, 2.5]}}}


@pytest.mark.parametrize(
    ("key", "kind", "problem"),
    [
        ("flag", int, "flag must be a whole number, got True"),
        ("count", bool, "count must be true or false, got 3"),
        ("huge", float, "huge must be a finite number, got inf"),
        ("list", str, "list must be a text, got a list"),
        ("absent", str, "absent is missing"),
        ("nothing", dict, "nothing must be a table, got null"),
    ],
)
def test_a_lookup_says_file_key_and_kind(key: str, kind: type, problem: str) -> None:
    values = {"flag": True, "count": 3, "huge": float("inf"), "list": [1, "x"], "nothing": None}
    table = Table.of(values, Path("f.json"), error=ModelError)
    with pytest.raises(ModelError, match=rf"^f\.json: {problem}\.$"):
        table.get(key, kind)


def test_lookups_reach_into_lists_and_tables() -> None:
    table = Table.of({"a": {"b": {"c": [1, "x"], "d": {"k": 1}}}, "n": 2}, Path("f.json"))
    assert table.get("n", float) == 2
    assert table.get("m", float, 0.5) == 0.5
    assert table.table("a").table("b").dict_of("d", int) == {"k": 1}
    with pytest.raises(S2SentError, match=r"f\.json: a\.b\.c\[1\] must be a whole number, got 'x'"):
        table.table("a").table("b").list_of("c", int)
    with pytest.raises(S2SentError, match=r"f\.json: n is not known\. Known: a"):
        table.only({"a"})
    with pytest.raises(S2SentError, match=r"f\.json must hold a table, got a list"):
        Table.of([], Path("f.json"))


@dataclass(frozen=True)
class Inner:
    size: int
    name: str | None = None


@dataclass(frozen=True)
class Outer:
    inner: Inner
    ids: tuple[int, ...]
    kind: Literal["a", "b"] = "a"
    texts: dict[str, str] = field(default_factory=dict)


def test_a_table_becomes_a_dataclass_or_the_key_is_named() -> None:
    def read(**values: object) -> Outer:
        return Table.of({"inner": {"size": 1}, "ids": [1, 2], **values}, Path("f.json")).to(Outer)

    assert read() == Outer(Inner(1), (1, 2))
    assert read(inner={"size": 1, "name": None}, kind="b", texts={"x": "y"}) == Outer(Inner(1), (1, 2), "b", {"x": "y"})
    for values, problem in (
        ({"inner": {}}, r"inner\.size is missing"),
        ({"inner": {"size": 1, "name": 2}}, r"inner\.name must be a text, got 2"),
        ({"inner": {"size": 1, "x": 2}}, r"inner\.x is not known"),
        ({"ids": [1, "x"]}, r"ids\[1\] must be a whole number"),
        ({"kind": "c"}, "kind must be one of a, b, got c"),
        ({"texts": {"x": 1}}, r"texts\.x must be a text"),
    ):
        with pytest.raises(DataError, match=rf"^f\.json: {problem}"):
            read(**values)


def test_shown_is_one_short_printable_line() -> None:
    for value in ("a\x1b[31m\n", "\ud800", "x" * 10_000, {"k": "\0"}, Path("a\0")):
        assert shown(value).isprintable()
        assert len(shown(value)) <= 301
