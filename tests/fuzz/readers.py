"""Every reader of this package, with a valid file for it, and how many lines somebody else finds in a file."""

from __future__ import annotations

import gzip
import io
import json
import tomllib
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from hypothesis import strategies as st

import s2sent
from conftest import SENTENCES, make_backbone
from fuzz.mutations import changed_bytes, changed_json, changed_toml
from s2sent.data.corpus import Corpus
from s2sent.data.rows import read_rows
from s2sent.data.senteval import read_sts, read_transfer
from s2sent.evaluation.cache import ResultCache
from s2sent.evaluation.result import TaskResult
from s2sent.experiments.catalogue import OWN, read_catalogue
from s2sent.experiments.inputs import BackboneInput
from s2sent.experiments.plan import Settings, expand
from s2sent.experiments.store import Store
from s2sent.options import to_toml
from s2sent.training.adapt_recipe import AdaptRecipe
from s2sent.training.checkpoint import Checkpoints, Progress
from s2sent.training.log import read_log
from s2sent.training.recipes import Recipe, SimCSE
from s2sent.training.validation import read_pairs
from s2sent.vectors import encode, files
from s2sent.vectors.parts import Parts, Record
from s2sent.vectors.sources import Source
from tiny_senteval import write_folder

TEXTS = [*SENTENCES, "", "tab\there", 'quote "here", comma', "  spaces  ", "\u2028 and \x85", "x" * 300]


@dataclass(frozen=True)
class Reader:
    """A reader under test.

    Attributes:
        path: The file that is changed.
        read: Reads it; the number of lines it met, or None where lines do not count.
        inputs: Changed files.
        count: The number of lines by another way; None where there is none for this file.
    """

    path: Path
    read: Callable[[], int | None]
    inputs: st.SearchStrategy[bytes]
    count: Callable[[bytes], int | None] = lambda _: None


