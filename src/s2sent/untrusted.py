"""The gate for files that come from outside: opened, measured and parsed here, so that each rule stands once.

Whatever a path or a file holds, the outcome is its content or an `S2SentError` that names it. Only regular files are
opened: a FIFO would wait for ever, and a device never ends.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from s2sent.errors import DataError, S2SentError

MAX_JSON = 256 << 20
"""Bytes of a json file. The largest tokenizers have some 40 MB."""
MAX_TOML = 1 << 20
"""Bytes of a toml file, which people write by hand."""
MAX_DEPTH = 64
"""Levels of lists and tables inside each other. Real files have ten at most; Python's parsers give up near 1000."""

_SHOWN = 300
_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
_REQUIRED: Final[Any] = object()

T = TypeVar("T")


def shown(value: object) -> str:
    """Return a path, a key or a value for a message: one line that every terminal can print, and not too long."""
    text = value if isinstance(value, str) else os.fspath(value) if isinstance(value, os.PathLike) else repr(value)
    if not text.isprintable():  # NUL, line ends, escape sequences, and surrogates, which cannot be encoded at all
        text = ascii(text)[1:-1]
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 2 :]}"


def lone_surrogate(text: str) -> str | None:
    """Return the first half of a surrogate pair that stands alone, which is no character; None if there is none."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return text[error.start]
    return None


def is_file(path: Path) -> bool:
    """Whether there is a regular file at `path`; False, not an error, for a name that no file can have."""
    return _is_mode(path, stat.S_ISREG)


def is_folder(path: Path) -> bool:
    """Whether there is a folder at `path`; False, not an error, for a name that no folder can have."""
    return _is_mode(path, stat.S_ISDIR)


def exists(path: Path) -> bool:
    """Whether there is anything at `path`, even a link that leads nowhere."""
    try:
        os.lstat(path)
    except (OSError, ValueError):
        return False
    return True


def _is_mode(path: Path, is_kind: Callable[[int], bool]) -> bool:
    try:
        return is_kind(path.stat().st_mode)
    except (OSError, ValueError):  # ValueError: a NUL or a surrogate in the name
        return False


def open_file(path: Path, *, error: type[S2SentError] = DataError, hint: str = "") -> io.BufferedReader:
    """Open a regular file to read its bytes. Reading it may still fail: `readable` translates that.

    Args:
        path: The file.
        error: What is raised if it cannot be opened.
        hint: What to do then, a sentence.
    """
    with readable(path, error=error, hint=hint):
        _check_regular(path.stat().st_mode, path, error, hint)  # before opening, which a device may notice
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
        # Without waiting, and looked at again: what the name stands for may have changed since.
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
        try:
            _check_regular(os.fstat(descriptor).st_mode, path, error, hint)
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise


@contextmanager
def readable(path: Path, *, error: type[S2SentError] = DataError, hint: str = "") -> Iterator[None]:
    """Turn what the system says about `path` into an error that names it."""
    try:
        yield
    except S2SentError:
        raise
    except (OSError, ValueError) as cause:
        if isinstance(cause, ValueError):
            reason = "cannot be a file: its name has a character that file names cannot have"
            if not isinstance(cause, UnicodeError) and "null" not in str(cause):
                raise
        elif isinstance(cause, FileNotFoundError | NotADirectoryError):
            reason = "does not exist"
        elif cause.errno == errno.ENAMETOOLONG:
            reason = "cannot be a file: its name is too long"
        else:
            reason = f"cannot be read: {cause.strerror or cause}"
        raise error(_sentence(path, reason, hint)) from cause


@contextmanager
def any_error_as(translate: Callable[[str], S2SentError]) -> Iterator[None]:
    """Turn any error of a library that reads a file into the one that `translate` makes from its first line.

    Libraries written in Rust panic with a type of their own, which is no `Exception`.
    """
    try:
        yield
    except S2SentError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        if " " not in reason:  # a KeyError's is the key alone
            reason = f"{type(error).__name__} {reason}".strip()
        raise translate(shown(reason)) from error


def read_bytes(path: Path, *, limit: int = MAX_JSON, error: type[S2SentError] = DataError, hint: str = "") -> bytes:
    """Read a regular file of at most `limit` bytes."""
    with open_file(path, error=error, hint=hint) as file, readable(path, error=error, hint=hint):
        content = file.read(limit + 1)
    if len(content) > limit:
        raise error(_sentence(path, f"is too large: such a file has {limit:,} bytes at most", hint))
    return content


def read_text(path: Path, *, limit: int = MAX_JSON, error: type[S2SentError] = DataError, hint: str = "") -> str:
    """Read a regular file of at most `limit` bytes that is UTF-8."""
    content = read_bytes(path, limit=limit, error=error, hint=hint)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as cause:
        line = content.count(b"\n", 0, cause.start) + 1
        reason = f"is not UTF-8: line {line} has the byte 0x{content[cause.start]:02x}"
        raise error(_sentence(path, reason, hint)) from cause


def read_json(path: Path, *, limit: int = MAX_JSON, error: type[S2SentError] = DataError, hint: str = "") -> Any:
    """Read a json file: plain values, at most `MAX_DEPTH` levels deep, with texts that can be written again."""
    return parse_json(read_text(path, limit=limit, error=error, hint=hint), path, error=error, hint=hint)


def parse_json(text: str | bytes, source: object, *, error: type[S2SentError] = DataError, hint: str = "") -> Any:
    """Parse json as `read_json` does; `source` names it in messages."""
    try:
        value = json.loads(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError:
        raise error(_sentence(source, _TOO_DEEP, hint)) from None
    except ValueError as cause:
        raise error(_sentence(source, f"is not valid json: {cause}", hint)) from cause
    _check_plain(value, source, error, hint)
    return value


def read_toml(
    path: Path, *, limit: int = MAX_TOML, error: type[S2SentError] = DataError, hint: str = ""
) -> dict[str, Any]:
    """Read a toml file: plain values, at most `MAX_DEPTH` levels deep."""
    text = read_text(path, limit=limit, error=error, hint=hint)
    if any(_QUOTED.sub("", key[0]).count(".") > MAX_DEPTH for key in _DOTTED.finditer(text)):
        raise error(_sentence(path, _TOO_DEEP, hint))
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise error(_sentence(path, _TOO_DEEP, hint)) from None
    except ValueError as cause:
        raise error(_sentence(path, f"is not valid TOML: {cause}", hint)) from cause
    _check_plain(value, path, error, hint)
    return value


@dataclass(frozen=True)
class Table:
    """A table of a json or toml file whose lookups check the type, and say file and key if it is another.

    Attributes:
        values: The table itself.
        source: The file.
        error: What is raised.
        prefix: The keys that lead to the table in its file, each with a full stop behind it.
        hint: What to do about an error, a sentence.
    """

    values: dict[str, Any]
    source: Path
    error: type[S2SentError] = DataError
    prefix: str = ""
    hint: str = ""

    @classmethod
    def of(cls, value: object, source: Path, *, error: type[S2SentError] = DataError, hint: str = "") -> Table:
        """Return the table that a file holds."""
        if not isinstance(value, dict):
            raise error(_sentence(source, f"must hold a table, got {_kind(value)}", hint))
        return cls(value, source, error, hint=hint)

    @classmethod
    def read_json(
        cls, path: Path, *, limit: int = MAX_JSON, error: type[S2SentError] = DataError, hint: str = ""
    ) -> Table:
        """Read a json file that holds a table."""
        return cls.of(read_json(path, limit=limit, error=error, hint=hint), path, error=error, hint=hint)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str, kind: type[T], default: T = _REQUIRED) -> T:
        """Return the value of a key: a `str`, `int`, `float` (finite), `bool`, `list` or `dict`."""
        if key not in self.values:
            if default is _REQUIRED:
                raise self.fail(key, "is missing")
            return default
        return self._typed(key, self.values[key], kind)

    def list_of(self, key: str, kind: type[T], default: list[T] = _REQUIRED) -> list[T]:
        """Return a list whose items are all of one type."""
        items = self.get(key, list, default)
        return [self._typed(f"{key}[{place}]", item, kind) for place, item in enumerate(items)]

    def dict_of(self, key: str, kind: type[T], default: dict[str, T] = _REQUIRED) -> dict[str, T]:
        """Return a table whose values are all of one type."""
        return {name: self._typed(f"{key}.{name}", item, kind) for name, item in self.get(key, dict, default).items()}

    def table(self, key: str) -> Table:
        """Return the table inside this one."""
        return Table(self.get(key, dict), self.source, self.error, f"{self.prefix}{key}.", self.hint)

    def to(self, kind: type[T]) -> T:
        """Return this table as a dataclass: each key is one of its fields, and has the field's type.

        A field may be a plain value, `Literal`, `X | None`, `tuple[X, ...]`, `dict[str, X]` or another dataclass.
        """
        options, hints = fields(kind), get_type_hints(kind)  # type: ignore[arg-type]
        self.only({option.name for option in options})
        return kind(
            **{
                option.name: self._as(option.name, hints[option.name])
                for option in options
                if option.name in self or (option.default is MISSING and option.default_factory is MISSING)
            }
        )

    def _as(self, key: str, hint: Any) -> Any:
        origin, inner = get_origin(hint), get_args(hint)
        if is_dataclass(hint):
            return self.table(key).to(hint)  # type: ignore[arg-type]
        if origin is tuple:
            return tuple(self.list_of(key, inner[0]))
        if origin is dict:
            return self.dict_of(key, inner[1])
        if origin is Literal:
            if self.get(key, str) not in inner:
                raise self.fail(key, f"must be one of {', '.join(inner)}, got {shown(self.values[key])}")
            return self.values[key]
        if origin is UnionType:  # X | None
            return None if self.values[key] is None else self._as(key, inner[0])
        return self.get(key, hint)

    def only(self, known: Collection[str]) -> Table:
        """Return this table if it has no other keys than these."""
        for key in self.values:
            if key not in known:
                raise self.fail(key, f"is not known. Known: {', '.join(sorted(known))}")
        return self

    def fail(self, key: str, problem: str) -> S2SentError:
        """Return the error that says what is wrong with a key."""
        return self.error(_sentence(f"{shown(self.source)}: {shown(self.prefix + key)}", problem, self.hint))

    def _typed(self, key: str, value: object, kind: type[T]) -> T:
        fits = isinstance(value, (int, float) if kind is float else kind) and (kind is bool) == isinstance(value, bool)
        if not fits:
            raise self.fail(key, f"must be {_NAMES[kind]}, got {_kind(value)}")
        # Not math.isfinite, which fails on whole numbers that no float can hold.
        if kind is float and not -sys.float_info.max <= value <= sys.float_info.max:  # type: ignore[operator]
            raise self.fail(key, f"must be a finite number, got {shown(repr(value))}")
        return value  # type: ignore[return-value]


# A key with very many full stops (a.a.a.…) makes tomllib take memory in the square of their number.
_QUOTED = re.compile(r"""\"[^"\n]*"|'[^'\n]*'""")
_PART = rf"(?:[\w-]++|{_QUOTED.pattern})"
_DOTTED = re.compile(rf"{_PART}(?:\s*+\.\s*+{_PART})*+")

_TOO_DEEP = f"has lists or tables nested more than {MAX_DEPTH} levels deep"


def _check_regular(mode: int, path: Path, error: type[S2SentError], hint: str) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    what = kinds.get(stat.S_IFMT(mode), "a device")
    raise error(_sentence(path, f"is {what}, not a file", hint))


def _check_plain(value: object, source: object, error: type[S2SentError], hint: str) -> None:
    """Check depth and texts, level by level: a check that called itself would meet the limit it is to guard."""
    level, depth = [value], 0
    while level:
        below: list[object] = []
        for item in level:
            if isinstance(item, dict | list):
                if depth == MAX_DEPTH:
                    raise error(_sentence(source, _TOO_DEEP, hint))
                below += item
                if isinstance(item, dict):
                    below += item.values()
            elif isinstance(item, str) and lone_surrogate(item):
                raise error(_sentence(source, f"has half a character (a lone surrogate) in {shown(item)}", hint))
        level, depth = below, depth + 1


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict | list):
        return _NAMES[type(value)]
    return shown(repr(value))


def _sentence(source: object, problem: str, hint: str) -> str:
    return f"{shown(source)} {problem}." + (f" {hint}" if hint else "")
