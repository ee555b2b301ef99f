"""A SentEval folder of a few lines, with every oddity of the real one, and an encoder that needs no weights."""

import hashlib
from pathlib import Path

import numpy as np

from s2sent.data.senteval import SUBSETS

WORDS = "a man woman dog cat plays guitar slowly in the park while it rains , and nobody listens".split(" ")  # noqa: SIM905
FILES = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": ("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
}


def sentence(random: np.random.Generator, extra: str = "") -> str:
    return " ".join([*random.choice(WORDS, random.integers(2, 12)), *([extra] if extra else [])])


def write_folder(root: Path, pairs: int = 12, per_class: int = 30) -> Path:
    """All fourteen tasks; STS subsets have ``pairs`` scored pairs and two without a score."""
    random = np.random.default_rng(0)
    for task, subsets in SUBSETS.items():
        for subset in subsets:
            rows = [(sentence(random), sentence(random)) for _ in range(pairs + 2)]
            gold = [f"{random.uniform(0, 5):.3f}" for _ in rows]
            gold[1] = gold[-1] = ""
            put(root, f"STS/{task}-en-test/STS.input.{subset}.txt", [f"{a}\t{b}" for a, b in rows])
            put(root, f"STS/{task}-en-test/STS.gs.{subset}.txt", gold)
    for split in ("train", "dev", "test"):
        lines = [
            f"main\tx\t2012\t{index}\t{random.uniform(0, 5):.3f}\t{sentence(random)}\t{sentence(random)}"
            for index in range(pairs)
        ]
        put(root, f"STS/STSBenchmark/sts-{split}.csv", lines)
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    sick = [f"{i}\t{sentence(random)}\t{sentence(random)}\t{random.uniform(1, 5):.1f}\tNEUTRAL" for i in range(pairs)]
    put(root, "SICK/SICK_test_annotated.txt", [header, *sick], end="\r\n")
    for positive, negative in FILES.values():
        put(root, positive, [sentence(random, "good") for _ in range(per_class)], encoding="latin-1")
        put(root, negative, [sentence(random, "bad") for _ in range(per_class - 1)] + [""], encoding="latin-1")
    for split in ("train", "dev", "test"):
        lines = [f"{sentence(random, ('bad', 'good')[i % 2])} \t{i % 2}" for i in range(2 * per_class)]
        put(root, f"SST/binary/sentiment-{split}", lines)
    kinds = ("ABBR:abb", "DESC:def", "ENTY:animal", "HUM:ind", "LOC:city", "NUM:date")
    for name in ("train_5500.label", "TREC_10.label"):
        lines = [
            f"{kind} {sentence(random, kind[:3])} sister\u00f0city ?" for kind in kinds for _ in range(per_class // 2)
        ]
        put(root, f"TREC/{name}", lines, encoding="latin-1")
    for split in ("train", "test"):
        lines = []
        for index in range(2 * per_class):
            first = sentence(random)
            second = first + " today" if index % 2 else sentence(random)
            lines.append(f"{index % 2}\t1\t2\t{first}\t{second}")
        put(root, f"MRPC/msr_paraphrase_{split}.txt", ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", *lines])
    return root


def put(root: Path, name: str, lines: list[str], encoding: str = "utf-8", end: str = "\n") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((end.join(lines) + end).encode(encoding))


def hashed(sentences: list[str]) -> np.ndarray:
    """A bag of words through a fixed random matrix: the same sentence always has the same vector."""
    rows = []
    for text in sentences:
        total = np.zeros(16)
        for word in [*text.split(), "<s>"]:
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
            total += np.random.default_rng(seed).normal(size=16)
        rows.append(total)
    return np.array(rows)
