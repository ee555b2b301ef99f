"""Train any form of selection on the kept states of a frozen encoder, in seconds.

A form turns an encoder's states into one vector: the model as it is, one weight per block, weights per feature, or the
gate that sees the sentence; each alone or with one linear map behind it. The encoder does not change, so it is not run.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy import stats
from sentence_transformers.sentence_transformer.losses import CoSENTLoss
from torch import Tensor, nn

from s2sent.errors import ConfigError
from s2sent.selection import Selection, SelectionConfig, Selector
from s2sent.vectors.states import FrozenStates

NOISE = 2.0
"""Standard errors of the held-out difference by which a form must beat the model as it is. Where few losses estimate
the error, Student's t asks for more."""
SMALLEST_GAIN = 1e-3
"""A smaller difference in the loss is not worth a change, however certain."""
MOST_VALIDATION = 512
"""Held-out examples, at most, that choose start, step and learning rate. Forms are compared on the others."""
TEMPERATURES = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.4, 1.0, 4.0, 1e6)
"""A form is judged at the one of these that suits it best: at a fixed temperature, a form whose cosines are merely
smaller would look better. At the last one, every candidate is equally likely."""
CHUNK = 512
"""Texts whose vectors are computed together."""
UNEQUAL = 4.0
"""Blocks are divided by their size where the largest is this many times the smallest."""


@dataclass(frozen=True)
class Form:
    """A way from an encoder's states to a vector.

    Attributes:
        name: Its name.
        selection: How vectors are selected from the states; None: as the model does it.
        map: Whether a linear map follows.
        starts: Values of `SelectionConfig.prior` to start from: the one with the lower held-out loss is trained.
    """

    name: str
    selection: SelectionConfig | None = None
    map: bool = False
    starts: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingOptions:
    """How a form is trained; the fields are those of `AdaptRecipe`.

    Attributes:
        steps: Number of steps; the learning rates fall linearly to 0.
        batch_size: Examples in a step.
        temperature: τ of the contrastive loss, and of the ranking loss for scored pairs.
        gate_learning_rate: For the gate's matrices.
        bias_learning_rate: For the logits per block or per feature.
        map_learning_rates: For the linear map: each is tried, and the best on held-out data kept.
        evaluate_every: Steps between two evaluations of the held-out loss.
        patience: Stop after this many evaluations without a better loss; None: never.
        seed: Decides the order of the examples and the initial weights.
    """

    steps: int = 200
    batch_size: int = 256
    temperature: float = 0.05
    gate_learning_rate: float = 3e-3
    bias_learning_rate: float = 3e-2
    map_learning_rates: tuple[float, ...] = (1e-3, 1e-4)
    evaluate_every: int = 20
    patience: int | None = None
    seed: int = 0


@dataclass
class Contrast:
    """InfoNCE: the anchor's own positive against all positives and hard negatives of the batch.

    Also the base of the other objectives.

    Attributes:
        rows: (examples, columns): the number of each text.
        temperature: τ while training.
        group: Held-out examples whose losses are computed together.
    """

    rows: Tensor
    temperature: float
    group: int = 256

    def losses(self, columns: Sequence[Tensor], examples: Tensor) -> Tensor:
        """Return the losses (k,) of some examples, from vectors (b, d) for each column."""
        return _cross_entropy(self._cosines(columns, examples), self.temperature)

    def held_out_losses(self, columns: Sequence[Tensor], examples: Tensor) -> Tensor:
        """Return the losses at every temperature: (k, temperatures)."""
        cosines = self._cosines(columns, examples)
        return torch.stack([_cross_entropy(cosines, temperature) for temperature in TEMPERATURES], dim=1)

    def criterion(self, columns: Sequence[Tensor], examples: Tensor) -> Tensor:
        """Return what forms are compared by, on held-out examples: (k, …); the column with the lowest mean counts."""
        return self.held_out_losses(columns, examples)

    def is_enough(self, base: float, loss: float) -> bool:
        """Whether a significantly lower loss than the base's is reason enough to change the model."""
        return True

    def _cosines(self, columns: Sequence[Tensor], examples: Tensor) -> Tensor:
        """Return the cosines of anchors and candidates (b, c); the first b candidates are the positives.

        A candidate that is the anchor's own text, or its positive's, does not count.
        """
        anchors, *others = (F.normalize(column, dim=1) for column in columns)
        rows = self.rows[examples]
        candidates = rows[:, 1:].T.reshape(-1)
        same = (candidates == rows[:, :1]) | (candidates == rows[:, 1:2])
        same.fill_diagonal_(False)
        return (anchors @ torch.cat(others).T).masked_fill(same, -math.inf)


