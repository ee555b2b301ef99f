"""Load a model in torch. Its folder is checked first, and again where only the loaded model shows what is wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sent.errors import ModelError
from s2sent.model.folder import (
    CheckedFolder,
    check_backbone,
    check_sentence_model,
    is_export,
    is_sentence_model,
    locate,
)
from s2sent.model.text import check_inputs_of
from s2sent.model.weights import AGAIN, check_encoder, check_finite
from s2sent.untrusted import any_error_as, exists, shown

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SAFE: dict[str, Any] = {"trust_remote_code": False, "use_safetensors": True, "weights_only": True}
"""What `from_pretrained` of a model is always called with, whatever a folder says."""


def open_encoder(
    model: str | Path,
    *,
    device: str | None = None,
    hub: dict[str, Any] | None = None,
    model_kwargs: dict[str, Any] | None = None,
) -> SentenceTransformer:
    """Load a sentence model as `s2sent.load` does, or a bare Transformer, which then pools the mean of its last block.

    Never an exported model, which gives vectors only.
    """
    folder = locate(model, hub)
    if is_export(folder):
        raise ModelError(f"{folder} is an exported model, which has only a graph. Give the model it was made from.")
    load = load_sentence_model if is_sentence_model(folder) else _load_backbone
    return load(folder, device=device, model_kwargs=model_kwargs)


def load_sentence_model(
    folder: Path, *, device: str | None = None, model_kwargs: dict[str, Any] | None = None
) -> SentenceTransformer:
    """Check and load a folder that `locate` found."""
    checked = check_sentence_model(folder)
    from sentence_transformers import SentenceTransformer

    with _loading(checked):
        model = SentenceTransformer(
            str(folder),
            device=device,
            local_files_only=True,
            # The host asks for this before it imports any module that is not its own. The check has made sure that
            # only ours is; code for the encoder or the tokenizer stays forbidden.
            trust_remote_code=True,
            model_kwargs={**(model_kwargs or {}), **SAFE},
            processor_kwargs={"trust_remote_code": False},
            config_kwargs={"trust_remote_code": False},
        )
        return _checked(model, checked)


def _load_backbone(folder: Path, *, device: str | None, model_kwargs: dict[str, Any] | None) -> SentenceTransformer:
    checked = check_backbone(folder)
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    from s2sent.model.backbone import max_tokens

    with _loading(checked):
        encoder = Transformer.load(str(folder), local_files_only=True, model_kwargs={**(model_kwargs or {}), **SAFE})
        if limit := max_tokens(encoder.auto_model):  # sentence-transformers may allow more than there are positions for
            encoder.max_seq_length = min(encoder.max_seq_length or limit, limit)
        model = SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension())], device=device)
        return _checked(model, checked)


def _checked(model: SentenceTransformer, checked: CheckedFolder) -> SentenceTransformer:
    """Check what only a loaded model shows: whether its tokenizer works, and whether its weights are finite."""
    from sentence_transformers.base.modules import Transformer

    if isinstance(model[0], Transformer):
        model.preprocess(["A text.", "A longer text. " * 200])
    for module, place in zip(model, checked.modules, strict=False):  # a backbone's pooling has no folder
        check_finite(module, checked.stored(place))
    check_inputs_of(model)
    return model


@contextmanager
def _loading(checked: CheckedFolder) -> Iterator[None]:
    """Compare weights and configs before a weight is read, and turn what the loading raises into a `ModelError`."""
    from transformers import AutoConfig

    def error(reason: str) -> ModelError:
        for place in checked.encoders:
            _check_tokenizer(place / "tokenizer.json")
        return ModelError(f"{shown(checked.folder)} cannot be loaded: {reason}. {AGAIN}")

    with any_error_as(error), quiet():
        for place in checked.encoders:
            config = AutoConfig.from_pretrained(place, local_files_only=True, trust_remote_code=False)
            with no_bars():
                check_encoder(place, checked.weights[place], config)
        yield


def _check_tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer

    with any_error_as(lambda reason: ModelError(f"{shown(path)} is damaged: {reason}. {AGAIN}")):
        if exists(path):
            Tokenizer.from_file(str(path))


@contextmanager
def quiet() -> Iterator[None]:
    """Hide transformers' report of heads that a checkpoint has and an encoder does not use.

    What the encoder needs and does not get is an error of `check_encoder`, which asks transformers for it directly.
    """
    logger = logging.getLogger("transformers.modeling_utils")

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    logger.addFilter(is_error)  # transformers reads the level for other purposes, so it stays
    try:
        yield
    finally:
        logger.removeFilter(is_error)


@contextmanager
def no_bars() -> Iterator[None]:
    """Hide transformers' progress bars."""
    from transformers.utils import logging as host

    were_shown = host.is_progress_bar_enabled()
    host.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if were_shown:
            host.enable_progress_bar()  # type: ignore[no-untyped-call]
