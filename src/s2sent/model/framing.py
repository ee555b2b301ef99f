"""From text to the sequence of tokens that a model sees. Without torch: an exported model does it the same way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentence_transformers.base.modules import Transformer
    from tokenizers import Tokenizer

_UNLIMITED = 1 << 20
_CHUNK = 1 << 18
"""Characters to a call of the tokenizer, whose own notes on each token are far larger than the tokens."""


@dataclass(frozen=True)
class Framing:
    """What stands around a text's own tokens, and how a text is prepared. Plain values, which a config.json can hold.

    Attributes:
        prefix: Token ids before the text's: special tokens, a template's first half.
        suffix: Token ids behind it.
        room: How many of the text's own tokens fit between them.
        prompt: Text that the model puts before every text.
        strip: Whether white space around prompt and text is taken off.
        lead: What is put before it all then: the space that a byte-level vocabulary wants behind a template's words.
        keep_end: Whether a text that is too long keeps its end instead of its beginning.
        literal: Whether a special token's name in a text, such as "[MASK]", is read as plain text.
        mask: The id that must not come from a text, because the model looks for it to pool;
        unknown: what it is replaced with.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    room: int
    prompt: str = ""
    strip: bool = False
    lead: str = ""
    keep_end: bool = False
    literal: bool = False
    mask: int | None = None
    unknown: int | None = None

    @property
    def max_tokens(self) -> int:
        """The longest sequence."""
        return len(self.prefix) + self.room + len(self.suffix)

    def frame(self, tokens: Sequence[int]) -> list[int]:
        """Put one text's tokens, cut to the room there is, into the frame."""
        if len(tokens) > self.room:
            tokens = tokens[-self.room :] if self.keep_end else tokens[: self.room]
        return [*self.prefix, *tokens, *self.suffix]

    def tokenizer(self, tokenizer: Tokenizer) -> Tokenizer:
        """Return a copy of a tokenizer, set to give a text's own tokens, all of them."""
        own = type(tokenizer).from_str(tokenizer.to_str())
        own.no_truncation()
        own.no_padding()
        own.encode_special_tokens = self.literal
        return own

    def tokenize(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's own tokens. The tokenizer is one that `Framing.tokenizer` returned."""
        prompted = (self.prompt + text for text in texts)
        prepared = (self.lead + text.strip() for text in prompted) if self.strip else prompted
        return [ids for chunk in in_chunks(prepared) for ids in self._ids(tokenizer, chunk)]

    def _ids(self, tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
        # `fast`: without the places of the tokens in the text, which nobody asks for.
        ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        if self.mask is None or self.unknown is None:
            return ids
        return [
            [self.unknown if token == self.mask else token for token in row] if self.mask in row else row for row in ids
        ]


def in_chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Cut texts into lists that a tokenizer should take at once."""
    chunk: list[str] = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= _CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def framing_of(encoder: Transformer, prompt: str | None = None) -> Framing:
    """Read off an encoder what it does to a text.

    Args:
        encoder: The first module of a model.
        prompt: Text that the model puts before every text.
    """
    from s2sent.model.backbone import max_tokens
    from s2sent.model.prompts import PromptTransformer, Template

    tokenizer: Any = encoder.tokenizer
    keep_end = tokenizer.truncation_side == "left"
    limits = [n for n in (encoder.max_seq_length, max_tokens(encoder.auto_model)) if n is not None]
    if isinstance(encoder, PromptTransformer):
        frame = encoder.frame
        room = min(n for n in (encoder.max_seq_length, encoder.room, _UNLIMITED) if n is not None)
        return Framing(
            frame.prefix,
            frame.suffix,
            room,
            prompt or "",
            strip=True,
            lead=" " if frame.spaced else "",
            keep_end=keep_end,
            literal=True,
            mask=tokenizer.mask_token_id,
            unknown=tokenizer.unk_token_id,
        )
    frame = Template("{sentence}").around(tokenizer)
    return Framing(frame.prefix, frame.suffix, min([*limits, _UNLIMITED]) - len(frame), prompt or "", keep_end=keep_end)
