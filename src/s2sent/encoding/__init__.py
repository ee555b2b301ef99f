"""Text in, vectors out, in bulk: on one machine, or on a Ray cluster.

>>> from s2sent.encoding import encode_files
>>> encode_files("out", "corpus.txt", "vectors.parquet")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sent._lazy import lazy

if TYPE_CHECKING:
    from s2sent.encoding.bulk import Summary, encode_files
    from s2sent.encoding.encoder import TextEncoder
    from s2sent.encoding.job import encode_texts
    from s2sent.encoding.torch_encoder import TorchEncoder
    from s2sent.encoding.vectors import Precision

__all__ = ["Precision", "Summary", "TextEncoder", "TorchEncoder", "encode_files", "encode_texts"]

__getattr__ = lazy(
    __name__,
    {
        "Precision": "s2sent.encoding.vectors",
        "Summary": "s2sent.encoding.bulk",
        "TextEncoder": "s2sent.encoding.encoder",
        "TorchEncoder": "s2sent.encoding.torch_encoder",
        "encode_files": "s2sent.encoding.bulk",
        "encode_texts": "s2sent.encoding.job",
    },
)
