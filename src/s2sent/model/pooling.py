"""The selector as a module of sentence-transformers, in place of its `Pooling`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, cast, get_args

import torch
from sentence_transformers.base import BaseModel
from sentence_transformers.base.modules import Module, Transformer
from torch import Tensor, nn

from s2sent.errors import ConfigError, DataError, ModelError, S2SentError
from s2sent.model.backbone import Backbone
from s2sent.model.stream import BlockStream
from s2sent.model.text import NO_TEXT, SHORT, check_inputs_of, special_ids
from s2sent.selection import Selection, SelectionConfig, Selector, TokenBasis, TokenLayout
from s2sent.selection.config import PoolingMode


class Features(dict[str, Any]):
    """The features of sentence-transformers, with the fused token vectors computed only when they are asked for."""

    def __init__(self, features: Mapping[str, Any] | None = None, tokens: Callable[[], Tensor] | None = None) -> None:
        super().__init__(features or {})
        self._tokens = tokens  # None in a copy that somebody else made: accelerate does, in mixed precision

    def __missing__(self, key: str) -> Tensor:
        if key != "token_embeddings" or self._tokens is None:
            raise KeyError(key)
        self[key] = value = self._tokens()
        return value


class SelectivePooling(Module):
    """Pool a sentence from several blocks of the encoder, each feature from the blocks that know it best.

    Goes behind sentence-transformers' `Transformer`, in place of `Pooling`. `s2sent.build` puts the two together.

    Args:
        dim: The width of the encoder's hidden states.
        selection: The form of the selection, or its options as a mapping.
        pooling: How a sentence's tokens become one vector: `mean`, `cls` (the first token), or `mask` (the last
            [MASK] token of the text, for prompts).

    Relations:
        - sentence-transformers' `Pooling` reads the last block only.
        - sentence-transformers' `WeightedLayerPooling` learns one weight per block for all sentences and features;
          here that is `SelectionConfig(gate="static")`.

    Besides `sentence_embedding`, `encode(..., output_value=...)` gives `block_weights` (n, d), and `token_embeddings`,
    the fused token vectors, which cost a second pass through the encoder.

    Example:
        >>> from sentence_transformers import SentenceTransformer                                 # doctest: +SKIP
        >>> from sentence_transformers.base.modules import Transformer                            # doctest: +SKIP
        >>> encoder = Transformer("bert-base-uncased")                                            # doctest: +SKIP
        >>> pooling = SelectivePooling(encoder.get_embedding_dimension(), {"blocks": 3})          # doctest: +SKIP
        >>> model = SentenceTransformer(modules=[encoder, pooling])                               # doctest: +SKIP
    """

    def __init__(
        self,
        dim: int,
        selection: SelectionConfig | Mapping[str, Any] | None = None,
        pooling: PoolingMode = "mean",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if pooling not in get_args(PoolingMode):
            raise ConfigError(f"pooling must be one of {', '.join(map(repr, get_args(PoolingMode)))}, got {pooling!r}.")
        if not isinstance(selection, SelectionConfig):
            selection = SelectionConfig.from_dict(selection or {})
        self.selector = Selector(dim, selection)
        self.pooling: PoolingMode = pooling
        self._mask_token_id: int | None = None
        self._special_ids: list[int] = []
        self._backbone: Backbone | None = None
        self._stream: BlockStream | None = None
        self._encoder: list[Transformer] = []  # in a list, so that the encoder's parameters do not count as ours

    @property
    def selection(self) -> SelectionConfig:
        """The form of the selection."""
        return self.selector.config

    @property
    def block_numbers(self) -> tuple[int, ...]:
        """The numbers of the chosen blocks of the encoder in front, counted from 1 (0: its embeddings)."""
        if self._backbone is None:
            raise ModelError("This selector is in no model yet, so its blocks have no numbers.")
        return self._backbone.indices(self.selection)

    def get_embedding_dimension(self) -> int:
        """Return the width of the sentence vectors."""
        return self.selector.dim

    def on_model_ready(self, model: BaseModel) -> None:
        """Find out about the encoder in front: called by sentence-transformers when the model is built or loaded."""
        encoder = model[0]
        if not isinstance(encoder, Transformer):
            raise ModelError(f"SelectivePooling reads a Transformer's blocks, but the first module is {type(encoder)}.")
        if encoder.backend != "torch":
            raise ModelError(
                f"backend={encoder.backend!r} computes the encoder's last block only, and there is nothing to select "
                "from. Load the model with backend='torch'."
            )
        if encoder.get_embedding_dimension() != self.selector.dim:
            raise ConfigError(
                f"The selector is made for {self.selector.dim} features, but the encoder has "
                f"{encoder.get_embedding_dimension()}. Make it with dim={encoder.get_embedding_dimension()}."
            )
        if self.pooling == "mask" and getattr(encoder.tokenizer, "mask_token_id", None) is None:
            raise ConfigError("pooling='mask' needs a tokenizer with a mask token, and this one has none. Use 'mean'.")
        self._backbone = Backbone.of(encoder.auto_model)
        self._backbone.indices(self.selection)  # raises if the blocks are not there
        self._mask_token_id = getattr(encoder.tokenizer, "mask_token_id", None)
        self._special_ids = special_ids(encoder.tokenizer)
        self._encoder = [encoder]
        encoder.auto_model.config.output_hidden_states = True
        self.detach()
        self._stream = BlockStream(encoder, self, self._backbone)
        check_inputs_of(model)

    def detach(self) -> None:
        """Remove the hooks from the encoder, for a selector that is taken out of a model."""
        if self._stream is not None:
            self._stream.detach()
            self._stream = None

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Fuse and pool the encoder's blocks into `sentence_embedding`."""
        del kwargs
        streamed = self._stream.finished(features) if self._stream is not None else None
        # Without the last block's token vectors: nobody behind the selection may take them for the fused ones.
        inputs = {name: value for name, value in features.items() if name != "token_embeddings"}
        if streamed is not None:
            self._check_text(features, streamed.basis.layout)
            out = self.selector.from_projections(streamed.projections, streamed.basis, streamed.dtype)
        else:
            out = self.select(features if "all_layer_embeddings" in features else self._with_hidden_states(inputs))
        tokens = out.tokens if streamed is None else lambda: self.select(self._with_hidden_states(inputs)).tokens()
        return Features({**inputs, "sentence_embedding": out.embedding, "block_weights": out.weights}, tokens)

    def _with_hidden_states(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Run the encoder again past its hooks, so that it keeps its hidden states."""
        if not self._encoder:
            return inputs
        features: dict[str, Any] = self._encoder[0].forward(dict(inputs))
        return features

    def select(self, features: Mapping[str, Any]) -> Selection:
        """Select from features that have the encoder's hidden states: what `forward` does, with all there is to see."""
        hidden_states = features.get("all_layer_embeddings")
        if hidden_states is None:
            raise ModelError(
                "The encoder gave no hidden states, so there are no blocks to select from. Set "
                "output_hidden_states=True in its config, or put the model together with s2sent.build, which does."
            )
        states = self._chosen_of(hidden_states)
        layout = layout_of(features)
        if layout is None:
            layout = TokenLayout.padded(torch.ones(states[0].shape[:2], device=states[0].device))
        self._check_text(features, layout)
        out: Selection = self.selector(
            states,
            attention_mask=layout.mask if layout.sentence is None else None,
            pool=self._pool_weights(features, layout),
            cu_seq_lens=features.get("cu_seq_lens_q"),
        )
        return out

    def _chosen_of(self, hidden_states: tuple[Tensor, ...]) -> list[Tensor]:
        if self._backbone is not None:
            return self._backbone.choose(hidden_states, self._backbone.indices(self.selection))
        # Appended to a model by hand, so `on_model_ready` was not called: count from the hidden states, without a norm.
        plain = Backbone("the encoder", len(hidden_states) - 1, None, None)
        return plain.choose(hidden_states, plain.indices(self.selection))

    def token_basis(self, features: Mapping[str, Any]) -> TokenBasis | None:
        """Return the sums over tokens that every chosen block is asked for; None if the features have no mask."""
        layout = layout_of(features)
        return None if layout is None else self.selector.token_basis(layout, self._pool_weights(features, layout))

    def _pool_weights(self, features: Mapping[str, Any], layout: TokenLayout) -> Tensor | None:
        match self.pooling:
            case "mean":
                return None
            case "cls":
                return layout.first_token()
            case "mask":
                is_mask = (features["input_ids"] == self._mask_token_id) & layout.mask
                last = layout.largest(torch.where(is_mask, layout.position, 0))
                return (layout.mask & (layout.position == layout.of_token(last))).float()

    def _check_text(self, features: Mapping[str, Any], layout: TokenLayout) -> None:
        """Raise for a sentence that cannot be pooled; not while the model is compiled, when there are no values."""
        if torch.compiler.is_compiling():
            return
        if layout.mask.numel() == 0:
            raise DataError("An empty batch: there is no sentence to encode. Give at least one.")
        ids = features.get("input_ids")
        if ids is None or (self.pooling != "mask" and min(layout.lengths.tolist()) > SHORT):
            return
        is_text = torch.isin(ids, torch.tensor(self._special_ids, device=ids.device), invert=True) & layout.mask
        if not bool(layout.any(is_text).all()):
            raise DataError(NO_TEXT)
        if self.pooling == "mask":
            has_mask = layout.any((ids == self._mask_token_id) & layout.mask)
            if not bool(has_mask.all()):
                raise DataError(
                    "A sentence of this batch has no mask token, and pooling='mask' takes its vector. Put one into the "
                    "text."
                )

    def get_config_dict(self) -> dict[str, Any]:
        """Return everything that decides a vector, for the module's config.json."""
        return {"dim": self.selector.dim, "pooling": self.pooling, "selection": self.selection.to_dict()}

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write config.json and model.safetensors (never a pickle, whatever `safe_serialization` says)."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=True)

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any
    ) -> Self:
        """Read the module from a model folder or hub repository; called by sentence-transformers."""
        hub = {key: kwargs[key] for key in ("token", "cache_folder", "revision", "local_files_only") if key in kwargs}
        config = cls.load_config(model_name_or_path, subfolder=subfolder, **hub)
        try:
            module = cls(**config)
        except (S2SentError, TypeError) as error:
            raise ModelError(f"{Path(model_name_or_path, subfolder, cls.config_file_name)}: {error}") from error
        try:
            cls.load_torch_weights(model_name_or_path, subfolder=subfolder, model=module, **hub)
        except RuntimeError as error:
            weights = Path(model_name_or_path, subfolder, "model.safetensors")
            reason = " ".join(str(error).split())
            raise ModelError(f"{weights} does not fit the config.json beside it: {reason}") from error
        return module


def layout_of(features: Mapping[str, Any]) -> TokenLayout | None:
    """Read off sentence-transformers' features where the real tokens are; None if they do not say."""
    if "cu_seq_lens_q" in features:
        return TokenLayout.flat(features["cu_seq_lens_q"], features["input_ids"].shape[-1])
    return TokenLayout.padded(features["attention_mask"]) if "attention_mask" in features else None


def pooling_of(module: nn.Module) -> PoolingMode:
    """Return how a model's pooling module, ours or sentence-transformers', makes one vector of a sentence's tokens."""
    if isinstance(module, SelectivePooling):
        return module.pooling
    if not getattr(module, "include_prompt", True):
        raise ConfigError("The given model leaves the prompt out of its pooling, which the selection does not.")
    mode = getattr(module, "pooling_mode", None)
    if mode in ("mean", "cls"):
        return cast(PoolingMode, mode)
    raise ConfigError(
        f"The given model pools with {mode!r}, which the selection cannot follow. Say pooling='mean' or 'cls'."
    )
