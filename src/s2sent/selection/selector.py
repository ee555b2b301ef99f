"""The selector: the paper's equations with their parameters, from a Transformer's hidden states to sentence vectors.

The weights of the blocks do not depend on the token, so pooling commutes with the fusion:
pool(Σₙ wₙ ∗ uₙ) = Σₙ wₙ ∗ pool(uₙ). Every block is therefore pooled first, in the product that squeezes it, and the
fused (b, l, d) tensor is built only for someone who asks for token vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn

from s2sent.errors import ConfigError
from s2sent.selection.config import SelectionConfig, check_positive
from s2sent.selection.equations import (
    block_weights,
    dct_basis,
    excite,
    fuse,
    low_frequencies,
    part_sizes,
    select,
    squeeze,
)
from s2sent.selection.layout import TokenBasis, TokenLayout

_MOST_WEIGHTS = 1 << 30
"""4 GB. A selector has some 0.5 % of its encoder's weights."""

LAST_BLOCK_SHARE = 0.99
"""The weight that `prior="last"` gives the last block before training."""


@dataclass
class Selection:
    """What a selector makes of a batch.

    Attributes:
        embedding: (b, d) the fused and pooled sentence vectors.
        weights: (b, n, d) the weight of every block: the embedding is Σₙ weights · pooled block. They sum to 1 over
            the blocks for `fusion="stack"`. For the token gate, their mean over the sentence's tokens.
        projections: (b, n, k, d) every branch's mean over its tokens, weighted with the cosine of each token
            frequency; None where nothing is squeezed (the token gate, and the forms without a gate).
    """

    embedding: Tensor
    weights: Tensor
    projections: Tensor | None = field(default=None, init=False, repr=False)
    _build_tokens: Callable[[], Tensor] | None = field(default=None, init=False, repr=False)

    def tokens(self) -> Tensor:
        """Build the fused token vectors, laid out like the hidden states: (b, l, d), or (1, Σ length, d) when flat."""
        if self._build_tokens is None:
            raise ConfigError("These vectors were selected from projections alone: their token states are gone.")
        return self._build_tokens()


# Lets torch.export see through the result: its tensors are the outputs of the exported graph.
torch.export.register_dataclass(Selection, serialized_type_name="s2sent.Selection")


