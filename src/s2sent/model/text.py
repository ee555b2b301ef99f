"""From text to the token sequences that a model reads: check, prompt, tokenise, cut, frame, pad.

Nothing here imports torch: an exported model reads text the same way. `s2sent.model.prompts.pipeline_of` reads a
`TextPipeline` off an encoder in torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2sent.errors import DataError
from s2sent.untrusted import lone_surrogate

NO_TEXT = (
    "A sentence of this batch has no text, only special tokens, and nothing to select from. Leave empty sentences out."
)
"""Without its number in the batch, which is sorted by length."""
SHORT = 8
"""Tokens up to which a text may turn out to have only special ones. Longer ones are not checked: it costs time."""
_CHUNK = 1 << 18
"""Characters to a call of the tokenizer, whose own data about each token is far larger than the tokens."""


@dataclass(frozen=True)
class TextConfig:
    """What a model does to a text, in plain values that a json file can hold.

    Attributes:
        prefix: Token ids before the text's own: special tokens, a template's first half.
        suffix: Token ids after them.
        room: How many of the text's own tokens fit between them.
        prompt: Text that is put before every text.
        strip: Whether white space around prompt and text is removed.
        lead: What is put before it all then: the space that a byte-level vocabulary needs after a template's words.
        keep_end: Whether a text that is too long keeps its end instead of its beginning.
        literal: Whether the name of a special token in a text, such as "[MASK]", is read as plain text.
        mask: The id that must not come from a text, because the model pools at it.
        unknown: The id that replaces it.
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


@dataclass(frozen=True)
class TextPipeline(TextConfig):
    """How a model turns a text into a sequence of token ids.

    The no-text rule is here, too: a text without any token has no vector, and a model that selects (`needs_text`) has
    none for a text of special tokens alone, such as "[SEP]".

    Attributes:
        padding: The id that fills up a batch.
        pad_left: Whether a batch is filled up on the left.
        special: Ids that are no text.
        needs_text: Whether a text of special tokens alone is refused.
        bucket: A sequence is padded to the next multiple of so many tokens, and a batch has sequences of one such
            length: then a vector does not depend on the texts beside it. 0: padded to the longest of the batch.
        tokenizer: What `content_tokenizer` returned.
    """

    padding: int = 0
    pad_left: bool = False
    special: frozenset[int] = frozenset()
    needs_text: bool = False
    bucket: int = 0
    tokenizer: Any = field(default=None, repr=False, compare=False)

    @property
    def config(self) -> TextConfig:
        """What a json file holds of it."""
        return TextConfig(**{option.name: getattr(self, option.name) for option in fields(TextConfig)})

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's own tokens: no special tokens, not cut."""
        return [ids for chunk in self._chunks(texts) for ids in self._ids(chunk)]

    def frame(self, tokens: Sequence[int]) -> list[int]:
        """Return one sequence as the model reads it: a text's own tokens, cut to fit, between prefix and suffix."""
        if len(tokens) > self.room:
            tokens = tokens[-self.room :] if self.keep_end else tokens[: self.room]
        return [*self.prefix, *tokens, *self.suffix]

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the sequence of each text; none, an empty list, for a text without any token that is text."""
        return [[] if self.special.issuperset(tokens) else self.frame(tokens) for tokens in self.tokenize(texts)]

    @property
    def encodes_empty(self) -> bool:
        """Whether there is a sequence for a text without any token: the special tokens around it."""
        return not self.needs_text and bool(self.prefix or self.suffix)

    def accepts(self, tokens: Sequence[int]) -> bool:
        """Whether a text of these tokens has a vector (the no-text rule)."""
        return bool(tokens) and (not self.needs_text or len(tokens) > SHORT or not self.special.issuperset(tokens))

    def check_text(self, sequences: Sequence[Sequence[int]]) -> None:
        """Raise a `DataError` if a sequence is empty, or has no text and the model needs some."""
        start, end = len(self.prefix), len(self.suffix)
        for sequence in sequences:
            if not sequence or (self.needs_text and not self.accepts(sequence[start : len(sequence) - end])):
                raise DataError(NO_TEXT)

    def pad(self, sequences: Sequence[Sequence[int]]) -> dict[str, NDArray[np.int64]]:
        """Make one batch of sequences: `input_ids` and `attention_mask`, (b, l) each."""
        length = self.padded_length(max(map(len, sequences)))
        return pad(sequences, self.padding, left=self.pad_left, length=length)

    def padded_length(self, length: int) -> int:
        """Return the length that a sequence of this length is padded to, as far as that is its own matter."""
        return min(-(-length // self.bucket) * self.bucket, self.max_tokens) if self.bucket else length

    def _chunks(self, texts: Sequence[str]) -> Iterator[list[str]]:
        chunk: list[str] = []
        size = 0
        for text in texts:
            text = self.prompt + text
            chunk.append(self.lead + text.strip() if self.strip else text)
            size += len(text)
            if size >= _CHUNK:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _ids(self, texts: list[str]) -> list[list[int]]:
        if hasattr(self.tokenizer, "encode_batch_fast"):  # which leaves out each token's position in the text
            ids = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        else:  # transformers' tokenizers in Python
            options = {"add_special_tokens": False, "split_special_tokens": self.literal, "verbose": False}
            ids = self.tokenizer(texts, **options)["input_ids"]
        if self.mask is None or self.unknown is None:
            return ids
        # Some vocabularies (Unigram) find the mask token's text even when told not to look for special tokens.
        return [
            [self.unknown if token == self.mask else token for token in row] if self.mask in row else row for row in ids
        ]


def content_tokenizer(tokenizer: Any, *, literal: bool = False) -> Any:
    """Return a copy of a tokenizer that gives a text's own tokens, all of them.

    Args:
        tokenizer: Of the library tokenizers, or of transformers. One of transformers that is written in Python is
            returned as it is.
        literal: As of `TextPipeline`.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):
        return tokenizer
    own = type(backend).from_str(backend.to_str())
    own.no_truncation()
    own.no_padding()
    own.encode_special_tokens = literal
    return own


