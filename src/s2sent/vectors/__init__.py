"""Text in, vectors out, in bulk: on one machine, or on a Ray cluster.

>>> from s2sent.vectors import encode_files
>>> encode_files("out", "corpus.txt", "vectors.parquet")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sent._lazy import lazy

if TYPE_CHECKING:
    from s2sent.vectors.bulk import Summary, encode_files
    from s2sent.vectors.encoder import TextEncoder, TorchEncoder, encode_texts
    from s2sent.vectors.precision import Precision

__all__ = ["Precision", "Summary", "TextEncoder", "TorchEncoder", "encode_files", "encode_texts"]

__getattr__ = lazy(
    __name__,
    {
        "Precision": "s2sent.vectors.precision",
        "Summary": "s2sent.vectors.bulk",
        "TextEncoder": "s2sent.vectors.encoder",
        "TorchEncoder": "s2sent.vectors.encoder",
        "encode_files": "s2sent.vectors.bulk",
        "encode_texts": "s2sent.vectors.encoder",
    },
)
