"""STS scores of every block of a backbone, mean-pooled, before any selector or head."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s2sent.data.senteval import STSTask
from s2sent.evaluation.encoder import Vectors, as_encoder
from s2sent.evaluation.result import TaskResult
from s2sent.evaluation.sts import score_sts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def score_blocks(
    model: Any, tasks: list[STSTask], progress: Callable[[int], None] | None = None
) -> dict[str, list[TaskResult]]:
    """Return STS results by block: `embeddings` (what enters the first block), `block 1`, … `block L`.

    All blocks come from one pass over the sentences, each on the scale of the model's output: a pre-norm backbone's
    final norm (ModernBERT, Qwen3) is applied to every one of them, as the selector does.

    Raises:
        ModelError: the model's first module is no Transformer that gives hidden states.
    """
    encoder = BlockEncoder(model)
    vectors = Vectors(as_encoder(encoder, "blocks"))
    vectors.add([sentence for task in tasks for sentence in task.sentences()], progress)
    scores = {}
    for block in range(encoder.blocks):
        of_block = vectors.columns(slice(block * encoder.dim, (block + 1) * encoder.dim))
        scores[f"block {block}" if block else "embeddings"] = [score_sts(task, of_block) for task in tasks]
    return scores


class BlockEncoder:
    """A `TextEncoder` whose vectors are the means over tokens of all hidden states, side by side, embeddings first."""

    normalizes, fingerprint = False, None

    def __init__(self, model: "SentenceTransformer") -> None:
        from s2sent.vectors.states import StateEncoder

        self.states = StateEncoder(model, pooling="mean")
        self.pipeline = self.states.encoder.pipeline
        self.blocks, self.dim = self.states.backbone.depth + 1, self.states.dim
        self.dimension = self.blocks * self.dim

    def embed(self, sequences: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Run one batch of sequences and return its vectors: (b, blocks · dim)."""
        from s2sent.vectors.states import Sums

        means: NDArray[np.float32] = self.states.run(sequences, Sums(((0, 0),)))["pooled"].flatten(1).cpu().numpy()
        return means