def special_ids(tokenizer: Any) -> list[int]:
    """Return the ids that are no text. An unknown token stands for text, and a mask token for what a prompt asks."""
    text = {getattr(tokenizer, "unk_token_id", None), getattr(tokenizer, "mask_token_id", None)}
    return [i for i in getattr(tokenizer, "all_special_ids", []) if i not in text]


def pad(
    sequences: Sequence[Sequence[int]], padding: int, *, left: bool = False, length: int | None = None
) -> dict[str, NDArray[np.int64]]:
    """Make one batch of sequences: `input_ids` and `attention_mask`, (b, l) each; l is `length` or the longest's."""
    ids = np.full((len(sequences), length or max(map(len, sequences))), padding, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        place = slice(ids.shape[1] - len(sequence), None) if left else slice(len(sequence))
        ids[row, place] = sequence
        mask[row, place] = 1
    return {"input_ids": ids, "attention_mask": mask}


def check_texts(inputs: object, *, also: tuple[type, ...] = ()) -> list[Any]:
    """Return the texts that a caller gives: one, or a list, tuple, numpy array or another ordered collection of texts.

    An iterator is refused, as by sentence-transformers: an error in its tenth text would be found when the others are
    used up. So is a text with half a surrogate pair: tokenizers cannot read it, and to replace it would give the
    vector of another text.

    Args:
        inputs: What the caller gives.
        also: Types that may take the place of a text.

    Raises:
        DataError: there is something that is no text; the message says where.
    """
    texts: list[Any]
    if isinstance(inputs, str):
        texts = [inputs]
    elif (
        getattr(inputs, "ndim", 1) == 0
        or not isinstance(inputs, Collection)
        or isinstance(inputs, Mapping | Set | bytes | bytearray | memoryview)
    ):
        hint = " Make a list of it: list(inputs)." if hasattr(inputs, "__next__") else ""
        raise DataError(f"inputs must be a text or a list of texts, got {_shown(inputs)}.{hint}")
    else:
        texts = list(inputs)
    for number, text in enumerate(texts, start=1):
        if isinstance(text, str):
            if half := lone_surrogate(text):
                raise DataError(
                    f"Input {number} of {len(texts)} has half a surrogate pair ({half!r}), which is no character: "
                    f"{_shortened(repr(text))}. Decode the text again, or remove it."
                )
        elif not isinstance(text, also):
            raise DataError(f"Input {number} of {len(texts)} must be a text, got {_shown(text)}.")
    return texts


def _shown(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}: {_shortened(repr(value))}"


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


class InputCheck:
    """`is_singular_input` of a model in torch, with `check_texts`.

    sentence-transformers' `encode` calls that method, and no other public one, with what its caller gave before it is
    sorted. An object and not a function: a copied or unpickled model must ask itself, not the model it was copied from.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, inputs: Any) -> bool:
        """Return whether a caller gave one text and not several; raise `DataError` for what is neither."""
        first = inputs[0] if isinstance(inputs, list) and inputs else inputs
        # Images and sounds, {"text": …} and conversations are checked by the model that takes them.
        if not {*self.model.modalities} <= {"text", "message"} or isinstance(first, Mapping):
            return bool(type(self.model).is_singular_input(self.model, inputs))
        check_texts(inputs, also=(tuple, list, Mapping))  # pairs of texts, too
        return isinstance(inputs, str)


def check_inputs_of(model: Any) -> None:
    """Have a `SentenceTransformer` take the inputs that an exported model takes, and refuse others in the same way."""
    model.is_singular_input = InputCheck(model)
