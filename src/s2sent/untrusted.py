"""Read files that somebody else made. Each rule about opening, size and parsing is here, once.

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
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, get_args, get_origin, get_type_hints

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


class ErrorOptions(TypedDict, total=False):
    """Options of every reader.

    Attributes:
        error: What is raised; by default `DataError`.
        hint: A sentence that says what to do then.
    """

    error: type[S2SentError]
    hint: str


def _error(source: object, problem: str, error: type[S2SentError] = DataError, hint: str = "") -> S2SentError:
    return error(f"{shown(source)} {problem}." + (f" {hint}" if hint else ""))


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


# --- files --------------------------------------------------------------------------------------------------------


def is_file(path: Path) -> bool:
    """Whether there is a regular file at `path`; False, not an error, for a name that no file can have."""
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Whether there is a folder at `path`; False, not an error, for a name that no folder can have."""
    return stat.S_ISDIR(_mode(path))


def exists(path: Path) -> bool:
    """Whether there is anything at `path`, even a link that leads nowhere."""
    return _mode(path, follow_links=False) != 0


def _mode(path: Path, follow_links: bool = True) -> int:
    try:
        return path.stat(follow_symlinks=follow_links).st_mode
    except (OSError, ValueError):  # ValueError: a NUL or a surrogate in the name
        return 0


def open_file(path: Path, **options: Unpack[ErrorOptions]) -> io.BufferedReader:
    """Open a regular file to read its bytes. Reading it may still fail: `readable` translates that."""
    with readable(path, **options):
        _check_regular(path.stat().st_mode, path, options)  # before opening, which a device may notice
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
        # Without waiting, and looked at again: what the name stands for may have changed since.
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
        try:
            _check_regular(os.fstat(descriptor).st_mode, path, options)
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise


def _check_regular(mode: int, path: Path, options: ErrorOptions) -> None:
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
        raise _error(path, f"is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a file", **options)


@contextmanager
def readable(path: Path, **options: Unpack[ErrorOptions]) -> Iterator[None]:
    """Turn what the system says about `path` into an error that names it."""
    try:
        yield
    except S2SentError:
        raise
    except (OSError, ValueError) as cause:
        if isinstance(cause, ValueError):
            if not isinstance(cause, UnicodeError) and "null" not in str(cause):
                raise
            problem = "cannot be a file: its name has a character that file names cannot have"
        elif isinstance(cause, FileNotFoundError | NotADirectoryError):
            problem = "does not exist"
        elif cause.errno == errno.ENAMETOOLONG:
            problem = "cannot be a file: its name is too long"
        else:
            problem = f"cannot be read: {cause.strerror or cause}"
        raise _error(path, problem, **options) from cause


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


def read_bytes(path: Path, *, limit: int = MAX_JSON, **options: Unpack[ErrorOptions]) -> bytes:
    """Read a regular file of at most `limit` bytes."""
    with open_file(path, **options) as file, readable(path, **options):
        content = file.read(limit + 1)
    if len(content) > limit:
        raise _error(path, f"is too large: such a file has {limit:,} bytes at most", **options)
    return content


def read_text(path: Path, *, limit: int = MAX_JSON, **options: Unpack[ErrorOptions]) -> str:
    """Read a regular file of at most `limit` bytes that is UTF-8."""
    content = read_bytes(path, limit=limit, **options)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as cause:
        line = content.count(b"\n", 0, cause.start) + 1
        problem = f"is not UTF-8: line {line} has the byte 0x{content[cause.start]:02x}"
        raise _error(path, problem, **options) from cause


# --- json and toml ------------------------------------------------------------------------------------------------

# A key with very many full stops (a.a.a.…) makes tomllib take memory in the square of their number.
_QUOTED = re.compile(r"""\"[^"\n]*"|'[^'\n]*'""")
_PART = rf"(?:[\w-]++|{_QUOTED.pattern})"
_DOTTED = re.compile(rf"{_PART}(?:\s*+\.\s*+{_PART})*+")


