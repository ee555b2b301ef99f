"""A template around every sentence, as in PromptBERT, saved with the model; and how any encoder in torch reads text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from tokenizers.models import WordPiece
from torch import Tensor

from s2sent.errors import ConfigError, DataError, ModelError
from s2sent.model.backbone import max_tokens
from s2sent.model.pooling import SelectivePooling
from s2sent.model.text import TextPipeline, content_tokenizer, pad, special_ids

SENTENCE, MASK = "{sentence}", "{mask}"
_UNLIMITED = 1 << 20

# PromptBERT's two templates per kind of vocabulary: the first is the model's, the second is for the other view.
WORDPIECE_TEMPLATES = ('This sentence of "{sentence}" means {mask}.', 'This sentence : "{sentence}" means {mask}.')
BYTE_LEVEL_TEMPLATES = ("This sentence : ' {sentence} ' means{mask}.", "The sentence : ' {sentence} ' means{mask}.")


@dataclass(frozen=True)
class Template:
    """A text with a place for the sentence, `{sentence}`, and usually one for the mask token, `{mask}`."""

    text: str

    def __post_init__(self) -> None:
        if self.text.count(SENTENCE) != 1 or self.text.count(MASK) > 1:
            raise ConfigError(
                f"template must have {SENTENCE} exactly once and {MASK} at most once, such as "
                f"{WORDPIECE_TEMPLATES[1]!r}, got {self.text!r}."
            )

    @property
    def has_mask(self) -> bool:
        """Whether there is a mask token, whose vector can be the sentence's."""
        return MASK in self.text

    def around(self, tokenizer: Any) -> Frame:
        """Tokenise what stands before and after the sentence."""
        if self.has_mask and tokenizer.mask_token is None:
            raise ConfigError(
                f"template={self.text!r} has {MASK}, but this backbone's tokenizer has no mask token. Leave it out and "
                "use pooling='mean'."
            )
        before, after = self.text.replace(MASK, tokenizer.mask_token or "").split(SENTENCE)
        # A byte-level vocabulary keeps the space with the word that follows, so it goes with the sentence.
        spaced = before.endswith(" ")
        # With the special tokens on, [CLS] stands before the first text and [SEP] after the last.
        nothing = tokenizer("")["input_ids"]
        opening = nothing[: len(nothing) - _closing(tokenizer)]
        closing = nothing[len(opening) :]
        bare = {"add_special_tokens": False}
        return Frame(
            prefix=(*opening, *tokenizer(before.strip(), **bare)["input_ids"]),
            suffix=(*tokenizer(after.rstrip(), **bare)["input_ids"], *closing),
            spaced=spaced,
        )


@dataclass(frozen=True)
class Frame:
    """A template in token ids: what stands before the sentence's tokens, [CLS] included, and what after."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    spaced: bool

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)


def published_templates(tokenizer: Any) -> tuple[str, str]:
    """Return PromptBERT's pair of templates for the tokenizer's kind of vocabulary.

    Vocabularies other than word pieces, bytes or not, keep a space with the word behind it.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # a tokenizer in Python: the mask token's brackets are all there is to go by
        word_pieces = str(getattr(tokenizer, "mask_token", None) or "").startswith("[")
    else:
        word_pieces = isinstance(backend.model, WordPiece)
    return WORDPIECE_TEMPLATES if word_pieces else BYTE_LEVEL_TEMPLATES


