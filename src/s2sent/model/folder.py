"""A model's folder: found by path or by name, and checked before anything in it is used.

The check reads json and headers alone, and imports neither torch nor the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from s2sent import untrusted
from s2sent.errors import ModelError
from s2sent.model import allowed
from s2sent.model.allowed import check_backbone_config, check_keys, check_sizes, check_tokens
from s2sent.model.weights import Stored, read_header
from s2sent.untrusted import Table, exists, is_file, is_folder, shown

_VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
# Of a hub repository: no code, no pickles, and of graphs only an export's own.
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.md", "model.onnx", "model.onnx.data"]


EXPORT_CONFIG = "s2sent_export.json"
"""The file that makes a folder an exported model's."""


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
    """The folder of a model given by path, or `None` for what can be a name on the hub."""
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


_AGAIN = "Copy or save the model again."


@dataclass
class CheckedFolder:
    """A folder that may be loaded.

    Attributes:
        folder: The folder.
        weights: For the folder of each module that has weights, what its files have.
        encoders: The folders of its Transformers.
        modules: The folders of its modules, in their order.
    """

    folder: Path
    weights: dict[Path, dict[str, Stored]] = field(default_factory=dict)
    encoders: list[Path] = field(default_factory=list)
    modules: list[Path] = field(default_factory=list)

    def stored(self, place: Path) -> dict[str, Stored]:
        """Return what the files of a module have, those of modules inside it included."""
        own = self.weights.get(place)
        inside = [found for path, found in self.weights.items() if path.is_relative_to(place)]
        return own if own is not None else {name: entry for found in inside for name, entry in found.items()}


def is_sentence_model(folder: Path) -> bool:
    """Whether the folder is a sentence-transformers model, not a bare backbone."""
    return exists(folder / "modules.json")


def is_export(folder: Path) -> bool:
    """Whether the folder is an exported model."""
    return exists(folder / EXPORT_CONFIG)


def check_model(folder: Path) -> CheckedFolder:
    """Check a folder that is a sentence model or a bare backbone, whichever it is."""
    return check_sentence_model(folder) if is_sentence_model(folder) else check_backbone(folder)


def check_sentence_model(folder: Path) -> CheckedFolder:
    """Raise a `ModelError` that names file and key unless `folder` is a whole sentence model that brings no code."""
    source = folder / "modules.json"
    if not exists(source):
        raise ModelError(
            f"{shown(source)} is missing: this is not the folder of a sentence-transformers model. If it is a "
            "backbone's, s2sent.build makes a model from it."
        )
    checked = CheckedFolder(folder)
    check_links(folder)
    modules = _read_json(source)
    if not isinstance(modules, list) or not modules:
        raise ModelError(f"{shown(source)} does not list modules, each with a type and a path. {_AGAIN}")
    entries = [
        Table.of(entry, Path(f"{source}[{place}]"), error=ModelError, hint=_AGAIN)
        for place, entry in enumerate(modules)
    ]
    own = False
    for entry in entries:
        check_keys(entry, allowed.MODULES_ENTRY)
        entry.get("name", str)
        own |= entry.get("type", str) in allowed.OWN_MODULES
    settings = folder / "config_sentence_transformers.json"
    if own or exists(settings):  # has the prompts, without which vectors are others
        check_keys(_read_table(settings), allowed.CONFIG_SENTENCE_TRANSFORMERS)
    _check_files(folder)
    for entry in entries:
        _check_module(checked, folder, entry.get("path", str), entry.get("type", str), source)
        checked.modules.append(folder / entry.get("path", str))
    return checked


def check_backbone(folder: Path) -> CheckedFolder:
    """Raise a `ModelError` that names file and key unless `folder` is a whole Transformer that brings no code."""
    checked = CheckedFolder(folder)
    if not exists(folder / "config.json"):
        raise ModelError(
            f"{shown(folder / 'config.json')} is missing, and so is modules.json: the folder holds no model, or one "
            "that is not whole."
        )
    check_links(folder)
    _check_encoder(checked, folder)
    checked.modules.append(folder)
    return checked


def _check_module(checked: CheckedFolder, above: Path, path: str, kind: str, source: Path) -> None:
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
    place = above / path
    if place != checked.folder and is_folder(place):
        _check_files(place)
    name = kind.rpartition(".")[2]
    if name == "Router":
        _check_routes(checked, place)
    elif name.endswith("Transformer"):
        _check_encoder(
            checked, place, allowed.PROMPT_TRANSFORMER if name == "PromptTransformer" else allowed.TRANSFORMER
        )
    else:
        # Some have nothing to set; of Normalize, the folder may not have been copied.
        stored = _check_weights(place) if module.weights else {}
        if module.required or exists(place / module.file):
            settings = _read_table(place / module.file)
            if module.rules is not None:
                check_keys(settings, module.rules)
            if module.rules is not None and module.weights:
                check_sizes(settings, max((size for entry in stored.values() for size in entry.shape), default=0))
        if name == "WordEmbeddings":
            check_keys(_read_table(place / "whitespacetokenizer_config.json"), allowed.WORD_TOKENIZER)
        if module.weights:
            checked.weights[place] = stored


