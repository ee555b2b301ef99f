"""SentEval's STS and transfer scores for any sentence encoder, how to compare them, and what a selector costs.

>>> from s2sent.evaluation import evaluate
>>> evaluate("out/my-model", "STS-B").headlines()  # doctest: +SKIP
{'STS-B': 82.03}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sent._lazy import lazy

if TYPE_CHECKING:
    from s2sent.evaluation.blocks import score_blocks
    from s2sent.evaluation.comparison import Method, compare
    from s2sent.evaluation.encoder import Encoder, Vectors, as_encoder
    from s2sent.evaluation.probes import DEFAULT, FAST, ProbeConfig
    from s2sent.evaluation.result import Aggregation, Frame, Report, Score, TaskResult
    from s2sent.evaluation.sts import Geometry
    from s2sent.evaluation.suite import evaluate

_HOME = {
    "blocks": ("score_blocks",),
    "comparison": ("Method", "compare"),
    "encoder": ("Encoder", "Vectors", "as_encoder"),
    "probes": ("DEFAULT", "FAST", "ProbeConfig"),
    "result": ("Aggregation", "Frame", "Report", "Score", "TaskResult"),
    "sts": ("Geometry",),
    "suite": ("evaluate",),
}
__all__ = [
    "DEFAULT",
    "FAST",
    "Aggregation",
    "Encoder",
    "Frame",
    "Geometry",
    "Method",
    "ProbeConfig",
    "Report",
    "Score",
    "TaskResult",
    "Vectors",
    "as_encoder",
    "compare",
    "evaluate",
    "score_blocks",
]

__getattr__ = lazy(__name__, {name: f"{__name__}.{module}" for module, names in _HOME.items() for name in names})
