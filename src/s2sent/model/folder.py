"""A model's folder: found by path or by name, and checked before anything in it is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from s2sent.errors import ModelError

OWN_MODULES = ("s2sent.model.pooling.SelectivePooling", "s2sent.model.prompts.PromptTransformer")
"""The classes a modules.json may name besides the host's own."""

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.md"]  # of a hub repository: no code, no pickles


def locate(model: str | Path, hub: dict[str, Any] | None = None) -> Path:
    """Return the folder of a model given by path, or fetch it from the hub by name.

    Args:
        model: A folder, or a name on the hub.
        hub: `token`, `revision`, `cache_folder`, `local_files_only` for the hub.
    """
    folder = Path(model)
    if folder.is_file():
        raise ModelError(f"{model} is a file; a model is a folder, or a name on the hub.")
    if folder.is_dir():
        return folder

    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    options = {"cache_dir" if key == "cache_folder" else key: value for key, value in (hub or {}).items()}
    try:
        return Path(snapshot_download(str(model), allow_patterns=_WANTED, **options))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"{str(model)!r} is neither a folder nor a model that could be fetched from the hub "
            f"({type(error).__name__}). Check the path; for a name, its spelling and the connection."
        ) from error


def is_sentence_model(folder: Path) -> bool:
    """Whether the folder is a sentence-transformers model, not a bare backbone."""
    return (folder / "modules.json").is_file()


def check_sentence_model(folder: Path) -> None:
    """Raise a `ModelError` that names the file unless `folder` is a whole sentence model that brings no code."""
    source = folder / "modules.json"
    if not source.is_file():
        raise ModelError(
            f"{source} is missing: this is not the folder of a sentence-transformers model. If it is a backbone's, "
            "s2sent.build makes a model from it."
        )
    modules = _read_json(source)
    if not isinstance(modules, list) or not all(isinstance(m, dict) and {"type", "path"} <= m.keys() for m in modules):
        raise ModelError(f"{source} does not list modules with a type and a path.")
    _check_json_files(folder)
    for module in modules:
        kind, place = module["type"], folder / module["path"]
        _check_type(kind, source)
        if not place.resolve().is_relative_to(folder.resolve()):
            raise ModelError(f"{source} names {module['path']!r}, which is outside the model's folder.")
        if not kind.endswith(".Normalize"):  # has nothing to save, so its folder may not have been copied
            _read_json(place / "config.json")
        if kind in OWN_MODULES or kind.endswith((".Transformer", ".Dense")):
            _check_weights(place)


def check_backbone(folder: Path) -> None:
    """Raise a `ModelError` that names the file unless `folder` is a whole Transformer that brings no code."""
    _read_json(folder / "config.json")
    _check_json_files(folder)
    _check_weights(folder)


def check_safetensors(path: Path) -> None:
    """Raise a `ModelError` unless the file is as long as its own header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(min(header_size, size)))
            end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{path} is damaged: its header cannot be read. Copy or save the model again.") from error
    if size != 8 + header_size + end:
        raise ModelError(
            f"{path} is damaged: it has {size} bytes, and its header says {8 + header_size + end}. Copy or save the "
            "model again."
        )


def _check_json_files(folder: Path) -> None:
    for path in sorted(folder.rglob("*.json")):
        content = _read_json(path)
        if isinstance(content, dict) and "auto_map" in content:
            raise ModelError(f"{path} has an auto_map, which makes loading run code from the folder. Refused.")
        if path.name == "router_config.json":
            for kind in content.get("types", {}).values():
                _check_type(kind, path)


def _check_type(kind: str, source: Path) -> None:
    if not kind.startswith("sentence_transformers.") and kind not in OWN_MODULES:
        raise ModelError(
            f"{source} names the class {kind!r}, which is neither sentence-transformers' nor s2sent's. Loading it "
            "would run code that somebody put there. If you trust it, load it with SentenceTransformer(…, "
            "trust_remote_code=True)."
        )


def _check_weights(place: Path) -> None:
    index = place / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(_read_json(index)["weight_map"].values()))
    else:
        adapter = "adapter_model.safetensors"
        names = [adapter if (place / adapter).is_file() else "model.safetensors"]
    for path in (place / name for name in names):
        if path.is_file():
            check_safetensors(path)
        elif pickles := sorted(p for p in place.iterdir() if p.suffix in _PICKLES and p.name != "training_args.bin"):
            raise ModelError(
                f"{path} is missing, and {pickles[0]} is refused: reading a pickle can run code. Convert it with the "
                "library that wrote it: save_pretrained(…) writes safetensors."
            )
        else:
            raise ModelError(f"{path} is missing: the model is not whole.")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: the model is not whole.") from None
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {error}. Copy or save the model again.") from error
