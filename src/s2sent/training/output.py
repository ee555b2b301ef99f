"""The folder a run leaves behind: who may write there, and how the model gets into it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from transformers.utils import logging

from s2sent.atomic import lock, sync, write_error
from s2sent.errors import ConfigError, S2SentError
from s2sent.training.checkpoint import Checkpoint, whole_folder
from s2sent.training.recipes import Recipe
from s2sent.untrusted import exists, is_folder, read_toml

_LOCK, _LOG, _FILES = "training/.lock", "training/log.jsonl", "training/files.txt"
_FIRST = (_LOCK, "training/log.new")
"""What a run has written before its log is there. In a folder without a log, nothing else is a run's."""
_OWN = (
    *_FIRST,
    _LOG,
    _FILES,
    "recipe.toml",
    "training/curve.png",
    "training/events.out.tfevents.*",
    "checkpoints/step-*",
    "checkpoints/best-*",
    "checkpoints/model/*",
    "checkpoints/.writing-*",
    ".checkpoints-removed/*",
)
"""What a run writes, besides the model's files, which it lists in `_FILES`."""


class FinishedError(ConfigError):
    """This very run has come to its end already."""


def check_output(output: Path, recipe: Recipe, found: Checkpoint | None, *, restart: bool = False) -> None:
    """Raise unless a run of this recipe may begin or, with a checkpoint, go on in `output`."""
    if exists(output) and not is_folder(output):
        raise ConfigError(f"{output} is a file; the output is a folder.")
    if restart:
        for name in (recipe.backbone, *recipe.corpus, recipe.dev):
            path = Path(name).expanduser()
            if exists(path) and path.resolve().is_relative_to(output.resolve()):
                raise ConfigError(f"{name} is in {output}, which --restart clears. Choose another output.")
    elif found is not None:
        if differing := _differing(found.run["recipe"], recipe):
            raise ConfigError(
                f"{output} has an unfinished run of another recipe (it differs in {differing}). Go on with "
                f"--recipe {output / 'recipe.toml'}, choose another output, or begin anew with --restart."
            )
        return
    elif (output / "modules.json").exists():
        shutil.rmtree(output / ".checkpoints-removed", ignore_errors=True)  # of a run killed while it cleaned up
        differing = _differing(_saved(output / "recipe.toml"), recipe)
        if not differing:
            raise FinishedError(f"Done already: the model of this run is in {output}. To train it again: --restart.")
        raise ConfigError(
            f"{output} has a finished model of another recipe already (it differs in {differing}). Choose another "
            "output, or train it anew with --restart."
        )
    if stranger := next((path for path, own in _files(output) if not own), None):
        raise ConfigError(
            f"{output} is not empty: it has {stranger.relative_to(output)}, which no run says it wrote. Choose "
            "another output, or remove the folder yourself."
        )


def _saved(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except S2SentError:
        return {}


def _differing(before: Mapping[str, Any], recipe: Recipe) -> str:
    """What differs, in words; nothing if nothing does."""
    with suppress(S2SentError):  # from a file, it has lists for tuples, and none of the newest options
        before = Recipe.from_dict(before).to_dict()
    now = recipe.to_dict()
    return ", ".join(sorted(key for key in {*before, *now} if before.get(key) != now.get(key)))


def _files(output: Path) -> Iterator[tuple[Path, bool]]:
    """All files in `output`, and whether a run wrote them."""
    own, listed = _OWN if (output / _LOG).exists() else _FIRST, output / _FILES
    model = listed.read_text(encoding="utf-8", errors="replace").splitlines() if own is _OWN and listed.exists() else []
    for folder, _, names in os.walk(output):  # which is not disturbed by what a running process removes
        for path in (Path(folder, name) for name in names):
            name = path.relative_to(output).as_posix()
            yield path, name in model or any(fnmatchcase(name, pattern) for pattern in own)


@contextmanager
def claimed(output: Path) -> Iterator[None]:
    """Keep other processes from training in `output`."""
    with ExitStack() as stack:
        try:
            (output / _LOCK).parent.mkdir(parents=True, exist_ok=True)
            ours = stack.enter_context(lock(output / _LOCK, wait=False))
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):  # a shared disk without locks
                raise write_error(output, error) from error
            ours = True
        if not ours:
            raise ConfigError(f"Another process is training in {output}. Wait for it, or choose another output.")
        yield


def clear_output(output: Path) -> None:
    """Remove what an earlier run wrote but for its checkpoints and the log, and nothing else.

    Cut short, it leaves no model, and nothing that would be taken for a stranger's: the list goes last, the log stays.
    """
    own = [path for path, own in _files(output) if own and not path.is_relative_to(output / "checkpoints")]
    for path in sorted(own, key=lambda path: (path.name != "modules.json", path.parent.name == "training")):
        if path not in (output / _LOCK, output / _LOG):
            path.unlink()
    for folder in {path.parent for path in own} - {output}:
        with suppress(OSError):  # not empty
            folder.rmdir()


def save_model(model: SentenceTransformer, output: Path, card: str) -> None:
    """Put the model in its place: modules.json last, without which nobody takes the folder for a model."""
    ready = output / "checkpoints" / "model"
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with whole_folder(ready) as folder:
            model.save(str(folder), create_model_card=False)
            (folder / "README.md").write_text(card, encoding="utf-8")
    finally:
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
    files = [path.relative_to(ready).as_posix() for path in ready.rglob("*") if path.is_file()]
    (output / _FILES).write_text("\n".join(files), encoding="utf-8")
    sync(output / _FILES)
    for entry in sorted(ready.iterdir(), key=lambda path: path.name == "modules.json"):
        target = output / entry.name
        if target.is_dir():
            shutil.rmtree(target)
        entry.replace(target)
    sync(output)
