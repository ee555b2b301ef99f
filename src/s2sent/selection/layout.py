"""Weighted means over a sentence's tokens: the token half of the DCT, and pooling, as one small product per block.

A batch comes in one of two layouts, padded (b, l, d) or, from unpadded attention, flat (1, Σ length, d). Which one
it is matters only here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from s2sent.selection.equations import dct_basis, full_precision


@dataclass(frozen=True)
class TokenLayout:
    """Where the real tokens of a batch are. Positions count real tokens only, so padding on either side is nothing.

    Attributes:
        mask: (b, l), or (1, Σ) when flat: 1 for a real token.
        position: Same shape: the token's place in its own sentence, counted from 1.
        lengths: (b,): the sentence's own length, L_b.
        sentence: (Σ,) when flat: the sentence each token belongs to.
    """

    mask: Tensor
    position: Tensor
    lengths: Tensor
    sentence: Tensor | None = None

    @classmethod
    def padded(cls, attention_mask: Tensor) -> TokenLayout:
        """Read the layout off an attention mask (b, l), padded on the left, the right, or both."""
        mask = attention_mask.ne(0)
        position = mask.cumsum(dim=1)
        return cls(mask, position, position[:, -1])

    @classmethod
    def flat(cls, cu_seq_lens: Tensor, tokens: int) -> TokenLayout:
        """Read the layout off the cumulative lengths (b + 1,) of sentences laid end to end, `tokens` in all."""
        cu_seq_lens = cu_seq_lens.long()
        lengths = cu_seq_lens.diff()
        sentence = torch.repeat_interleave(lengths, output_size=tokens)
        position = torch.arange(1, tokens + 1, device=lengths.device) - cu_seq_lens[sentence]
        return cls(torch.ones_like(position, dtype=torch.bool)[None], position[None], lengths, sentence)

    def of_token(self, values: Tensor) -> Tensor:
        """Give every token its sentence's value: (b, …) → (b, 1, …), or (1, Σ, …) when flat."""
        return values[:, None] if self.sentence is None else values[self.sentence][None]

    def largest(self, values: Tensor) -> Tensor:
        """Return the largest of each sentence's token values, shaped like the mask: (b,)."""
        if self.sentence is None:
            return values.amax(dim=1)
        lowest = torch.full_like(self.lengths, torch.iinfo(torch.long).min)
        return lowest.scatter_reduce(0, self.sentence, values[0].long(), "amax")

    def any(self, values: Tensor) -> Tensor:
        """Return whether any token of each sentence is true, of values shaped like the mask: (b,)."""
        return values.any(dim=1) if self.sentence is None else self.largest(values) > 0

    def first_token(self) -> Tensor:
        """Return pooling weights, shaped like the mask, that pick each sentence's first real token ([CLS])."""
        return (self.mask & (self.position == 1)).float()


@dataclass(frozen=True)
class TokenBasis:
    """Rows of weights over the tokens, and the weighted sum over tokens with each row.

    Attributes:
        rows: (b, k, l), or (1, k, Σ) when flat; fp32; zero where there is no token.
        layout: The batch they were made for.
    """

    rows: Tensor
    layout: TokenLayout

    @classmethod
    def cosines(cls, frequencies: Tensor, layout: TokenLayout) -> TokenBasis:
        """Return the token factor of α (eq. dct_gen) over L, cos(π b (l + ½) / L) / L, for frequencies b (k,).

        L is each sentence's own length, so frequency 0 is exactly the mean over its tokens.
        """
        lengths = layout.of_token(layout.lengths)
        phase = (layout.position - 0.5).div_(lengths)  # (b, l); positions count from 1
        rows = dct_basis(frequencies[None, :, None], phase[:, None])  # (b, k, l)
        return cls(rows.mul_((layout.mask / lengths)[:, None]), layout)

    def with_row(self, weights: Tensor) -> TokenBasis:
        """Append one more row, such as pooling weights (b, l)."""
        return TokenBasis(torch.cat([self.rows, weights[:, None].to(self.rows)], dim=1), self.layout)

    def project(self, states: Tensor) -> Tensor:
        """Sum a block's states (b, l, d) over its tokens with each row, in fp32: (b, k, d)."""
        states = states.float()
        if self.layout.sentence is None:
            with full_precision(states):
                return torch.bmm(self.rows, states)
        # Flat: one row at a time, so that at most one copy of the states is alive.
        zeros = states.new_zeros(len(self.layout.lengths), states.shape[-1])
        return torch.stack(
            [zeros.index_add(0, self.layout.sentence, row[:, None] * states[0]) for row in self.rows[0]], 1
        )
