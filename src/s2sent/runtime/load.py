"""Load a saved or exported model: `s2sent.load`. torch is imported only for a model that needs it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sent.errors import ConfigError
from s2sent.model.folder import is_export, locate
from s2sent.runtime.exported import RUNTIMES, ExportConfig, ExportedEncoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def load(
    model: str | Path,
    *,
    device: str | None = None,
    hub: dict[str, Any] | None = None,
    model_kwargs: dict[str, Any] | None = None,
    threads: int | None = None,
) -> SentenceTransformer | ExportedEncoder:
    """Load a model that `model.save` or `s2sent.export` wrote, or any other sentence-transformers model.

    The folder is checked first. It is refused, with the file and the reason, if it names a class of another package,
    has a key in a json file that is not known to be safe, points outside itself, or has weights that are not
    safetensors, do not match the model or are not finite. docs/security.md has the details.

    Args:
        model: A folder, or a name on the hub.
        device: Where to run; by default the best there is.
        hub: `token`, `revision`, `cache_folder`, `local_files_only` for a model from the hub.
        model_kwargs: Passed to the backbone's `from_pretrained`: `dtype`, `attn_implementation`, …
        threads: For an exported model: the number of threads; by default one per core.
    """
    return load_folder(locate(model, hub), device=device, model_kwargs=model_kwargs, threads=threads)


def load_folder(
    folder: Path,
    *,
    device: str | None = None,
    model_kwargs: dict[str, Any] | None = None,
    threads: int | None = None,
) -> SentenceTransformer | ExportedEncoder:
    """Load a folder that `locate` found, as `load` does."""
    if is_export(folder):
        if model_kwargs or device not in (None, "cpu"):
            raise ConfigError(f"{folder} is an exported model: it runs on the CPU, and takes no model_kwargs.")
        return open_export(folder, threads=threads)
    if threads is not None:
        raise ConfigError("threads is for exported models; for one in torch, call torch.set_num_threads.")
    from s2sent.model.load import load_sentence_model

    return load_sentence_model(folder, device=device, model_kwargs=model_kwargs)


def open_export(folder: Path, *, threads: int | None = None) -> ExportedEncoder:
    """Open an exported folder with the runtime that its config names."""
    config = ExportConfig.read(folder)
    module, name = RUNTIMES[config.runtime]
    encoder: ExportedEncoder = getattr(import_module(module), name)(folder, threads=threads, config=config)
    return encoder
