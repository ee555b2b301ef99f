"""How the best step of a run is chosen: by STS-B dev, by your own pairs, or by held-out lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from s2sent.data.corpus import Corpus
from s2sent.data.rows import read_rows
from s2sent.data.senteval import find_folder, read_sts
from s2sent.errors import ConfigError, DataError, ModelError
from s2sent.training.recipes import DEV_CHOICES
from s2sent.untrusted import exists, shown
from s2sent.vectors.encoder import TorchEncoder, encode_texts
from s2sent.vectors.metrics import alignment, cosine, spearman, uniformity, unit_length

MOST_HELD_OUT = 1000


class Validator(Protocol):
    """Scores a model; higher is better."""

    @property
    def name(self) -> str:
        """The name of the score."""

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
        """Score the model as it is; NaN if its similarities cannot be ranked."""
        texts = sorted({*self.first, *self.second})
        row = {text: number for number, text in enumerate(texts)}
        try:
            vectors = encode_texts(TorchEncoder(model), texts)
            u, v = (vectors[[row[text] for text in side]] for side in (self.first, self.second))
            return spearman(cosine(u, v)[0], np.asarray(self.gold), self.name)
        except ModelError:
            return math.nan


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
        encoder = TorchEncoder(model)
        texts = [text for text, ids in zip(self.texts, encoder.pipeline.token_ids(self.texts), strict=True) if ids]
        clean = unit_length(encode_texts(encoder, texts), self.name)
        with torch.random.fork_rng():
            torch.manual_seed(0)  # the same dropout every time, so that scores of different steps compare
            model.train()
            one, other = (unit_length(encode_texts(encoder, texts), self.name) for _ in range(2))
        return -(alignment(one, other) + uniformity(clean))


def resolve_dev(dev: str | None, recipe_dev: str, output: Path) -> str:
    """Return what `Recipe.dev` means in this run: `auto` is decided once, when the run begins.

    Args:
        dev: What it meant when the run began; None for a new run.
        recipe_dev: The recipe's.
        output: The run's folder, for the message.
    """
    if dev == "stsb" and recipe_dev == "auto" and not has_stsb():
        raise DataError(
            f"The run in {output} chooses its best step by STS-B dev, and S2SENT_DATA no longer names a folder that "
            "has it. Set it as it was to continue, or start again with --restart."
        )
    dev = dev or recipe_dev
    return ("stsb" if has_stsb() else "heldout") if dev == "auto" else dev


def find_validator(dev: str, corpus: Corpus, examples: int) -> Validator | None:
    """Return the validator of `Recipe.dev` (not `auto`); for `heldout`, set how much the corpus holds out."""
    if dev == "none":
        return None
    if dev == "stsb":
        return stsb("dev")
    if dev == "heldout":
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
    if not exists(path):
        raise ConfigError(f"dev must be {', '.join(DEV_CHOICES)} or a file that is there, got {shown(dev)}.")
    return read_pairs(path)


def has_stsb() -> bool:
    """Whether S2SENT_DATA names a folder that holds STS-B."""
    try:
        return (find_folder() / "STS" / "STSBenchmark").is_dir()
    except DataError:
        return False


def stsb(part: str) -> Similarity:
    """Read STS-B's `dev` or `test` part from SentEval's folder."""
    (pairs,) = read_sts(find_folder(), "STS-B-dev" if part == "dev" else "STS-B").subsets
    return Similarity(f"STS-B {part}", pairs.first, pairs.second, pairs.gold.tolist())


def read_pairs(path: Path) -> Similarity:
    """Read scored pairs from a table with the columns sentence1, sentence2 and score."""
    first, second, gold = [], [], []
    for row in read_rows(path, ("sentence1", "sentence2", "score"), numbers=("score",)):
        if problem := row.problem or _pair_problem(*row.texts):
            raise DataError(f"{path}, line {row.number} {problem}. Correct or remove the line.")
        first.append(row.texts[0])
        second.append(row.texts[1])
        gold.append(float(row.texts[2]))
    if len(gold) < 3 or len(set(gold)) < 2:
        raise DataError(f"{path} has nothing to rank: it takes 3 pairs or more, whose scores are not all the same.")
    return Similarity(path.name, first, second, gold)


def _pair_problem(first: str, second: str, score: str) -> str | None:
    if not (first.strip() and second.strip()):
        return "has an empty sentence"
    try:
        legal = math.isfinite(float(score))
    except ValueError:
        legal = False
    return None if legal else f"has the score {score!r}, which is not a number"