def _cross_entropy(cosines: Tensor, temperature: float) -> Tensor:
    return F.cross_entropy(cosines / temperature, torch.arange(len(cosines)), reduction="none")


@dataclass
class Crops(Contrast):
    """Plain text: two crops of a line shall find each other.

    A low loss alone says little here: crops share words, so the lower blocks are good at it in every encoder. What
    identifies an encoder whose last block has turned to another task is that it misses crops which other states find.
    So forms are compared by the share of crops that do not find their other half, and one is kept only if it misses
    at most a fourth of what the model as it is misses, and 5 in 100 fewer. docs/adapt.md has the measurements.
    """

    group: int = 512

    def criterion(self, columns: Sequence[Tensor], examples: Tensor) -> Tensor:
        """Return 1 for a crop that does not find its other half, else 0: (k, 1)."""
        found = self._cosines(columns, examples).argmax(dim=1) == torch.arange(len(examples))
        return (~found).float()[:, None]

    def is_enough(self, base: float, loss: float) -> bool:
        """Only where the model as it is misses much that the form finds."""
        return base >= 4 * loss and base - loss >= 0.05


@dataclass
class Ranking(Contrast):
    """CoSENT, as in sentence-transformers: a higher score, a higher cosine. One loss for each group of pairs."""

    scores: Tensor = field(default_factory=lambda: torch.empty(0))

    def losses(self, columns: Sequence[Tensor], examples: Tensor) -> Tensor:
        """Return one loss (1,) for the whole group."""
        return self._loss(columns, examples, self.temperature)[None]

    def held_out_losses(self, columns: Sequence[Tensor], examples: Tensor) -> Tensor:
        """Return the same at every temperature: (1, temperatures)."""
        return torch.stack([self._loss(columns, examples, temperature) for temperature in TEMPERATURES])[None]

    def _loss(self, columns: Sequence[Tensor], examples: Tensor, temperature: float) -> Tensor:
        cosent = CoSENTLoss(None, scale=1 / temperature)  # type: ignore[arg-type]
        loss: Tensor = cosent.compute_loss_from_embeddings(list(columns), self.scores[examples])
        return loss


