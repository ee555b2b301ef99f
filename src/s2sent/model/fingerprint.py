"""A digest of all that decides a model's vectors, so that cached scores are never those of another model."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from s2sent.errors import ModelError
from s2sent.model.allowed import PICKLES
from s2sent.untrusted import open_file, readable

_NOT_THE_MODEL = {".md", ".png", ".svg", ".pdf", ".lock", ".log", *PICKLES}
"""Files that no vector depends on. Pickles are never read."""
_SET_BY_ENCODING = ("padding", "truncation")


def fingerprint_folder(folder: Path) -> str:
    """Return the digest of a model folder: the name and content of every file that may matter.

    Raises:
        ModelError: the folder is empty.
    """
    digest = hashlib.sha256()
    files = sorted(path for path in _files(folder, frozenset()) if path.suffix not in _NOT_THE_MODEL)
    if not files:
        raise ModelError(f"{folder} has no model: it is empty.")
    for path in files:
        with open_file(path, error=ModelError) as file, readable(path, error=ModelError):
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\0".encode())
    return digest.hexdigest()


def _files(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    """Yield every file that is not hidden. Links to folders are followed, unless they lead back up."""
    above = above | {folder.resolve()}
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_file():
            yield path
        elif path.is_dir() and path.resolve() not in above:
            yield from _files(path, above)


def fingerprint_model(model: Any) -> str:
    """Return the digest of a loaded SentenceTransformer: its weights, its modules and their settings, its tokenizer."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name}\0{values.dtype}\0{tuple(values.shape)}\0".encode())
        digest.update(values.flatten().view(dtype=torch.uint8).numpy().data)
    digest.update(repr(model).encode())
    for module in model.modules():
        settings = {key: getattr(module, key, None) for key in getattr(module, "config_keys", ())}
        digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
        to_json = getattr(getattr(module, "config", None), "to_json_string", None)
        if to_json is not None:
            digest.update(to_json().encode())
    prompts = tuple(getattr(model, name, None) for name in ("prompts", "default_prompt_name", "truncate_dim"))
    digest.update(repr((prompts, model.get_max_seq_length())).encode())
    tokenizer = getattr(model, "tokenizer", None)
    sides = [getattr(tokenizer, f"{name}_side", None) for name in ("padding", "truncation")]
    digest.update(repr(sides).encode())
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        # Encoding leaves its padding and truncation behind in the tokenizer; the next call sets them anew.
        state = {key: part for key, part in json.loads(backend.to_str()).items() if key not in _SET_BY_ENCODING}
        digest.update(json.dumps(state, sort_keys=True).encode())
    return digest.hexdigest()
