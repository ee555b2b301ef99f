"""Which block knows what: STS scores of every block of a backbone, mean-pooled, before any selector or head."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2sent.data.senteval import STSTask
from s2sent.errors import ModelError
from s2sent.evaluation.encoder import Encoder, Vectors, batch_size_for
from s2sent.evaluation.result import TaskResult
from s2sent.evaluation.sts import score_sts


def score_blocks(
    model: Any, tasks: list[STSTask], progress: Callable[[int], None] | None = None
) -> dict[str, list[TaskResult]]:
    """STS results by block: ``embeddings`` (what enters the first block), ``block 1``, ... ``block L``.

    All blocks come from one pass over the sentences, each on the scale of the model's output: a pre-norm backbone's
    final norm (ModernBERT, Qwen3) is applied to every one of them, as the selector does.

    Raises:
        ModelError: the model's first module is no Transformer that gives hidden states.
    """
    states = block_states(model)
    shape: list[int] = []

    def encode(sentences: list[str]) -> NDArray[np.float32]:
        found = states(sentences)  # (b, n, d)
        shape[:] = found.shape[1:]
        return found.reshape(len(found), -1)

    vectors = Vectors(Encoder("blocks", encode))
    vectors.add([sentence for task in tasks for sentence in task.sentences()], progress)
    blocks, dim = shape
    return {
        "embeddings" if block == 0 else f"block {block}": [
            score_sts(task, _Slice(vectors, slice(block * dim, (block + 1) * dim))) for task in tasks
        ]
        for block in range(blocks)
    }


class _Slice(Vectors):
    """The vectors of one block, out of those of all blocks side by side."""

    def __init__(self, vectors: Vectors, columns: slice) -> None:
        super().__init__(vectors.encoder)
        self.vectors, self.columns = vectors, columns

    def __getitem__(self, sentences: Any) -> NDArray[np.float32]:
        return self.vectors.part(sentences, self.columns)


def block_states(model: Any) -> Callable[[list[str]], NDArray[np.float32]]:
    """A function from sentences to the mean over tokens of every hidden state, (b, n, d), embeddings first."""
    import torch
    from sentence_transformers.util import batch_to_device

    from s2sent.model.backbone import Backbone

    first = model[0] if hasattr(model, "__getitem__") else model
    encoder = getattr(first, "auto_model", None)
    if encoder is None:
        raise ModelError(f"{type(first).__name__} is no Transformer with blocks to look into.")
    backbone = Backbone.of(encoder)

    def states(sentences: list[str]) -> NDArray[np.float32]:
        parts = []
        batch_size = batch_size_for(sentences)
        for start in range(0, len(sentences), batch_size):
            features = batch_to_device(model.preprocess(sentences[start : start + batch_size]), model.device)
            inputs = {
                key: features[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in features
            }
            with torch.inference_mode():
                hidden = encoder(**inputs, output_hidden_states=True).hidden_states
                if hidden is None:
                    raise ModelError(f"{backbone.name} gives no hidden states.")
                blocks = backbone.choose(hidden, tuple(range(backbone.depth + 1)))
                mask = inputs["attention_mask"].unsqueeze(-1).to(blocks[0].dtype)  # (b, l, 1)
                means = [(block * mask).sum(1) / mask.sum(1) for block in blocks]
            parts.append(torch.stack(means, dim=1).float().cpu().numpy())
        return np.concatenate(parts)

    model.eval()
    return states
