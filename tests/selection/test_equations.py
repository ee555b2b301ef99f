"""Each equation of the paper by itself, against plain floats; and that docs and code cite the same equations."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from s2sent.selection import equations
from selection import oracle

ROOT = Path(__file__).parents[2]
PAPER_EQUATIONS = {
    "fuse",
    "fs",
    "exc",
    "dct_gen",
    "gap",
    "dct-1",
    "dct---1",
    "split",
    "dct1",
    "f",
    "unsup",
    "e",
    "grad1",
}
"""The labels of the paper's numbered equations, as its source has them after `eq.`."""


def cited(text: str) -> set[str]:
    """The labels in `eq. x` and `eqs. x, y`."""
    found: set[str] = set()
    for labels in re.findall(r"\beqs?\. ((?:[a-z_0-9-]+(?:, | and )?)+)", text):
        found.update(re.split(r", | and ", labels.strip(", ")))
    return {label for label in found if label}


def test_every_equation_that_the_docs_cite_is_in_the_code_and_in_the_paper() -> None:
    docs = cited((ROOT / "docs" / "selection.md").read_text(encoding="utf-8"))
    functions = {
        label for name in dir(equations) for label in cited(getattr(getattr(equations, name), "__doc__", None) or "")
    }
    assert {"fuse", "fs", "dct_gen", "split", "dct1", "f", "exc"} <= docs <= functions
    assert functions <= PAPER_EQUATIONS


@pytest.mark.parametrize("scale", ["mean", "orthonormal", "sum"])
@pytest.mark.parametrize(("blocks", "count"), [(1, 3), (3, 4), (3, 8), (5, 16)])
def test_squeeze_is_the_double_sum_over_blocks_and_tokens(scale: str, blocks: int, count: int) -> None:
    u = np.random.default_rng(blocks).normal(size=(blocks, 7, 20))
    frequencies = equations.low_frequencies(count, blocks)
    phase = (torch.arange(7) + 0.5) / 7
    rows = equations.dct_basis(torch.tensor(sorted({b for _, b in frequencies}))[:, None], phase) / 7  # (k, l)
    fused = equations.fuse([(rows @ torch.from_numpy(block).float())[None] for block in u])  # (1, n, k, d)
    a = torch.tensor([a for a, _ in frequencies])[:, None]
    basis = equations.dct_basis(a, (torch.arange(blocks) + 0.5) / blocks)
    f = equations.squeeze(fused, frequencies, basis, torch.tensor([7]), scale)
    np.testing.assert_allclose(f[0], oracle.squeeze_by_loops(u, count, scale), rtol=2e-4, atol=2e-5)


def test_split_gives_every_feature_to_one_part_in_order() -> None:
    parts = equations.split(torch.arange(10), 4)
    assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


def test_weights_are_a_softmax_over_blocks_and_a_single_branch_keeps_its_excitation() -> None:
    e = torch.randn(2, 3, 4)
    weights = equations.block_weights(e, torch.tensor([0.0, 1.0, 2.0]))
    expected = oracle.softmax(e.numpy() + np.array([0.0, 1.0, 2.0])[:, None], axis=1)
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    assert torch.equal(equations.block_weights(e[:, :1]), e[:, :1])
