"""Check weights: their headers, whether they fit the model, and whether they are finite."""

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
    **{f"F{bits}": f"float{bits}" for bits in (64, 32, 16)},
    **{f"I{bits}": f"int{bits}" for bits in (64, 32, 16, 8)},
    **{"BF16": "bfloat16", "U8": "uint8", "BOOL": "bool"},
}
"""The dtypes that a weight may have, as safetensors and torch call them."""
AGAIN = "Copy or save the model again."


@dataclass(frozen=True)
class Tensor:
    """A tensor of a safetensors file, as its header describes it."""

    file: Path
    dtype: str
    shape: tuple[int, ...]


def read_header(path: Path) -> dict[str, Tensor]:
    """Read which tensors a safetensors file has.

    Raises:
        ModelError: the header cannot be read, or the file is not as long as its header says.
    """
    damaged = f"{shown(path)} is damaged: "
    with open_file(path, error=ModelError, hint=AGAIN) as file, readable(path, error=ModelError, hint=AGAIN):
        size = file.seek(0, 2)
        file.seek(0)
        header_size = int.from_bytes(file.read(8), "little")
        if size < 8 or header_size > min(size - 8, MAX_HEADER):
            raise ModelError(f"{damaged}it has {size} bytes, and says that its header has {header_size}. {AGAIN}")
        content = file.read(header_size)
    header = parse_json(content, f"{damaged}its header", error=ModelError, hint=AGAIN)
    try:
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        tensors = {
            name: Tensor(path, str(entry["dtype"]), tuple(map(_size, entry["shape"])))
            for name, entry in entries.items()
        }
        end = 8 + header_size + max((_size(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"{damaged}its header cannot be read. {AGAIN}") from error
    if size != end:
        raise ModelError(f"{damaged}it has {size} bytes, and its header says {end}. {AGAIN}")
    return tensors


def _size(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError
    return value


def check_encoder(place: Path, tensors: Mapping[str, Tensor], config: PreTrainedConfig) -> None:
    """Raise a `ModelError` unless the files have every weight of the encoder, in its shape.

    Done before a weight is read, on tensors without content, by transformers itself: it knows which old names stand
    for which new ones, and which weights are shared. Weights that the encoder does not use, such as heads, may be
    there, and its pooler may be missing: nothing here uses it.

    Args:
        place: The encoder's folder.
        tensors: What its files have.
        config: What its config.json says.
    """
    import torch

    kind = _encoder_class(config, place)
    with torch.device("meta"):
        model = kind._from_config(config) if hasattr(kind, "_from_config") else kind(config)
    if model.main_input_name != "input_ids":
        raise ModelError(f"{shown(place / 'config.json')} describes {kind.__name__}, which does not take text.")
    _, found = kind.from_pretrained(
        None,
        config=config,
        state_dict={name: _empty(name, tensor) for name, tensor in tensors.items()},
        ignore_mismatched_sizes=True,  # reported below
        output_loading_info=True,
        device_map={"": "meta"},  # what is missing takes no memory, whatever the config says of its size
    )
    mismatched = sorted(found["mismatched_keys"])
    missing = sorted(name for name in found["missing_keys"] if not name.startswith("pooler."))
    if mismatched:
        name, has, wants = mismatched[0]
        problem = (
            f"has {len(mismatched)} of the encoder's weights in another shape ({name}: {tuple(has)}, and its "
            f"config.json says {tuple(wants)})"
        )
    elif missing:
        problem = f"lacks {len(missing)} of the encoder's weights ({missing[0]}, …), which would be random"
    else:
        return
    raise ModelError(f"{shown(place)} {problem}. Its config.json and its weights do not belong together. {AGAIN}")


def _encoder_class(config: PreTrainedConfig, place: Path) -> Any:
    """Return the class that sentence-transformers loads for a config."""
    from transformers import AutoModel, AutoModelForTextEncoding

    # Of an encoder-decoder, the encoder.
    auto: Any = AutoModel
    if getattr(config, "is_encoder_decoder", False) and type(config) in AutoModelForTextEncoding._model_mapping:
        auto = AutoModelForTextEncoding
    if type(config) not in auto._model_mapping:
        raise ModelError(f"{shown(place / 'config.json')} describes {type(config).__name__}, which is no encoder.")
    kind = auto._model_mapping[type(config)]
    return kind[0] if isinstance(kind, tuple | list) else kind


def _empty(name: str, tensor: Tensor) -> Any:
    import torch

    if tensor.dtype not in _DTYPES:
        raise ModelError(f"{shown(tensor.file)} has {shown(name)} in {shown(tensor.dtype)}, which is not supported.")
    return torch.empty(tensor.shape, dtype=getattr(torch, _DTYPES[tensor.dtype]), device="meta")


def check_finite(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Raise a `ModelError` with file and tensor if a weight of a loaded module is NaN or infinite.

    Args:
        module: One module of a model.
        tensors: What its files have.
    """
    import torch

    for name, values in module.state_dict().items():
        if not values.is_floating_point() or values.is_meta:
            continue
        # A sum is NaN or infinite if a term is, and costs a fraction of looking at each one.
        if bool(torch.isfinite(values.sum(dtype=torch.float32))) or bool(torch.isfinite(values).all()):
            continue
        stored = _name_in_file(name, tensors)
        file = tensors[stored].file if stored in tensors else next((tensor.file for tensor in tensors.values()), Path())
        count = int((~torch.isfinite(values)).sum())
        raise ModelError(
            f"{shown(file)} has {count:,} numbers in {shown(stored)} that are NaN or infinite: every vector would be, "
            "too. Take the model again from its source, or train it again with a lower learning rate."
        )


def _name_in_file(name: str, tensors: Mapping[str, Tensor]) -> str:
    """Find a module's weight in its files, where the name may have another prefix."""
    parts = name.split(".")
    endings = [".".join(parts[start:]) for start in range(len(parts))]
    return next((key for ending in endings for key in tensors if f".{key}".endswith(f".{ending}")), name)
