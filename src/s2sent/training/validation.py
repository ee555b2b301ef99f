"""What decides which step of a run was best: STS-B dev where it is there, else the shape of held-out lines' vectors."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from torch import Tensor

from s2sent.data.corpus import Corpus
from s2sent.errors import ConfigError, DataError

ENVIRONMENT = "S2SENT_DATA"
MOST_HELD_OUT = 1000


class Validator(Protocol):
    """Scores a model; higher is better."""

    @property
    def name(self) -> str:
        """What is scored, for a person."""

    def __call__(self, model: SentenceTransformer) -> float:
        """Score the model as it is."""


@dataclass(frozen=True)
class Similarity:
    """Spearman × 100 of cosine and gold score, over sentence pairs."""

    name: str
    first: Sequence[str]
    second: Sequence[str]
    gold: Sequence[float]

    def __call__(self, model: SentenceTransformer) -> float:
        """Score the model as it is."""
        texts = sorted({*self.first, *self.second})
        row = {text: number for number, text in enumerate(texts)}
        vectors = encode(model, texts)
        u, v = (vectors[[row[text] for text in side]] for side in (self.first, self.second))
        cosine = (u * v).sum(axis=1) / (np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1) + 1e-12)
        return 100 * float(spearmanr(cosine, self.gold).statistic)


@dataclass(frozen=True)
class Geometry:
    """−(alignment + uniformity) of Wang & Isola (2020), on lines kept out of training.

    Alignment: the mean squared distance of two dropout views of a line. Uniformity: log mean exp(−2 · squared
    distance) over different lines. Both are better when lower; InfoNCE tends to their sum.
    """

    texts: Sequence[str]
    name: str = "held-out −(alignment + uniformity)"

    def __call__(self, model: SentenceTransformer) -> float:
        """Score the model as it is."""
        with torch.random.fork_rng():
            torch.manual_seed(0)  # the same dropout every time, so that scores of different steps compare
            one, other = (self._view(model) for _ in range(2))
        alignment = (one - other).square().sum(dim=1).mean()
        clean = torch.nn.functional.normalize(torch.from_numpy(encode(model, list(self.texts))), dim=1)
        uniformity = torch.pdist(clean).square().mul(-2).exp().mean().log()
        return -float(alignment + uniformity)

    @torch.no_grad()
    def _view(self, model: SentenceTransformer) -> Tensor:
        model.train()
        rows = []
        for start in range(0, len(self.texts), 64):
            features = model.preprocess(list(self.texts[start : start + 64]))
            features = {k: v.to(model.device) if isinstance(v, Tensor) else v for k, v in features.items()}
            rows.append(model(features)["sentence_embedding"].float().cpu())
        return torch.nn.functional.normalize(torch.cat(rows), dim=1)


def encode(model: SentenceTransformer, texts: list[str]) -> NDArray[np.float32]:
    """Encode as a user would, without a bar."""
    vectors: NDArray[np.float32] = model.encode(texts, batch_size=64, show_progress_bar=False)
    return vectors


def find_validator(dev: str, corpus: Corpus, examples: int) -> Validator | None:
    """Return what `Recipe.dev` means. For held-out lines the corpus is told to keep them out of training."""
    if dev == "none":
        return None
    if dev == "auto" and stsb_file("dev") is not None:
        dev = "stsb"
    if dev == "stsb":
        return stsb("dev")
    if dev in ("auto", "heldout"):
        wanted = min(MOST_HELD_OUT, max(32, examples // 50), examples // 5)
        corpus.held_out = int(2**32 * wanted / examples)
        texts = [example[0] for example in corpus.held_out_examples(MOST_HELD_OUT)]
        if len(texts) < 8:
            raise DataError(
                f"{examples} examples are too few to hold some out for validation. Use dev='none', or a file with "
                "scored pairs."
            )
        return Geometry(sorted(texts, key=len))
    path = Path(dev)
    if not path.exists():
        raise ConfigError(f"dev={dev!r} is not legal: 'auto', 'stsb', 'heldout', 'none', or a file that is there.")
    return read_pairs(path)


def stsb_file(part: str) -> Path | None:
    """Return STS-B's `dev` or `test` file in the folder that S2SENT_DATA names, if it is there."""
    root = os.environ.get(ENVIRONMENT)
    if not root:
        return None
    for folder in (Path(root) / "senteval", Path(root)):
        path = folder / "STS" / "STSBenchmark" / f"sts-{part}.csv"
        if path.is_file():
            return path
    return None


def stsb(part: str) -> Similarity:
    """Read STS-B's `dev` or `test` part as SentEval's folder has it."""
    path = stsb_file(part)
    if path is None:
        raise DataError(
            f"STS-B {part} was not found. {ENVIRONMENT} must name a folder with SentEval's STS/STSBenchmark."
        )
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    for number, row in enumerate(rows, start=1):
        if len(row) < 7:
            raise DataError(f"{path}, line {number} has {len(row)} columns instead of 7 or more.")
    return Similarity(
        f"STS-B {part}", [row[5] for row in rows], [row[6] for row in rows], [float(row[4]) for row in rows]
    )


def read_pairs(path: Path) -> Similarity:
    """Read scored pairs from a .csv or .tsv file with the columns sentence1, sentence2 and score."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    if len(rows) < 3 or not {"sentence1", "sentence2", "score"} <= set(rows[0]):
        raise DataError(f"{path} must have the columns sentence1, sentence2 and score, and at least 3 rows.")
    try:
        gold = [float(row["score"]) for row in rows]
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: a score is not a number ({error}).") from error
    return Similarity(path.name, [row["sentence1"] for row in rows], [row["sentence2"] for row in rows], gold)
