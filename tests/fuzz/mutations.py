"""Valid files, changed: bytes flipped, cut and inserted; values of other types, deep nests, keys twice."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import strategies as st

_PIECES = [
    b"", b"\x00", b"\xff", b"\n", b"\r", b"\r\n", b"\t", b",", b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b"=", b"#",
    b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b"\xe2\x80\xa8", b"\x1b[31m", b"\\ud800", b"NaN", b"1e999", b"-1",
    b"null",     b"[" * 2000, b'{"a":' * 2000, b"9" * 5000, b"x" * 100_000, b"a.a." * 500, b"..", b"/dev/zero",
]  # fmt: skip

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 3, 10**9, 10**400, 0.5, -0.0, 1e308, math.inf, -math.inf, math.nan,
    "", "x", "0", "\x00", "\ud800", "é", "../x", "/dev/zero", "a" * 300, "a" * 10_000, "auto", "mean", "gelu",
    [], [[]], [None], [1, 2], ["x"], [0.5, "x"], {}, {"x": 1}, {"": {}}, {"x": {"x": {"x": []}}},
]  # fmt: skip


def deep(levels: int) -> Any:
    """Lists inside each other."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@st.composite
def changed_bytes(draw: st.DrawFn, valid: bytes) -> bytes:
    """A file in which one to four places were damaged."""
    data = valid
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.sampled_from([0, 1, 2, 5, 40])))
        match draw(st.sampled_from(["flip", "cut", "insert", "remove", "repeat", "noise"])):
            case "flip" if start < len(data):
                data = data[:start] + bytes([data[start] ^ (1 << draw(st.integers(0, 7)))]) + data[start + 1 :]
            case "cut":
                data = data[:start]
            case "insert":
                data = data[:start] + draw(st.sampled_from(_PIECES)) + data[start:]
            case "remove":
                data = data[:start] + data[stop:]
            case "repeat":
                data = data[:stop] + data[start:stop] * draw(st.integers(1, 3)) + data[stop:]
            case _:
                data = data[:start] + draw(st.binary(max_size=12)) + data[start:]
    return data


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a tree of lists and tables, the root first; of a deep nest, the uppermost."""
    if len(path) > 12:
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in _places(inner, (*path, key)))]


def _with(value: Any, path: tuple[Any, ...], change: Any) -> Any:
    """A copy in which `change` was applied to what is at a path."""
    if not path:
        return change(value)
    inner = _with(value[path[0]], path[1:], change)
    if isinstance(value, dict):
        return {**value, path[0]: inner}
    return [*value[: path[0]], inner, *value[path[0] + 1 :]]


@st.composite
def changed_values(draw: st.DrawFn, valid: Any) -> Any:
    """A tree in which one or two values were replaced, removed or added."""
    value = valid
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(_places(value)[:400]))
        odd = draw(
            st.one_of(st.sampled_from(VALUES), st.integers(60, 2000).map(deep), st.integers(), st.text(max_size=5))
        )
        key = draw(st.sampled_from(["x", "auto_map", "trust_remote_code", "weights_only", "path", "", "__class__"]))
        how = draw(st.sampled_from(["replace", "replace", "remove", "add", "wrap"]))

        def change(old: Any, how: str = how, odd: Any = odd, key: str = key) -> Any:
            match how, old:
                case "remove", dict() if old:
                    return dict(list(old.items())[1:])
                case "remove", list() if old:
                    return old[1:]
                case "add", dict():
                    return {**old, key: odd}
                case "add", list():
                    return [*old, odd]
                case "wrap", _:
                    return [old]
            return odd

        value = _with(value, path, change)
    return value


def to_json(value: Any) -> bytes:
    """Json, with what json has no word for as Python writes it."""
    encoder = json.JSONEncoder()
    text = "".join(encoder.iterencode(value)) if _shallow(value) else _flat(value)
    return text.encode()


def _shallow(value: Any) -> bool:
    depth, level = 0, [value]
    while level and depth < 200:
        level = [
            inner for item in level if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]  # fmt: skip
        depth += 1
    return depth < 200


def _flat(value: Any) -> str:
    """A nest that is too deep for the encoder: as many brackets, in the place of all."""
    return "[" * 3000 + "]" * 3000 if isinstance(value, list) else '{"x":' * 3000 + "1" + "}" * 3000


@st.composite
def changed_json(draw: st.DrawFn, valid: bytes) -> bytes:
    """A json file: damaged as bytes, changed in its values, or with a key twice."""
    match draw(st.sampled_from(["bytes", "values", "values", "values", "twice"])):
        case "bytes":
            return draw(changed_bytes(valid))
        case "values":
            return to_json(draw(changed_values(json.loads(valid))))
    value = json.loads(valid)
    if not isinstance(value, dict) or not value:
        return valid + valid
    key = draw(st.sampled_from(sorted(value)))
    odd = to_json(draw(st.sampled_from(VALUES)))
    return valid.rstrip()[:-1] + b", " + json.dumps(key).encode() + b": " + odd + b"}"


def to_toml(value: Any) -> bytes:
    """Toml with all tables in a line each; what toml has no word for is left out."""
    if not isinstance(value, dict):
        return b"= " + to_json(value)
    return "".join(f"{json.dumps(str(key))} = {_toml(inner)}\n" for key, inner in value.items()).encode(
        "utf-8", "replace"
    )


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]" if _shallow(value) else "[" * 3000 + "]" * 3000
    if isinstance(value, float):
        return repr(value)
    return '""' if value is None else json.dumps(value, ensure_ascii=False)


@st.composite
def changed_toml(draw: st.DrawFn, valid: Any, text: bytes) -> bytes:
    """A toml file: damaged as bytes, or changed in its values."""
    if draw(st.sampled_from(["bytes", "values", "values"])) == "bytes":
        return draw(changed_bytes(text))
    return to_toml(draw(changed_values(valid)))
