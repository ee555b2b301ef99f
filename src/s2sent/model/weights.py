"""The weights of a folder: their headers, whether they are the model's own, and whether they are numbers at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sent.errors import ModelError
from s2sent.untrusted import open_file, parse_json, readable, shown

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig

MAX_HEADER = 100_000_000
"""Bytes of a safetensors header: the limit of the safetensors library itself."""
_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
"""The types of number that a weight may have, as safetensors and torch call them."""


@dataclass(frozen=True)
class Stored:
    """A tensor in a safetensors file, as its header has it."""

    file: Path
    dtype: str
    shape: tuple[int, ...]


def read_header(path: Path) -> dict[str, Stored]:
    """Read which tensors a safetensors file has.

    Raises:
        ModelError: the header cannot be read, or the file is not as long as its own header says.
    """
    again = "Copy or save the model again."
    with open_file(path, error=ModelError, hint=again) as file, readable(path, error=ModelError, hint=again):
        size = file.seek(0, 2)
        file.seek(0)
        header_size = int.from_bytes(file.read(8), "little")
        if size < 8 or header_size > min(size - 8, MAX_HEADER):
            raise ModelError(
                f"{shown(path)} is damaged: it has {size} bytes, and says that its header has {header_size}. {again}"
            )
        content = file.read(header_size)
    header = parse_json(content, f"{shown(path)} is damaged: its header", error=ModelError, hint=again)
    try:
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        stored = {
            name: Stored(path, str(entry["dtype"]), tuple(map(_index, entry["shape"])))
            for name, entry in tensors.items()
        }
        end = max((_index(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"{shown(path)} is damaged: its header cannot be read. {again}") from error
    if size != 8 + header_size + end:
        raise ModelError(
            f"{shown(path)} is damaged: it has {size} bytes, and its header says {8 + header_size + end}. {again}"
        )
    return stored


def _index(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError
    return value


def check_encoder(place: Path, stored: Mapping[str, Stored], config: PreTrainedConfig) -> None:
    """Raise a `ModelError` unless the files have every weight of the encoder, in its shape.

    Done before a weight is read, on tensors without content, by transformers itself: it knows which old names stand
    for which new ones, and which weights are one and the same. Weights that the encoder does not use, such as heads,
    may be there, and its pooler may be missing: nothing here looks at it.

    Args:
        place: The encoder's folder.
        stored: What its files have.
        config: What its config.json says.
    """
    import torch

    kind = _encoder_class(config, place)
    with torch.device("meta"):
        wanted = kind._from_config(config) if hasattr(kind, "_from_config") else kind(config)
    if wanted.main_input_name != "input_ids":
        raise ModelError(f"{shown(place / 'config.json')} describes {kind.__name__}, which does not take text.")
    _, found = kind.from_pretrained(
        None,
        config=config,
        state_dict={name: _empty(name, entry) for name, entry in stored.items()},
        ignore_mismatched_sizes=True,  # told below, in our words
        output_loading_info=True,
        device_map={"": "meta"},  # what is missing takes no memory, whatever the config says of its size
    )
    mismatched = sorted(found["mismatched_keys"])
    if mismatched:
        name, has, wants = mismatched[0]
        raise ModelError(
            f"{shown(place)} has {len(mismatched)} of the encoder's weights in another shape ({name}: {tuple(has)}, "
            f"and its config.json says {tuple(wants)}). {_APART}"
        )
    missing = sorted(name for name in found["missing_keys"] if not _is_spare(name))
    if missing:
        raise ModelError(
            f"{shown(place)} lacks {len(missing)} of the encoder's weights ({missing[0]}, …), which would be random. "
            f"{_APART}"
        )


_APART = "Its config.json and its weights do not belong together: copy or save the model again."


def _is_spare(name: str) -> bool:
    return name.startswith("pooler.")


def _encoder_class(config: PreTrainedConfig, place: Path) -> Any:
    """Return the class that the host loads for a config."""
    from transformers import AutoModel, AutoModelForTextEncoding

    # Of a model that reads and writes, the half that reads.
    auto: Any = AutoModel
    if getattr(config, "is_encoder_decoder", False) and type(config) in AutoModelForTextEncoding._model_mapping:
        auto = AutoModelForTextEncoding
    if type(config) not in auto._model_mapping:
        raise ModelError(f"{shown(place / 'config.json')} describes {type(config).__name__}, which is no encoder.")
    kind = auto._model_mapping[type(config)]
    return kind[0] if isinstance(kind, tuple | list) else kind


def _empty(name: str, entry: Stored) -> Any:
    import torch

    if entry.dtype not in _DTYPES:
        raise ModelError(f"{shown(entry.file)} has {shown(name)} in {shown(entry.dtype)}, which is not supported.")
    return torch.empty(entry.shape, dtype=getattr(torch, _DTYPES[entry.dtype]), device="meta")


def check_finite(module: nn.Module, stored: Mapping[str, Stored]) -> None:
    """Raise a `ModelError` that names file and tensor if a weight of a loaded module is NaN or infinite.

    Args:
        module: One module of a model.
        stored: What its files have.
    """
    import torch

    for name, values in module.state_dict().items():
        if not values.is_floating_point() or values.is_meta:
            continue
        # A sum is NaN or infinite if a term is, and costs a fraction of looking at each one.
        if bool(torch.isfinite(values.sum(dtype=torch.float32))) or bool(torch.isfinite(values).all()):
            continue
        tensor = _name_in_file(name, stored)
        file = stored[tensor].file if tensor in stored else next((entry.file for entry in stored.values()), Path())
        count = int((~torch.isfinite(values)).sum())
        raise ModelError(
            f"{shown(file)} has {count:,} numbers in {shown(tensor)} that are NaN or infinite: every vector would be, "
            "too. Take the model again from its source, or train it again with a lower learning rate."
        )


def _name_in_file(name: str, stored: Mapping[str, Stored]) -> str:
    """Find a module's weight in its files, where the name may have another beginning."""
    parts = name.split(".")
    for start in range(len(parts)):
        ending = ".".join(parts[start:])
        for key in stored:
            if key == ending or key.endswith(f".{ending}"):
                return key
    return name
