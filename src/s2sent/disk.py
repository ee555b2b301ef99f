"""Files that are whole or not there: what is written may be cut off at any instant. And locks that die with us."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from s2sent.errors import ConfigError, DataError, S2SentError


class DiskFullError(S2SentError):
    """There is no room left to write. What was saved before is still good."""


@contextmanager
def whole_file(target: Path, folder: Path | None = None) -> Iterator[IO[bytes]]:
    """Give a file to write that becomes `target` when all is written, and vanishes when that fails.

    Args:
        target: Where the file shall be.
        folder: Where it is written, on the same disk; by default beside `target`. A process that is killed leaves
            what it had written, under a name that ends in `.writing`.

    Raises:
        DataError: it cannot be written; `DiskFullError` if for want of room.
    """
    writing = (folder or target.parent) / f".{target.name}.{os.getpid()}.writing"
    try:
        with writing.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        writing.replace(target)
        sync(target.parent)
    except OSError as error:
        raise unwritable(target, error) from error
    finally:
        writing.unlink(missing_ok=True)


def unwritable(target: Path, error: BaseException) -> S2SentError:
    """Say why `target` was not written."""
    if is_full(error):
        return DiskFullError(
            f"The disk is full: {target} could not be written. What was saved before is intact. Make room and run "
            "the same command again: it goes on from there."
        )
    return DataError(f"{target} cannot be written: {getattr(error, 'strerror', None) or error}.")


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_full(error: BaseException) -> bool:
    """Whether an error means that the disk, or the user's part of it, is full."""
    codes = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in codes or "No space left" in str(error) or "os error 28" in str(error)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a folder to write into that becomes `target` when all is written, and vanishes when that fails.

    Raises:
        ConfigError: there is something at `target` already.
        DataError: it cannot be written; `DiskFullError` if for want of room.
    """
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConfigError(f"{target} is there already. Remove it, or choose another name.")
    writing = target.with_name(f".{target.name}.writing")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(writing, ignore_errors=True)  # what was cut off
        writing.mkdir()
        yield writing
        for path in (*writing.iterdir(), writing):
            sync(path)
        writing.replace(target)
        sync(target.parent)
    except OSError as error:
        raise unwritable(target, error) from error
    finally:
        shutil.rmtree(writing, ignore_errors=True)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock that the kernel drops when its process ends: whether we got it, which with `wait` we always do."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
