"""Load a saved model."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sent.errors import ConfigError, ModelError
from s2sent.model.exported import OnnxEncoder, is_export
from s2sent.model.folder import check_backbone, check_sentence_model, is_sentence_model, locate
from s2sent.texts import check_inputs_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def load(
    model: str | Path,
    *,
    device: str | None = None,
    hub: dict[str, Any] | None = None,
    model_kwargs: dict[str, Any] | None = None,
    threads: int | None = None,
) -> SentenceTransformer | OnnxEncoder:
    """Load a model that `model.save` wrote, one that `s2sent.export` wrote, or any plain sentence-transformers model.

    A folder is refused, with the file and the reason, if it names a class outside sentence-transformers and this
    package, brings code of its own, has weights that are not safetensors, or is missing or cut short.
    An exported folder is opened without torch.

    Args:
        model: A folder, or a name on the hub.
        device: Where to run; by default the best there is.
        hub: `token`, `revision`, `cache_folder`, `local_files_only` for a model from the hub.
        model_kwargs: Passed on to the backbone's `from_pretrained`: `dtype`, `attn_implementation`, …
        threads: Of an exported model: how many threads may run; by default one for each core.
    """
    folder = locate(model, hub)
    if is_export(folder):
        if model_kwargs or device not in (None, "cpu"):
            raise ConfigError(f"{folder} is an exported model: it runs on the CPU, and takes no model_kwargs.")
        return OnnxEncoder(folder, threads=threads)
    if threads is not None:
        raise ConfigError("threads is for exported models; for one in torch, call torch.set_num_threads.")
    return load_in_torch(folder, device=device, model_kwargs=model_kwargs)


def load_in_torch(
    model: str | Path,
    *,
    device: str | None = None,
    hub: dict[str, Any] | None = None,
    model_kwargs: dict[str, Any] | None = None,
) -> SentenceTransformer:
    """Load a model as `load` does, for somebody who needs more of it than its vectors."""
    folder = _not_exported(locate(model, hub))
    check_sentence_model(folder)
    return _load_checked(folder, device, model_kwargs)


def open_encoder(
    model: str | Path,
    *,
    device: str | None = None,
    hub: dict[str, Any] | None = None,
    model_kwargs: dict[str, Any] | None = None,
) -> SentenceTransformer:
    """Load a sentence model as `load` does, or a bare Transformer, which then pools the mean of its last block."""
    folder = _not_exported(locate(model, hub))
    if is_sentence_model(folder):
        return load_in_torch(folder, device=device, model_kwargs=model_kwargs)
    check_backbone(folder)

    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    with whole_encoder(folder):
        encoder = Transformer.load(str(folder), local_files_only=True, model_kwargs=model_kwargs)
    made = SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension())], device=device)
    check_inputs_of(made)
    return made


def _not_exported(folder: Path) -> Path:
    if is_export(folder):
        raise ModelError(
            f"{folder} is an exported model, of which there is only its graph. Give the model it was made from."
        )
    return folder


def _load_checked(folder: Path, device: str | None, model_kwargs: dict[str, Any] | None) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    untrusted = {"trust_remote_code": False}
    with whole_encoder(folder):
        model = SentenceTransformer(
            str(folder),
            device=device,
            local_files_only=True,
            # The host asks for this before it imports any module that is not its own. The check has seen to it that
            # ours is the only such one; code for the encoder or the tokenizer stays forbidden.
            trust_remote_code=True,
            model_kwargs={**(model_kwargs or {}), **untrusted},
            processor_kwargs=dict(untrusted),
            config_kwargs=dict(untrusted),
        )
    check_inputs_of(model)
    return model


@contextmanager
def whole_encoder(folder: Path) -> Iterator[None]:
    """Turn transformers' load report into what matters here.

    It warns of heads that a checkpoint has and an encoder does not use, or the other way round: nothing to tell a
    user. But weights of the encoder itself that the checkpoint lacks would be random: that is an error.
    """
    missing: list[str] = []
    logger = logging.getLogger("transformers.modeling_utils")
    level, shown_from = logger.level, logger.getEffectiveLevel()

    def read(record: logging.LogRecord) -> bool:
        message = re.sub(r"\x1b\[[0-9;]*m", "", record.getMessage())  # on a terminal the report is coloured
        if "LOAD REPORT" not in message:
            return record.levelno >= shown_from
        rows = re.findall(r"^(\S+)\s*\|\s*(\w+)\s*\|", message, flags=re.MULTILINE)
        missing.extend(key for key, status in rows if status == "MISSING" and not key.startswith("pooler."))
        return False

    logger.setLevel(logging.INFO)  # whatever the user silenced, this report must reach us
    logger.addFilter(read)
    try:
        yield
    finally:
        logger.removeFilter(read)
        logger.setLevel(level)
    if missing:
        raise ModelError(
            f"{folder} lacks {len(missing)} of the encoder's weights ({missing[0]}, …), which would be random. Its "
            "config.json and its weights do not belong together."
        )