def lines_of(data: bytes) -> int:
    """Lines that end in a line feed, and what is behind the last."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    return data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


def csv_records(data: bytes) -> int:
    """Records of a csv file but for its first: a small automaton, knowing only quotes, commas and line feeds."""
    records, state, empty = 0, "start", True
    for character in data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape"):
        empty = False
        if state == "quoted":
            state = "closing" if character == '"' else state
        elif state == "closing" and character == '"':
            state = "quoted"
        elif character == "\n":
            records, state, empty = records + 1, "start", True
        elif character == ",":
            state = "start"
        elif character == '"' and state == "start":
            state = "quoted"
        else:
            state = "plain"
    return records + (not empty) - 1


def _gunzipped(count: Callable[[bytes], int]) -> Callable[[bytes], int | None]:
    def counted(data: bytes) -> int | None:
        try:
            return count(gzip.decompress(data))
        except (OSError, EOFError, zlib.error):
            return None

    return counted


def _parquet_rows(data: bytes) -> int | None:
    try:
        return int(pq.ParquetFile(io.BytesIO(data)).metadata.num_rows)
    except (pa.ArrowException, OSError):
        return None


def _table(path: Path) -> Callable[[], int]:
    """Read a file in three ways, which must meet the same lines."""

    def read() -> int:
        numbers = [row.number for row in read_rows(path)]
        assert all(one < other for one, other in pairwise(numbers)), "a line twice"
        windows = list(Source.of([path], shard_lines=4).windows(0))
        for window in windows:
            assert sorted([*window.readable, *window.problems]) == list(range(window.rows))
        corpus = Corpus([str(path)])
        examples = sum(1 for _ in corpus)
        assert corpus.counts["examples"] == examples
        kinds = ("examples", "held out", "empty", "unreadable", "broken")
        assert sum(window.rows for window in windows) == len(numbers) == sum(corpus.counts[kind] for kind in kinds)
        return len(numbers)

    return read


def tables(root: Path) -> dict[str, Reader]:
    """Files of texts."""
    rows = [{"text": text, "n": number} for number, text in enumerate(TEXTS)]
    quoted = ['"' + text.replace('"', '""') + f'",{number}' for number, text in enumerate(TEXTS)]
    plain = [text.replace("\t", " ") + f"\t{number}" for number, text in enumerate(TEXTS)]
    parquet = io.BytesIO()
    pq.write_table(pa.table({"text": TEXTS, "n": list(range(len(TEXTS)))}), parquet)
    twice = io.BytesIO()
    pq.write_table(pa.table([pa.array(TEXTS), pa.array(TEXTS)], names=["text", "text"]), twice)
    valid: dict[str, tuple[bytes, Callable[[bytes], int]]] = {
        "txt": ("\n".join(TEXTS).encode(), lines_of),
        "csv": ("\n".join(["text,n", *quoted]).encode() + b"\n", csv_records),
        "tsv": ("\n".join(["text\tn", *plain]).encode() + b"\n", lambda data: lines_of(data) - 1),
        "jsonl": ("".join(json.dumps(row) + "\n" for row in rows).encode(), lines_of),
    }
    found = {}
    for kind, (data, count) in valid.items():
        path, packed = root / f"texts.{kind}", root / f"texts.{kind}.gz"
        found[kind] = Reader(path, _table(path), changed_bytes(data), count)
        small = gzip.compress(data, mtime=0)
        inner = changed_bytes(data).map(lambda changed: gzip.compress(changed, 1, mtime=0))
        found[f"{kind}.gz"] = Reader(packed, _table(packed), st.one_of(changed_bytes(small), inner), _gunzipped(count))
    path = root / "texts.parquet"
    contents = st.one_of(changed_bytes(parquet.getvalue()), changed_bytes(twice.getvalue()))
    found["parquet"] = Reader(path, _table(path), contents, _parquet_rows)
    path = root / "texts.txt.zst"
    small = pa.compress(valid["txt"][0], codec="zstd", asbytes=True)
    found["txt.zst"] = Reader(path, _table(path), changed_bytes(small))
    path = root / "dev.csv"
    scored = b"sentence1,sentence2,score\n" + b"".join(b"a cat,a dog %d,%d\n" % (n, n % 5) for n in range(9))
    found["dev.csv"] = Reader(path, lambda: len(read_pairs(path).gold), changed_bytes(scored), csv_records)
    return found


def senteval(root: Path) -> dict[str, Reader]:
    """SentEval's files."""
    folder = write_folder(root / "senteval", per_class=4)

    def others(*names: str) -> int:
        return sum(lines_of((folder / name).read_bytes()) for name in names)

    def sts(task: str) -> Callable[[], int]:
        return lambda: len(read_sts(folder, task))

    def transfer(task: str) -> Callable[[], int]:
        return lambda: sum(len(samples) for samples in read_transfer(folder, task).splits.values())

    files: dict[str, tuple[str, Callable[[], int], Callable[[bytes], int | None]]] = {
        "STS-B": ("STS/STSBenchmark/sts-test.csv", sts("STS-B"), lines_of),
        "STS-B-dev": ("STS/STSBenchmark/sts-dev.csv", sts("STS-B-dev"), lines_of),
        "SICK-R": ("SICK/SICK_test_annotated.txt", sts("SICK-R"), lambda data: lines_of(data) - 1),
        "STS13 pairs": ("STS/STS13-en-test/STS.input.FNWN.txt", sts("STS13"), lambda _: None),
        "STS13 scores": ("STS/STS13-en-test/STS.gs.FNWN.txt", sts("STS13"), lambda _: None),
        "MR": ("MR/rt-polarity.pos", transfer("MR"), lambda data: _latin(data) + others("MR/rt-polarity.neg")),
        "SST-2": (
            "SST/binary/sentiment-dev",
            transfer("SST-2"),
            lambda data: lines_of(data) + others("SST/binary/sentiment-train", "SST/binary/sentiment-test"),
        ),
        "TREC": ("TREC/TREC_10.label", transfer("TREC"), lambda data: _latin(data) + others("TREC/train_5500.label")),
        "MRPC": (
            "MRPC/msr_paraphrase_test.txt",
            transfer("MRPC"),
            lambda data: lines_of(data) + others("MRPC/msr_paraphrase_train.txt") - 2,
        ),
    }
    return {
        f"SentEval {name}": Reader(folder / file, read, changed_bytes((folder / file).read_bytes()), count)
        for name, (file, read, count) in files.items()
    }


def _latin(data: bytes) -> int:
    return data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


def settings_files(root: Path) -> dict[str, Reader]:
    """Recipes and catalogues."""
    recipe, catalogue = root / "recipe.toml", root / "catalogue.toml"
    SimCSE(backbone="b", corpus=("c.txt",), steps=3).save(recipe)
    adapting = root / "adapt-recipe.toml"
    values = AdaptRecipe(
        model="m", data=("p.csv",), forms=("gate",), selection={"blocks": (0, 1)}, depth="auto"
    ).to_dict()
    adapting.write_text(to_toml(values))
    own = tomllib.loads(OWN.read_text(encoding="utf-8"))
    small = {
        "selection": own["selection"],
        "profiles": {"cpu": own["profiles"]["cpu"]},
        "experiments": {name: own["experiments"][name] for name in ("squeeze", "reduction")},
    }
    backbone = BackboneInput("b", "b", "0", 6)

    def expanded() -> None:
        found = read_catalogue.__wrapped__(catalogue)
        profile = found.profile("cpu")
        experiments = [found.experiment(name, "cpu") for name in small["experiments"]]
        settings = Settings(profile, (backbone,), ("c.txt",), min(profile.seeds, 2), {}, digests={})
        for entry in expand(found, experiments, settings):
            assert entry.run.key

    return {
        "recipe.toml of adapt": Reader(
            adapting,
            lambda: AdaptRecipe.load(adapting) and None,
            changed_toml(tomllib.loads(adapting.read_text()), adapting.read_bytes()),
        ),
        "recipe.toml": Reader(
            recipe,
            lambda: Recipe.load(recipe) and None,
            changed_toml(tomllib.loads(recipe.read_text()), recipe.read_bytes()),
        ),
        "catalogue.toml": Reader(catalogue, expanded, changed_toml(small, OWN.read_bytes())),
    }


