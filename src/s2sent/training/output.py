"""The output folder of a training run: which files are a run's own, and how the model is put there."""

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

import s2sent
from s2sent.atomic import atomic_folder, lock, sync, write_error
from s2sent.errors import ConfigError, S2SentError
from s2sent.options import to_toml
from s2sent.training.checkpoint import Checkpoint
from s2sent.training.recipes import Recipe
from s2sent.untrusted import exists, is_folder, read_toml

_LOCK, _LOG, _FILES = "training/.lock", "training/log.jsonl", "training/files.txt"
_FIRST = (_LOCK, "training/.log.jsonl.*.writing")
"""What a run writes before its log. In a folder without a log, no other file is a run's."""
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
    "checkpoints/.*",
    ".checkpoints.removed/*",
)
"""What a run writes, besides the model's files, which it lists in `_FILES`."""


class AlreadyTrainedError(ConfigError):
    """The output has the finished model of this recipe."""


def check_output(output: Path, recipe: Recipe, checkpoint: Checkpoint | None, *, restart: bool = False) -> None:
    """Raise unless a run of this recipe may start in `output` or, with a checkpoint, continue."""
    if exists(output) and not is_folder(output):
        raise ConfigError(f"{output} is a file; the output is a folder.")
    if restart:
        for name in (recipe.backbone, *recipe.corpus, recipe.dev):
            path = Path(name).expanduser()
            if exists(path) and path.resolve().is_relative_to(output.resolve()):
                raise ConfigError(f"{name} is in {output}, which --restart clears. Choose another output.")
    elif checkpoint is not None:
        if differing := _differences(checkpoint.run["recipe"], recipe):
            raise ConfigError(
                f"{output} has an unfinished run of another recipe (it differs in {differing}). Continue it with "
                f"--recipe {output / 'recipe.toml'}, choose another output, or start again with --restart."
            )
        return
    elif (output / "modules.json").exists():
        shutil.rmtree(output / ".checkpoints.removed", ignore_errors=True)  # of a process killed while it removed them
        differing = _differences(_saved(output / "recipe.toml"), recipe)
        if not differing:
            raise AlreadyTrainedError(
                f"Done already: the model of this run is in {output}. To train it again: --restart."
            )
        raise ConfigError(
            f"{output} has a finished model of another recipe already (it differs in {differing}). Choose another "
            "output, or train it again with --restart."
        )
    if foreign := next((path for path, own in _files(output) if not own), None):
        raise ConfigError(
            f"{output} is not empty: it has {foreign.relative_to(output)}, which no run wrote. Choose another output, "
            "or remove the folder yourself."
        )


def _saved(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except S2SentError:
        return {}


def _differences(before: Mapping[str, Any], recipe: Recipe) -> str:
    """Return the options in which a saved recipe differs; empty if it is the same."""
    with suppress(S2SentError):  # from a file, it has lists for tuples, and lacks newer options
        before = Recipe.from_dict(before).to_dict()
    now = recipe.to_dict()
    return ", ".join(sorted(key for key in {*before, *now} if before.get(key) != now.get(key)))


def _files(output: Path) -> Iterator[tuple[Path, bool]]:
    """Yield all files in `output`, and whether a run wrote them."""
    own, listed = _OWN if (output / _LOG).exists() else _FIRST, output / _FILES
    model = listed.read_text(encoding="utf-8", errors="replace").splitlines() if own is _OWN and listed.exists() else []
    for folder, _, names in os.walk(output):  # which copes with files that a running process removes
        for path in (Path(folder, name) for name in names):
            name = path.relative_to(output).as_posix()
            yield path, name in model or any(fnmatchcase(name, pattern) for pattern in own)


@contextmanager
def lock_output(output: Path) -> Iterator[None]:
    """Keep other processes from training in `output`."""
    with ExitStack() as stack:
        try:
            (output / _LOCK).parent.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(lock(output / _LOCK, wait=False))
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):  # a shared disk without locks
                raise write_error(output, error) from error
            held = True
        if not held:
            raise ConfigError(f"Another process is training in {output}. Wait for it, or choose another output.")
        yield


def clear_output(output: Path) -> None:
    """Remove what an earlier run wrote, except its checkpoints and the log.

    Interrupted, it leaves no model, and no file that would not be recognised as a run's: the list of the model's files
    is removed last, and the log stays.
    """
    own = [path for path, own in _files(output) if own and not path.is_relative_to(output / "checkpoints")]
    for path in sorted(own, key=lambda path: (path.name != "modules.json", path.parent.name == "training")):
        if path not in (output / _LOCK, output / _LOG):
            path.unlink()
    for folder in {path.parent for path in own} - {output}:
        with suppress(OSError):  # not empty
            folder.rmdir()


def save_model(model: SentenceTransformer, output: Path, card: str) -> None:
    """Save the model beside its place and move it there, modules.json last: without it the folder is not a model."""
    ready = output / "checkpoints" / "model"
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with atomic_folder(ready, replace=True) as folder:
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


_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, sentence-similarity, feature-extraction, s2sent]{base_model}
---

# {title}

{what}, trained with
s2sent {version} from `{backbone}` by the objective `{objective}`.

```python
import s2sent
model = s2sent.load("{title}")      # or SentenceTransformer("{title}", trust_remote_code=True)
vectors = model.encode(["A sentence.", "Another one."])
```

## Scores

{scores}

The weights are those of step {step}.{curve}

## Data

{data}

## Recipe

`s2sent train --recipe recipe.toml --output …` repeats it. Here files are named without their folders.

```toml
{recipe}```
"""
_WHAT = {
    "none": "A sentence encoder without selection",
    "static": "A sentence encoder with one learned weight per block of its Transformer",
}


def model_card(
    title: str, recipe: Recipe, data: str, scores: Mapping[str, float], step: str, *, has_curve: bool
) -> str:
    """Return the text of the model card; `step` says which step's weights these are, of how many."""
    is_local = exists(Path(recipe.backbone))
    recipe = recipe.with_basenames()  # folders of this machine mean nothing to readers elsewhere
    table = ["| | score |", "|---|---:|", *(f"| {name} | {value:.2f} |" for name, value in scores.items())]
    return _CARD.format(
        title=title,
        what=_WHAT.get(
            recipe.selection.gate,
            "A sentence encoder that selects, per feature, what each block of its Transformer knows (S²Sent)",
        ),
        version=s2sent.__version__,
        backbone=recipe.backbone,
        base_model="" if is_local else f"\nbase_model: {recipe.backbone}",
        objective=recipe.objective,
        scores="\n".join(table) if scores else "Not evaluated.",
        step=step,
        curve="\n\n![The training curve](training/curve.png)" if has_curve else "",
        data=data,
        recipe=to_toml(recipe.to_dict()),
    )
