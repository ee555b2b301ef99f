"""Write files and folders atomically, and lock them. Whatever stops the process, a target is whole or not there."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from s2sent.errors import ConfigError, DataError, S2SentError


class DiskFullError(S2SentError):
    """There is no room left to write. What was saved before is intact."""


@contextmanager
def atomic_file(target: Path, folder: Path | None = None) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `target` when the block ends, and is removed if it fails.

    Args:
        target: The file to write.
        folder: Where the temporary file is, on the same disk; by default beside `target`. A killed process leaves it
            there, under a name that ends in `.writing`.

    Raises:
        DataError: it cannot be written; `DiskFullError` if there is no room.
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
        raise write_error(target, error) from error
    finally:
        writing.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """Make a temporary folder that becomes `target` when the block ends, and is removed if it fails.

    Args:
        target: The folder to write.
        replace: Whether a folder that is there already is replaced; otherwise only an empty one is.

    Raises:
        ConfigError: there is something at `target` already.
        DataError: it cannot be written; `DiskFullError` if there is no room.
    """
    if not replace and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConfigError(f"{target} exists already. Remove it, or choose another name.")
    writing = target.with_name(f".{target.name}.writing")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(writing, ignore_errors=True)  # of a process that was killed
        writing.mkdir()
        yield writing
        for path in (*writing.rglob("*"), writing):
            sync(path)
        if replace:
            remove_folder(target)
        writing.replace(target)
        sync(target.parent)
    except Exception as error:
        if isinstance(error, OSError) or "(os error " in str(error):  # the latter: a library written in Rust
            raise write_error(target, error) from error
        raise
    finally:
        shutil.rmtree(writing, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder if it is there. It is renamed first, so that nobody finds it half removed."""
    removed = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(removed, ignore_errors=True)  # of a process that was killed
    if folder.exists():
        folder.replace(removed)
        shutil.rmtree(removed, ignore_errors=True)


@contextmanager
def lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock a file until the block or the process ends.

    Args:
        path: The lock file. Made with its folder if it is not there, and never removed.
        wait: Whether to wait while another process holds the lock.

    Yields:
        Whether we hold the lock; with `wait` always True.

    Raises:
        OSError: the file cannot be made, or its disk has no locks.
    """
    # A soft lock, which filelock would fall back to, stays when its process is killed.
    held = FileLock(path, blocking=wait, fallback_to_soft=False)
    try:
        held.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        held.release()


def write_error(target: Path, error: BaseException) -> S2SentError:
    """Return the error that says why `target` was not written."""
    if is_disk_full(error):
        return DiskFullError(
            f"The disk is full: {target} could not be written. What was saved before is intact. Free some space and "
            "run the same command again: it continues from there."
        )
    return DataError(f"{target} cannot be written: {getattr(error, 'strerror', None) or error}.")


def is_disk_full(error: BaseException) -> bool:
    """Whether an error means that the disk, or the user's quota of it, is full."""
    codes = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in codes or "No space left" in str(error) or "os error 28" in str(error)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
