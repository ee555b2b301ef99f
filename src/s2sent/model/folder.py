"""A model's folder: found by path or by name, and checked before anything in it is used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from s2sent.errors import ModelError

OWN_MODULES = ("s2sent.model.pooling.SelectivePooling", "s2sent.model.prompts.PromptTransformer")
"""The classes a modules.json may name besides the host's own."""

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
_NAMES_CODE = ("activation_function", "activation_fn", "tokenizer_class")  # what host modules import by name
# Of a hub repository: no code, no pickles, and of graphs only an export's own.
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.md", "model.onnx", "model.onnx.data"]


def locate(model: str | Path, hub: dict[str, Any] | None = None) -> Path:
    """Return the folder of a model given by path, or fetch it from the hub by name.

    Args:
        model: A folder, or a name on the hub.
        hub: `token`, `revision`, `cache_folder`, `local_files_only` for the hub.
    """
    folder = find_folder(model)
    if folder is not None:
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


def find_folder(model: str | Path) -> Path | None:
    """The folder of a model given by path, or `None` for what can be a name on the hub."""
    folder = Path(model).expanduser()
    if folder.is_file():
        raise ModelError(f"{model} is a file; a model is a folder, or a name on the hub.")
    if folder.is_dir():
        return folder
    # A name on the hub has one slash at most, and begins with a letter or a digit.
    if not re.fullmatch(r"[A-Za-z0-9][^/\\]*(/[^/\\]+)?", str(model)):
        raise ModelError(f"There is no model folder {model}.")
    return None


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
    if not (isinstance(modules, list) and modules and all(map(_is_module_entry, modules))):
        raise ModelError(f"{source} does not list modules, each with a type and a path.")
    _check_json_files(folder)
    if any(module["type"] in OWN_MODULES for module in modules):
        _read_json(folder / "config_sentence_transformers.json")  # has the prompts, without which vectors are others
    for module in modules:
        _check_module(folder, module["path"], module["type"], source)


def _check_module(folder: Path, path: str, kind: str, source: Path) -> None:
    """Check the module that the file `source` says is at `path` in `folder`."""
    from sentence_transformers.base.modules import Router

    place = folder / path
    found = _module_class(kind, source)
    if not place.resolve().is_relative_to(folder.resolve()):
        raise ModelError(f"{source} names {path!r}, which is outside the model's folder.")
    if place != folder:
        _check_json_files(place)
    if issubclass(found, Router):
        _check_routes(place)
        return
    if _is_encoder(kind):
        _read_json(place / "config.json")
        _check_tokenizer(place)
    elif kind.endswith(".StaticEmbedding"):
        _read_json(place / "tokenizer.json")
    # Some have nothing to set; of those, and of Normalize, the folder may not have been copied.
    elif kind in OWN_MODULES or (getattr(found, "config_keys", None) and not kind.endswith(".Normalize")):
        _read_json(place / found.config_file_name)
    whole = kind in OWN_MODULES or _is_encoder(kind) or kind.endswith((".Dense", ".StaticEmbedding"))
    _check_weights(place, required=whole)


def _check_routes(place: Path) -> None:
    """Check the modules of a Router. The host reads the second file when the first names none, so both count."""
    files = [place / name for name in ("router_config.json", "config.json")]
    for source in [path for path in files if path.is_file()] or files[:1]:
        routes = _read_json(source)
        types = routes.get("types", {}) if isinstance(routes, dict) else None
        if not isinstance(types, dict):
            raise ModelError(f"{source} is damaged: it has no types of modules by name. Save the model again.")
        for name, kind in types.items():
            if (place / name).resolve() == place.resolve():
                raise ModelError(f"{source} names {name!r}, which is the Router's own folder.")
            _check_module(place, name, str(kind), source)


def check_backbone(folder: Path) -> None:
    """Raise a `ModelError` that names the file unless `folder` is a whole Transformer that brings no code."""
    _read_json(folder / "config.json")
    _check_json_files(folder)
    _check_tokenizer(folder)
    _check_weights(folder, required=True)


def check_safetensors(path: Path) -> None:
    """Raise a `ModelError` unless the file is as long as its own header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(min(header_size, size)))
            end = max((int(e["data_offsets"][1]) for name, e in header.items() if name != "__metadata__"), default=0)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise ModelError(f"{path} is damaged: its header cannot be read. Copy or save the model again.") from error
    if size != 8 + header_size + end:
        raise ModelError(
            f"{path} is damaged: it has {size} bytes, and its header says {8 + header_size + end}. Copy or save the "
            "model again."
        )


def _is_module_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("type"), str) and isinstance(entry.get("path"), str)


def _check_json_files(folder: Path) -> None:
    """Refuse configs that are cut short or that name code to import."""
    for path in sorted(folder.glob("*.json")):
        content = _read_json(path)
        if not isinstance(content, dict):
            continue
        if "auto_map" in content:
            raise ModelError(f"{path} has an auto_map, which makes loading run code from the folder. Refused.")
        for key in _NAMES_CODE:
            value = content.get(key)
            if (
                isinstance(value, str)
                and "." in value
                and not value.startswith(("torch.nn.", "sentence_transformers."))
            ):
                raise ModelError(f"{path} has {key} {value!r}, which makes loading import foreign code. Refused.")


def _module_class(kind: str, source: Path) -> Any:
    """The class of this name, if it is one of the host's modules or of ours."""
    if kind not in OWN_MODULES and not kind.startswith("sentence_transformers."):
        raise ModelError(
            f"{source} names the class {kind!r}, which is neither sentence-transformers' nor s2sent's. Loading it "
            "would run code that somebody put there. If you trust it, load it with SentenceTransformer(…, "
            "trust_remote_code=True)."
        )
    from sentence_transformers.util import import_from_string
    from torch.nn import Module

    try:
        found = import_from_string(kind)
    except ImportError as error:
        raise ModelError(f"{source} names {kind}, which the installed sentence-transformers does not have.") from error
    if not (isinstance(found, type) and issubclass(found, Module) and hasattr(found, "load")):
        raise ModelError(f"{source} names {kind}, which is not a module of a model.")
    return found


def _is_encoder(kind: str) -> bool:
    return kind.endswith("Transformer")


def _check_tokenizer(place: Path) -> None:
    _read_json(place / "tokenizer_config.json")
    if not any((place / name).is_file() for name in _VOCABULARIES):
        raise ModelError(f"{place / 'tokenizer.json'} is missing: the model is not whole.")


def _check_weights(place: Path, *, required: bool) -> None:
    """Check the weights of one module, found where transformers and the host look for them."""
    single, index = place / "model.safetensors", place / "model.safetensors.index.json"
    adapter = place / "adapter_model.safetensors"
    if single.is_file() or not index.is_file():
        files = [adapter] if adapter.is_file() and not single.is_file() else [single]
    else:
        shards = _read_json(index)
        names = shards.get("weight_map") if isinstance(shards, dict) else None
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise ModelError(f"{index} is damaged: it has no weight_map from weights to files. Save the model again.")
        files = [place / name for name in sorted(set(names.values()))]
    for path in files:
        if path.is_file():
            check_safetensors(path)
            continue
        pickles = sorted(p for p in place.glob("*") if p.suffix in _PICKLES and p.name != "training_args.bin")
        if pickles:
            raise ModelError(
                f"{path} is missing, and {pickles[0]} is refused: reading a pickle can run code. Convert it with the "
                "library that wrote it: save_pretrained(…) writes safetensors."
            )
        if required:
            raise ModelError(f"{path} is missing: the model is not whole.")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: the model is not whole.") from None
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {error}. Copy or save the model again.") from error
