"""A digest of all that decides a model's vectors, so that a changed model is never served old scores."""

import hashlib
import json
from pathlib import Path
from typing import Any

from s2sent.errors import ModelError

_NOT_THE_MODEL = {".md", ".png", ".svg", ".pdf", ".lock", ".log"}
"""Files beside a model that people write and that no vector depends on."""


def fingerprint_folder(folder: Path) -> str:
    """The digest of a model folder: the name and content of every file that may matter.

    Raises:
        ModelError: there is nothing in the folder.
    """
    digest = hashlib.sha256()
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.suffix not in _NOT_THE_MODEL
        and not any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise ModelError(f"{folder} holds no model: it is empty.")
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\0".encode())
    return digest.hexdigest()


def fingerprint_model(model: Any) -> str:
    """The digest of a loaded SentenceTransformer: its weights, its modules and their settings, its tokenizer."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name}\0{values.dtype}\0{tuple(values.shape)}\0".encode())
        digest.update(values.flatten().view(dtype=_bytes_type()).numpy().data)
    digest.update(repr(model).encode())
    for module in model.modules():
        settings = {key: getattr(module, key, None) for key in getattr(module, "config_keys", ())}
        digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
        to_json = getattr(getattr(module, "config", None), "to_json_string", None)
        if to_json is not None:
            digest.update(to_json().encode())
    prompts = (
        getattr(model, "prompts", None),
        getattr(model, "default_prompt_name", None),
        getattr(model, "truncate_dim", None),
    )
    digest.update(repr((prompts, model.get_max_seq_length())).encode())
    backend = getattr(getattr(model, "tokenizer", None), "backend_tokenizer", None)
    if backend is not None:
        digest.update(backend.to_str().encode())
    return digest.hexdigest()


def _bytes_type() -> Any:
    import torch

    return torch.uint8
