"""Real text of mixed length."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from s2sent.data.senteval import find_folder, read_sts


def mixed_texts(model: SentenceTransformer, number: int) -> list[str]:
    """Return real text of mixed length, the same every time."""
    folder = os.environ.get("S2SENT_DATA")
    if not folder:
        raise SystemExit("Set S2SENT_DATA to the folder with SentEval's data and wiki_200k.txt.")
    third = number // 3
    tasks = [read_sts(find_folder(Path(folder)), name) for name in ("STS12", "STS14", "STS-B", "SICK-R")]
    sentences = sorted({sentence for task in tasks for sentence in task.sentences() if sentence.strip()})
    wiki = (Path(folder) / "wiki_200k.txt").read_text(encoding="utf-8").splitlines()
    draw = random.Random(0)
    chosen = draw.sample(sentences, third) + wiki[:third]
    chosen += islice(paragraphs(model, wiki[third:], draw), number - len(chosen))
    draw.shuffle(chosen)
    return chosen


def paragraphs(model: SentenceTransformer, lines: Sequence[str], draw: random.Random) -> Iterator[str]:
    """Join consecutive lines until they have 100 to 256 tokens."""
    tokenizer: Any = model.tokenizer
    joined: list[str] = []
    tokens, wanted = 2, draw.randint(100, 200)
    for line in lines:
        joined.append(line)
        tokens += len(tokenizer(line, add_special_tokens=False)["input_ids"])
        if tokens >= wanted:
            if tokens <= 256:
                yield " ".join(joined)
            joined, tokens, wanted = [], 2, draw.randint(100, 200)
