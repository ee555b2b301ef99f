"""What every attack shares: a fresh tiny model, the verbs that load one, a look at what was opened and run.

An attack is a file of this folder with an `ATTACK`: named functions that spoil a fresh model folder. Running the file
tries them all, first against plain sentence-transformers (the control: is the attack live at all?), then against every
verb of s2sent. It exits with 1 if code ran, a file was opened that must not be, or something else than a clean refusal
came out. With ATTACKS_SHOW=1 it prints every refusal.
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import contextlib
import io
import json
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

Spoil = Callable[["Target"], None]
WORDS = ["the", "cat", "sat", "on", "a", "warm", "window", "sill", "while", "rain", "fell", "and", "dogs", "slept"]
SECONDS = 60
"""What takes longer than this hangs."""


@dataclass(frozen=True)
class Target:
    """What an attack has to work with.

    Attributes:
        folder: A fresh model folder, to spoil.
        outside: A folder beside it, with files that are none of the model's business.
        marker: A file that code, were it run, would leave.
    """

    folder: Path
    outside: Path
    marker: Path

    def edit(self, name: str, **changes: Any) -> None:
        """Change keys of a json file; a key set to ... is taken out."""
        path = self.folder / name
        values = {**(json.loads(path.read_text()) if path.exists() else {}), **changes}
        path.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))

    def edit_module(self, index: int, **changes: Any) -> None:
        """Change keys of one module in modules.json."""
        modules = json.loads((self.folder / "modules.json").read_text())
        modules[index].update(changes)
        (self.folder / "modules.json").write_text(json.dumps(modules))

    def put_pickle(self, name: str = "pytorch_model.bin") -> None:
        """Write a pickle that leaves the marker when it is read."""
        (self.folder / name).write_bytes(pickle.dumps(Payload(str(self.marker)), protocol=2))

    def put_code(self, name: str) -> None:
        """Write a Python file that leaves the marker when it is imported."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"open({str(self.marker)!r}, 'w').close()\n"
            "from sentence_transformers.base.modules import Transformer\n"
            "from transformers import BertConfig, BertModel, BertTokenizer\n"
            "class Payload(Transformer): pass\n"
            "class PayloadConfig(BertConfig): pass\n"
            "class PayloadModel(BertModel): pass\n"
        )


class Payload:
    """Leaves a file when it is unpickled."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.marker, "w"))


@dataclass(frozen=True)
class Attack:
    """Variants of one attack.

    Attributes:
        variants: Named functions that spoil a fresh folder.
        loads: Whether the folder may be loaded, as long as nothing is run or opened that must not be.
        live: Variants that work against plain `SentenceTransformer(folder)`, which the control has to show.
        modules: Makes the model's modules; by default ours.
        verbs: The verbs to try; by default all.
        loading_is_harm: Live variants whose harm is shown when the folder merely loads: wrong weights, or files from
            outside that Rust reads, which is not seen here. For the others code must run, or a file be opened.
    """

    variants: dict[str, Spoil]
    loads: bool = False
    live: tuple[str, ...] = ()
    modules: str = "own"
    verbs: tuple[str, ...] = ()
    loading_is_harm: tuple[str, ...] = ()


@dataclass
class Watch:
    """Notes every file that Python opens, by its real path. What Rust and C++ open it does not see."""

    opened: list[str] = field(default_factory=list)
    on: bool = False

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Take note."""
        if self.on and event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            with contextlib.suppress(ValueError):  # NUL
                self.opened.append(os.path.realpath(os.fsdecode(args[0])))


SCRATCH = tempfile.TemporaryDirectory(prefix="attacks-")  # gone when the process ends
WATCH = Watch()
sys.addaudithook(WATCH.hook)


@cache
def fresh(kind: str) -> Path:
    """Make a tiny model once: `own` (Transformer and SelectivePooling), `dense`, `router` or `export`."""
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
    """Make inputs for the verbs: lines of text, pairs, and an STS-B of a few pairs."""
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
    """Run a verb of the command line in this process, without its output."""
    from s2sent.cli import app

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        app(list(arguments), standalone_mode=False)


def verbs(folder: str, scratch: Path) -> dict[str, Callable[[], object]]:
    """Everything of s2sent that loads a model."""
    import s2sent

    data = texts()
    lines = str(data / "lines.txt")
    tasks = ("--tasks", "STS-B", "--data", str(data))
    train = ("--output", str(scratch / "t"), "--steps", "1", "--batch-size", "4", "--dev", "none", "--backbone", folder)
    reproduce = ("--backbone", folder, "--corpus", lines, "--store", str(scratch / "r"), "--data", str(data))
    adapt = ("--output", str(scratch / "a"), "--states", str(scratch / "s"), "--form", "blocks", "--steps", "1")
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
def target(attack: Attack, spoil: Spoil) -> Iterator[Target]:
    """Give a fresh folder, spoiled."""
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        root = Path(name).resolve()
        shutil.copytree(fresh(attack.modules), root / "model")
        shutil.copytree(fresh("own"), root / "outside")
        made = Target(root / "model", root / "outside", root / "code-was-run")
        spoil(made)
        yield made


