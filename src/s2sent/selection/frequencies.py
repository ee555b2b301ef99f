"""Which DCT frequencies the squeeze uses, and which features each of them gets."""

from __future__ import annotations


def low_frequencies(count: int, blocks: int) -> tuple[tuple[int, int], ...]:
    """Return the `count` lowest frequencies (a, b) over (block, token), lowest first.

    Ordered by a² + b², then by a. Only a < `blocks` is legal: at a = N the basis is zero everywhere and above it
    repeats lower ones, so those pairs are left out and the list goes on to higher token frequencies.

    >>> low_frequencies(8, blocks=3)
    ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1))
    >>> low_frequencies(3, blocks=1)
    ((0, 0), (0, 1), (0, 2))
    """
    # With b up to count − 1, the pairs (0, b) alone are enough, and any pair outside is higher than all of those.
    grid = ((a, b) for a in range(min(blocks, count)) for b in range(count))
    return tuple(sorted(grid, key=lambda pair: (pair[0] ** 2 + pair[1] ** 2, pair[0]))[:count])


def part_sizes(dim: int, parts: int) -> tuple[int, ...]:
    """Split `dim` features into `parts` as equal as they come; the first `dim` mod `parts` are one larger.

    >>> part_sizes(10, 4)
    (3, 3, 2, 2)
    """
    size, larger = divmod(dim, parts)
    return (size + 1,) * larger + (size,) * (parts - larger)
