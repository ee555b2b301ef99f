"""What all attacks share: a new tiny model, every entry point that loads one, a record of what was opened and run.

An attack is a file of this folder with an `ATTACK`: named changes to a model folder. Each is tried first with plain
sentence-transformers, to show that it does harm there, then with every entry point of s2sent.
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import contextlib
import importlib
import io
import json
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

WORDS = ["the", "cat", "sat", "on", "a", "warm", "window", "sill", "while", "rain", "fell", "and", "dogs", "slept"]
SECONDS = 60
"""What takes longer than this hangs."""
PICKLES = (".bin", ".pt", ".pkl")


@dataclass(frozen=True)
class Target:
    """What an attack changes.

    Attributes:
        folder: A new model folder.
        outside: A folder beside it, whose files must not be read.
        marker: A file that the attacker's code would write.
    """

    folder: Path
    outside: Path
    marker: Path

    def json(self, name: str) -> Any:
        """Return the content of a json file; an empty table if it is not there."""
        path = self.folder / name
        return json.loads(path.read_text()) if path.exists() else {}

    def write(self, name: str, content: Any) -> None:
        """Write a file: bytes, a text, or anything else as json."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


Change = Callable[[Target], object]


def all_of(*changes: Change) -> Change:
    """Do several changes."""
    return lambda target: [change(target) for change in changes]


def edit(name: str, **changes: Any) -> Change:
    """Change keys of a json file; a key set to ... is removed. `{outside}` in a text stands for that folder."""

    def change(target: Target) -> None:
        values = {**target.json(name), **_filled(changes, target)}
        target.write(name, {key: value for key, value in values.items() if value is not ...})

    return change


def edit_module(index: int, **changes: Any) -> Change:
    """Change keys of one module in modules.json."""

    def change(target: Target) -> None:
        modules = target.json("modules.json")
        modules[index].update(_filled(changes, target))
        target.write("modules.json", modules)

    return change


def _filled(value: Any, target: Target) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, target) for key, item in value.items()}
    return value.replace("{outside}", str(target.outside)) if isinstance(value, str) else value


def write(name: str, content: str | bytes) -> Change:
    """Write a file."""
    return lambda target: target.write(name, content)


def remove(name: str) -> Change:
    """Remove a file if it is there."""
    return lambda target: (target.folder / name).unlink(missing_ok=True)


def put_pickle(name: str = "pytorch_model.bin") -> Change:
    """Write a pickle that writes the marker when it is read."""
    return lambda target: target.write(name, pickle.dumps(Payload(str(target.marker)), protocol=2))


def put_code(name: str = "planted.py") -> Change:
    """Write a Python file that writes the marker when it is imported."""
    code = (
        "from sentence_transformers.base.modules import Transformer\n"
        "from transformers import BertConfig, BertModel, BertTokenizer\n"
        "class Payload(Transformer): pass\n"
        "class PayloadConfig(BertConfig): pass\n"
        "class PayloadModel(BertModel): pass\n"
    )
    return lambda target: target.write(name, f"open({str(target.marker)!r}, 'w').close()\n{code}")


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.marker, "w"))


@dataclass(frozen=True)
class Attack:
    """Variants of one attack.

    Attributes:
        variants: Named changes to a new folder.
        loads: Whether the folder may be loaded, as long as no code is run and no file opened that must not be.
        works_on_host: Variants that work with plain `SentenceTransformer(folder)`; they are tried there first.
        modules: The model: `own`, `dense`, `router`, `export` or `openvino`.
        entry_points: What to try; by default everything.
        loading_is_harm: Variants of `works_on_host` whose harm is that the folder loads: wrong weights, or files from
            outside that Rust opens, which is not seen here. For the others code must run, or a file be opened.
    """

    variants: Mapping[str, Change]
    loads: bool = False
    works_on_host: tuple[str, ...] = ()
    modules: str = "own"
    entry_points: tuple[str, ...] = ()
    loading_is_harm: tuple[str, ...] = ()


@dataclass
class Watch:
    """Records every file that Python opens, by its real path. What Rust and C++ open it does not see."""

    opened: list[str] = field(default_factory=list)
    on: bool = False

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Record one event."""
        if self.on and event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            with contextlib.suppress(ValueError):  # NUL
                self.opened.append(os.path.realpath(os.fsdecode(args[0])))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record what the block opens."""
        self.opened.clear()
        self.on = True
        try:
            yield
        finally:
            self.on = False

    def forbidden(self, target: Target) -> str | None:
        """Return a file that was opened and must not be: a pickle, or one outside the folder."""
        return next((path for path in self.opened if path.endswith(PICKLES) or str(target.outside) in path), None)


SCRATCH = tempfile.TemporaryDirectory(prefix="attacks-")  # removed when the process ends
WATCH = Watch()
sys.addaudithook(WATCH.hook)


