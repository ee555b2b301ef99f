"""The commands and Python blocks of README and docs run, on tiny models with the names that the pages use.

Every page has a folder of its own, with the models and files it names; its blocks run there from top to bottom. A
command that takes hours, or needs another program, is not run: its verb and options must exist. So must the options,
modules, files and functions that the text of a page names.
"""

from __future__ import annotations

import ast
import csv
import gzip
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import s2sent
import tiny_senteval
from conftest import SENTENCES, make_backbone
from s2sent.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
    if "report" not in path.parts
)
WORDS = sorted({word.strip(".,;:!?") for sentence in SENTENCES for word in sentence.split() if word.isascii()})
NOT_RUN = ("reproduce",)
"""Verbs that take hours; with --list or --report-only they run."""
OTHERS = ("pip", "export", "git", "cd")
"""Programs that are not ours."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def commands(self) -> Iterator[list[str]]:
        """The shell commands, each as a list of words, without comments."""
        for line in self.text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line.removeprefix("$ "), comments=True):
                yield words


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[Block]:
    text = read(page)
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    return [Block(page, text[: match.start()].count("\n") + 1, match[1], match[2]) for match in found]


def spans_of(page: str) -> list[str]:
    """Code within the text of a page, such as `--dim`."""
    text = re.sub(r"^```.*?^```$", "", read(page), flags=re.M | re.S)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the pages name: backbones, models, text."""
    folder, small = tmp_path_factory.mktemp("docs"), tmp_path_factory.mktemp("small")
    make_backbone(folder / "bert-base-uncased", "bert", num_hidden_layers=6)  # README selects from six blocks
    model = s2sent.build(str(make_backbone(small, "bert", num_hidden_layers=3)), blocks=3, device="cpu")
    for name in ("MODEL", "sentence-transformers/all-MiniLM-L6-v2"):
        model.save(str(folder / name))
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, size=8, replace=False)) for _ in range(120)]
    (folder / "corpus.txt").write_text("\n".join(texts), encoding="utf-8")
    with (folder / "pairs.csv").open("w", encoding="utf-8", newline="") as file:
        rows = [(text, " ".join(random.permutation(text.split())[:6])) for text in texts]
        csv.writer(file).writerows([("anchor", "positive"), *rows])
    (folder / "pages").mkdir()
    with gzip.open(folder / "pages" / "1.jsonl.gz", "wt", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"url": f"page/{number}", "text": text, "body": text}) + "\n")
    tiny_senteval.write_folder(folder / "senteval")
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("S2SENT_DATA", str(tmp_path / "senteval"))
    monkeypatch.setenv("S2SENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("s2sent.training.adapt.fastest_precision", lambda device: "fp32")  # or it takes seconds to find
    names: dict[str, Any] = {}
    for block in blocks_of(page):
        where = f"{page}, line {block.line}"
        if block.language == "python":
            exec(compile(block.text, where, "exec"), names)
        elif block.language == "toml":  # a file that the text before it names
            before = "\n".join(read(page).splitlines()[: block.line - 1])
            Path(re.findall(r"`([\w.-]+\.toml)`", before)[-1]).write_text(block.text, encoding="utf-8")
        elif block.language in ("", "sh"):
            for words in block.commands():
                run(words, where)


def run(words: list[str], where: str) -> None:
    while re.fullmatch(r"[A-Z0-9_]+=.*", words[0]):  # OMP_NUM_THREADS=1
        words = words[1:]
    match words:
        case ["s2sent", verb, *options]:
            check_options(verb, options, where)
            if {"…", "ray", "openvino"} & {*options} or (
                verb in NOT_RUN and not {"--list", "--report-only"} & {*options}
            ):
                return
            result = CliRunner().invoke(app, [verb, *options])
            assert result.exit_code == 0, f"{where}: {shlex.join(words)}\n{result.output}\n{result.exception}"
        case ["torchrun" | "zcat", *others]:  # then s2sent is at the end of a pipe, or run by another program
            verb, *options = others[others.index("s2sent") + 1 :]
            check_options(verb, options, where)
        case ["make", target, *_]:
            assert re.search(rf"^{re.escape(target)}:", read("Makefile"), re.M), f"{where}: make {target}"
        case ["python", "-m", module, *options]:
            path = ROOT / f"{module.replace('.', '/')}.py"
            assert path.exists(), f"{where}: there is no module {module}"
            unknown = [word for word in options if word.startswith("--") and f'"{word}"' not in path.read_text()]
            assert not unknown, f"{where}: {module} has no {', '.join(unknown)}"
        case ["python", path, *_]:
            assert (ROOT / path).exists(), f"{where}: there is no file {path}"
        case _:
            assert words[0] in OTHERS, f"{where}: no test knows what to do with {shlex.join(words)}"


@cache
def options_of() -> dict[str, set[str]]:
    """The options of every verb."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {
        verb: {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
        for verb, command in commands.items()
    }


def check_options(verb: str, words: list[str], where: str) -> None:
    """Every option that a page gives exists."""
    assert verb in options_of(), f"{where}: there is no verb {verb}"
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in options_of()[verb]]
    assert not unknown, f"{where}: s2sent {verb} has no {', '.join(unknown)}"


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_options_modules_and_files_in_the_text_exist(page: str) -> None:
    benchmarks = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("benchmarks/*.py"))
    known = {name for names in options_of().values() for name in names} | {*re.findall(r'"(--[a-z-]+)"', benchmarks)}
    for span in spans_of(page):
        where = f"{page}: `{span}`"
        if span.startswith("s2sent "):
            verb, *options = shlex.split(span)[1:]
            check_options(verb, options, where)
        elif span.startswith("--"):
            assert not {*re.findall(r"--[a-z][a-z-]*", span)} - known, where
        elif re.fullmatch(r"s2sent(\.\w+)+", span):
            assert resolves(span), where
        elif re.fullmatch(r"(s2sent/)?\w+/[\w/]+\.py(:[\w.]+)?", span):
            assert_in_source(span, where)


def resolves(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(import_module(module), attribute) or bool(import_module(name))
    except ImportError:
        return False


def assert_in_source(span: str, where: str) -> None:
    """`folder/file.py` exists, and `folder/file.py:Class.method` is defined in it."""
    name, _, function = span.partition(":")
    found = [path for folder in ("src/s2sent", "src", ".") if (path := ROOT / folder / name).exists()]
    assert found, f"{where}: there is no such file"
    for part in filter(None, function.split(".")):
        kinds = (ast.FunctionDef, ast.ClassDef)
        defined = {node.name for node in ast.walk(ast.parse(found[0].read_text())) if isinstance(node, kinds)}
        assert part in defined, f"{where}: {part} is not defined there"


def test_every_link_to_a_file_leads_somewhere() -> None:
    missing = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not ((ROOT / page).parent / target).exists():
                missing.append(f"{page}: {target}")
    assert not missing


def test_a_walk_in_contributing_has_as_many_files_as_it_says() -> None:
    walks = re.findall(
        r"^\*\*(.+?)\*\* \((\d+) files?[^\n]*\n(.*?)(?=^\*\*|^## )", read("CONTRIBUTING.md"), re.M | re.S
    )
    assert [name for name, *_ in walks] == ["The model", "encode", "train", "evaluate", "adapt", "export", "reproduce"]
    for name, count, text in walks:
        steps = "\n".join(re.findall(r"^\d+\. .*?(?=^\d+\. |^\n|\Z)", text, re.M | re.S))
        assert len(set(re.findall(r"`(\w+/\w+\.py):", steps))) == int(count), name