def _check_routes(checked: CheckedFolder, place: Path) -> None:
    """Check the modules of a Router. The host reads the second file when the first is empty, so both count."""
    files = [place / name for name in allowed.ROUTER_FILES]
    for source in [path for path in files if exists(path)] or files[:1]:
        routes = _read_table(source)
        check_keys(routes, allowed.ROUTER)
        for name, kind in routes.dict_of("types", str, {}).items():
            if PurePosixPath(name) == PurePosixPath("."):
                raise ModelError(f"{shown(source)} names {name!r}, which is the Router's own folder.")
            _check_module(checked, place, name, kind, source)


def _check_encoder(checked: CheckedFolder, place: Path, rules: allowed.Rules = allowed.TRANSFORMER) -> None:
    """Check a Transformer: its settings, its config, its tokenizer, its weights."""
    _check_files(place)
    for name in allowed.TRANSFORMER_FILES:
        if exists(place / name):
            check_keys(_read_table(place / name), rules)
    config = _read_table(place / "config.json")
    checked.weights[place] = _check_weights(place)
    check_backbone_config(config, len(checked.weights[place]))
    check_tokens(_read_table(place / "tokenizer_config.json"), allowed.TOKENIZER_CONFIG)
    if exists(place / "special_tokens_map.json"):
        check_tokens(_read_table(place / "special_tokens_map.json"), allowed.SPECIAL_TOKENS_MAP)
    for name in ("added_tokens.json", "tokenizer.json", "vocab.json"):  # tokens and numbers alone
        if exists(place / name):
            _read_table(place / name)
    if not any(is_file(place / name) for name in _VOCABULARIES):
        raise ModelError(f"{shown(place / 'tokenizer.json')} is missing: the model is not whole.")
    checked.encoders.append(place)


def _check_files(place: Path) -> None:
    """Refuse files that change what a loader does."""
    for name, why in allowed.REFUSED_FILES.items():
        if exists(place / name):
            raise ModelError(f"{shown(place / name)} is refused: it {why}.")
    for path in _listed(place):
        if allowed.DISTRIBUTED_WEIGHTS.fullmatch(path.name):
            raise ModelError(
                f"{shown(path)} is refused: it is part of a distributed checkpoint, which would be read in place of "
                "model.safetensors. Save the model as one, or remove the file."
            )


def check_links(folder: Path) -> None:
    """Refuse links that lead out of the folder, wherever in it they are."""
    root = folder.resolve()
    homes = [root]
    if root.parent.name == "snapshots":  # the hub's cache: files are links to blobs of the same repository
        homes.append(root.parent.parent / "blobs")
    for below, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(below, name)
            if path.is_symlink() and not any(_target(path).is_relative_to(home) for home in homes):
                raise ModelError(
                    f"{shown(path)} is refused: it is a link out of the model's folder, to {shown(_target(path))}. Put "
                    "a copy of the file in its place."
                )


def _target(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise ModelError(f"{shown(path)} is refused: it is a link that leads nowhere.") from error


def _listed(place: Path) -> Iterator[Path]:
    with untrusted.readable(place, error=ModelError):
        yield from sorted(place.iterdir())


def _check_weights(place: Path) -> dict[str, Stored]:
    """Read the headers of one module's weights, found where transformers and the host look for them."""
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
    stored: dict[str, Stored] = {}
    for path in files:
        if not exists(path):
            pickles = [p for p in _listed(place) if p.suffix in allowed.PICKLES and p.name != "training_args.bin"]
            if pickles:
                raise ModelError(
                    f"{shown(path)} is missing, and {shown(pickles[0])} is refused: reading a pickle can run code. "
                    "Convert it with the library that wrote it: save_pretrained(…) writes safetensors."
                )
        stored |= read_header(_present(path))
    return stored


def _present(path: Path) -> Path:
    if not exists(path):
        raise ModelError(f"{shown(path)} is missing: the model is not whole.")
    return path


def _read_json(path: Path) -> Any:
    return untrusted.read_json(_present(path), error=ModelError, hint=f"It is damaged. {_AGAIN}")


def _read_table(path: Path) -> Table:
    return Table.of(_read_json(path), path, error=ModelError, hint=_AGAIN)