@cache
def new_model(kind: str) -> Path:
    """Make a tiny model once: `own` (Transformer and SelectivePooling), `dense`, `router` or an export."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Router, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    import s2sent

    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(dir=SCRATCH.name))
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: index for index, word in enumerate([*names, *WORDS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    kinds = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict(zip(kinds, names, strict=True)))
    if kind == "export":
        return make_export(root / kind, tokenizer)
    if kind == "openvino":
        return as_openvino(make_export(root / kind, tokenizer))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(root / "backbone")
    fast.save_pretrained(root / "backbone")
    backbone = str(root / "backbone")
    if kind == "own":
        model = s2sent.build(backbone, blocks=2, reduction=4, device="cpu")
    elif kind == "dense":
        model = SentenceTransformer(modules=[Transformer(backbone), Pooling(16), Dense(16, 8)], device="cpu")
    else:
        routes = {name: [Transformer(backbone), Pooling(16)] for name in ("query", "document")}
        model = SentenceTransformer(modules=[Router(routes, default_route="query")], device="cpu")
    model.save(str(root / kind))
    return root / kind


def make_export(folder: Path, tokenizer: Any, values: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0)) -> Path:
    """Write the smallest graph that is an export: the sum of a text's token ids, times four weights."""
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_graph(folder, values)
    framing = {"prefix": [2], "suffix": [3], "room": 30}
    size = (folder / "tokenizer.json").stat().st_size
    config = {"format": 1, "framing": framing, "dimension": 4, "padding": 0, "special": [0, 1, 2, 3, 4]}
    (folder / "s2sent_export.json").write_text(json.dumps({**config, "files": {"tokenizer.json": size}}))
    return folder


def as_openvino(folder: Path) -> Path:
    """Make an export for OpenVINO of one for onnxruntime."""
    from s2sent.runtime.openvino import convert

    convert(folder / "model.onnx", folder)
    (folder / "model.onnx").unlink()
    config = json.loads((folder / "s2sent_export.json").read_text())
    (folder / "s2sent_export.json").write_text(json.dumps({**config, "format": 3, "runtime": "openvino", "bucket": 8}))
    return folder


