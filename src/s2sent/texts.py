"""What a caller gives to `encode`, as a list of texts: one rule for torch models, exported ones and bulk encoding."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any

from s2sent.errors import DataError

NO_TEXT = (
    "A sentence of this batch has no text, only special tokens, and nothing to select from. Leave empty sentences out."
)
"""Without its number in the batch, which is sorted by length."""


def lone_surrogate(text: str) -> str | None:
    """Return the first half of a surrogate pair that stands alone, which is no character; None if there is none."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return text[error.start]
    return None


def texts_of(inputs: object, *, also: tuple[type, ...] = ()) -> list[Any]:
    """Return the texts that a caller gives: one, or a list, tuple, numpy array or another ordered collection of texts.

    An iterator is refused, as sentence-transformers does: what is wrong with its tenth text would be found only when
    the others are used up. So is a text with half a surrogate pair: tokenizers cannot read it, and to replace or drop
    it would give the vector of another text.

    Args:
        inputs: What the caller gives.
        also: Types that may stand in place of a text.

    Raises:
        DataError: there is something that is no text; the message says where.
    """
    texts: list[Any]
    if isinstance(inputs, str):
        texts = [inputs]
    elif getattr(inputs, "ndim", 1) == 0 or not isinstance(inputs, Collection):
        raise DataError(f"inputs must be a text or a list of texts, got {_shown(inputs)}.{_hint(inputs)}")
    elif isinstance(inputs, Mapping | Set | bytes | bytearray | memoryview):
        raise DataError(f"inputs must be a text or a list of texts, got {_shown(inputs)}.")
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
    kind = type(value).__name__
    return "None" if value is None else f"a value of type {kind}: {_shortened(repr(value))}"


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _hint(inputs: object) -> str:
    return " Make a list of it: list(inputs)." if hasattr(inputs, "__next__") else ""


class InputCheck:
    """`is_singular_input` of a model in torch, with the check above.

    The host's `encode` calls that method, and no other public one, with what its caller gave before it is sorted.
    An object and not a function: a copied or unpickled model must ask itself and not the model it was copied from.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, inputs: Any) -> bool:
        """Return whether a caller gave one text and not several; raise `DataError` for what is neither."""
        first = inputs[0] if isinstance(inputs, list) and inputs else inputs
        # Images and sounds, {"text": …} and conversations are forms of the host, which knows what its model takes.
        if not {*self.model.modalities} <= {"text", "message"} or isinstance(first, Mapping):
            return bool(type(self.model).is_singular_input(self.model, inputs))
        texts_of(inputs, also=(tuple, list, Mapping))  # pairs of texts, too
        return isinstance(inputs, str)


def check_inputs_of(model: Any) -> None:
    """Have a `SentenceTransformer` take the inputs that an exported model takes, and refuse others with its words."""
    model.is_singular_input = InputCheck(model)
