"""Text in, vectors out: in memory, in bulk on one machine, or on a Ray cluster.

>>> import s2sent
>>> s2sent.encode("out", ["A sentence."])                       # doctest: +SKIP
>>> s2sent.encode("out", "corpus.txt", "vectors.parquet")       # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sent._lazy import lazy

if TYPE_CHECKING:
    from s2sent.vectors.encoder import EncodeOptions, TextEncoder, TorchEncoder, encode_texts
    from s2sent.vectors.files import EncodeSummary, encode
    from s2sent.vectors.precision import Precision

__all__ = ["EncodeOptions", "EncodeSummary", "Precision", "TextEncoder", "TorchEncoder", "encode", "encode_texts"]

__getattr__ = lazy(
    __name__,
    {
        "EncodeOptions": "s2sent.vectors.encoder",
        "EncodeSummary": "s2sent.vectors.files",
        "Precision": "s2sent.vectors.precision",
        "TextEncoder": "s2sent.vectors.encoder",
        "TorchEncoder": "s2sent.vectors.encoder",
        "encode": "s2sent.vectors.files",
        "encode_texts": "s2sent.vectors.encoder",
    },
)
