"""The commands and Python blocks of README and docs run, on tiny models with the names that the pages use.

Every page has a folder of its own, with the models and files it speaks of; its blocks run there from top to bottom.
A command that takes hours, or needs what a test machine lacks, is not run: its verb and options must exist.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
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


def blocks_of(page: str) -> list[Block]:
    found = []
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S):
        line = (ROOT / page).read_text(encoding="utf-8")[: match.start()].count("\n") + 1
        found.append(Block(page, line, match[1], match[2]))
    return found


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the pages name: backbones, models, text."""
    folder = tmp_path_factory.mktemp("docs")
    make_backbone(folder / "bert-base-uncased", "bert", num_hidden_layers=6)
    model = s2sent.build(str(folder / "bert-base-uncased"), blocks=3, device="cpu")
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
    names: dict[str, Any] = {}
    for block in blocks_of(page):
        where = f"{page}, line {block.line}"
        if block.language == "python":
            exec(compile(block.text, where, "exec"), names)
        elif block.language in ("", "sh"):
            for words in block.commands():
                run(words, where)


def run(words: list[str], where: str) -> None:
    while re.fullmatch(r"[A-Z0-9_]+=.*", words[0]):  # OMP_NUM_THREADS=1
        words = words[1:]
    match words:
        case ["s2sent", verb, *options]:
            check_options(verb, options, where)
            if "…" in options or "|" in options or (verb in NOT_RUN and not {"--list", "--report-only"} & {*options}):
                return
            result = CliRunner().invoke(app, [verb, *options])
            assert result.exit_code == 0, f"{where}: {shlex.join(words)}\n{result.output}\n{result.exception}"
        case ["make", target, *_]:
            assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.M), (
                f"{where}: make {target}"
            )
        case ["python", "-m", module, *_]:
            assert (ROOT / f"{module.replace('.', '/')}.py").exists(), f"{where}: {module}"
        case ["python", path, *_]:
            assert (ROOT / path).exists(), f"{where}: {path}"
        case _:
            assert words[0] in KNOWN, f"{where}: no test knows what to do with {shlex.join(words)}"


KNOWN = ("pip", "export", "torchrun", "zcat", "git", "cd")
"""Programs that are not ours."""


def check_options(verb: str, words: list[str], where: str) -> None:
    """Every option that a page gives exists."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert verb in commands, f"{where}: there is no verb {verb}"
    known = {name for option in commands[verb].params for name in (*option.opts, *option.secondary_opts)}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]
    assert not unknown, f"{where}: s2sent {verb} has no {', '.join(unknown)}"


def test_every_link_to_a_file_leads_somewhere() -> None:
    missing = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not ((ROOT / page).parent / target).exists():
                missing.append(f"{page}: {target}")
    assert not missing
