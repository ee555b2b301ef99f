"""Command-line options made from dataclass fields, which are the one place where an option is defined.

A field's type, default, help and heading are read from it. A list is given with commas (`--columns sent0,sent1`).
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from s2sent.errors import ConfigError
from s2sent.options import help_texts, is_required, metadata
from s2sent.selection.config import SelectionConfig

SELECTION = "Selection"
"""The heading of the selection's options."""


def with_options(parameters: Iterable[inspect.Parameter]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command with `**options` these parameters."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        # The command's own options that have a heading come last.
        last = [one for one in own if get_args(one.annotation)[1].rich_help_panel]
        ordered = [*(one for one in own if one not in last), *parameters, *last]
        command.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in ordered]
        )
        return command

    return decorate


def options_of(
    kinds: Sequence[type], *, skip: Sequence[str] = (), short: Mapping[str, str] | None = None
) -> list[inspect.Parameter]:
    """Return the options for the fields of some dataclasses, of which the first one's defaults are the command's.

    Args:
        kinds: The dataclasses. A field that only some of them have is listed under their names.
        skip: Fields that are no options.
        short: One-letter names.
    """
    found: dict[str, inspect.Parameter] = {}
    for kind in kinds:
        hints = get_type_hints(kind)
        for one in fields(kind):
            if one.name in found or one.name in skip:
                continue
            owners = [other for other in kinds if one.name in {field.name for field in fields(other)}]
            group = metadata(kind, one.name).get("group", "")
            if len(owners) < len(kinds):
                group = f"Only with --objective {owners[0].objective}"  # type: ignore[attr-defined]
            text = help_texts(kind)[one.name] + ("" if is_required(one) else _defaults(one.name, owners))
            letters = [f"-{(short or {})[one.name]}"] if one.name in (short or {}) else []
            found[one.name] = _parameter(one.name, hints[one.name], text, group, letters)
    return list(found.values())


def selection_options(defaults: Mapping[str, Any], *, skip: Sequence[str] = ()) -> list[inspect.Parameter]:
    """Return the options for the fields of `SelectionConfig`.

    Args:
        defaults: The command's defaults where they are not the paper's.
        skip: Fields that are no options of the command.
    """
    hints, texts = get_type_hints(SelectionConfig), help_texts(SelectionConfig)
    return [
        _parameter(
            one.name, hints[one.name], f"{texts[one.name]} Default: {_shown(defaults.get(one.name, one.default))}.",
            SELECTION,
        )
        for one in fields(SelectionConfig)
        if one.name not in (*skip, "block_scales")  # which is measured
    ]  # fmt: skip


def parse(kinds: Sequence[type], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, as values of their fields' types; the dataclasses check them."""
    hints: dict[str, Any] = {}
    for kind in kinds:
        hints |= get_type_hints(kind)
    return {name: _value(name, hints[name], value) for name, value in options.items() if value not in (None, [], ())}


def split_selection(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the selection, and the others."""
    names = {one.name for one in fields(SelectionConfig)}
    return (
        {name: value for name, value in values.items() if name in names},
        {name: value for name, value in values.items() if name not in names},
    )


def _parameter(name: str, hint: Any, text: str, group: str, letters: Sequence[str] = ()) -> inspect.Parameter:
    flag = "--" + name.replace("_", "-")
    kind, metavar = _kind(hint)
    flags = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag, *letters]
    info = typer.Option(*flags, help=text, metavar=metavar, rich_help_panel=group or None, show_default=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )


def _kinds(hint: Any) -> list[Any]:
    """Return the types that a value may have, without None."""
    is_union = get_origin(hint) in (Union, types.UnionType)
    return [kind for kind in (get_args(hint) if is_union else [hint]) if kind is not types.NoneType]


def _kind(hint: Any) -> tuple[Any, str | None]:
    """Return the type of an option on the command line, and what stands for its value in the help."""
    kinds = _kinds(hint)
    if len(kinds) > 1:
        return str, "N | N,N,…" if any(get_origin(kind) is tuple for kind in kinds) else "N | TEXT"
    if get_origin(kinds[0]) is Literal:
        return str, "|".join(get_args(kinds[0]))
    if get_origin(kinds[0]) is tuple:
        return list[str], "TEXT,…" if get_args(kinds[0])[0] is str else "X,…"
    return kinds[0], None


def _value(name: str, hint: Any, value: Any) -> Any:
    kinds = _kinds(hint)
    if isinstance(value, list):
        items = [item.strip() for text in value for item in text.split(",")]
        return tuple(items if get_args(kinds[0])[0] is str else (_number(name, item, float) for item in items))
    if len(kinds) > 1 and any(get_origin(kind) is tuple for kind in kinds):
        numbers = tuple(_number(name, item, int) for item in value.split(","))
        return numbers[0] if len(numbers) == 1 else numbers
    if len(kinds) > 1 and value.isascii() and value.isdecimal():
        return int(value)
    return value


def _number(name: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        flag = "--" + name.replace("_", "-")
        raise ConfigError(f"{flag} must be a number, or several with commas, got {text!r}.") from None


def _defaults(name: str, kinds: Sequence[type]) -> str:
    """Return the sentence with an option's default, and with those of other dataclasses where they differ."""
    values = {kind: next(one.default for one in fields(kind) if one.name == name) for kind in kinds}
    first = values[kinds[0]]
    said = [] if first in (None, ()) else [_shown(first)]
    said += [f"{kind.objective}: {_shown(value)}" for kind, value in values.items() if value != first]  # type: ignore[attr-defined]
    return f" Default: {'; '.join(said)}." if said else ""


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
