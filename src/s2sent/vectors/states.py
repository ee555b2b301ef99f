"""The states of a frozen encoder, as far as a selector needs them: computed once for every text, and kept on disk.

FOLDER/about.json               shapes, and which sums
FOLDER/part-00000.cosines.npy   (texts, sums, d) sums over the tokens, weighted with the cosines of the DCT
FOLDER/part-00000.own.npy       (texts, width) the model's own vectors
FOLDER/part-00000.lengths.npy   (texts,) tokens of each text, special ones included; 0: nothing the tokenizer can read
FOLDER/part-00000.tokens.npy    (all tokens, states, d) whole states, where a form asks for them
FOLDER/part-00000.pooled.npy    (texts, states, d) every state, pooled as the model pools; written last
FOLDER/squeezed-….npy           (texts, d) all texts as one kind of selector squeezes them

Files are written atomically, and a part whose last file exists is complete: a pass that was killed goes on.
Rows are read when they are needed, so that memory does not grow with the number of texts.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from torch import Tensor

from s2sent.atomic import atomic_file, lock, write_error
from s2sent.errors import DataError, ModelError
from s2sent.model.backbone import Backbone
from s2sent.model.pooling import SelectivePooling, layout_of, pooling_of
from s2sent.selection import SelectionConfig, Selector, TokenBasis, low_frequencies
from s2sent.selection.config import PoolingMode
from s2sent.vectors.encoder import CPU_TOKENS, GPU_TOKENS, TorchEncoder, token_batches

VERSION = 1
"""Raised when the same model and texts give other files."""
USUAL_FREQUENCIES = 3
"""Token frequencies that are kept of every state, whatever is asked for: enough for up to eight DCT bases."""
PART_BYTES = 1 << 27
TOKENS_TO_A_TEXT = 64
"""An estimate, for the size of a part where all tokens are kept."""
MOST_FILES = 64
"""Files of parts that are open at a time."""
LARGEST_PART = 8192

OnTexts = Callable[[int, int], None]
"""Called with the number of texts that are done, and of all."""


@dataclass(frozen=True)
class Sums:
    """Which sums over the tokens are kept, beside every state's pooled vector.

    Attributes:
        cosines: Pairs of a state (0: the embeddings) and a token frequency of the DCT.
        tokens: States of which every token is kept.
    """

    cosines: tuple[tuple[int, int], ...]
    tokens: tuple[int, ...] = ()

    @classmethod
    def of(cls, selections: Iterable[SelectionConfig], backbone: Backbone) -> Sums:
        """Return what these selections need, and the usual ones."""
        cosines = {(state, b) for state in range(backbone.depth + 1) for b in range(USUAL_FREQUENCIES)}
        tokens: set[int] = set()
        for selection in selections:
            states = backbone.indices(selection)
            if selection.per_token:
                tokens.update(states)
            elif selection.gated:
                count = selection.frequencies if selection.squeeze == "dct" else 1
                cosines.update((state, b) for state in states for _, b in low_frequencies(count, selection.branches))
        return cls(tuple(sorted(cosines)), tuple(sorted(tokens)))


class StateEncoder:
    """Runs a frozen model, and returns its pooled states, their sums over the tokens, and its own vectors.

    Args:
        model: The model: a Transformer, a pooling of its states, and whatever follows.
        pooling: How a state's tokens become one vector; by default as the model does.
        precision: `bf16` computes the encoder in bfloat16.
    """

    def __init__(self, model: SentenceTransformer, pooling: PoolingMode | None = None, precision: str = "fp32") -> None:
        modules = list(model)
        if len(modules) < 2 or not isinstance(modules[0], Transformer):
            raise ModelError(
                f"The model is {' → '.join(type(module).__name__ for module in modules)}: a Transformer must come "
                "first, and right after it a pooling of its states."
            )
        self.model = model
        self.precision = precision
        self.encoder = TorchEncoder(model)
        transformer: Any = self.encoder.encoder
        self.transformer = transformer
        self.backbone = Backbone.of(transformer.auto_model)
        self.dim = int(transformer.get_embedding_dimension())
        self.pooling: PoolingMode = pooling or pooling_of(modules[1])
        # A last Normalize is left out: training needs the vectors before it.
        self.behind = modules[1:-1] if isinstance(modules[-1], Normalize) else modules[1:]
        # Only for its pooling weights.
        self._pool = SelectivePooling(self.dim, SelectionConfig(blocks=1, fusion="last", gate="none"), self.pooling)
        self._pool._mask_token_id = getattr(transformer.tokenizer, "mask_token_id", None)
        # A model that does not work raises here, before anything long is done.
        tried = self.run(self.encoder.pipeline.token_ids(["One sentence."]), Sums(((0, 0),)))
        self.width = tried["own"].shape[1]

    @torch.inference_mode()
    def run(self, sequences: Sequence[Sequence[int]], sums: Sums) -> dict[str, Tensor]:
        """Return `pooled` (b, states, d), `cosines` (b, sums, d), `own` (b, width) and `tokens` (Σ, states, d)."""
        features = self.encoder.features(sequences)
        device = self.model.device.type
        precise = torch.autocast(device, torch.bfloat16) if self.precision == "bf16" else nullcontext()
        config = self.transformer.auto_model.config
        before, config.output_hidden_states = config.output_hidden_states, True  # sentence-transformers asks the config
        try:
            with precise:  # past the hooks of a selector, which are there to avoid what is wanted here
                features = self.transformer.forward(features, output_hidden_states=True)
        finally:
            config.output_hidden_states = before
        hidden = features.get("all_layer_embeddings")
        if hidden is None:
            raise ModelError(f"{self.backbone.name} gives no hidden states, so there is nothing to select from.")
        states = self.backbone.choose(hidden, tuple(range(self.backbone.depth + 1)))
        layout = layout_of(features)
        assert layout is not None  # TorchEncoder's features have a mask
        highest = max((b for _, b in sums.cosines), default=0)
        basis = TokenBasis.cosines(torch.arange(highest + 1, device=layout.mask.device), layout)
        weights = self._pool._pool_weights(features, layout)
        basis = basis if weights is None else basis.with_row(weights)
        projected = [basis.project(state) for state in states]  # (b, k, d) each
        with precise:
            for module in self.behind:
                features = module(features)
        found = {
            "pooled": torch.stack([rows[:, 0 if weights is None else -1] for rows in projected], dim=1),
            "cosines": torch.stack([projected[state][:, b] for state, b in sums.cosines], dim=1),
            "own": features["sentence_embedding"].float(),
        }
        if sums.tokens:
            found["tokens"] = torch.stack([states[state].float() for state in sums.tokens], dim=2)[layout.mask]
        return found


def keep_states(
    encoder: StateEncoder,
    texts: Sequence[str],
    folder: Path,
    sums: Sums,
    *,
    batch_tokens: int | None = None,
    on_texts: OnTexts | None = None,
) -> FrozenStates:
    """Encode every text once and keep what `sums` says in `folder`; what is there already is not done again.

    Args:
        encoder: The model.
        texts: The texts, each once.
        folder: Where to keep it: its name must tell models, texts and sums apart, as `states_key` does.
        sums: What to keep.
        batch_tokens: Tokens to a batch; by default as bulk encoding has it.
        on_texts: Called with how many texts are done, and how many there are.

    Raises:
        DataError: it cannot be written; `DiskFullError` if for want of room.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    with lock(folder / ".lock"):
        states = FrozenStates.create(folder, encoder, len(texts), sums)
        budget = batch_tokens or (CPU_TOKENS if encoder.model.device.type == "cpu" else GPU_TOKENS)
        tell = on_texts or (lambda done, texts: None)
        for number in range(states.parts):
            start = number * states.part_size
            part = texts[start : start + states.part_size]
            if not states.path(number, "pooled").exists():
                for done in _keep_part(encoder, part, states, number, budget):
                    tell(start + done, len(texts))
            tell(start + len(part), len(texts))
    return states