def models(root: Path) -> dict[str, Reader]:
    """The json files of a model folder and of an export."""
    backbone = make_backbone(root / "backbone", "bert", num_hidden_layers=2)
    model = s2sent.build(backbone, blocks=2, reduction=4, device="cpu")
    model.save(str(root / "model"))
    s2sent.export(model, root / "export")

    def loaded(name: str) -> Callable[[], None]:
        def read() -> None:
            vectors = s2sent.load(root / name).encode(["A cat."], show_progress_bar=False)
            assert vectors.ndim == 2

        return read

    found = {}
    names = ("modules.json", "config.json", "tokenizer_config.json", "sentence_bert_config.json", "tokenizer.json",
             "config_sentence_transformers.json", "1_SelectivePooling/config.json")  # fmt: skip
    for folder, name in [*(("model", name) for name in names), ("export", "s2sent_export.json")]:
        path = root / folder / name
        found[f"{folder}/{name}"] = Reader(path, loaded(folder), changed_json(path.read_bytes()))
    return found


def states(root: Path) -> dict[str, Reader]:
    """What runs leave for themselves: a damaged one is passed over or named."""
    checkpoints = Checkpoints(root / "checkpoints")
    layer = torch.nn.Linear(2, 2)
    recipe = SimCSE(backbone="b", corpus=("c.txt",)).to_dict()
    checkpoints.write(layer, torch.optim.AdamW(layer.parameters()), Progress(step=3), {"recipe": recipe})
    checkpoint = root / "checkpoints" / "step-000000003" / "state.json"
    log = root / "log.jsonl"
    steps = b"".join(json.dumps({"step": step, "loss": 0.5}).encode() + b"\n" for step in range(5))

    (root / "in.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    output, folder = root / "out.npy", root / "out.npy.parts"
    model = s2sent.build(
        make_backbone(root / "small", "bert", num_hidden_layers=1), blocks=1, reduction=4, device="cpu"
    )
    encode(model, root / "in.txt", output)
    made = root / ".out.npy.made.json"
    identity = dict(json.loads(made.read_bytes())["identity"])
    half = Parts(root / "half.npy")
    half.folder.mkdir()
    half.begin(identity, restart=False)
    state = half.folder / "state.json"
    encode(model, root / "in.txt", root / "other.parquet", with_text=True, shard_lines=4)

    def reopened() -> None:
        half.begin(identity, restart=False)

    def again() -> None:
        record = Record.read(output)
        if record is not None:
            record.check(output, identity, [])

    cache = ResultCache(root / "cache", "fingerprint")
    cache.check()
    result = TaskResult("STS-B", {"all": 80.0}, 3, {"x": 1}, {"gold": [1.0, 2.0, 3.0]}, ("note",), 0.5, "k")
    cache.put("k", result)
    store = Store(root / "store")
    store.put("run", {"profile": "cpu", "seconds": {"total": 1.0}})
    assert not folder.exists()

    def at(path: Path, read: Callable[[], Any]) -> Reader:
        return Reader(path, lambda: read() and None, changed_json(path.read_bytes()))

    found = {
        "checkpoint state.json": at(checkpoint, checkpoints.newest),
        "encode state.json": at(state, reopened),
        "encode made.json": at(made, again),
        "evaluation result": at(root / "cache" / _only(root / "cache") / "k.json", lambda: cache.get("k")),
        "store record": at(root / "store" / "run.json", lambda: store.get("run")),
        "log.jsonl": Reader(log, lambda: read_log(log) and None, changed_bytes(steps)),
    }
    found["encode part"] = _part(root, model)
    return found


def _only(folder: Path) -> str:
    return next(folder.iterdir()).name


def _part(root: Path, model: Any) -> Reader:
    """A part of an encoding that was interrupted: whole, or made again."""
    parts = Parts(root / "part.parquet")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    real, files.write_output = files.write_output, stop
    with suppress(KeyboardInterrupt):
        encode(model, root / "in.txt", parts.output, with_text=True)
    files.write_output = real
    path = parts.path(0, 0)
    whole = path.read_bytes()

    def read() -> None:
        for part in parts.done().values():
            assert part.rows == len(SENTENCES)
        for _, table in parts.tables():
            assert np.isfinite(table.column("embedding").combine_chunks().flatten().to_numpy()).size
            table.column("text").to_pylist()

    return Reader(path, read, changed_bytes(whole))
