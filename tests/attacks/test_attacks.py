"""Every attack of `attacks/` is tried: none works on s2sent, and those that should work on plain host models do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytestmark = pytest.mark.timeout(600)  # 45 s of one core; more where others use it, too
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def output() -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    script = ROOT / "attacks" / "run_all.py"
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_no_attack_works_but_on_the_host(output: str) -> None:
    tried = re.search(r"(\d+) attacks in (\d+) variants, tried (\d+) times: 0 worked", output)
    assert tried
    attacks, variants, times = map(int, tried.groups())
    assert attacks == len([p for p in (ROOT / "attacks").glob("*.py") if p.stem not in ("common", "run_all")])
    assert times >= 3 * variants >= 3 * attacks
    assert re.search(r"[1-9]\d* of them work against plain sentence-transformers; 0 that should do not", output)


def test_the_docs_have_the_figures_of_the_run(output: str) -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    for line in output.splitlines()[-2:]:
        assert line in page


def test_the_readme_names_every_attack() -> None:
    readme = (ROOT / "attacks" / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "attacks").glob("*.py"):
        assert f"`{path.name}`" in readme
