"""From texts to vectors: what any model has to offer for it, and batches by a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from s2sent.errors import ConfigError, DataError, ModelError
from s2sent.model.text import TextPipeline, check_texts
from s2sent.vectors.precision import unit

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

T = TypeVar("T")

CPU_TOKENS = 1024
"""Tokens to a batch on a CPU: a small encoder's states stay in the cache, and the overhead of a batch is little."""
GPU_TOKENS = 32_768
MANY_BATCHES = 16
"""From so many on they run several at once, if the model can: to prepare for it takes as long as some batches."""
WINDOW = 8192
"""Texts that are sorted by length among themselves, and tokenised while those before them are computed."""

_SAMPLES = ("A man is playing a guitar.", " Straße, naïve café; 東京 [MASK] <mask> ", "one two three four ")
"""Texts whose tokens must be those of sentence-transformers: plain; odd letters and special tokens; repeated, long."""


class TextEncoder(Protocol):
    """What a model needs to turn texts into vectors here: `TorchEncoder` and an exported model have it."""

    @property
    def pipeline(self) -> TextPipeline:
        """How it reads text."""

    @property
    def dimension(self) -> int:
        """Features of a vector."""

    @property
    def normalizes(self) -> bool:
        """Whether its vectors have length 1, and a mean of them must get it, too."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the vectors may."""

    def embed(self, sequences: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Run one batch of sequences that `pipeline` made, and return its vectors: (b, dimension)."""


class UnsupportedModelError(ModelError):
    """The model reads something else than text, or reads it in a way that is not known here."""


class TorchEncoder:
    """A `SentenceTransformer` as a `TextEncoder`: the same vectors as its `encode` gives, in batches of our own.

    Any modules may follow the first, which must be a text `Transformer`.

    Args:
        model: The model. It is put into evaluation mode.
        output: Which of the model's features is returned, flattened to a row per text.
        fingerprint: That of the folder the model was loaded from; by default it is computed from the weights.

    Raises:
        UnsupportedModelError: the model does something to text that is not known here, so the vectors would be others.
    """

    def __init__(
        self, model: SentenceTransformer, output: str = "sentence_embedding", fingerprint: str | None = None
    ) -> None:
        from sentence_transformers.base.modules import Normalize, Transformer

        from s2sent.model.prompts import pipeline_of

        model.eval()
        self.model, self.output, self._fingerprint = model, output, fingerprint
        self.encoder: Any = model[0]
        self.device = model.device
        if not isinstance(self.encoder, Transformer) or getattr(self.encoder, "tokenizer", None) is None:
            raise UnsupportedModelError(
                f"Bulk encoding needs a Transformer with a tokenizer in front, and this model begins with "
                f"{type(self.encoder).__name__}. Encode with model.encode instead."
            )
        self.pipeline = pipeline_of(model)
        self.normalizes = isinstance(list(model)[-1], Normalize) and model.truncate_dim is None
        self._constant = self._check_tokens()
        self.dimension = self.embed(self.pipeline.token_ids(_SAMPLES[:1])).shape[1]

    @cached_property
    def fingerprint(self) -> str:
        """Changes whenever the vectors may."""
        from s2sent.model.fingerprint import fingerprint_model

        return self._fingerprint or fingerprint_model(self.model)

    def embed(self, sequences: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Run one batch of sequences that `pipeline` made, and return its vectors: (b, dimension)."""
        import torch

        with torch.inference_mode():
            rows = self.model(self.features(sequences))[self.output].flatten(1)
            if self.output == "sentence_embedding":
                rows = rows[:, : self.model.truncate_dim]
            result: NDArray[np.float32] = rows.float().cpu().numpy()
        return result

    def features(self, sequences: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Pad sequences to one batch, as sentence-transformers' own preprocessing would."""
        import torch

        batch = {name: torch.from_numpy(array) for name, array in self.pipeline.pad(sequences).items()}
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()} | self._constant

    def _check_tokens(self) -> dict[str, Any]:
        """Compare with the model's own preprocessing, and return what it adds that is the same for every text."""
        import torch

        for sample in (*_SAMPLES[:2], _SAMPLES[2] * min(self.pipeline.max_tokens, 5000)):
            host = dict(self.model.preprocess([sample], prompt=self.pipeline.prompt or None))
            framed = [self.pipeline.frame(tokens) for tokens in self.pipeline.tokenize([sample])]
            ours = {name: torch.from_numpy(array) for name, array in self.pipeline.pad(framed).items()}
            alike = all(torch.equal(host[name].cpu(), tensor) for name, tensor in ours.items() if name in host)
            tensors = [name for name, value in host.items() if isinstance(value, torch.Tensor) and name not in ours]
            if "input_ids" not in host or not alike or any(bool(host[name].any()) for name in tensors):
                raise UnsupportedModelError(
                    f"{type(self.encoder.tokenizer).__name__} does something to a text that bulk encoding does not "
                    "know: its vectors would not be the model's. Encode with model.encode instead."
                )
        return {name: value for name, value in host.items() if name not in ours and name not in tensors}


def text_encoder(
    model: SentenceTransformer | TextEncoder | str | Path, device: str | None = None, threads: int | None = None
) -> TextEncoder:
    """Return the `TextEncoder` of a model.

    Args:
        model: A model's folder, its name on the hub, or the model itself: a `SentenceTransformer` or a `TextEncoder`.
        device: Where to run a model that is loaded; by default the best there is.
        threads: How many threads an exported model may use; by default one for each core.

    Raises:
        UnsupportedModelError: as of `TorchEncoder`.
    """
    fingerprint: str | None = None
    loaded: Any = model
    if isinstance(model, str | Path):
        from s2sent.model.fingerprint import fingerprint_folder
        from s2sent.model.folder import is_export, locate
        from s2sent.runtime.load import load_folder

        folder = locate(model)
        loaded = load_folder(folder, device=device, threads=threads if is_export(folder) else None)
        fingerprint = fingerprint_folder(folder)
    return loaded if hasattr(loaded, "embed") else TorchEncoder(loaded, fingerprint=fingerprint)


def token_batches(
    lengths: Sequence[int], budget: int | None = None, rows: int | None = None, *, mixed: bool = True
) -> Iterator[list[int]]:
    """Put places together into batches of at most `budget` tokens, padding included; the longest come first.

    A sequence that is longer than the budget is a batch of its own.

    Args:
        lengths: The padded length of each place.
        budget: Tokens to a batch, padding included; None: any number.
        rows: Places to a batch; None: any number.
        mixed: Whether a batch may have several lengths.

    >>> list(token_batches([2, 9, 3, 3], budget=8))
    [[1], [2, 3], [0]]
    >>> list(token_batches([8, 16, 8, 16, 16], rows=2, mixed=False))
    [[1, 3], [4], [0, 2]]
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batch and (
            (budget is not None and (len(batch) + 1) * lengths[batch[0]] > budget)
            or len(batch) == rows
            or (not mixed and lengths[place] != lengths[batch[0]])
        ):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def batches_of(
    pipeline: TextPipeline, sequences: Sequence[Sequence[int]], budget: int | None = None, rows: int | None = None
) -> Iterator[list[int]]:
    """Put sequences together into batches as their model wants them: of one padded length, or of any (`bucket`)."""
    lengths = [pipeline.padded_length(len(sequence)) for sequence in sequences]
    return token_batches(lengths, budget, rows, mixed=not pipeline.bucket)


@dataclass(frozen=True)
class EncodeOptions:
    """How texts are encoded.

    Args:
        long: A text that is longer than the model takes is cut (`truncate`), or split at the limit and its pieces'
            vectors averaged by their length (`mean`).
        batch_tokens: Tokens to a batch, padding included. None: what suits the device.
        allow_empty: Whether a text without any token is encoded as the special tokens around it, as
            sentence-transformers does, by a model that can. Otherwise it has no vector.
    """

    long: str = "truncate"
    batch_tokens: int | None = None
    allow_empty: bool = False

    def __post_init__(self) -> None:
        if self.long not in ("truncate", "mean"):
            raise ConfigError(f"long must be 'truncate' or 'mean', got {self.long!r}.")
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens must be at least 1, got {self.batch_tokens}.")

    def budget(self, encoder: TextEncoder) -> int:
        """Tokens to a batch."""
        on_cpu = str(getattr(encoder, "device", "cpu")) == "cpu"
        return self.batch_tokens or (CPU_TOKENS if on_cpu else GPU_TOKENS)


@dataclass
class Encoded:
    """The vectors of some texts.

    Attributes:
        vectors: (b, dimension), a row for every text; meaningless where there is a problem.
        problems: Why a text has no vector, by its place.
        long: How many texts were longer than the model takes.
    """

    vectors: NDArray[np.float32]
    problems: dict[int, str] = field(default_factory=dict)
    long: int = 0


def encode_tokens(
    encoder: TextEncoder,
    tokens: Sequence[list[int]],
    options: EncodeOptions | None = None,
    on_texts: Callable[[int], None] | None = None,
) -> Encoded:
    """Encode texts that are tokenised already.

    Args:
        encoder: The model.
        tokens: Each text's own tokens, as `encoder.pipeline.tokenize` gives them.
        options: How they are encoded.
        on_texts: Called with the number of texts that are done in addition.
    """
    options = options or EncodeOptions()
    pipeline = encoder.pipeline
    done = Encoded(np.zeros((len(tokens), encoder.dimension), dtype=np.float32))
    pieces: list[tuple[int, int, list[int]]] = []  # a text's place, and tokens of it from the start-th on
    for place, content in enumerate(tokens):
        done.long += len(content) > pipeline.room
        if pipeline.accepts(content) or (options.allow_empty and pipeline.encodes_empty):
            step = pipeline.room if options.long == "mean" else max(len(content), 1)
            starts = range(0, max(len(content), 1), step)
            pieces += [(place, start, content[start : start + step]) for start in starts]
        elif content:
            done.problems[place] = "has only special tokens, and nothing to select from"
        else:
            done.problems[place] = "has nothing in it that the model's tokenizer can read"

    sequences = [pipeline.frame(content) for _, _, content in pieces]
    batches = list(batches_of(pipeline, sequences, options.budget(encoder)))
    results = run_batches(encoder, lambda encoder, batch: list(_embed(encoder, sequences, batch)), batches)
    for batch, result in zip(batches, results, strict=True):
        for index, vector in result:
            place, _, content = pieces[index]
            if isinstance(vector, str):
                done.problems[place] = vector
            else:
                done.vectors[place] += vector * np.float32(len(content) / len(tokens[place]) if content else 1)
        if on_texts is not None:
            on_texts(sum(pieces[index][1] == 0 for index in batch))
    averaged = sorted({place for place, start, _ in pieces if start})
    if averaged and encoder.normalizes:
        done.vectors[averaged] = unit(done.vectors[averaged])
    for place in np.flatnonzero(~np.isfinite(done.vectors).all(axis=1)).tolist():
        done.problems.setdefault(place, NOT_FINITE)
    return done


NOT_FINITE = "has no finite vector"


def _embed(
    encoder: TextEncoder, sequences: Sequence[list[int]], batch: list[int]
) -> Iterator[tuple[int, NDArray[np.float32] | str]]:
    """Yield the batch's vectors by their index, or why the model refuses one."""
    try:
        yield from zip(batch, encoder.embed([sequences[index] for index in batch]), strict=True)
    except DataError as error:
        if len(batch) == 1:
            yield batch[0], f"is refused by the model: {error}"
            return
        for index in batch:  # one by one the text is found
            yield from _embed(encoder, sequences, [index])


def run_batches(
    encoder: TextEncoder, run: Callable[[TextEncoder, list[int]], T], batches: Sequence[list[int]]
) -> Iterator[T]:
    """Yield what `run` returns for each batch, in their order.

    A model that has `parallel`, a form of itself that runs `streams` batches at once, is run in it if there are many.
    """
    parallel = getattr(encoder, "parallel", None) if len(batches) >= MANY_BATCHES else None
    if parallel is None:
        for batch in batches:
            yield run(encoder, batch)
    else:
        with ThreadPoolExecutor(parallel.streams) as pool:
            yield from pool.map(lambda batch: run(parallel, batch), batches)


def encode_texts(
    encoder: TextEncoder, texts: str | Collection[str], options: EncodeOptions | None = None
) -> NDArray[np.floating]:
    """Encode texts that are in memory: (b, dimension), in their order; of a single text, (dimension,).

    Args:
        encoder: The model, such as `TorchEncoder(model)` or an exported one.
        texts: The texts, as `model.encode` takes them.
        options: How they are encoded.

    Raises:
        DataError: a text has nothing to encode; the message says which.
        ModelError: a text has a vector that is not finite.
    """
    single, texts = isinstance(texts, str), check_texts(texts)
    if not texts:
        return np.array([])  # without a dimension, as sentence-transformers does
    vectors = np.empty((len(texts), encoder.dimension), dtype=np.float32)
    windows = ((start, texts[start : start + WINDOW]) for start in range(0, len(texts), WINDOW))
    for start, tokens in prefetch((start, encoder.pipeline.tokenize(window)) for start, window in windows):
        encoded = encode_tokens(encoder, tokens, options)
        if encoded.problems:
            place, reason = min(encoded.problems.items())
            where = f"Input {start + place + 1} of {len(texts)}, {texts[start + place][:60]!r}, {reason}."
            raise (
                ModelError(f"{where} Check the model.") if reason == NOT_FINITE else DataError(f"{where} Leave it out.")
            )
        vectors[start : start + len(tokens)] = encoded.vectors
    return vectors[0] if single else vectors


def encode_function(model: Any) -> Callable[[list[str]], Any]:
    """Return a function from texts to vectors, one row each, for anything that can encode.

    A `TextEncoder`, and a model that `TorchEncoder` takes, is run in batches by tokens; another model by its own
    `encode`; a function is returned as it is. A text without any token is encoded where the model can.
    """
    if callable(getattr(model, "encode", None)) and hasattr(model, "state_dict"):
        try:
            model = TorchEncoder(model)
        except UnsupportedModelError:
            return lambda texts: model.encode(texts, show_progress_bar=False)
    if hasattr(model, "embed"):
        return lambda texts: encode_texts(model, texts, EncodeOptions(allow_empty=True))
    if callable(model):
        return model  # type: ignore[no-any-return]
    raise ModelError(
        f"{model!r} cannot encode sentences: give a model folder, a hub id, a SentenceTransformer or a function that "
        "takes a list of sentences and returns one vector each."
    )


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Make the next item in a thread while the present one is used: reading and tokenising beside computing."""
    end = object()

    def begin() -> Future[T | object]:
        coming: Future[T | object] = Future()

        def work() -> None:
            try:
                coming.set_result(next(items, end))
            except BaseException as error:
                coming.set_exception(error)

        # A daemon: who interrupts must not wait until a silent standard input says something.
        Thread(target=work, daemon=True).start()
        return coming

    coming = begin()
    while (item := coming.result()) is not end:
        coming = begin()
        yield item  # type: ignore[misc]
