"""SentEval's STS and transfer scores for any sentence encoder, and what to make of them.

>>> from s2sent.evaluation import evaluate
>>> evaluate("out/my-model", "STS-B").headlines()  # doctest: +SKIP
{'STS-B': 82.03}
"""

from s2sent.evaluation.compare import Comparison, Method, compare
from s2sent.evaluation.encoder import Encoder, Vectors, as_encoder
from s2sent.evaluation.probes import DEFAULT, FAST, ProbeConfig
from s2sent.evaluation.result import Aggregation, Report, TaskResult
from s2sent.evaluation.suite import Listener, evaluate

__all__ = [
    "DEFAULT",
    "FAST",
    "Aggregation",
    "Comparison",
    "Encoder",
    "Listener",
    "Method",
    "ProbeConfig",
    "Report",
    "TaskResult",
    "Vectors",
    "as_encoder",
    "compare",
    "evaluate",
]