def read_json(path: Path, *, limit: int = MAX_JSON, **options: Unpack[ErrorOptions]) -> Any:
    """Read a json file: plain values, at most `MAX_DEPTH` levels deep, with texts that can be written again."""
    return parse_json(read_text(path, limit=limit, **options), path, **options)


def parse_json(text: str | bytes, source: object, **options: Unpack[ErrorOptions]) -> Any:
    """Parse json as `read_json` does; `source` names it in messages."""
    return _parse(lambda: json.loads(text if isinstance(text, str) else text.decode()), "json", source, options)


def read_toml(path: Path, *, limit: int = MAX_TOML, **options: Unpack[ErrorOptions]) -> dict[str, Any]:
    """Read a toml file: plain values, at most `MAX_DEPTH` levels deep."""
    text = read_text(path, limit=limit, **options)
    if any(_QUOTED.sub("", key[0]).count(".") > MAX_DEPTH for key in _DOTTED.finditer(text)):
        raise _too_deep(path, options)
    value: dict[str, Any] = _parse(lambda: tomllib.loads(text), "TOML", path, options)
    return value


def _parse(parse: Callable[[], Any], language: str, source: object, options: ErrorOptions) -> Any:
    try:
        value = parse()
    except RecursionError:
        raise _too_deep(source, options) from None
    except ValueError as cause:
        raise _error(source, f"is not valid {language}: {cause}", **options) from cause
    # Level by level: a check that called itself would meet the limit it is to guard.
    level, depth = [value], 0
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict | list):
                if depth == MAX_DEPTH:
                    raise _too_deep(source, options)
                below += item
                below += item.values() if isinstance(item, dict) else ()
            elif isinstance(item, str) and lone_surrogate(item):
                raise _error(source, f"has half a character (a lone surrogate) in {shown(item)}", **options)
        level, depth = below, depth + 1
    return value


def _too_deep(source: object, options: ErrorOptions) -> S2SentError:
    return _error(source, f"has lists or tables nested more than {MAX_DEPTH} levels deep", **options)


@dataclass(frozen=True)
class Table:
    """A table of a json or toml file whose lookups check the type, and raise an error with file and key.

    Attributes:
        values: The table itself.
        source: The file.
        error: What is raised.
        prefix: The keys that lead to the table in its file, each with a full stop behind it.
        hint: A sentence that says what to do about an error.
    """

    values: dict[str, Any]
    source: Path
    error: type[S2SentError] = DataError
    prefix: str = ""
    hint: str = ""

    @classmethod
    def of(cls, value: object, source: Path, **options: Unpack[ErrorOptions]) -> Table:
        """Return the table that a file holds."""
        if not isinstance(value, dict):
            raise _error(source, f"must hold a table, got {_kind(value)}", **options)
        return cls(value, source, **options)

    @classmethod
    def read_json(cls, path: Path, *, limit: int = MAX_JSON, **options: Unpack[ErrorOptions]) -> Table:
        """Read a json file that holds a table."""
        return cls.of(read_json(path, limit=limit, **options), path, **options)

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
        return _error(f"{shown(self.source)}: {shown(self.prefix + key)}", problem, self.error, self.hint)

    def _typed(self, key: str, value: object, kind: type[T]) -> T:
        fits = isinstance(value, (int, float) if kind is float else kind) and (kind is bool) == isinstance(value, bool)
        if not fits:
            raise self.fail(key, f"must be {_NAMES[kind]}, got {_kind(value)}")
        # Not math.isfinite, which fails on whole numbers that no float can hold.
        if kind is float and not -sys.float_info.max <= value <= sys.float_info.max:  # type: ignore[operator]
            raise self.fail(key, f"must be a finite number, got {shown(repr(value))}")
        return value  # type: ignore[return-value]


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict | list):
        return _NAMES[type(value)]
    return shown(repr(value))