class PromptTransformer(Transformer):
    """A `Transformer` with a template around every sentence. `s2sent.build(…, template=…)` makes one.

    The sentence alone is cut to `max_seq_length`; the template comes on top. Text in a sentence that looks like a
    special token, such as "[MASK]", is read as plain text.

    Args:
        model_name_or_path: As of sentence-transformers' `Transformer`.
        template: The template, with `{sentence}` and `{mask}`; `auto`: PromptBERT's for this vocabulary.
        **kwargs: As of sentence-transformers' `Transformer`.
    """

    config_keys = [*Transformer.config_keys, "template"]  # noqa: RUF012

    def __init__(self, model_name_or_path: str, *, template: str, **kwargs: Any) -> None:
        super().__init__(model_name_or_path, **kwargs)
        self._use(template)

    @classmethod
    def around(cls, encoder: Transformer, template: str) -> Self:
        """Put a template around an encoder in memory; the two share their weights."""
        prompted = cls.__new__(cls)
        prompted.__dict__.update(encoder.__dict__)
        prompted._use(template)
        return prompted

    def _use(self, template: str) -> None:
        if template == "auto":
            template = published_templates(self.tokenizer)[0]
        self.template = template
        self.parsed = Template(template)
        self.frame = self.parsed.around(self.tokenizer)
        positions = max_tokens(self.auto_model)
        self.room: int | None = None if positions is None else positions - len(self.frame)
        """The longest sentence, in tokens, that the backbone has positions for beside the template."""
        if self.room is not None and self.room < 1:
            raise ConfigError(
                f"template={template!r} has {len(self.frame)} tokens and leaves no room in {positions} positions."
            )
        self._content_tokenizer = content_tokenizer(self.tokenizer, literal=True)

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, processing_kwargs: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Tokenise sentences inside the template; called by sentence-transformers."""
        del processing_kwargs
        if not inputs:
            return {}
        for text in inputs:
            if not isinstance(text, str):
                raise DataError(f"A prompt goes around text, and {text!r} is a {type(text).__name__}.")
        pipeline = replace(pipeline_of(self, kwargs.get("max_length")), prompt=prompt or "")
        sequences = [pipeline.frame(tokens) for tokens in pipeline.tokenize(inputs)]
        pipeline.check_text(sequences)
        return {**padded(self, sequences), "modality": "text"}

    def reframe(self, features: dict[str, Any], frame: Frame) -> list[list[int]]:
        """Take the sentences of a batch out of this model's template and put them into another one's frame."""
        if self.tokenizer is not None and self.tokenizer.padding_side != "right":
            raise ConfigError("Two templates need a tokenizer that pads on the right.")
        rows = []
        for ids, length in zip(features["input_ids"].tolist(), self.sentence_lengths(features).tolist(), strict=True):
            start = len(self.frame.prefix)
            rows.append([*frame.prefix, *ids[start : start + length], *frame.suffix])
        return rows

    def sentence_lengths(self, features: dict[str, Any]) -> Tensor:
        """Count each row's tokens without the template's: (b,)."""
        lengths: Tensor = features["attention_mask"].sum(dim=1) - len(self.frame)
        return lengths


def pipeline_of(model: SentenceTransformer | Transformer, max_length: int | None = None) -> TextPipeline:
    """Return how a model in torch reads text.

    Args:
        model: The model, whose default prompt counts; or its first module alone.
        max_length: Cut texts to so many tokens, if the model itself does not cut them to fewer. Special tokens count,
            a template does not.

    Raises:
        ModelError: the model has no Transformer with a tokenizer in front.
    """
    modules = list(model) if isinstance(model, SentenceTransformer) else [model]
    prompt = model.prompts.get(model.default_prompt_name or "") if isinstance(model, SentenceTransformer) else None
    encoder = modules[0]
    if not isinstance(encoder, Transformer) or getattr(encoder, "tokenizer", None) is None:
        raise ModelError(f"The model begins with {type(encoder).__name__}, not with a Transformer with a tokenizer.")
    tokenizer: Any = encoder.tokenizer
    prompted = encoder if isinstance(encoder, PromptTransformer) else None
    frame = prompted.frame if prompted else Template(SENTENCE).around(tokenizer)
    positions = prompted.room if prompted else max_tokens(encoder.auto_model)
    room = min(n for n in (max_length, encoder.max_seq_length, positions, _UNLIMITED) if n is not None)
    return TextPipeline(
        prefix=frame.prefix,
        suffix=frame.suffix,
        room=room if prompted else room - len(frame),
        prompt=prompt or "",
        strip=prompted is not None,
        lead=" " if prompted and frame.spaced else "",
        keep_end=tokenizer.truncation_side == "left",
        literal=prompted is not None,
        mask=tokenizer.mask_token_id if prompted else None,
        unknown=tokenizer.unk_token_id if prompted else None,
        padding=tokenizer.pad_token_id or 0,
        pad_left=tokenizer.padding_side == "left",
        special=frozenset(special_ids(tokenizer)),
        needs_text=any(isinstance(module, SelectivePooling | PromptTransformer) for module in modules),
        tokenizer=prompted._content_tokenizer if prompted else content_tokenizer(tokenizer),
    )


def padded(encoder: Transformer, ids: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Make one batch of token ids: `input_ids` and `attention_mask` (b, l), padded on the tokenizer's side."""
    tokenizer: Any = encoder.tokenizer
    batch = pad(ids, tokenizer.pad_token_id or 0, left=tokenizer.padding_side == "left")
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def empty_rows(frame: Frame, lengths: Sequence[int], first_position: int) -> tuple[list[list[int]], Tensor]:
    """Return the template alone, a row for each sentence length, and its position ids (b, l).

    The suffix keeps the positions it has behind a sentence of that length, so that what the model makes of the row is
    the template's own share of a prompted sentence's vector.
    """
    place = torch.arange(len(frame))
    behind = (place >= len(frame.prefix)).long()
    positions = first_position + place + behind * torch.tensor(list(lengths))[:, None]
    return [[*frame.prefix, *frame.suffix] for _ in lengths], positions


def _closing(tokenizer: Any) -> int:
    """How many special tokens stand behind a text."""
    with_special = tokenizer("a")["input_ids"]
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    if not plain:
        raise ConfigError("This backbone's tokenizer cannot read even the letter a: a template cannot be built.")
    for start in range(len(with_special) - len(plain) + 1):
        if with_special[start : start + len(plain)] == plain:
            return len(with_special) - len(plain) - start
    raise ConfigError("This backbone's tokenizer changes a text when special tokens are added: no template fits it.")
