"""The folder a run leaves behind: who may write there, and how the model gets into it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from transformers.utils import logging

from s2sent.disk import sync
from s2sent.errors import ConfigError, S2SentError
from s2sent.training.checkpoint import Checkpoint, whole_folder
from s2sent.training.recipes import Recipe

_OWN = ("recipe.toml", "training", "checkpoints", ".checkpoints-removed")
"""What a run that has not come to its end may have left."""


class FinishedError(ConfigError):
    """This very run has come to its end already."""


def check_output(output: Path, recipe: Recipe, found: Checkpoint | None) -> None:
    """Raise unless a run of this recipe may begin or, with a checkpoint, go on in `output`."""
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output} is a file; the output is a folder.")
    if found is not None:
        if differing := _differing(found.run["recipe"], recipe):
            raise ConfigError(
                f"{output} has an unfinished run of another recipe (it differs in {differing}). Go on with "
                f"--recipe {output / 'recipe.toml'}, choose another output, or begin anew with --restart."
            )
        return
    if (output / "modules.json").exists():
        differing = _differing(_saved(output / "recipe.toml"), recipe)
        if not differing:
            raise FinishedError(f"{output} has the model of this run already. To train it anew: --restart.")
        raise ConfigError(
            f"{output} has a finished model of another recipe already (it differs in {differing}). Choose another "
            "output, or train it anew with --restart."
        )
    strangers = sorted(path.name for path in output.iterdir()) if output.exists() else []
    if strangers := [name for name in strangers if name not in _OWN]:
        raise ConfigError(f"{output} is not empty: it has {strangers[0]}. Choose another output.")


def _saved(path: Path) -> dict[str, Any]:
    try:
        return Recipe.load(path).to_dict()
    except S2SentError:
        return {}


def _differing(before: Mapping[str, Any], recipe: Recipe) -> str:
    """What differs, in words; nothing if nothing does."""
    now = recipe.to_dict()
    return ", ".join(sorted(key for key in {*before, *now} if before.get(key) != now.get(key)))


def clear_output(output: Path) -> None:
    """Remove an earlier run, and only that: a folder that holds none is left alone."""
    if output.is_dir() and (output / "recipe.toml").exists():
        for entry in output.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()


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
    for entry in sorted(ready.iterdir(), key=lambda path: path.name == "modules.json"):
        target = output / entry.name
        if target.is_dir():
            shutil.rmtree(target)
        entry.replace(target)
    sync(output)
