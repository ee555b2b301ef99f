"""Find a model's folder by path or name, and check it before anything in it is used.

The check reads json files and the headers of weights. It imports neither torch nor sentence-transformers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from s2sent.errors import ModelError
from s2sent.model import allowed
from s2sent.model.rules import check_keys
from s2sent.model.weights import AGAIN, Tensor, read_header
from s2sent.untrusted import Table, exists, is_file, is_folder, read_json, readable, shown

EXPORT_CONFIG = "s2sent_export.json"
"""The file that makes a folder an exported model's."""
_VOCABULARIES = (
    *("tokenizer.json", "vocab.txt", "vocab.json"),
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
)
# Of a hub repository: no code, no pickles, and of graphs only an export's own.
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.md", "model.onnx", "model.onnx.data"]
_WANTED += ["model.xml", "model.weights"]


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
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise ModelError(
            f"{shown(model)} is neither a folder nor a model that could be fetched from the hub "
            f"({type(error).__name__}). Check the path; for a name, its spelling and the connection."
        ) from error


def find_folder(model: str | Path) -> Path | None:
    """Return the folder of a model given by path, or `None` for what can be a name on the hub."""
    try:
        folder = Path(model).expanduser()
    except RuntimeError as error:  # ~somebody
        raise ModelError(f"There is no model folder {shown(model)}: {error}") from error
    if is_folder(folder):
        return folder
    if exists(folder):
        raise ModelError(f"{shown(model)} is a file; a model is a folder, or a name on the hub.")
    # A name on the hub has one slash at most, and begins with a letter or a digit.
    if not re.fullmatch(r"[A-Za-z0-9][^/\\]*(/[^/\\]+)?", str(model)):
        raise ModelError(f"There is no model folder {shown(model)}.")
    return None


def is_sentence_model(folder: Path) -> bool:
    """Whether the folder is a sentence-transformers model, not a bare backbone."""
    return exists(folder / "modules.json")


def is_export(folder: Path) -> bool:
    """Whether the folder is an exported model."""
    return exists(folder / EXPORT_CONFIG)


@dataclass
class CheckedFolder:
    """A folder that is safe to load.

    Attributes:
        folder: The folder.
        weights: The tensors of each module that has weights, by the module's folder.
        encoders: The folders of its Transformers.
        modules: The folders of its modules, in their order.
    """

    folder: Path
    weights: dict[Path, dict[str, Tensor]] = field(default_factory=dict)
    encoders: list[Path] = field(default_factory=list)
    modules: list[Path] = field(default_factory=list)

    def stored(self, place: Path) -> dict[str, Tensor]:
        """Return the tensors of a module; those of modules inside it if it has none of its own."""
        if place in self.weights:
            return self.weights[place]
        inside = [tensors for path, tensors in self.weights.items() if path.is_relative_to(place)]
        return {name: tensor for tensors in inside for name, tensor in tensors.items()}


def check_model(folder: Path) -> CheckedFolder:
    """Check a sentence model or a bare backbone, whichever the folder is."""
    return check_sentence_model(folder) if is_sentence_model(folder) else check_backbone(folder)


def check_sentence_model(folder: Path) -> CheckedFolder:
    """Raise a `ModelError` with file and key unless `folder` is a complete sentence model that brings no code."""
    source = folder / "modules.json"
    if not exists(source):
        raise ModelError(
            f"{shown(source)} is missing: this is not the folder of a sentence-transformers model. If it is a "
            "backbone's, s2sent.build makes a model from it."
        )
    check_links(folder)
    modules = _read_json(source)
    if not isinstance(modules, list) or not modules:
        raise ModelError(f"{shown(source)} does not list modules, each with a type and a path. {AGAIN}")
    entries = []
    for number, entry in enumerate(modules):
        table = Table.of(entry, Path(f"{source}[{number}]"), error=ModelError, hint=AGAIN)
        check_keys(table, allowed.MODULES_ENTRY)
        entries.append({key: table.get(key, str) for key in ("name", "path", "type")})
    settings = folder / "config_sentence_transformers.json"
    # It has the prompts, which decide vectors: our own models must have it.
    if exists(settings) or any(entry["type"] in allowed.OWN_MODULES for entry in entries):
        check_keys(_read_table(settings), allowed.CONFIG_SENTENCE_TRANSFORMERS)
    _check_files(folder)
    checked = CheckedFolder(folder)
    for entry in entries:
        _check_named_module(checked, folder, entry["path"], entry["type"], source)
        checked.modules.append(folder / entry["path"])
    return checked


def check_backbone(folder: Path) -> CheckedFolder:
    """Raise a `ModelError` with file and key unless `folder` is a complete Transformer that brings no code."""
    if not exists(folder / "config.json"):
        raise ModelError(
            f"{shown(folder / 'config.json')} is missing, and so is modules.json: the folder has no model, or an "
            "incomplete one."
        )
    check_links(folder)
    checked = CheckedFolder(folder, modules=[folder])
    _check_module(checked, folder, allowed.TRANSFORMER)
    return checked


