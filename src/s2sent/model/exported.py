"""An exported model: a folder that runs with onnxruntime and tokenizers alone. Nothing here imports torch."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s2sent.errors import ConfigError, DataError, ModelError
from s2sent.model.fingerprint import fingerprint_folder
from s2sent.model.folder import check_links
from s2sent.model.framing import Framing
from s2sent.texts import NO_TEXT, lone_surrogate, texts_of
from s2sent.untrusted import Table, exists, open_file, shown

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CONFIG, GRAPH, TOKENIZER = "s2sent_export.json", "model.onnx", "tokenizer.json"
FORMAT = 1
"""Raised when an older version of this package could no longer run what a newer one writes."""

_AGAIN = "The export is damaged: copy or export it again."
_MAX_SIZE = 1 << 24
"""Of a vector, a text in tokens, a vocabulary."""
_SHORT = 8
"""Tokens up to which a text is suspected of having nothing but special ones."""

_MOST_THREADS = 1024

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class ExportConfig:
    """What the graph and the tokenizer do not say.

    Attributes:
        framing: What stands around a text's own tokens, and how a text is prepared.
        dimension: Features of a vector.
        padding: The token id that fills up a batch.
        precision: `fp32` or `int8`.
        normalizes: Whether the graph itself gives every vector length 1.
        needs_text: Whether a text without any token of its own is refused.
        special: Token ids that are no text.
        prompts: Texts that can be put before every text, by name.
        prepared: How many of the tokenizer's normalizers do what `framing` does already: they are for others who run
            this folder.
        files: The size of each file, by which one that was cut short is found.
    """

    framing: Framing
    dimension: int
    padding: int
    precision: str = "fp32"
    normalizes: bool = False
    needs_text: bool = False
    special: tuple[int, ...] = ()
    prompts: dict[str, str] = field(default_factory=dict)
    prepared: int = 0
    files: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a json file."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, folder: Path) -> ExportConfig:
        """Read and check the config of an exported folder, and that all of its files are there and whole."""
        check_links(folder)
        table = Table.read_json(folder / CONFIG, error=ModelError, hint=_AGAIN)
        version = table.values.pop("format", None)
        if not isinstance(version, int) or version > FORMAT:
            raise ModelError(
                f"{shown(folder / CONFIG)} has format {shown(version)}, and this version of s2sent reads up to "
                f"{FORMAT}. Upgrade s2sent, or export the model with this version."
            )
        table.only({option.name for option in fields(cls)})
        config = cls(
            framing=_framing(table.table("framing")),
            dimension=table.get("dimension", int),
            padding=table.get("padding", int),
            precision=table.get("precision", str, "fp32"),
            normalizes=table.get("normalizes", bool, False),
            needs_text=table.get("needs_text", bool, False),
            special=tuple(table.list_of("special", int)),
            prompts=table.dict_of("prompts", str, {}),
            prepared=table.get("prepared", int, 0),
            files=table.dict_of("files", int, {}),
        )
        if not 1 <= config.dimension <= _MAX_SIZE:
            raise table.fail("dimension", f"must be from 1 to {_MAX_SIZE}, got {config.dimension}")
        for token in (config.padding, *config.special):
            if not 0 <= token <= _MAX_SIZE:
                raise table.fail("padding and special", f"must be token ids from 0 to {_MAX_SIZE}, got {token}")
        for name, size in config.files.items():
            if Path(name).name != name or not name.isprintable():
                raise table.fail("files", f"names {name!r}, which is not a file of the folder")
            file = folder / name
            if not exists(file):
                raise ModelError(f"{shown(file)} is missing: the export is not whole. Copy or export it again.")
            with open_file(file, error=ModelError, hint=_AGAIN) as opened:
                found = opened.seek(0, 2)
            if found != size:
                raise ModelError(
                    f"{shown(file)} is damaged: it has {found} bytes, and {CONFIG} says {size}. Export it again."
                )
        return config


def _framing(table: Table) -> Framing:
    """Read the framing of an exported folder, option by option."""
    table.only({option.name for option in fields(Framing)})
    framing = Framing(
        prefix=tuple(table.list_of("prefix", int)),
        suffix=tuple(table.list_of("suffix", int)),
        room=table.get("room", int),
        prompt=table.get("prompt", str, ""),
        strip=table.get("strip", bool, False),
        lead=table.get("lead", str, ""),
        keep_end=table.get("keep_end", bool, False),
        literal=table.get("literal", bool, False),
        mask=None if table.values.get("mask") is None else table.get("mask", int),
        unknown=None if table.values.get("unknown") is None else table.get("unknown", int),
    )
    if not 1 <= framing.room <= _MAX_SIZE:
        raise table.fail("room", f"must be from 1 to {_MAX_SIZE}, got {framing.room}")
    for token in (*framing.prefix, *framing.suffix, framing.mask or 0, framing.unknown or 0):
        if not 0 <= token <= _MAX_SIZE:
            raise table.fail("prefix and suffix", f"must be token ids from 0 to {_MAX_SIZE}, got {token}")
    return framing


def is_export(folder: Path) -> bool:
    """Whether a folder is an exported model's."""
    return exists(folder / CONFIG)


