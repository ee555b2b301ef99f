"""The paper's equations, one function each, in its order. Read it beside section 3; shapes are in `__init__.py`.

    eq. fuse      fuse            U = [u⁽⁰⁾; …; u⁽ᴺ⁻¹⁾]
    eq. fs        squeeze         f = FS(U), from the four below
    eq. dct_gen   dct_basis       α = cos(π a (n + ½) / N) · cos(π b (l + ½) / L)
    eq. split     split           U → U⁽⁰⁾; …; U⁽ᴹ⁻¹⁾
    eq. dct1      dct             f⁽ᵐ⁾ = Σₙ Σₗ U⁽ᵐ⁾ α
    eq. f         squeeze         f = ⟨f⁽⁰⁾; …; f⁽ᴹ⁻¹⁾⟩
    eq. exc       excite          e⁽ⁿ⁾ = σ(max(0, f W₁) W₂⁽ⁿ⁾)
    after exc     block_weights   w = softmax of e over the blocks, per feature
                  select          v = Σₙ w⁽ⁿ⁾ ∗ u⁽ⁿ⁾

The sum over tokens in eq. dct1 and the pooling of v are linear, so each block's tokens are summed before the blocks are
stacked (`layout.TokenBasis.project`): U is then (b, n, k, d), a row for each token frequency, instead of (b, n, l, d).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor


def fuse(branches: Sequence[Tensor]) -> Tensor:
    """Stack the branches (eq. fuse): (b, …, d) each → U (b, n, …, d)."""
    return torch.stack(list(branches), dim=1)


def low_frequencies(count: int, blocks: int) -> tuple[tuple[int, int], ...]:
    """Return the `count` lowest frequencies (a, b) over (block, token): figure "m low frequency basis functions".

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


def dct_basis(frequencies: Tensor, phase: Tensor) -> Tensor:
    """Return one factor of α (eq. dct_gen): cos(π a φ), with φ = (n + ½) / N over blocks or (l + ½) / L over tokens."""
    return (frequencies * phase).mul_(math.pi).cos_()


def part_sizes(dim: int, parts: int) -> tuple[int, ...]:
    """Return the sizes of M parts of D features: as equal as possible, the first D mod M one larger.

    >>> part_sizes(10, 4)
    (3, 3, 2, 2)
    """
    size, larger = divmod(dim, parts)
    return (size + 1,) * larger + (size,) * (parts - larger)


def split(fused: Tensor, parts: int) -> tuple[Tensor, ...]:
    """Split the features into parts (eq. split): U (…, d) → U⁽ᵐ⁾ (…, d′)."""
    return torch.split(fused, list(part_sizes(fused.shape[-1], parts)), dim=-1)


def dct(part: Tensor, block_basis: Tensor) -> Tensor:
    """Sum a part over blocks and tokens with its basis (eq. dct1), as a mean: f⁽ᵐ⁾ = 1/(N·L) Σₙ Σₗ U⁽ᵐ⁾ α.

    Args:
        part: (b, n, d′): the part's mean over the tokens, weighted with the token factor of α.
        block_basis: (n,): the block factor of α.
    """
    return (part * block_basis[:, None]).mean(dim=1)


def dct_constant(scale: str, frequency: tuple[int, int], blocks: int, lengths: Tensor) -> Tensor | None:
    """Return what `scale` multiplies a mean by, for each sentence (b, 1): the constant that the paper leaves out.

    `mean` leaves it as it is (None), so that frequency (0, 0) is GAP exactly (eq. gap); `sum` has no constant at all;
    `orthonormal` is the constant of the DCT-II, 1/√(N·L), times √2 for each index that is not 0.
    """
    match scale:
        case "mean":
            return None
        case "sum":
            return (blocks * lengths)[:, None]
        case _:
            twos = sum(index > 0 for index in frequency)
            return torch.sqrt((2**twos * blocks * lengths)[:, None])


def squeeze(
    fused: Tensor, frequencies: Sequence[tuple[int, int]], block_basis: Tensor, lengths: Tensor, scale: str
) -> Tensor:
    """Frequency Selection (eqs. fs, f): every part with its own DCT basis; U (b, n, k, d) → f (b, d).

    Args:
        fused: U, a row for each distinct token frequency, lowest first: the mean of the tokens times its cosine.
        frequencies: (a, b) of each part.
        block_basis: (m, n): the block factor of each part's α.
        lengths: (b,): each sentence's own length.
        scale: See `dct_constant`.
    """
    row = {b: k for k, b in enumerate(sorted({b for _, b in frequencies}))}
    squeezed = []
    for part, frequency, basis in zip(split(fused, len(frequencies)), frequencies, block_basis, strict=True):
        f = dct(part[:, :, row[frequency[1]]], basis)
        constant = dct_constant(scale, frequency, fused.shape[1], lengths)
        squeezed.append(f if constant is None else f * constant)
    return torch.cat(squeezed, dim=-1)


def excite(f: Tensor, w1: Tensor, w2: Tensor, *, tanh: bool = False, sigmoid: bool = True) -> Tensor:
    """Excite (eq. exc): s = max(0, f W₁), e = σ(s W₂); (…, d) → (…, rows of w2).

    In fp32 whatever the type of the weights: with `scale="sum"` f leaves the range of half precision.

    Args:
        f: What is excited: the squeezed sentence, or without a squeeze every token.
        w1: (d/r, d).
        w2: (n·d, d/r): one matrix for each branch, or one branch's (d, d/r).
        tanh: Tanh instead of the maximum with 0, as in the paper's table of symbols.
        sigmoid: Whether σ is applied.
    """
    with full_precision(f):
        s = F.linear(f.float(), w1.float())
        s = s.tanh_() if tanh else s.relu_()
        e = F.linear(s, w2.float())
    return e.sigmoid_() if sigmoid else e


def block_weights(e: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the weight of every branch (the equation after exc): softmax over n, per feature; (…, n, d).

    A softmax over a single branch is the identity, so 1D SS weighs with the excitation itself: v = e ∗ u (appendix).

    Args:
        e: (…, n, d): the excitation.
        bias: (n,): one learned logit per branch, beyond the paper.
    """
    if e.shape[-2] == 1:
        return e
    return (e if bias is None else e + bias.float()[:, None]).softmax(dim=-2)


def select(weights: Tensor, blocks: Tensor) -> Tensor:
    """Weigh and sum the branches (the equation after exc): v = Σₙ w⁽ⁿ⁾ ∗ u⁽ⁿ⁾; (b, n, d) each → (b, d)."""
    return (weights * blocks).sum(dim=1)


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """Keep autocast, if it is on, from redoing fp32 products in half precision."""
    device = tensor.device.type
    # Switching it off costs as much as a small product, so that is done only where it is on.
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
