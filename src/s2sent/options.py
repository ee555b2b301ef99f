"""Options defined once: dataclass fields that check themselves, from which TOML files and the command line follow.

A field's type and default are those of the dataclass, its help is its entry under `Args:` in the docstring, and
`option` adds rules for its value and the heading under which `--help` shows it.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from s2sent.errors import ConfigError
from s2sent.untrusted import exists, read_toml, shown

_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    str: ((str, Path), "a text"),
}
_LISTS = {str: "a list of texts", float: "a list of numbers"}
REQUIRED = MISSING
"""The default of an option that must be given."""
_LARGEST_INT = 2**53
"""Above it, a float cannot hold every whole number."""


class Rule(NamedTuple):
    """What a value must fulfil, and how to say it after "must be"."""

    test: Callable[[Any], bool]
    text: str


def above(limit: float) -> Rule:
    """Return the rule for numbers above a limit."""
    return Rule(lambda value: value > limit, f"above {limit}")


def at_least(limit: float, why: str = "") -> Rule:
    """Return the rule for numbers of at least a limit."""
    return Rule(lambda value: value >= limit, f"at least {limit}{why}")


def option(default: Any, *rules: Rule, group: str = "", paths: bool = False, keep: tuple[str, ...] = ()) -> Any:
    """Return a field of an `Options` class.

    Args:
        default: The default, or `REQUIRED`.
        *rules: What the value must fulfil; None is not checked.
        group: The heading under which `--help` lists it; empty for the options that most people need.
        paths: Whether the value names files or folders.
        keep: Values that do not name a file, though one of this name may exist.
    """
    return field(default=default, metadata={"rules": rules, "group": group, "paths": paths, "keep": keep})


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base class of recipes: its fields check their types and rules when an instance is made."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for one in fields(self):
            value = _checked(one.name, getattr(self, one.name), hints[one.name])
            object.__setattr__(self, one.name, value)
            for rule in metadata(type(self), one.name).get("rules", ()) if value is not None else ():
                self.check(one.name, rule.test(value), rule.text)

    def check(self, name: str, legal: bool, text: str) -> None:
        """Raise unless a field's value is legal; `text` follows "must be"."""
        if not legal:
            raise ConfigError(f"{name} must be {text}, got {shown(repr(getattr(self, name)))}.")

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain values, without those that are None."""
        return {name: _plain(value) for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make an instance from plain values; an unknown or a missing option is an error."""
        known = fields(cls)
        if unknown := sorted(set(values) - {one.name for one in known}):
            raise ConfigError(
                f"Unknown option{'s' * (len(unknown) > 1)}: {shown(', '.join(unknown))}. "
                f"Legal: {', '.join(one.name for one in known)}."
            )
        if missing := [one.name for one in known if is_required(one) and one.name not in values]:
            raise ConfigError(f"The recipe does not say its {' and '.join(missing)}.")
        return cls(**values)

    def save(self, path: Path) -> None:
        """Write the options as TOML."""
        path.write_text(to_toml(self.to_dict()), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a TOML file that `save`, or a person, wrote."""
        return cls.in_file(path, read_toml(path))

    @classmethod
    def in_file(cls, path: Path, values: Mapping[str, Any]) -> Self:
        """Make an instance from the values of a file; errors name the file."""
        try:
            return cls.from_dict(values)
        except ConfigError as error:
            raise ConfigError(f"{shown(path)}: {error}") from error

    def with_absolute_paths(self) -> Self:
        """Return the options with the paths of existing files made absolute, so that they work from any folder."""
        return self._with_paths(lambda path: str(path.absolute()))

    def with_basenames(self) -> Self:
        """Return the options with the names of existing files instead of their paths, for readers elsewhere."""
        return self._with_paths(lambda path: path.name)

    def _with_paths(self, convert: Callable[[Path], str]) -> Self:
        changes = {}
        for one in fields(self):
            if metadata(type(self), one.name).get("paths"):
                keep = metadata(type(self), one.name)["keep"]
                value = getattr(self, one.name)
                names = (value,) if isinstance(value, str) else value
                names = tuple(
                    convert(Path(name)) if name not in keep and exists(Path(name)) else name for name in names
                )
                changes[one.name] = names[0] if isinstance(value, str) else names
        return replace(self, **changes)


def is_required(one: Field[Any]) -> bool:
    """Whether a field has no default."""
    return one.default is MISSING and one.default_factory is MISSING


def metadata(kind: type, name: str) -> Mapping[str, Any]:
    """Return what `option` says of a field; a class that only changes its default has it from a base."""
    found = (one.__dict__.get("__dataclass_fields__", {}).get(name) for one in kind.__mro__)
    return next((one.metadata for one in found if one is not None and one.metadata), {})


def help_texts(kind: type) -> dict[str, str]:
    """Return the help of a dataclass's fields: their entries under `Args:` in its docstring and its bases'."""
    texts: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        _, _, section = inspect.cleandoc(one.__doc__ or "").partition("Args:\n")
        entries = re.split(r"^ {4}(?=\w+: )", re.split(r"^\S", section, maxsplit=1, flags=re.M)[0], flags=re.M)[1:]
        texts |= {name: " ".join(text.split()) for name, _, text in (entry.partition(": ") for entry in entries)}
    return texts


def _checked(name: str, value: Any, hint: Any) -> Any:
    """Return the value of an option if it is of its type; a list as a tuple, a path as a text."""
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not types.NoneType]
        if len(kinds) > 1 or (value is None and len(kinds) < len(get_args(hint))):
            return value  # of several types: for the rules
        hint = kinds[0]
    if get_origin(hint) is Literal:
        _require(value in get_args(hint), name, f"one of {', '.join(map(repr, get_args(hint)))}", value)
    elif get_origin(hint) is tuple:
        item = get_args(hint)[0]
        items = value if isinstance(value, list | tuple) else [value]
        _require(all(_is_a(item, one) for one in items), name, _LISTS[item], value)
        return tuple(map(str, items)) if item is str else tuple(items)
    elif hint in _KINDS:
        _require(_is_a(hint, value), name, _KINDS[hint][1], value)
        if hint in (int, float):
            largest = _LARGEST_INT if hint is int else sys.float_info.max
            _require(-largest <= value <= largest, name, f"a finite number of at most {largest}", value)
        return str(value) if hint is str else value
    return value


def _is_a(kind: Any, value: object) -> bool:
    return isinstance(value, _KINDS[kind][0]) and (kind is bool) == isinstance(value, bool)


def _require(legal: bool, name: str, text: str, value: object) -> None:
    if not legal:
        raise ConfigError(f"{name} must be {text}, got {shown(repr(value))}.")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: list(v) if isinstance(v, tuple) else v for name, v in value.items()}
    return list(value) if isinstance(value, tuple) else value


def to_toml(values: Mapping[str, Any]) -> str:
    """Return plain values as TOML: scalars and lists first, then tables."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in values.items() if not isinstance(value, Mapping)]
    for name, table in values.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{name}]", *(f"{key} = {_toml_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's strings and booleans are TOML's
