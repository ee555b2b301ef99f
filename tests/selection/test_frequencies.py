from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sent.selection import SelectionConfig, Selector, low_frequencies
from s2sent.selection.equations import part_sizes
from selection.oracle import frequencies_of, parts_of

AUTHORS = ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1))


@pytest.mark.parametrize("count", range(1, 9))
def test_up_to_eight_are_the_sets_of_the_authors_release(count: int) -> None:
    assert low_frequencies(count, blocks=12) == AUTHORS[:count]
    assert low_frequencies(count, blocks=3) == AUTHORS[:count]


def test_a_single_block_has_token_frequencies_only() -> None:
    assert low_frequencies(5, blocks=1) == ((0, 0), (0, 1), (0, 2), (0, 3), (0, 4))


def test_illegal_block_frequencies_are_skipped_and_the_list_goes_on() -> None:
    assert low_frequencies(8, blocks=2) == ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3))


@given(count=st.integers(1, 64), blocks=st.integers(1, 30))
def test_order_agrees_with_sorting_a_large_grid(count: int, blocks: int) -> None:
    assert list(low_frequencies(count, blocks)) == frequencies_of(count, blocks)


@given(count=st.integers(1, 40), blocks=st.integers(1, 12))
def test_no_block_basis_vanishes_or_repeats(count: int, blocks: int) -> None:
    n = np.arange(blocks) + 0.5
    bases = [np.cos(math.pi * a * n / blocks) for a in sorted({a for a, _ in low_frequencies(count, blocks)})]
    gram = np.array(bases) @ np.array(bases).T
    assert np.linalg.matrix_rank(gram) == len(bases)


@given(dim=st.integers(1, 1024), parts=st.integers(1, 64))
def test_parts_are_as_equal_as_they_come(dim: int, parts: int) -> None:
    sizes = part_sizes(dim, parts)
    assert list(sizes) == [len(features) for features in parts_of(dim, parts)]
    assert sum(sizes) == dim


@pytest.mark.parametrize(
    ("fusion", "expected"), [("stack", AUTHORS[:4]), ("average", ((0, 0), (0, 1), (0, 2), (0, 3)))]
)
def test_one_dimensional_selection_has_one_branch_and_so_only_token_frequencies(
    fusion: str, expected: tuple[tuple[int, int], ...]
) -> None:
    selector = Selector(24, SelectionConfig(blocks=3, frequencies=4, fusion=fusion))
    assert selector.frequencies == expected