class Head(nn.Module):
    """The trained part of a form: a selector, and the linear map behind what the model has behind its pooling.

    Args:
        form: The form.
        dim: Features of a state.
        width: Features of a vector.
        behind: The model's own modules behind the pooling, frozen.
    """

    def __init__(self, form: Form, dim: int, width: int, behind: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.form = form
        self.selector = None if form.selection is None else Selector(dim, form.selection)
        self.map = nn.Linear(width, width, bias=False) if form.map else None
        if self.map is not None:
            nn.init.eye_(self.map.weight)
        self._behind = list(behind)  # not parameters of ours

    def forward(self, reader: Reader, rows: Tensor) -> Tensor:
        """Return the vectors (b, width) of some texts."""
        if self.selector is None:
            vectors = reader.states.own(rows.tolist())
        else:
            vectors = self.select(reader, rows).embedding
            for module in self._behind:
                vectors = module({"sentence_embedding": vectors})["sentence_embedding"]
        return vectors if self.map is None else self.map(vectors)

    def select(self, reader: Reader, rows: Tensor) -> Selection:
        """Select the vectors of some texts."""
        assert self.selector is not None
        if self.selector.config.per_token:
            states, starts = reader.states.token_states(rows.tolist(), reader.indices)
            selection: Selection = self.selector(states, cu_seq_lens=starts)
            return selection
        f, pooled = reader.read(rows)
        return self.selector.from_pooled(f, pooled)

    def learned(self) -> list[tuple[str, nn.Parameter]]:
        """The parameters, each with its kind: `gate`, `bias` or `map`."""
        found = []
        for name, parameter in self.named_parameters():
            kind = "map" if name.startswith("map") else "bias" if name.endswith("logits") else "gate"
            found.append((kind, parameter))
        return found


class Reader:
    """Reads what one selector needs of kept states.

    Args:
        states: The states.
        selector: The selector; None for the model as it is.
        indices: The states it selects from.
    """

    def __init__(self, states: FrozenStates, selector: Selector | None, indices: tuple[int, ...]) -> None:
        self.states, self.indices = states, indices
        self.scales = selector.block_scales[:, None] if selector is not None and selector.config.block_scales else None
        self.f: Tensor | None = None
        if selector is not None and selector.config.gated and not selector.config.per_token:
            self.f = states.squeezed(selector, indices)

    def read(self, rows: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return the squeezed sentences (b, d), None without a gate, and the pooled states (b, n, d)."""
        first, last = self.indices[0], self.indices[-1]
        pooled = self.states.pooled(rows.tolist(), first, last)
        if len(self.indices) < pooled.shape[1]:
            pooled = pooled[:, [index - first for index in self.indices]]
        if self.scales is not None:
            pooled = pooled / self.scales
        return None if self.f is None else self.f[rows].float(), pooled

    def shuffle(self, seed: int) -> None:
        """Give every sentence another one's weights: the control that tells whether seeing the sentence matters."""
        assert self.f is not None
        self.f = self.f[torch.from_numpy(np.random.default_rng(seed).permutation(len(self.f)))]


@dataclass(frozen=True)
class FormResult:
    """A trained form.

    Attributes:
        form: The form, with the start that was chosen.
        losses: Held-out losses of each example, or of each group of scored pairs, at the temperature that suits the
            form best.
        step: The step whose weights these are; 0: nothing was better than the start.
        parameters: How many were trained.
        shares: The mean weight of every state, over features and held-out texts; empty for the model as it is.
        map_learning_rate: The one that was kept.
        weights: The head's parameters.
        seconds: How long it took.
    """

    form: Form
    losses: NDArray[np.float64]
    step: int
    parameters: int
    shares: dict[int, float]
    map_learning_rate: float | None
    weights: dict[str, Tensor]
    seconds: float

    @property
    def loss(self) -> float:
        """The held-out loss."""
        return float(self.losses.mean())

    @property
    def error(self) -> float:
        """Its standard error."""
        return float(self.losses.std(ddof=1) / math.sqrt(len(self.losses)))

    def gain(self, base: FormResult) -> tuple[float, float]:
        """How much lower the loss is than another form's, over the same examples, and the error of that difference."""
        difference = base.losses - self.losses
        return float(difference.mean()), float(difference.std(ddof=1) / math.sqrt(len(difference)))

    def beats(self, base: FormResult) -> bool:
        """Whether its loss is lower than another form's by more than the noise."""
        gain, error = self.gain(base)
        errors = float(stats.t.ppf(stats.norm.cdf(NOISE), len(self.losses) - 1))
        return gain > SMALLEST_GAIN and gain > errors * error


@dataclass
class FrozenTrainer:
    """Trains forms on the same states, examples and split.

    Args:
        states: The kept states.
        indices: From the blocks of a selection to the states they are.
        objective: The loss.
        train: Numbers of the examples to train on.
        held_out: Numbers of the examples to judge by.
        options: How.
        behind: The model's own modules behind its pooling.
    """

    states: FrozenStates
    indices: Callable[[SelectionConfig], tuple[int, ...]]
    objective: Contrast
    train: Tensor
    held_out: Tensor
    options: TrainingOptions
    behind: Sequence[nn.Module] = ()

    def fit(self, form: Form) -> FormResult:
        """Train a form, from the better of its starts and with the better of its learning rates."""
        began = time.perf_counter()
        form = self._with_start(form)
        rates = self.options.map_learning_rates if form.map else self.options.map_learning_rates[:1]
        head, reader = self.head(form)
        found: list[tuple[float, int, float, dict[str, Tensor]]] = []
        for rate in rates:
            head.load_state_dict(self.head(form, reader)[0].state_dict())
            loss, step = self._run(head, reader, rate)
            found.append((loss, step, rate, copy.deepcopy(head.state_dict())))
        _, step, rate, weights = min(found, key=lambda one: one[0])
        head.load_state_dict(weights)
        return FormResult(
            form=form,
            losses=self._criterion(head, reader),
            step=step,
            parameters=sum(parameter.numel() for _, parameter in head.learned()),
            shares=self._shares(head, reader),
            map_learning_rate=rate if form.map else None,
            weights=weights,
            seconds=time.perf_counter() - began,
        )

    def head(self, form: Form, reader: Reader | None = None) -> tuple[Head, Reader]:
        """Make a form's head, untrained, and what reads the states for it."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.options.seed)
            head = Head(form, self.states.dim, self.states.width, self.behind)
        return head, reader or self.reader(head)

    def reader(self, head: Head, states: FrozenStates | None = None) -> Reader:
        """Make what reads the states for a head: these, or those of other texts."""
        selection = head.form.selection
        return Reader(states or self.states, head.selector, () if selection is None else self.indices(selection))

    def _with_start(self, form: Form) -> Form:
        if form.selection is None or len(form.starts) < 2:
            return form
        options = [replace(form, selection=replace(form.selection, prior=start)) for start in form.starts]  # type: ignore[arg-type]
        reader: Reader | None = None
        losses = []
        for option in options:
            head, reader = self.head(option, reader)
            losses.append(self._validation_loss(head, reader))
        return options[int(np.argmin(losses))]

    def _run(self, head: Head, reader: Reader, map_learning_rate: float) -> tuple[float, int]:
        """Train a head, and leave it with the weights of its best step: that step, and its loss."""
        options, objective = self.options, self.objective
        rates = {
            "gate": options.gate_learning_rate,
            "bias": options.bias_learning_rate,
            "map": map_learning_rate,
        }
        best = (self._validation_loss(head, reader), 0)
        weights = copy.deepcopy(head.state_dict())
        learned = head.learned()
        if not learned:
            return best
        optimizer = torch.optim.Adam([{"params": [p], "lr": rates[kind]} for kind, p in learned], fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / options.steps)
        for step, batch in enumerate(self._batches(), start=1):
            loss = objective.losses(self._columns(head, reader, batch), batch).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            if step % options.evaluate_every == 0 or step == options.steps:
                held_out = self._validation_loss(head, reader)
                if held_out < best[0]:
                    best, weights = (held_out, step), copy.deepcopy(head.state_dict())
                elif options.patience is not None and step - best[1] >= options.patience * options.evaluate_every:
                    break
        head.load_state_dict(weights)
        return best

    def _columns(self, head: Head, reader: Reader, examples: Tensor) -> Sequence[Tensor]:
        rows = self.objective.rows[examples]  # (b, c)
        vectors: Tensor = head(reader, rows.T.reshape(-1))
        return vectors.chunk(rows.shape[1])

    def _batches(self) -> Iterator[Tensor]:
        """Yield as many batches as there are steps, pass after pass over the examples, each in a new order."""
        random = np.random.default_rng(self.options.seed)
        size = min(self.options.batch_size, len(self.train))
        left = np.empty(0, dtype=np.int64)
        for _ in range(self.options.steps):
            if len(left) < size:
                left = random.permutation(len(self.train))
            yield self.train[torch.from_numpy(left[:size])]
            left = left[size:]

    @torch.inference_mode()
    def held_out_losses(self, head: Head, reader: Reader, examples: Tensor, losses: Callable[..., Tensor]) -> Tensor:
        """Return the losses of these examples, group by group."""
        groups = examples.split(self.objective.group)  # type: ignore[no-untyped-call]
        if len(groups) > 1 and len(groups[-1]) < len(groups[0]) // 2:  # a small group is an easy one
            groups = groups[:-1]
        return torch.cat([losses(self._columns(head, reader, group), group) for group in groups])

    def _validation_loss(self, head: Head, reader: Reader) -> float:
        """The loss that chooses start, step and learning rate, at the temperature that suits the head best."""
        losses = self.held_out_losses(head, reader, self.validation, self.objective.held_out_losses)
        return float(losses.mean(dim=0).min())

    def _criterion(self, head: Head, reader: Reader) -> NDArray[np.float64]:
        """The losses that forms are compared by, at the temperature that suits this one best."""
        losses = self.held_out_losses(head, reader, self.comparison, self.objective.criterion)  # (k, temperatures)
        return losses[:, losses.mean(dim=0).argmin()].numpy().astype(np.float64)

    @property
    def validation(self) -> Tensor:
        """The held-out examples that choose start, step and learning rate."""
        return self.held_out[: min(MOST_VALIDATION, len(self.held_out) // 2)]

    @property
    def comparison(self) -> Tensor:
        """The other held-out examples, on which forms are compared."""
        return self.held_out[len(self.validation) :]

    @torch.inference_mode()
    def _shares(self, head: Head, reader: Reader) -> dict[int, float]:
        if head.selector is None:
            return {}
        texts = torch.unique(self.objective.rows[self.held_out[:MOST_VALIDATION]])[:MOST_VALIDATION]
        weights = head.select(reader, texts).weights  # (b, n, d)
        return dict(zip(reader.indices, weights.mean(dim=(0, 2)).tolist(), strict=True))


def text_encoder(head: Head, reader: Reader, texts: Sequence[str]) -> Callable[[list[str]], NDArray[np.float32]]:
    """Return a function from texts, whose states are kept, to the vectors that a trained form gives them."""
    row = {text: number for number, text in enumerate(texts)}

    @torch.inference_mode()
    def encode(wanted: list[str]) -> NDArray[np.float32]:
        rows = torch.tensor([row[text] for text in wanted])
        return np.concatenate([head(reader, rows[i : i + CHUNK]).numpy() for i in range(0, len(rows), CHUNK)])

    return encode


def split(anchors: Sequence[str], share: float, most: int, seed: int) -> tuple[Tensor, Tensor]:
    """Divide examples into those to train on and those held out; examples of one anchor stay together."""
    names = sorted(set(anchors))
    random = np.random.default_rng(seed)
    rank = dict(zip(names, random.permutation(len(names)).tolist(), strict=True))
    order = sorted(range(len(anchors)), key=lambda number: (rank[anchors[number]], number))
    wanted = min(most, max(1, round(share * len(order))))
    while wanted < len(order) and anchors[order[wanted]] == anchors[order[wanted - 1]]:
        wanted += 1
    if wanted >= len(order):
        raise ConfigError("Too few examples with different first texts to hold some out.")
    held_out = np.array(order[:wanted])
    return torch.tensor(order[wanted:]), torch.from_numpy(random.permutation(held_out))


def block_scales(sizes: Tensor) -> tuple[float, ...]:
    """What each state is divided by so that all are as large as the last; nothing where they are of about one size."""
    if float(sizes.max() / sizes.min()) < UNEQUAL:
        return ()
    return tuple(round(float(size), 6) for size in sizes / sizes[-1])


def best_of(results: Sequence[FormResult], objective: Contrast) -> FormResult:
    """Return the form with the lowest held-out loss of those that beat the first, or the first: the model as it is."""
    base = results[0]
    better = [one for one in results[1:] if one.beats(base) and objective.is_enough(base.loss, one.loss)]
    return min(better, key=lambda result: result.loss, default=base)
