"""Text from which the scales of a statically quantised model are measured."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from s2sent.errors import ConfigError, DataError
from s2sent.model.text import TextPipeline
from s2sent.vectors.encoder import batches_of

_TEXTS = 600
_ROWS = 4


def builtin_texts() -> list[str]:
    """Return paragraphs of Python's own documentation, which every Python brings with it."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ConfigError("This Python has no built-in text to calibrate with: give some (--calibration).") from error
    paragraphs = (" ".join(part.split()) for page in topics.values() for part in page.split("\n\n"))
    return sorted({text for text in paragraphs if len(text) > 20})


def calibration_batches(pipeline: TextPipeline, texts: Sequence[str]) -> list[dict[str, NDArray[np.int64]]]:
    """Return some hundreds of texts, drawn at random but always the same, as padded batches.

    Raises:
        DataError: there is no text.
    """
    drawn = texts if len(texts) <= _TEXTS else Random(0).sample(texts, _TEXTS)
    sequences = [sequence for sequence in pipeline.token_ids(drawn) if sequence]
    if not sequences:
        raise DataError("There is no text to calibrate with.")
    batches = batches_of(pipeline, sequences, rows=_ROWS)
    return [pipeline.pad([sequences[row] for row in rows]) for rows in batches]
