"""Rules for a json file that somebody else made: which keys it may have, and which values.

A rule is one of

=====================  ==============================================
`str`, `bool`          a text; true or false
`float`                a number, whole or not
`range(…)`             a whole number in it
`re.compile(…)`        a text that matches
`{"a", "b"}`           one of these texts
`[rule]`               a list whose items follow the rule
`(rule, rule)`         either
`{"key": rule}`        a table with these keys; `*_token` stands for every key that ends so, `*` for every key
`object`               anything
`None`                 null. Every other rule but that of `*` allows it, too: it stands for the default
`Required(rule)`       the same, but not null
=====================  ==============================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from s2sent.errors import S2SentError
from s2sent.untrusted import Table, shown

Rules = Mapping[str, Any]

NOTHING = object()
"""A rule that no value follows."""
EMPTY: Any = ({}, [NOTHING], {""})


class Required(NamedTuple):
    """A rule for a value that must not be null."""

    rule: Any


def each(rule: Any, keys: str) -> dict[str, Any]:
    """Return the same rule for several keys, which are separated by spaces."""
    return dict.fromkeys(keys.split(), rule)


def is_int(value: Any) -> bool:
    """Whether a value is a whole number, and not true or false."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_keys(table: Table, rules: Rules) -> None:
    """Raise a `ModelError` with file and key unless every key is allowed and its value follows its rule."""
    for key, value in table.values.items():
        rule = _rule_of(key, rules)
        if rule is NOTHING:
            raise refusal(table, key, "s2sent does not know this key; a loader might open a file or run code for it")
        inner = rule.rule if isinstance(rule, Required) else rule
        if isinstance(inner, dict) and isinstance(value, dict):
            check_keys(table.table(key), inner)
        else:
            check_value(table, key, rule)


def check_value(table: Table, key: str, rule: Any) -> None:
    """Raise a `ModelError` with file and key unless the value of a key follows the rule."""
    value = table.values[key]
    if not (_follows(value, rule) or (value is None and not isinstance(rule, Required))):
        raise refusal(table, key, f"must be {_words(rule)}, got {shown(value)}")


def refusal(table: Table, key: str, why: str) -> S2SentError:
    """Return the error that says why a key is refused."""
    hint = "Remove it, or load the folder with sentence-transformers itself if you trust it."
    return replace(table, hint=hint).fail(key, f"is refused: {why}")


def _rule_of(key: str, rules: Rules) -> Any:
    if key in rules:
        return rules[key]
    if key.endswith("_token") and "*_token" in rules:
        return rules["*_token"]
    return Required(rules["*"]) if "*" in rules else NOTHING


def _follows(value: Any, rule: Any) -> bool:
    match rule:
        case Required():
            return _follows(value, rule.rule)
        case type():
            if rule is float:
                return is_int(value) or isinstance(value, float)
            return isinstance(value, rule)
        case range():
            return is_int(value) and value in rule
        case re.Pattern():
            return isinstance(value, str) and rule.fullmatch(value) is not None
        case set():
            return isinstance(value, str) and value in rule
        case [inner] if isinstance(rule, list):
            return isinstance(value, list) and all(_follows(item, inner) for item in value)
        case tuple():
            return any(_follows(value, option) for option in rule)
        case dict():
            return isinstance(value, dict) and all(_follows(item, _rule_of(key, rule)) for key, item in value.items())
    return False  # NOTHING; or None, as null is let through before


def _words(rule: Any) -> str:
    match rule:
        case Required():
            return _words(rule.rule)
        case type():
            return {str: "a text", bool: "true or false", float: "a number"}.get(rule, "anything")
        case range():
            return f"a whole number from {rule.start} to {rule.stop - 1}"
        case re.Pattern():
            return f"a text that matches {rule.pattern}"
        case set():
            return "one of " + ", ".join(map(repr, sorted(rule)))
        case tuple():
            return "empty" if rule is EMPTY else " or ".join(map(_words, rule))
        case [inner]:
            return f"a list, each item {_words(inner)}"
        case dict():
            return f"a table, each value {_words(rule['*'])}" if "*" in rule else "a table"
    return "null"