class Selector(nn.Module):
    """Fuse the hidden states of a Transformer's blocks into one vector per sentence.

    Args:
        dim: The width of the hidden states, D.
        config: The form of the selection; the paper's by default.

    Example:
        >>> import torch
        >>> selector = Selector(dim=24, config=SelectionConfig(blocks=2, frequencies=4))
        >>> states = [torch.randn(5, 7, 24), torch.randn(5, 7, 24)]
        >>> out = selector(states, attention_mask=torch.ones(5, 7))
        >>> out.embedding.shape, out.weights.shape, out.tokens().shape
        (torch.Size([5, 24]), torch.Size([5, 2, 24]), torch.Size([5, 7, 24]))
    """

    token_frequencies: Tensor
    block_basis: Tensor
    block_scales: Tensor

    def __init__(self, dim: int, config: SelectionConfig | None = None) -> None:
        super().__init__()
        if config is not None and not isinstance(config, SelectionConfig):
            raise ConfigError(f"config is a {type(config).__name__}; it must be a SelectionConfig (see its from_dict).")
        check_positive("dim", dim)
        self.dim = dim
        self.config = config = config or SelectionConfig()
        self._check_size()
        if config.gated:
            width = dim // config.reduction
            self.reduce = nn.Linear(dim, width, bias=False)  # W₁
            self.expand = nn.Linear(width, config.branches * dim, bias=False)  # W₂⁽⁰⁾ … W₂⁽ᴺ⁻¹⁾, one below the other
        if config.has_block_logits:
            self.block_logits = nn.Parameter(torch.zeros(config.branches))
        if config.gate == "per_feature":
            self.feature_logits = nn.Parameter(torch.zeros(config.branches, dim))

        spectral = config.gated and config.squeeze == "dct"
        self.frequencies = low_frequencies(config.frequencies if spectral else 1, config.branches)
        self.part_sizes = part_sizes(dim, len(self.frequencies))
        self._make_bases(torch.device("cpu"))
        self.reset_parameters()

    def _check_size(self) -> None:
        """Raise before anything is computed or allocated whose size the options decide."""
        config, dim = self.config, self.dim
        if not config.gated:
            return
        if config.squeeze == "dct" and config.frequencies > dim:
            raise ConfigError(f"frequencies={config.frequencies} is more than the {dim} features to share among them.")
        if config.reduction > dim:
            raise ConfigError(
                f"reduction={config.reduction} leaves no bottleneck for {dim} features: it is at most {dim}."
            )
        if dim * (dim // config.reduction) * (config.branches + 1) > _MOST_WEIGHTS:
            raise ConfigError(
                f"A selector over {config.branches} blocks of {dim} features with reduction={config.reduction} "
                f"would have more than {_MOST_WEIGHTS:,} weights. Use fewer blocks, or a larger reduction."
            )

    def _make_bases(self, device: torch.device) -> None:
        """Compute what does not depend on the sentence, in fp32."""
        n = torch.arange(self.config.branches, dtype=torch.float64)
        a = torch.tensor([a for a, _ in self.frequencies], dtype=torch.float64)[:, None]
        buffers = {
            "token_frequencies": torch.tensor(sorted({b for _, b in self.frequencies})),  # (k,); 0 is first
            "block_basis": dct_basis(a, (n + 0.5) / self.config.branches),  # (m, n)
            "block_scales": torch.tensor(self.config.block_scales or (1.0,) * len(self.config.chosen)),  # (n,)
        }
        for name, values in buffers.items():
            self.register_buffer(name, values.float().to(device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # `.half()`, `.to(bfloat16)` take all float buffers along; the bases stay exact.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        with torch.inference_mode(False):  # or a model that is moved while it encodes could not be trained afterwards
            self._make_bases(self.block_basis.device)
        return self

    def reset_parameters(self) -> None:
        """Start again as the config says: torch's own initialisation, then the prior."""
        if self.config.gated:
            self.reduce.reset_parameters()
            self.expand.reset_parameters()
        logits = self.logits
        if logits is not None:
            nn.init.zeros_(logits)
        if self.config.prior == "last" and logits is not None:
            if self.config.gated:
                nn.init.zeros_(self.expand.weight)
            odds = LAST_BLOCK_SHARE / (1 - LAST_BLOCK_SHARE) * (self.config.branches - 1)
            nn.init.constant_(logits[-1:], math.log(odds))

    @property
    def logits(self) -> nn.Parameter | None:
        """The learned logits of the blocks that no sentence changes: (n,), or (n, d) for `gate="per_feature"`."""
        if self.config.gate == "per_feature":
            return self.feature_logits
        return self.block_logits if self.config.has_block_logits else None

    def forward(
        self,
        hidden_states: Sequence[Tensor],
        attention_mask: Tensor | None = None,
        *,
        pool: Tensor | None = None,
        cu_seq_lens: Tensor | None = None,
    ) -> Selection:
        """Select and pool.

        Args:
            hidden_states: The N selected blocks, oldest first, each (b, l, d), or (1, Σ length, d) with `cu_seq_lens`.
            attention_mask: (b, l): 1 for a real token. None: no padding.
            pool: Token weights (b, l) of a linear pooling, such as one-hot [CLS]; by default the mean over the tokens.
            cu_seq_lens: (b + 1,) cumulative lengths, for states flattened by unpadded attention.
        """
        states = self._checked_states(hidden_states)
        layout = self._checked_layout(states[0], attention_mask, cu_seq_lens)
        if pool is not None and pool.shape != layout.mask.shape:
            raise ConfigError(
                f"pool has shape {tuple(pool.shape)}; a weight is needed for each of {tuple(layout.mask.shape)}."
            )
        basis = self.token_basis(layout, pool)
        if self.config.per_token:
            return self._select_per_token(self._scaled(states), basis)
        out = self.from_projections([basis.project(u) for u in states], basis, dtype=states[0].dtype)
        weights = out.weights

        def build_tokens() -> Tensor:
            of_tokens = [layout.of_token(of_block) for of_block in weights.unbind(dim=1)]
            return _sum_of(of_tokens, self._scaled(states)).to(states[0].dtype)

        out._build_tokens = build_tokens
        return out

    def _scaled(self, states: Sequence[Tensor]) -> Sequence[Tensor]:
        if not self.config.block_scales:
            return states
        return [u / scale.to(u) for u, scale in zip(states, self.block_scales, strict=True)]

    def token_basis(self, layout: TokenLayout, pool: Tensor | None = None) -> TokenBasis:
        """Return what `project`s a block's states: a row per token frequency, then one that pools, if not the mean."""
        basis = TokenBasis.cosines(self.token_frequencies, layout)
        return basis if pool is None else basis.with_row(pool)

    def from_projections(self, projections: Sequence[Tensor], basis: TokenBasis, dtype: torch.dtype) -> Selection:
        """Select from blocks that were `project`ed (b, k, d) one by one, as a streamed encoder gives them."""
        fused = fuse(projections)  # (b, n, k, d), the row that pools last
        if self.config.block_scales:
            fused = fused / self.block_scales[:, None, None]
        frequencies = len(self.token_frequencies)
        pooled = fused[:, :, -1 if fused.shape[2] > frequencies else 0]  # frequency 0 is the mean
        if not self.config.gated:
            out = self.from_pooled(None, pooled)
        else:
            branches = fused[:, :, :frequencies]
            if self.config.fusion != "stack":
                branches = branches.mean(dim=1, keepdim=True)
            out = self.from_pooled(self.squeeze(branches, basis.layout.lengths), pooled)
            out.projections = branches
        out.embedding = out.embedding.to(dtype)
        return out

    def from_pooled(self, f: Tensor | None, pooled: Tensor) -> Selection:
        """Select from pooled blocks (b, n, d) with squeezed sentences f (b, d); None without a gate."""
        weights = self._fixed_weights(pooled.shape[0]) if f is None else self._weights(f)
        if self.config.fusion != "stack":
            weights = (weights / pooled.shape[1]).expand(-1, pooled.shape[1], -1)
        return Selection(select(weights, pooled), weights)

    def squeeze(self, branches: Tensor, lengths: Tensor) -> Tensor:
        """Squeeze branches (b, n, k, d), a row for each token frequency, to f (b, d)."""
        return squeeze(branches, self.frequencies, self.block_basis, lengths, self.config.scale)

    def _weights(self, f: Tensor) -> Tensor:
        """Excite squeezed sentences f (b, d), and return every branch's weights (b, n, d) in fp32."""
        e = self._excite(f, self.expand.weight).view(-1, self.config.branches, self.dim)
        return block_weights(e, self.block_logits if self.config.has_block_logits else None)

    def _excite(self, f: Tensor, w2: Tensor) -> Tensor:
        config = self.config
        return excite(f, self.reduce.weight, w2, tanh=config.activation == "tanh", sigmoid=config.gate == "sigmoid")

    def _fixed_weights(self, sentences: int) -> Tensor:
        """Return the weights (b, n, d) of a form without excitation: the learned static ones, or simply 1."""
        logits = self.logits
        if logits is None:
            weights = torch.ones(1, 1, device=self.block_basis.device)
        else:
            weights = logits.float().softmax(dim=0).view(self.config.branches, -1)  # (n, 1) or (n, d)
        return weights.expand(sentences, -1, self.dim)

    def _select_per_token(self, states: Sequence[Tensor], basis: TokenBasis) -> Selection:
        """Gate without Frequency Selection: every token of every branch is excited and weighed by itself."""
        stack = self.config.fusion == "stack"
        branches = states if stack else [torch.stack(list(states)).float().mean(dim=0)]
        w2 = self.expand.weight.view(self.config.branches, self.dim, -1)
        e = torch.stack([self._excite(u, w2[n]) for n, u in enumerate(branches)], dim=-2)  # (b, l, n, d)
        weights = block_weights(e, self.block_logits if self.config.has_block_logits else None)
        if not stack:
            weights = (weights / len(states)).expand(-1, -1, len(states), -1)
        tokens = _sum_of(weights.unbind(dim=-2), states)
        projected = basis.project(tokens)  # (b, k, d)
        own_pooling = projected.shape[1] > len(self.token_frequencies)
        over_tokens = basis.project(weights.flatten(-2))[:, 0]  # (b, n·d): the mean
        out = Selection(
            embedding=projected[:, -1 if own_pooling else 0].to(states[0].dtype),
            weights=over_tokens.view(-1, *weights.shape[-2:]),
        )
        out._build_tokens = lambda: tokens.to(states[0].dtype)
        return out

    def _checked_states(self, hidden_states: Sequence[Tensor]) -> Sequence[Tensor]:
        expected = len(self.config.chosen)
        given = list(hidden_states)[-1:] if self.config.fusion == "last" else list(hidden_states)
        if len(given) != expected:
            raise ConfigError(
                f"{len(given)} hidden states were given, but the selection is over {expected} blocks. Give exactly "
                "those, oldest first."
            )
        for n, states in enumerate(given):
            if states.ndim != 3 or states.shape[-1] != self.dim or states.shape != given[0].shape:
                raise ConfigError(
                    f"Hidden states {n} have shape {tuple(states.shape)}; every block must have the same "
                    f"(sentences, tokens, {self.dim})."
                )
        if given[0].shape[0] == 0 or given[0].shape[1] == 0:
            raise ConfigError(
                f"An empty batch: hidden states of shape {tuple(given[0].shape)}. Give at least one token."
            )
        return given

    @staticmethod
    def _checked_layout(states: Tensor, attention_mask: Tensor | None, cu_seq_lens: Tensor | None) -> TokenLayout:
        shape = tuple(states.shape[:2])
        if cu_seq_lens is not None:
            # Shapes can be read while a compiler looks on; values cannot.
            ends = None if torch.compiler.is_compiling() else cu_seq_lens.tolist()
            if shape[0] != 1 or (ends is not None and (len(ends) < 2 or ends[0] != 0 or ends[-1] != shape[1])):
                raise ConfigError(
                    f"cu_seq_lens are the cumulative lengths 0, …, Σ of states (1, Σ, d); they are {ends} for states "
                    f"{shape}."
                )
            layout = TokenLayout.flat(cu_seq_lens, shape[1])
        elif attention_mask is None:
            layout = TokenLayout.padded(torch.ones(shape, device=states.device))
        elif tuple(attention_mask.shape) != shape:
            raise ConfigError(
                f"The attention mask has shape {tuple(attention_mask.shape)}, the hidden states {shape}: one entry is "
                "needed for each token."
            )
        else:
            layout = TokenLayout.padded(attention_mask)
        if not torch.compiler.is_compiling() and bool((layout.lengths < 1).any()):
            sentence = int((layout.lengths < 1).nonzero()[0])
            raise ConfigError(f"Sentence {sentence} of the batch has no tokens: its attention mask is all zero.")
        return layout

    def extra_repr(self) -> str:
        """Show what decides the selection."""
        return f"dim={self.dim}, {', '.join(f'{k}={v}' for k, v in self.config.to_dict().items())}"


def _sum_of(weights: Sequence[Tensor], states: Sequence[Tensor]) -> Tensor:
    """Return v = Σₙ wₙ ∗ uₙ for every token in fp32, one block after the other; (b, l, d) each."""
    fused = torch.zeros_like(states[0], dtype=torch.float32)
    for w, u in zip(weights, states, strict=True):
        fused = torch.addcmul(fused, w, u.float())
    return fused
