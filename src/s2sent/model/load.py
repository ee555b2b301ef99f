"""Load a saved model."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sent.errors import ConfigError, ModelError, S2SentError
from s2sent.model.exported import OnnxEncoder, is_export
from s2sent.model.folder import CheckedFolder, check_backbone, check_sentence_model, is_sentence_model, locate
from s2sent.model.weights import check_encoder, check_finite
from s2sent.texts import check_inputs_of
from s2sent.untrusted import exists, shown

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SAFE: dict[str, Any] = {"trust_remote_code": False, "use_safetensors": True, "weights_only": True}
"""What `from_pretrained` of a model is always called with. It wins over whatever a folder says."""


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
    package, has a key in a json file that is not known to be harmless, reaches out of itself, has weights that are not
    safetensors, not the model's or not finite, or is missing or cut short. docs/security.md says what is promised.
    An exported folder is opened without torch.

    Args:
        model: A folder, or a name on the hub.
        device: Where to run; by default the best there is.
        hub: `token`, `revision`, `cache_folder`, `local_files_only` for a model from the hub.
        model_kwargs: Passed on to the backbone's `from_pretrained`: `dtype`, `attn_implementation`, …
        threads: Of an exported model: how many threads may run; by default one for each core.
    """
    return open_folder(locate(model, hub), device=device, model_kwargs=model_kwargs, threads=threads)


def open_folder(
    folder: Path,
    *,
    device: str | None = None,
    model_kwargs: dict[str, Any] | None = None,
    threads: int | None = None,
) -> SentenceTransformer | OnnxEncoder:
    """Load a folder that `locate` found, as `load` does."""
    if is_export(folder):
        if model_kwargs or device not in (None, "cpu"):
            raise ConfigError(f"{folder} is an exported model: it runs on the CPU, and takes no model_kwargs.")
        return OnnxEncoder(folder, threads=threads)
    if threads is not None:
        raise ConfigError("threads is for exported models; for one in torch, call torch.set_num_threads.")
    return _load_sentence_model(folder, device, model_kwargs)


def load_in_torch(
    model: str | Path,
    *,
    device: str | None = None,
    hub: dict[str, Any] | None = None,
    model_kwargs: dict[str, Any] | None = None,
) -> SentenceTransformer:
    """Load a model as `load` does, for somebody who needs more of it than its vectors."""
    return _load_sentence_model(_not_exported(locate(model, hub)), device, model_kwargs)


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
        return _load_sentence_model(folder, device, model_kwargs)
    return _load_backbone(folder, device, model_kwargs)


def _not_exported(folder: Path) -> Path:
    if is_export(folder):
        raise ModelError(
            f"{folder} is an exported model, of which there is only its graph. Give the model it was made from."
        )
    return folder


def _load_sentence_model(folder: Path, device: str | None, model_kwargs: dict[str, Any] | None) -> SentenceTransformer:
    checked = check_sentence_model(folder)
    from sentence_transformers import SentenceTransformer

    with _loading(checked):
        model = SentenceTransformer(
            str(folder),
            device=device,
            local_files_only=True,
            # The host asks for this before it imports any module that is not its own. The check has seen to it that
            # ours is the only such one; code for the encoder or the tokenizer stays forbidden.
            trust_remote_code=True,
            model_kwargs={**(model_kwargs or {}), **SAFE},
            processor_kwargs={"trust_remote_code": False},
            config_kwargs={"trust_remote_code": False},
        )
        _try_tokenizer(model)
    _check_finite(model, checked)
    check_inputs_of(model)
    return model


def _load_backbone(folder: Path, device: str | None, model_kwargs: dict[str, Any] | None) -> SentenceTransformer:
    checked = check_backbone(folder)
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    from s2sent.model.backbone import max_tokens

    with _loading(checked):
        encoder = Transformer.load(str(folder), local_files_only=True, model_kwargs={**(model_kwargs or {}), **SAFE})
        model = SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension())], device=device)
        _try_tokenizer(model)
    if (limit := max_tokens(encoder.auto_model)) is not None:  # the host may allow more than there are positions for
        encoder.max_seq_length = min(encoder.max_seq_length or limit, limit)
    _check_finite(model, checked)
    check_inputs_of(model)
    return model


def _try_tokenizer(model: SentenceTransformer) -> None:
    """Tokenise a short and a long text: settings that cannot be followed show now, not in the middle of a corpus."""
    from sentence_transformers.base.modules import Transformer

    if isinstance(model[0], Transformer):
        model.preprocess(["A text.", "A longer text. " * 200])


def _check_finite(model: SentenceTransformer, checked: CheckedFolder) -> None:
    for module, place in zip(model, checked.modules, strict=False):  # a backbone's pooling has no folder
        check_finite(module, checked.stored(place))


@contextmanager
def _loading(checked: CheckedFolder) -> Iterator[None]:
    """Compare weights and configs before the host reads a weight, and turn whatever it raises into a `ModelError`."""
    from transformers import AutoConfig

    try:
        with quiet():
            for place in checked.encoders:
                config = AutoConfig.from_pretrained(place, local_files_only=True, trust_remote_code=False)
                with no_bars():
                    check_encoder(place, checked.weights[place], config)
            yield
    except S2SentError:
        raise
    except BaseException as error:
        # What is written in Rust panics with a type of its own, which is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        for place in checked.encoders:
            check_tokenizer(place / "tokenizer.json")
        reason = (str(error).strip().splitlines() or [""])[0]
        raise ModelError(
            f"{shown(checked.folder)} cannot be loaded: {type(error).__name__}: {shown(reason)} Copy or save the "
            "model again."
        ) from error


def check_tokenizer(path: Path) -> None:
    """Raise a `ModelError` if a tokenizer.json cannot be used; one that is not there can."""
    from tokenizers import Tokenizer

    try:
        if exists(path):
            Tokenizer.from_file(str(path))
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"{shown(path)} is damaged: {shown(str(error))}. Copy or save the model again.") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back transformers' report of heads that a checkpoint has and an encoder does not use: of no use to a user.

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
    """Keep back transformers' progress bars."""
    from transformers.utils import logging as host

    shown_before = host.is_progress_bar_enabled()
    host.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown_before:
            host.enable_progress_bar()  # type: ignore[no-untyped-call]
