"""Put an encoder and a selector together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from s2sent.errors import ConfigError, ModelError
from s2sent.model.backbone import Backbone, max_tokens
from s2sent.model.load import open_encoder
from s2sent.model.pooling import SelectivePooling, pooling_of
from s2sent.model.prompts import PromptTransformer
from s2sent.selection import SelectionConfig
from s2sent.selection.config import PoolingMode


def build(
    backbone: str | Path | SentenceTransformer,
    *,
    selection: SelectionConfig | None = None,
    pooling: PoolingMode | None = None,
    template: str | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    device: str | None = None,
    hub: dict[str, Any] | None = None,
    model_kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> SentenceTransformer:
    """Make a sentence encoder that selects from the backbone's blocks. The selector starts untrained.

    Args:
        backbone: A Transformer encoder: a folder, a name on the hub, or a sentence-transformers model (by folder, name
            or in memory), whose `Pooling` is replaced and whose other modules stay. A model in memory shares its
            encoder with the new one: training or cutting (`max_length`) the one changes the other.
        selection: The form of the selection. Or give its options one by one: `blocks=3, frequencies=4, …`.
        pooling: `mean`, `cls` or `mask`. By default `mask` with a template that has one, else what the given
            sentence-transformers model does, else `mean`.
        template: A prompt around every sentence, such as `This sentence : "{sentence}" means {mask}.`; `auto` is
            PromptBERT's for the backbone's vocabulary. Saved with the model, so `encode` applies it.
        normalize: Whether vectors have length 1. By default as the given model does, else not.
        max_length: Longest text in tokens; the rest is cut. By default the backbone's own limit. With a template it
            is the sentence alone that is cut.
        device: Where to run; by default the best there is.
        hub: `token`, `revision`, `cache_folder`, `local_files_only` for a backbone from the hub.
        model_kwargs: Passed on to the backbone's `from_pretrained`: `dtype`, `attn_implementation`, …
        **options: Fields of `SelectionConfig`; what is not given has that class's defaults (the paper's selection).

    Example:
        >>> model = build("bert-base-uncased", blocks=3, frequencies=4)     # doctest: +SKIP
        >>> model.encode(["A sentence.", "Another."]).shape                 # doctest: +SKIP
        (2, 768)
    """
    if selection is not None and options:
        raise ConfigError(f"Give either selection=… or single options ({', '.join(options)}), not both.")
    selection = selection or SelectionConfig.from_dict(options)

    if isinstance(backbone, SentenceTransformer) and (hub or model_kwargs):
        raise ConfigError("hub and model_kwargs are for a backbone that is yet to be loaded; this model is in memory.")
    if not isinstance(backbone, SentenceTransformer):
        backbone = open_encoder(backbone, device=device, hub=hub, model_kwargs=model_kwargs)
    modules = list(backbone)
    encoder = modules[0]
    place = next((i for i, module in enumerate(modules) if isinstance(module, Pooling | SelectivePooling)), None)
    if not isinstance(encoder, Transformer) or place != 1:
        raise ModelError(
            f"The given model is {' → '.join(type(module).__name__ for module in modules)}: a Transformer must come "
            "first, and right after it a Pooling that can be replaced."
        )
    replaced = modules[place]
    if template is not None:
        modules[0] = encoder = PromptTransformer.around(encoder, template)
        if pooling is None and encoder.parsed.has_mask:
            pooling = "mask"
    Backbone.of(encoder.auto_model).indices(selection)  # raises if the blocks are not there, before they cost anything
    modules[place] = SelectivePooling(
        encoder.get_embedding_dimension(), selection, pooling=pooling or pooling_of(replaced)
    )
    if isinstance(replaced, SelectivePooling):
        replaced.detach()
    if normalize is not None:
        modules = [module for module in modules if not isinstance(module, Normalize)] + [Normalize()] * normalize
    _set_max_length(encoder, max_length)
    return with_modules(backbone, modules, device)


def with_modules(
    model: SentenceTransformer, modules: list[nn.Module], device: str | None = None
) -> SentenceTransformer:
    """Return a model of other modules that keeps what a model is besides: prompts, similarity, truncation, device."""
    return SentenceTransformer(
        modules=modules,
        device=device or str(model.device),
        prompts={name: prompt for name, prompt in model.prompts.items() if prompt is not None},
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        truncate_dim=model.truncate_dim,
    )


def _set_max_length(encoder: Transformer, max_length: int | None) -> None:
    limit = max_tokens(encoder.auto_model)
    if max_length is None:
        if limit is not None:
            encoder.max_seq_length = min(encoder.max_seq_length or limit, limit)
        return
    if isinstance(encoder, PromptTransformer):
        special, limit = 0, encoder.room
    else:
        special = encoder.tokenizer.num_special_tokens_to_add() if encoder.tokenizer is not None else 0
    if max_length <= special or (limit is not None and max_length > limit):
        raise ConfigError(
            f"max_length must be from {special + 1} (there are {special} special tokens) to {limit or 'any number'} "
            f"(the backbone's positions), got {max_length}."
        )
    encoder.max_seq_length = max_length