def check_links(folder: Path) -> None:
    """Refuse links that lead out of the folder, wherever in it they are."""
    root = folder.resolve()
    inside = [root]
    if root.parent.name == "snapshots":  # the hub's cache: files are links to blobs of the same repository
        inside.append(root.parent.parent / "blobs")
    for below, folders, files in os.walk(folder):
        for path in (Path(below, name) for name in (*folders, *files)):
            if not path.is_symlink():
                continue
            try:
                target = path.resolve(strict=True)
            except (OSError, RuntimeError) as error:
                raise ModelError(f"{shown(path)} is refused: it is a link that leads nowhere.") from error
            if not any(target.is_relative_to(place) for place in inside):
                raise ModelError(
                    f"{shown(path)} is refused: it is a link out of the model's folder, to {shown(target)}. Put a copy "
                    "of the file in its place."
                )


def _check_named_module(checked: CheckedFolder, above: Path, path: str, kind: str, source: Path) -> None:
    """Check the module that the file `source` says is at `path` below `above`."""
    module = allowed.module_of(kind)
    if module is None:
        raise ModelError(
            f"{shown(source)} names the class {kind!r}, which is neither one of sentence-transformers' modules for "
            "text nor s2sent's. Loading it could run code that somebody put there. If you trust it, load it with "
            "SentenceTransformer(…, trust_remote_code=True)."
        )
    if PureWindowsPath(path).anchor or ".." in PureWindowsPath(path).parts or not path.isprintable():
        raise ModelError(f"{shown(source)} names {path!r}, which is not a path inside the model's folder.")
    if module is not allowed.ROUTER_MODULE:
        _check_module(checked, above / path, module)
        return
    # The host reads a Router's second file when the first is empty, so both count.
    files = [above / path / name for name in allowed.ROUTER_FILES]
    _check_files(above / path)
    for file in [file for file in files if exists(file)] or files[:1]:
        routes = _read_table(file)
        check_keys(routes, allowed.ROUTER)
        for name, inner in routes.dict_of("types", str, {}).items():
            if PurePosixPath(name) == PurePosixPath("."):
                raise ModelError(f"{shown(file)} names {name!r}, which is the Router's own folder.")
            _check_named_module(checked, above / path, name, inner, file)


def _check_module(checked: CheckedFolder, place: Path, module: allowed.Module) -> None:
    """Check one module: its weights, and each of its json files."""
    _check_files(place)
    tensors = _read_headers(place) if module.weights else {}
    largest = max((size for tensor in tensors.values() for size in tensor.shape), default=0)
    optional = {name: rules for name, rules in module.optional.items() if exists(place / name)}
    for name, rules in (*module.files.items(), *optional.items()):
        table = _read_table(place / name)
        if rules is allowed.BACKBONE_CONFIG:
            allowed.check_backbone_config(table, len(tensors))
            checked.encoders.append(place)
        else:
            check_keys(table, rules)
        if module.sized:
            allowed.check_sizes(table, largest)
    if place in checked.encoders and not any(is_file(place / name) for name in _VOCABULARIES):
        raise ModelError(f"{shown(place / 'tokenizer.json')} is missing: the model is incomplete.")
    if module.weights:
        checked.weights[place] = tensors


def _check_files(place: Path) -> None:
    """Refuse files that change what a loader does."""
    for path in _listed(place) if is_folder(place) else ():
        if why := allowed.why_refused(path.name):
            raise ModelError(f"{shown(path)} is refused: it {why}.")


def _listed(place: Path) -> Iterator[Path]:
    with readable(place, error=ModelError):
        yield from sorted(place.iterdir())


def _read_headers(place: Path) -> dict[str, Tensor]:
    """Read the headers of one module's weights, found where transformers and sentence-transformers look for them."""
    single, index = place / "model.safetensors", place / "model.safetensors.index.json"
    files = [single]
    if not exists(single) and exists(index):
        shards = _read_table(index)
        shards.get("metadata", dict)
        names = shards.dict_of("weight_map", str)
        for name in names.values():
            if not re.fullmatch(r"[\w.-]+\.safetensors", name, re.ASCII):
                raise shards.fail("weight_map", f"names {name!r}, which is not a safetensors file of the same folder")
        files = [place / name for name in sorted(set(names.values()))]
    tensors: dict[str, Tensor] = {}
    for path in files:
        for other in _listed(place) if is_folder(place) and not exists(path) else ():
            if other.suffix in allowed.PICKLES and other.name != "training_args.bin":
                raise ModelError(
                    f"{shown(path)} is missing, and {shown(other)} is refused: reading a pickle can run code. "
                    "Convert it with the library that wrote it: save_pretrained(…) writes safetensors."
                )
        tensors |= read_header(_present(path))
    return tensors


def _present(path: Path) -> Path:
    if not exists(path):
        raise ModelError(f"{shown(path)} is missing: the model is incomplete.")
    return path


def _read_json(path: Path) -> Any:
    return read_json(_present(path), error=ModelError, hint=f"It is damaged. {AGAIN}")


def _read_table(path: Path) -> Table:
    return Table.of(_read_json(path), path, error=ModelError, hint=AGAIN)