def write_graph(folder: Path, values: tuple[float, ...], location: str | None = None) -> None:
    """Write model.onnx, with its weights inside, or in another file."""
    import numpy as np
    from onnx import TensorProto, helper

    if location is None:
        weights = helper.make_tensor("w", TensorProto.FLOAT, [1, 4], values)
    else:
        weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1, 4], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", location), ("offset", "0"), ("length", "16")):
            weights.external_data.add(key=key, value=value)
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], np.array([1]))
    nodes = [
        helper.make_node("Mul", ["input_ids", "attention_mask"], ["real"]),
        helper.make_node("Cast", ["real"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["numbers", "axes"], ["sum"], keepdims=1),
        helper.make_node("MatMul", ["sum", "w"], ["sentence_embedding"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["b", 4])
    graph = helper.make_graph(nodes, "g", inputs, [output], [weights, axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


@cache
def texts() -> Path:
    """Make inputs for the entry points: lines of text, pairs, and an STS-B of a few pairs."""
    root = Path(tempfile.mkdtemp(dir=SCRATCH.name))
    lines = [" ".join(WORDS[start : start + 5]) for start in range(8)]
    (root / "lines.txt").write_text("\n".join(lines * 8) + "\n")
    pairs = [f"{one} {two},{two} {one}" for one in WORDS for two in WORDS if one != two]
    (root / "pairs.csv").write_text("\n".join(["anchor,positive", *pairs]) + "\n")
    (root / "STS" / "STSBenchmark").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        rows = [f"main\tx\t2012\t{i}\t{i % 5}.0\t{lines[i]}\t{lines[-i]}" for i in range(8)]
        (root / "STS" / "STSBenchmark" / f"sts-{split}.csv").write_text("\n".join(rows) + "\n")
    return root


def command(*arguments: str) -> None:
    """Run the command line in this process, without its output."""
    from s2sent.cli import app

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        app(list(arguments), standalone_mode=False)


def entry_points(folder: str, scratch: Path) -> dict[str, Callable[[], object]]:
    """Everything of s2sent that loads a model."""
    import s2sent

    data = texts()
    lines = str(data / "lines.txt")
    tasks = ("--tasks", "STS-B", "--data", str(data))
    train = ("--output", str(scratch / "t"), "--steps", "1", "--batch-size", "4", "--dev", "none", "--backbone", folder)
    reproduce = ("--backbone", folder, "--corpus", lines, "--store", str(scratch / "r"), "--data", str(data))
    adapt = ("--output", str(scratch / "a"), "--states", str(scratch / "s"), "--forms", "blocks", "--steps", "1")
    return {
        "load": lambda: s2sent.load(folder, device="cpu").encode(["the cat"]),
        "build": lambda: s2sent.build(folder, blocks=2, reduction=4, device="cpu"),
        "encode": lambda: command("encode", folder, lines, str(scratch / "v.npy")),
        "evaluate": lambda: command("evaluate", folder, *tasks),
        "compare": lambda: command("compare", folder, *tasks),
        "inspect": lambda: command("inspect", folder, "the cat"),
        "train": lambda: command("train", lines, *train, "--blocks", "2", "--reduction", "4"),
        "export": lambda: command("export", folder, str(scratch / "onnx")),
        "adapt": lambda: command("adapt", folder, str(data / "pairs.csv"), *adapt),
        "reproduce": lambda: command("reproduce", "main", "--list", *reproduce),
    }


@contextlib.contextmanager
def target(attack: Attack, change: Change) -> Iterator[Target]:
    """Make a new folder, changed."""
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        root = Path(name).resolve()
        shutil.copytree(new_model(attack.modules), root / "model")
        shutil.copytree(new_model("own"), root / "outside")
        made = Target(root / "model", root / "outside", root / "code-was-run")
        change(made)
        yield made


def problem_of(attack: Attack, made: Target, name: str, run: Callable[[], object]) -> str | None:
    """Run one entry point; return what went wrong, if anything."""
    from s2sent.errors import S2SentError

    def hangs(*_: object) -> None:
        raise TimeoutError(f"hangs for more than {SECONDS} s")

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    problem = None
    try:
        with WATCH.watching():
            run()
        if not attack.loads:
            problem = "the folder was accepted"
    except S2SentError as error:
        if os.environ.get("ATTACKS_SHOW"):
            print(f"    {name}: {error}")
        if attack.loads:
            problem = f"a harmless folder was refused: {error}"
        elif name == "load" and str(made.folder) not in str(error):
            problem = f"the message does not say where: {error}"
        elif not str(error).isprintable():
            problem = f"the message is not one printable line: {str(error)!r}"
    except SystemExit as error:
        problem = f"exit {error.code}"
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    if opened := WATCH.forbidden(made):
        problem = f"opened {opened}"
    return "CODE WAS RUN" if made.marker.exists() else problem


def try_attack(name: str, attack: Attack) -> tuple[int, list[str]]:
    """Try an attack's variants with its entry points; return how many times, and what went wrong."""
    tried, problems = 0, []
    for variant, change in attack.variants.items():
        for entry in attack.entry_points or tuple(entry_points("", Path())):
            with target(attack, change) as made, tempfile.TemporaryDirectory() as scratch:
                run = entry_points(str(made.folder), Path(scratch))[entry]
                if problem := problem_of(attack, made, entry, run):
                    problems.append(f"{name}, {variant}, {entry}: {problem}")
            tried += 1
    return tried, problems


def works_on_host(attack: Attack, variant: str) -> bool:
    """Whether plain sentence-transformers runs the code or opens the file; or, where that is the harm, loads it."""
    from sentence_transformers import SentenceTransformer

    loaded = False
    with target(attack, attack.variants[variant]) as made:
        with (
            contextlib.suppress(Exception),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            WATCH.watching(),
        ):
            # Our own module needs trust_remote_code, and whoever follows our model card sets it. Dense and Router do
            # not need it.
            SentenceTransformer(str(made.folder), device="cpu", trust_remote_code=attack.modules == "own")
            loaded = True
        harm = loaded and variant in attack.loading_is_harm
        return harm or made.marker.exists() or WATCH.forbidden(made) is not None


def load_attacks(names: list[str]) -> dict[str, Attack]:
    """Import attacks by the names of their files; all of them if none is named."""
    folder = Path(__file__).parent
    sys.path.insert(0, str(folder))
    every = sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("common", "run_all"))
    return {name: importlib.import_module(name).ATTACK for name in names or every}


def print_host_results(names: list[str]) -> None:
    """Try what should work with plain sentence-transformers; print how many do and which do not, as json."""
    results = {
        f"{name}, {variant}": works_on_host(attack, variant)
        for name, attack in load_attacks(names).items()
        for variant in attack.works_on_host
    }
    print(json.dumps([sum(results.values()), [name for name, works in results.items() if not works]]))


def main(names: list[str]) -> None:
    """Try attacks, and exit with 1 if one works."""
    attacks = load_attacks(names)
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(dir=SCRATCH.name)
    # In a process of its own: what sentence-transformers imports or changes there must not help s2sent.
    here = str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {here!r}); import common; common.print_host_results({list(attacks)!r})"
    child = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    tried, problems = 0, []
    for name, attack in attacks.items():
        count, found = try_attack(name, attack)
        tried += count
        problems += found
        print(f"{name}: {count} tries, {len(found) or 'none'} worked")
    working, failed = json.loads(child.stdout.splitlines()[-1]) if child.returncode == 0 else (0, ["all of them"])
    variants = sum(len(attack.variants) for attack in attacks.values())
    print(f"{len(attacks)} attacks in {variants} variants, tried {tried} times: {len(problems)} worked")
    print(f"{working} of them work against plain sentence-transformers; {len(failed)} that should do not")
    for line in (
        *problems,
        *(f"{name}: does no harm to sentence-transformers, so it proves nothing" for name in failed),
    ):
        print(line, file=sys.stderr)
    sys.exit(bool(problems or failed))