class OnnxEncoder:
    """An exported model, ready to encode. `s2sent.load` makes one from a folder that `s2sent.export` wrote.

    Args:
        folder: The exported folder.
        threads: How many threads onnxruntime may use; by default one for each core.

    Example:
        >>> encoder = OnnxEncoder("out/onnx")                        # doctest: +SKIP
        >>> encoder.encode(["A sentence.", "Another."]).shape        # doctest: +SKIP
        (2, 384)
    """

    def __init__(self, folder: str | Path, *, threads: int | None = None) -> None:
        if threads is not None and not 1 <= threads <= _MOST_THREADS:
            raise ConfigError(f"threads must be from 1 to {_MOST_THREADS:,}, got {threads}.")
        self.folder = Path(folder)
        self.config = ExportConfig.read(self.folder)
        self.framing = self.config.framing
        self.dimension = self.config.dimension
        self.normalizes = self.config.normalizes
        self.max_tokens = self.framing.max_tokens
        self.room = self.framing.room
        self._special = frozenset(self.config.special)
        self._tokenizer = self.framing.tokenizer(_read_tokenizer(self.folder / TOKENIZER, self.config.prepared))
        self._session = _open_session(self.folder / GRAPH, threads)

    @cached_property
    def fingerprint(self) -> str:
        """Changes whenever the vectors may."""
        return fingerprint_folder(self.folder)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's content tokens: no special tokens, not truncated."""
        return self.framing.tokenize(self._tokenizer, texts)

    def frame(self, tokens: list[int]) -> list[int]:
        """Return one sequence as the model sees it: special tokens or template around at most `room` content tokens."""
        return self.framing.frame(tokens)

    def embed(self, sequences: Sequence[Sequence[int]]) -> Vectors:
        """Pad framed sequences to one batch, run it, and return its vectors: (b, dimension).

        Raises:
            DataError: there is a sequence without text.
        """
        self._check_text(sequences)
        ids = np.full((len(sequences), max(map(len, sequences))), self.config.padding, dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = sequence
            mask[row, : len(sequence)] = 1
        try:
            vectors: Vectors = self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        except Exception as error:  # onnxruntime has a type of its own for each way in which a graph can be wrong
            raise _unusable(self.folder / GRAPH, error) from error
        if vectors.shape != (len(sequences), self.dimension):
            raise ModelError(
                f"{shown(self.folder / GRAPH)} gives vectors of shape {vectors.shape}, and {CONFIG} says "
                f"{(len(sequences), self.dimension)}. {_AGAIN}"
            )
        if not np.isfinite(vectors).all():
            raise ModelError(
                f"{shown(self.folder / GRAPH)} gives vectors that are NaN or infinite: its weights are damaged, or the "
                "model's were. Export a model whose weights are finite."
            )
        return vectors

    def encode(
        self,
        inputs: str | Collection[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        *,
        convert_to_numpy: bool = True,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> NDArray[np.floating]:
        """Encode texts as sentence-transformers' `encode` does: a row (dimension,) each, or that of a single text.

        Args:
            inputs: Texts in a list, tuple, numpy array or another ordered collection; or one text. No texts give an
                empty array without a dimension.
            prompt_name: The name of one of the model's prompts to put before every text.
            prompt: The prompt itself.
            batch_size: How many texts go through the model at once; they are sorted by length first.
            show_progress_bar: Whether to show a bar.
            convert_to_numpy: Only True is possible: there is no torch here.
            normalize_embeddings: Whether to give every vector length 1.
            truncate_dim: Keep the first so many features.

        Raises:
            DataError: an input is not text, or has none.
        """
        if not convert_to_numpy:
            raise ConfigError("An exported model gives numpy arrays: convert_to_numpy cannot be False.")
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}.")
        texts = texts_of(inputs)
        framing = self._with_prompt(prompt_name, prompt)
        if not texts:
            return np.array([])  # without a dimension, as sentence-transformers does
        sequences = [framing.frame(tokens) for tokens in framing.tokenize(self._tokenizer, texts)]
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        # Longest first: what does not fit into memory shows at once.
        order = sorted(range(len(texts)), key=lambda row: -len(sequences[row]))
        batches: Any = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        if show_progress_bar:
            from rich.progress import track

            batches = track(batches, description="Batches")
        for rows in batches:
            vectors[rows] = self.embed([sequences[row] for row in rows])
        vectors = vectors[:, :truncate_dim]
        if normalize_embeddings:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors[0] if isinstance(inputs, str) else vectors

    def _with_prompt(self, name: str | None, prompt: str | None) -> Framing:
        if prompt is not None:
            if not isinstance(prompt, str) or lone_surrogate(prompt):
                raise ConfigError(f"prompt must be a text, got {prompt!r}.")
            return replace(self.framing, prompt=prompt)
        if name is None:
            return self.framing
        if name not in self.config.prompts:
            known = ", ".join(map(repr, self.config.prompts)) or "none"
            raise ConfigError(f"This model has no prompt named {name!r}. It has: {known}.")
        return replace(self.framing, prompt=self.config.prompts[name])

    def _check_text(self, sequences: Sequence[Sequence[int]]) -> None:
        around = len(self.framing.prefix) + len(self.framing.suffix)
        for sequence in sequences:
            content = len(sequence) - around
            if content > _SHORT or (sequence and not self.config.needs_text):
                continue
            start = len(self.framing.prefix)
            if self._special.issuperset(sequence[start : start + content]):
                raise DataError(NO_TEXT)


def _read_tokenizer(path: Path, prepared: int) -> Tokenizer:
    from tokenizers import Tokenizer

    table = Table.read_json(path, error=ModelError, hint=_AGAIN)
    try:
        if prepared:  # the framing does it, and it knows that a text may hold added tokens
            rest = table.values["normalizer"]["normalizers"][prepared:]
            table.values["normalizer"] = rest[0] if rest else None
        return Tokenizer.from_str(json.dumps(table.values))
    except BaseException as error:  # what is written in Rust panics with a type of its own, which is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"{shown(path)} is not a tokenizer: {shown(str(error))}. {_AGAIN}") from error


def _open_session(path: Path, threads: int | None) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(
            "An exported model runs in onnxruntime, which is not installed: pip install 's2sent[onnx]'."
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # its warnings are about its own optimisations
    # A thread that spins while it waits takes the core from one that works: in some processes a third of the speed.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a type of its own for each way in which a graph can be wrong
        raise _unusable(path, error) from error


def _unusable(path: Path, error: Exception) -> ModelError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ModelError(f"{shown(path)} cannot be run: {shown(reason)}. {_AGAIN}")
