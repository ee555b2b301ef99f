"""Which part of the package may import which, as CONTRIBUTING.md says; and what starting the package may not import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "s2sent"

LEVELS = (
    ("errors",),
    ("_lazy", "atomic", "figures", "listener", "untrusted"),
    ("options",),
    ("selection",),
    ("data",),
    ("model",),
    ("runtime",),
    ("vectors",),
    ("training", "evaluation"),
    ("report",),
    ("experiments",),
    ("cli",),
    ("__main__",),
)
"""From low to high. A part may import lower ones, and no other of its own level."""

ALLOWED = {"__version__": "a constant of s2sent/__init__.py, which imports nothing but _lazy"}
"""What every part may import from the package itself, with the reason."""
EXCEPTIONS = {
    (
        "runtime/exported.py",
        "vectors",
    ): "how sequences are put into batches and run is defined once, in vectors/encoder.py",
    ("runtime/calibration.py", "vectors"): "the same",
}
"""Modules that may import a higher part, with the reason."""


def level_of(part: str) -> int:
    return next(number for number, parts in enumerate(LEVELS) if part in parts)


def part_of(path: Path) -> str:
    """The folder of a module, or the module itself if it is in no folder."""
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Every part of s2sent that a module imports, anywhere in it, with its line.

    Of `import s2sent`, what is used of it: `s2sent.load` is the part `load`, which is none.

    >>> list(imported("from s2sent.data import rows"))
    [(1, 'data')]
    """
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name != "s2sent" or alias.asname]
        elif isinstance(node, ast.ImportFrom):  # relative imports are not used
            names = ["s2sent"] if node.level else [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "s2sent":
            names = [f"s2sent.{node.attr}"]
        for name in names:
            first, *rest = name.split(".")
            if first == "s2sent":
                yield node.lineno, rest[0] if rest else "__init__"


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def wrong_imports(part: str, source: str) -> list[tuple[int, str]]:
    """The imports of a module of `part` that lead upwards, or sideways into another part of the same level."""
    found = []
    for line, target in imported(source):
        if target in ALLOWED or target == part:
            continue
        known = any(target in parts for parts in LEVELS)
        if not known or level_of(target) >= level_of(part):
            found.append((line, target))
    return found


def test_no_part_imports_a_higher_one() -> None:
    found = {
        (
            path.relative_to(PACKAGE).as_posix(),
            target,
        ): f"{path.relative_to(ROOT)}, line {line}: imports s2sent.{target}"
        for path in modules()
        for line, target in wrong_imports(part_of(path), path.read_text(encoding="utf-8"))
    }
    assert not [message for place, message in found.items() if place not in EXCEPTIONS]
    assert not EXCEPTIONS.keys() - found.keys(), "an exception that is needed no more"


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("model", "from s2sent.vectors.encoder import text_encoder"),
        ("data", "def read():\n    import s2sent.model.text"),
        ("training", "from s2sent.evaluation import evaluate"),
        ("runtime", "from s2sent import vectors"),
        ("model", "from s2sent import load"),
        ("model", "import s2sent\ns2sent.load('out')"),
        ("model", "import s2sent as package"),
        ("selection", "from .. import model"),
        ("data", "if TYPE_CHECKING:\n    from s2sent.training import recipes"),
    ],
)
def test_a_wrong_import_is_found(part: str, source: str) -> None:
    assert len(wrong_imports(part, source)) == 1


def test_every_part_has_a_level_and_contributing_states_them() -> None:
    """The list above, the folders that exist and the order in CONTRIBUTING.md are the same."""
    assert {part for parts in LEVELS for part in parts} == {part_of(path) for path in modules()}
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (order,) = re.findall(r"^errors < .*?(?=^```)", text, re.M | re.S)
    stated = [{part.strip() for part in level.split(",")} for level in order.split("<")]
    assert stated == [{*parts} for parts in LEVELS[:-1]]


@pytest.mark.parametrize("code", ["import s2sent", "from s2sent.cli import app; app(['--help'])"])
def test_starting_imports_neither_torch_nor_transformers(code: str) -> None:
    """`import s2sent` and `s2sent --help` answer at once."""
    program = f"""
import atexit, sys
atexit.register(lambda: print("imported:", *sys.modules, file=sys.stderr))
{code}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    _, _, names = done.stderr.partition("imported: ")
    assert "s2sent" in names.split()
    assert not {"torch", "transformers", "sentence_transformers", "onnxruntime"} & {*names.split()}
