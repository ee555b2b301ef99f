"""SentEval's STS and transfer scores for any sentence encoder, what to make of them, and what a selector costs.

>>> from s2sent.evaluation import evaluate
>>> evaluate("out/my-model", "STS-B").headlines()  # doctest: +SKIP
{'STS-B': 82.03}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sent._lazy import lazy

if TYPE_CHECKING:
    from s2sent.evaluation.blocks import score_blocks
    from s2sent.evaluation.comparison import Comparison, Method, compare
    from s2sent.evaluation.encoder import Encoder, Vectors, as_encoder
    from s2sent.evaluation.geometry import Geometry
    from s2sent.evaluation.listener import Listener
    from s2sent.evaluation.probes import DEFAULT, FAST, ProbeConfig
    from s2sent.evaluation.result import Aggregation, Report, TaskResult
    from s2sent.evaluation.suite import evaluate

__all__ = [
    "DEFAULT",
    "FAST",
    "Aggregation",
    "Comparison",
    "Encoder",
    "Geometry",
    "Listener",
    "Method",
    "ProbeConfig",
    "Report",
    "TaskResult",
    "Vectors",
    "as_encoder",
    "compare",
    "evaluate",
    "score_blocks",
]

__getattr__ = lazy(
    __name__,
    {
        "Comparison": "s2sent.evaluation.comparison",
        "Method": "s2sent.evaluation.comparison",
        "compare": "s2sent.evaluation.comparison",
        "Encoder": "s2sent.evaluation.encoder",
        "Vectors": "s2sent.evaluation.encoder",
        "as_encoder": "s2sent.evaluation.encoder",
        "DEFAULT": "s2sent.evaluation.probes",
        "FAST": "s2sent.evaluation.probes",
        "ProbeConfig": "s2sent.evaluation.probes",
        "Aggregation": "s2sent.evaluation.result",
        "Report": "s2sent.evaluation.result",
        "TaskResult": "s2sent.evaluation.result",
        "Listener": "s2sent.evaluation.listener",
        "evaluate": "s2sent.evaluation.suite",
        "Geometry": "s2sent.evaluation.geometry",
        "score_blocks": "s2sent.evaluation.blocks",
    },
)
