"""Each rule accepts what it says and nothing else, and the error names file and key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from s2sent.errors import ModelError
from s2sent.model.rules import EMPTY, Required, check_keys, each
from s2sent.untrusted import Table


def table(value: object) -> Table:
    return Table.of({"key": value}, Path("f.json"), error=ModelError)


@pytest.mark.parametrize(
    ("rule", "allowed", "refused", "words"),
    [
        (str, ["", "x"], [1, True, ["x"], {}], "a text"),
        (bool, [True, False], [0, 1, "true"], "true or false"),
        (float, [0, -1.5, 10**30], [True, "1", []], "a number"),
        (range(3), [0, 2], [-1, 3, 1.0, True, "1"], "a whole number from 0 to 2"),
        (re.compile(r"\w+", re.ASCII), ["a_1"], ["", "a b", "é", "a\n", 1], r"a text that matches \w+"),
        ({"a", "b"}, ["a"], ["c", "", 1, ["a"]], "one of 'a', 'b'"),
        ([str], [[], ["x"]], ["x", [1], ["x", None], {}], "a list, each item a text"),
        ((bool, [str]), [True, ["x"]], ["x", [True]], "true or false or a list, each item a text"),
        ({"*": range(3)}, [{}, {"x": 1}], [1, []], "a table, each value a whole number from 0 to 2"),
        ({"a": str}, [{}, {"a": "x"}, {"a": None}], ["a", [], 1], "a table"),
        ([{"a": str}], [[{"a": "x"}], [{}]], [[{"b": "x"}], [{"a": 1}], [{"a": None}]], "a list, each item a table"),
        (object, [1, "x", [None], {"a": {}}], [], ""),
        (None, [], ["", 0, False, [], {}], "null"),
        (EMPTY, [{}, [], ""], [{"a": None}, [1], " ", 0], "empty"),
    ],
)
def test_a_rule_accepts_what_it_says_and_null(rule: Any, allowed: list[Any], refused: list[Any], words: str) -> None:
    for value in [*allowed, None]:
        check_keys(table(value), {"key": rule})
    for value in allowed:
        check_keys(table(value), {"key": Required(rule)})
    for value in refused:
        with pytest.raises(ModelError, match=rf"^f\.json: key is refused: must be {re.escape(words)}, got "):
            check_keys(table(value), {"key": rule})
    if rule is not object:
        with pytest.raises(ModelError, match="got None"):
            check_keys(table(None), {"key": Required(rule)})


def test_an_unknown_key_is_refused_at_any_depth() -> None:
    rules = {"key": {"a": {**each(str, "b c")}, "n": {"*": str}}}
    check_keys(table({"a": {"b": "x", "c": None}, "n": {"x": "y"}}), rules)
    for value, key in (
        ({"b": 1}, "key.b"),
        ({"a": {"d": 1}}, "key.a.d"),
        ({"a": {"b": 1}}, "key.a.b"),
        ({"n": {"x": None}}, "key.n.x"),
    ):
        with pytest.raises(ModelError, match=rf"f\.json: {re.escape(key)} is refused"):
            check_keys(table(value), rules)


def test_keys_of_tokens_share_a_rule() -> None:
    rules = {"*_token": str, "add_bos_token": bool}
    check_keys(Table.of({"mask_token": "m", "x_token": None, "add_bos_token": True}, Path("f")), rules)
    for values in ({"mask_token": 1}, {"add_bos_token": "x"}, {"token": "x"}):
        with pytest.raises(ValueError, match="is refused"):
            check_keys(Table.of(values, Path("f")), rules)