def try_verb(attack: Attack, made: Target, name: str, verb: Callable[[], object]) -> str | None:
    """Run one verb; return what went wrong, if anything."""
    from s2sent.errors import S2SentError

    def hangs(*_: object) -> None:
        raise TimeoutError(f"hangs for more than {SECONDS} s")

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    WATCH.opened.clear()
    WATCH.on = True
    problem = None
    try:
        verb()
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
        WATCH.on = False
    opened = [path for path in WATCH.opened if path.endswith((".bin", ".pt", ".pkl")) or str(made.outside) in path]
    if opened:
        problem = f"opened {opened[0]}"
    if made.marker.exists():
        made.marker.unlink()
        problem = "CODE WAS RUN"
    return problem


def control(attack: Attack, variant: str) -> bool:
    """Whether plain sentence-transformers runs the code or opens the file; or, where that is the harm, loads it."""
    from sentence_transformers import SentenceTransformer

    with target(attack, attack.variants[variant]) as made:
        WATCH.opened.clear()
        WATCH.on = True
        loaded = False
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                # Our own module is not the host's, so it has to be told to trust; so does everybody who follows a
                # model card that says so. Dense and Router need no trust.
                SentenceTransformer(str(made.folder), device="cpu", trust_remote_code=attack.modules == "own")
            loaded = True
        except Exception:
            pass
        finally:
            WATCH.on = False
        opened = any(path.endswith((".bin", ".pt")) or str(made.outside) in path for path in WATCH.opened)
        return made.marker.exists() or opened or (loaded and variant in attack.loading_is_harm)


def try_attack(name: str, attack: Attack) -> tuple[int, list[str]]:
    """Try an attack's variants through its verbs; return how many times, and what went wrong."""
    tried, problems = 0, []
    for variant, spoil in attack.variants.items():
        for verb in attack.verbs or tuple(verbs("", Path())):
            with target(attack, spoil) as made, tempfile.TemporaryDirectory() as scratch:
                problem = try_verb(attack, made, verb, verbs(str(made.folder), Path(scratch))[verb])
            tried += 1
            if problem:
                problems.append(f"{name}, {variant}, {verb}: {problem}")
    return tried, problems


def controls(attacks: dict[str, Attack]) -> tuple[int, list[str]]:
    """Try what is said to be live against plain sentence-transformers; return how many are, and which are not."""
    live, dead = 0, []
    for name, attack in attacks.items():
        for variant in attack.live:
            if control(attack, variant):
                live += 1
            else:
                dead.append(f"{name}, {variant}: the control is dead, so the attack proves nothing")
    return live, dead


def attacks_of_this_folder() -> dict[str, Attack]:
    """Import every attack."""
    import importlib

    folder = Path(__file__).parent
    sys.path.insert(0, str(folder))
    names = sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("common", "run_all"))
    return {name: importlib.import_module(name).ATTACK for name in names}


def main(attacks: dict[str, Attack]) -> None:
    """Try attacks, and exit with 1 if one works."""
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(dir=SCRATCH.name)
    # The control runs in a process of its own: what it imports or changes must not help s2sent.
    here = str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {here!r}); import common; common.print_controls({list(attacks)!r})"
    child = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    tried, problems = 0, []
    for name, attack in attacks.items():
        count, found = try_attack(name, attack)
        tried += count
        problems += found
        print(f"{name}: {count} tries, {len(found)} worked" if found else f"{name}: {count} tries, none worked")
    live, dead = json.loads(child.stdout.splitlines()[-1]) if child.returncode == 0 else (0, ["the control failed"])
    variants = sum(len(attack.variants) for attack in attacks.values())
    print(f"{len(attacks)} attacks in {variants} variants, tried {tried} times: {len(problems)} worked")
    print(f"{live} of them work against plain sentence-transformers; {len(dead)} that should do not")
    for line in (*problems, *dead):
        print(line, file=sys.stderr)
    sys.exit(bool(problems or dead))


def print_controls(names: list[str]) -> None:
    """Print the outcome of the controls as json."""
    known = attacks_of_this_folder()
    print(json.dumps(controls({name: known[name] for name in names})))