def _keep_part(
    encoder: StateEncoder, texts: Sequence[str], states: FrozenStates, number: int, budget: int
) -> Iterator[int]:
    """Encode and write one part; yield how many of its texts are done."""
    pipeline = encoder.encoder.pipeline
    sequences = [pipeline.frame(tokens) if tokens else [] for tokens in pipeline.tokenize(texts)]
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int32)
    kept: dict[str, NDArray[Any]] = {
        "cosines": np.zeros((len(texts), len(states.sums.cosines), states.dim), dtype=np.float16),
        "own": np.zeros((len(texts), states.width), dtype=np.float32),
        "pooled": np.zeros((len(texts), states.states, states.dim), dtype=np.float16),
    }
    starts = np.concatenate([[0], np.cumsum(lengths)])
    if states.sums.tokens:
        kept["tokens"] = np.zeros((int(starts[-1]), len(states.sums.tokens), states.dim), dtype=np.float16)
    finished = len(texts) - int((lengths > 0).sum())
    places = np.flatnonzero(lengths)
    for batch in token_batches([int(lengths[place]) for place in places], budget):
        rows = places[batch]
        found = encoder.run([sequences[row] for row in rows], states.sums)
        if not all(bool(torch.isfinite(tensor).all()) for tensor in found.values()):
            raise ModelError(f"{encoder.backbone.name} gives values that are not finite, so its weights are damaged.")
        for name, tensor in found.items():
            values = tensor.cpu().numpy()
            if kept[name].dtype == np.float16 and np.abs(values).max() > np.finfo(np.float16).max:
                kept[name] = kept[name].astype(np.float32)  # rare: an encoder with very large states
            if name != "tokens":
                kept[name][rows] = values
                continue
            for row, of_row in zip(rows, np.split(values, np.cumsum(lengths[rows])[:-1]), strict=True):
                kept[name][starts[row] : starts[row + 1]] = of_row
        finished += len(rows)
        yield finished
    for name, values in {"lengths": lengths, **kept}.items():
        if name != "pooled":
            _write(states.path(number, name), values)
    _write(states.path(number, "pooled"), kept["pooled"])


