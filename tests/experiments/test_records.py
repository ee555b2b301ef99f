"""The committed records: each is found by the plan that made it, and gives the numbers of the committed reports."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from s2sent.cli import app

RESULTS = Path(__file__).parents[2] / "docs" / "results"
JOINT = (
    *("main", "squeeze", "pooling", "blocks-frequencies", "beyond", "longer", "against-average"),
    *("--catalogue", str(RESULTS / "own.toml"), "--seeds", "3"),
)
FROZEN = ("beyond", "main", "squeeze", "density", "reduction", "pooling", "transfer", "--profile", "frozen")


@pytest.mark.parametrize("folder", ["runs", "frozen/runs"])
def test_the_key_of_a_record_is_the_digest_of_its_description(folder: str) -> None:
    paths = sorted((RESULTS / folder).glob("*.json"))
    assert len(paths) > 100
    for path in paths:
        record = json.loads(path.read_text(encoding="utf-8"))
        text = json.dumps(record["description"], sort_keys=True, ensure_ascii=False)
        assert path.stem == record["key"] == hashlib.sha256(text.encode()).hexdigest()[:20]


@pytest.mark.parametrize(("folder", "arguments"), [(".", JOINT), ("frozen", FROZEN)])
def test_every_record_is_planned_and_reported_with_its_numbers(
    folder: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """A changed key makes a record a run to do again; a changed table is another result."""
    store, report = RESULTS / folder / "runs", RESULTS / folder / "report"
    options = ["--precision", "bf16", "--store", str(store), "--report", str(tmp_path), "--report-only"]
    result = CliRunner().invoke(app, ["reproduce", *arguments, *options])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    finished = re.search(r"(\d+) of \d+ runs are finished", page)
    assert finished is not None
    assert int(finished[1]) == len(list(store.glob("*.json")))
    ours, committed = (values(path / "tables" / "all.csv") for path in (tmp_path, report))
    assert committed
    assert {place: ours[place] for place in committed} == committed
    if folder == ".":  # whose store is complete
        for path in sorted((report / "tables").iterdir()):
            assert (tmp_path / "tables" / path.name).read_bytes() == path.read_bytes()


def values(path: Path) -> dict[tuple[str, ...], str]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["experiment"], row["row"], row["key"], row["name"]): row["value"] for row in rows}