def _write(path: Path, values: NDArray[Any]) -> None:
    with atomic_file(path) as file:
        np.save(file, values)


def is_whole(folder: Path) -> bool:
    """Whether everything that was to be kept in a folder is there."""
    if not (folder / "about.json").exists():
        return False
    states = FrozenStates.open(folder)
    return all(states.path(number, "pooled").exists() for number in range(states.parts))


def states_key(fingerprint: str, texts: Iterable[str], sums: Sums, *, pooling: str, precision: str) -> str:
    """Return the name under which the states of a model and texts are kept: all that decides them, as a digest."""
    about = [VERSION, fingerprint, asdict(sums), pooling, precision]
    digest = hashlib.sha256(json.dumps(about).encode())
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:24]


@dataclass(frozen=True)
class _Part:
    """An open file: where its values begin, their type, and how many a text has."""

    descriptor: int
    start: int
    dtype: np.dtype[Any]
    width: int


@dataclass(frozen=True)
class FrozenStates:
    """The states of some texts, on disk.

    Attributes:
        folder: Where they are.
        texts: How many texts there are.
        states: How many states of each: the embeddings and all blocks.
        dim: Features of a state.
        width: Features of the model's own vectors.
        part_size: Texts to a part.
        parameters: Of the model.
        sums: What is kept.
    """

    folder: Path
    texts: int
    states: int
    dim: int
    width: int
    part_size: int
    parameters: int
    sums: Sums

    @classmethod
    def create(cls, folder: Path, encoder: StateEncoder, texts: int, sums: Sums) -> FrozenStates:
        """Describe what shall be kept in `folder`, or read how it was described before."""
        about = folder / "about.json"
        if not about.exists():
            depth, dim = encoder.backbone.depth + 1, encoder.dim
            size = 2 * dim * (depth + len(sums.cosines) + TOKENS_TO_A_TEXT * len(sums.tokens))
            values = {
                "texts": texts,
                "states": depth,
                "dim": dim,
                "width": encoder.width,
                "part_size": max(1, min(LARGEST_PART, PART_BYTES // size)),
                "parameters": sum(parameter.numel() for parameter in encoder.model.parameters()),
            }
            with atomic_file(about) as file:
                file.write(json.dumps({**values, "sums": asdict(sums)}).encode())
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> FrozenStates:
        """Read what a folder of states has."""
        try:
            values = json.loads((folder / "about.json").read_text(encoding="utf-8"))
            sums = values.pop("sums")
            cosines = tuple((int(state), int(b)) for state, b in sums["cosines"])
            return cls(folder, **values, sums=Sums(cosines, tuple(sums["tokens"])))
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise DataError(f"{folder} is damaged ({error}). Delete it: it is computed again.") from error

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return -(-self.texts // self.part_size)

    def path(self, number: int, name: str) -> Path:
        """The file of one part."""
        return self.folder / f"part-{number:05}.{name}.npy"

    def part(self, number: int, name: str) -> NDArray[Any]:
        """Read one file of one part whole."""
        return self._load(self.path(number, name))

    def _load(self, path: Path) -> NDArray[Any]:
        try:
            values: NDArray[Any] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise self._damaged(path, error) from error
        return values

    def _damaged(self, path: Path, error: Exception) -> DataError:
        return DataError(f"{path} is missing or damaged ({error}). Delete {self.folder}: it is computed again.")

    @cached_property
    def lengths(self) -> Tensor:
        """(texts,) tokens of each text; 0 where the tokenizer can read nothing of it."""
        return torch.from_numpy(np.concatenate([self.part(number, "lengths") for number in range(self.parts)]))

    def own(self, rows: Sequence[int]) -> Tensor:
        """Read the model's own vectors of some texts: (rows, width)."""
        return self._read("own", rows, 0, self.width)

    def pooled(self, rows: Sequence[int], first: int, last: int) -> Tensor:
        """Read the pooled states `first` to `last` of some texts: (rows, n, d) in fp32."""
        found = self._read("pooled", rows, first * self.dim, (last - first + 1) * self.dim)
        return found.view(len(rows), -1, self.dim)

    def _read(self, name: str, rows: Sequence[int], first: int, count: int) -> Tensor:
        """Read `count` values of some texts, from value `first` of each on: (rows, count) in fp32."""
        dtype = self._dtypes[name]
        found = np.empty((len(rows), count), dtype=dtype)
        places = memoryview(found.view(np.uint8).reshape(-1))  # type: ignore[arg-type]
        size = count * dtype.itemsize
        for place, row in enumerate(rows):
            number, offset = divmod(row, self.part_size)
            file = self._opened(number, name)
            start = file.start + (offset * file.width + first) * file.dtype.itemsize
            if file.dtype == dtype:  # straight to its place
                os.preadv(file.descriptor, [places[place * size : (place + 1) * size]], start)
            else:
                found[place] = np.frombuffer(os.pread(file.descriptor, count * file.dtype.itemsize, start), file.dtype)
        return torch.from_numpy(found).float()

    @cached_property
    def _dtypes(self) -> dict[str, np.dtype[Any]]:
        """What rows of a file are read as: fp32 if any part has them so."""
        found = {}
        for name in ("own", "pooled"):
            kinds = {self._header(number, name).dtype for number in range(self.parts)}
            found[name] = np.dtype(np.float32 if np.dtype(np.float32) in kinds else np.float16)
        return found

    def _header(self, number: int, name: str) -> Any:
        try:
            return np.lib.format.open_memmap(self.path(number, name), mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise self._damaged(self.path(number, name), error) from error

    def _opened(self, number: int, name: str) -> _Part:
        if (number, name) not in self._files:
            if len(self._files) >= MOST_FILES:
                os.close(self._files.pop(next(iter(self._files))).descriptor)
            values = self._header(number, name)
            width = int(np.prod(values.shape[1:]))
            descriptor = os.open(self.path(number, name), os.O_RDONLY)
            self._files[number, name] = _Part(descriptor, values.offset, values.dtype, width)
        return self._files[number, name]

    @cached_property
    def _files(self) -> dict[tuple[int, str], _Part]:
        return {}

    def close(self) -> None:
        """Close the files that reading has opened."""
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()

    @torch.inference_mode()
    def squeezed(self, selector: Selector, states: Sequence[int]) -> Tensor:
        """Squeeze every text as the selector does, over these states: f (texts, d). It has nothing to learn.

        The result is kept beside the states: reading it takes a fraction of the time, and many forms share it.
        """
        config = selector.config
        decides = [tuple(states), selector.frequencies, config.scale, config.fusion, config.block_scales]
        kept = self.folder / f"squeezed-{hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]}.npy"
        if not kept.exists():
            _write(kept, self._squeeze(selector, states).numpy())
        return torch.from_numpy(self._load(kept))

    def _squeeze(self, selector: Selector, states: Sequence[int]) -> Tensor:
        place = {pair: index for index, pair in enumerate(self.sums.cosines)}
        chosen = np.array([[place[state, b] for b in selector.token_frequencies.int().tolist()] for state in states])
        found = []
        for number in range(self.parts):
            cosines = self._header(number, "cosines")
            lengths = torch.from_numpy(self.part(number, "lengths"))
            for start in range(0, len(cosines), 1024):
                rows = slice(start, start + 1024)
                projections = torch.from_numpy(cosines[rows][:, chosen]).float()  # (b, n, k, d)
                projections = projections / selector.block_scales[:, None, None]
                if selector.config.fusion != "stack":
                    projections = projections.mean(dim=1, keepdim=True)
                f = selector.squeeze(projections, lengths[rows])
                found.append(f.half() if f.abs().max() < torch.finfo(torch.float16).max else f)
        return torch.cat(found)  # fp32 if any of it is

    def sizes(self) -> Tensor:
        """Return the mean length of every state's pooled vectors, over the first part: (states,)."""
        pooled = torch.from_numpy(self.part(0, "pooled")).float()
        readable = pooled[self.lengths[: len(pooled)] > 0]
        sizes: Tensor = torch.linalg.vector_norm(readable, dim=-1).mean(dim=0)
        return sizes

    def token_states(self, rows: Sequence[int], states: Sequence[int]) -> tuple[list[Tensor], Tensor]:
        """Return whole states of some texts, one text after the other: (1, Σ length, d) each, and where texts begin."""
        columns = [self.sums.tokens.index(state) for state in states]
        found = []
        for row in rows:
            number, offset = divmod(row, self.part_size)
            tokens, starts = self._tokens(number)
            found.append(tokens[starts[offset] : starts[offset + 1]])
        flat = torch.from_numpy(np.concatenate(found))[:, columns].float()  # (Σ length, n, d)
        ends = self.lengths[list(rows)].cumsum(dim=0)
        return list(flat[None].unbind(dim=2)), torch.cat([ends.new_zeros(1), ends])

    def _tokens(self, number: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        if number not in self._token_files:
            values = self._header(number, "tokens")
            self._token_files[number] = (values, np.concatenate([[0], np.cumsum(self.part(number, "lengths"))]))
        return self._token_files[number]

    @cached_property
    def _token_files(self) -> dict[int, tuple[NDArray[Any], NDArray[np.int64]]]:
        return {}
