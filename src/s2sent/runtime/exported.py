"""An exported model, whatever runs its graph: config, tokens, batches and `encode`. Nothing here imports torch."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s2sent.errors import ConfigError, ModelError
from s2sent.model.fingerprint import fingerprint_folder
from s2sent.model.folder import EXPORT_CONFIG, check_links
from s2sent.model.text import TextConfig, TextPipeline, check_texts, content_tokenizer
from s2sent.untrusted import Table, any_error_as, exists, lone_surrogate, open_file, shown
from s2sent.vectors.encoder import batches_of, run_batches

if TYPE_CHECKING:
    from tokenizers import Tokenizer

RUNTIMES = {
    "onnxruntime": ("s2sent.runtime.onnxruntime", "OnnxEncoder"),
    "openvino": ("s2sent.runtime.openvino", "OpenVinoEncoder"),
}
"""What can run an export, by the name that its config has: the module, and the class in it."""
TOKENIZER = "tokenizer.json"
FORMAT = 3
"""Raised when an older version of this package could not run what a newer one writes."""

_HINT = "The export is damaged: copy or export it again."
_MAX_SIZE = 1 << 24
"""Limit of a vector's features, a text's tokens and a vocabulary."""
_MAX_THREADS = 1024
_NORMS = {"manhattan": 1, "euclidean": 2}

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class ExportConfig:
    """What the graph and the tokenizer do not say: the content of `s2sent_export.json`.

    Attributes:
        framing: Which tokens are put around a text's own, and how a text is prepared.
        dimension: Features of a vector.
        padding: The token id that fills up a batch.
        special: Token ids that are no text.
        precision: `fp32`, `bf16` or `int8`.
        normalizes: Whether the graph gives every vector length 1.
        needs_text: Whether a text without any token of its own is refused.
        prompts: Texts that can be put before every text, by name.
        similarity: How `similarity` compares two vectors.
        prepared: How many of the tokenizer's normalizers do what `framing` does already: they are for other programs
            that run this folder.
        runtime: What runs the graph: a key of `RUNTIMES`.
        bucket: A text is padded to the next multiple of so many tokens; 0: to the longest text of its batch.
        files: The size of each file, by which a truncated one is found.
    """

    framing: TextConfig
    dimension: int
    padding: int
    special: tuple[int, ...]
    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    normalizes: bool = False
    needs_text: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    similarity: Literal["cosine", "dot", "euclidean", "manhattan"] = "cosine"
    prepared: int = 0
    runtime: str = "onnxruntime"
    bucket: int = 0
    files: dict[str, int] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the config, with the sizes of the files that are in the folder."""
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.name != EXPORT_CONFIG}
        values = {"format": FORMAT, **asdict(replace(self, files=files))}
        (folder / EXPORT_CONFIG).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> ExportConfig:
        """Read and check the config of an exported folder, and that all of its files are there and whole."""
        check_links(folder)
        table = Table.read_json(folder / EXPORT_CONFIG, error=ModelError, hint=_HINT)
        version = table.values.pop("format", None)
        if not isinstance(version, int) or version > FORMAT:
            raise ModelError(
                f"{shown(folder / EXPORT_CONFIG)} has format {shown(version)}, and this version of s2sent reads up to "
                f"{FORMAT}. Upgrade s2sent, or export the model with this version."
            )
        config = table.to(cls)
        if config.runtime not in RUNTIMES:
            raise table.fail("runtime", f"must be one of {', '.join(RUNTIMES)}, got {shown(config.runtime)}")
        framing = config.framing
        for key, size in (("dimension", config.dimension), ("framing.room", framing.room)):
            if not 1 <= size <= _MAX_SIZE:
                raise table.fail(key, f"must be from 1 to {_MAX_SIZE}, got {size}")
        if not 0 <= config.bucket <= _MAX_SIZE:
            raise table.fail("bucket", f"must be from 0 to {_MAX_SIZE}, got {config.bucket}")
        ids = (*framing.prefix, *framing.suffix, framing.mask or 0, framing.unknown or 0)
        for key, tokens in (("framing", ids), ("padding", (config.padding,)), ("special", config.special)):
            for token in tokens:
                if not 0 <= token <= _MAX_SIZE:
                    raise table.fail(key, f"must have token ids from 0 to {_MAX_SIZE}, got {token}")
        for name, size in config.files.items():
            if Path(name).name != name or not name.isprintable():
                raise table.fail("files", f"names {name!r}, which is not a file of the folder")
            _check_size(folder / name, size)
        return config


def import_runtime(package: str, extra: str) -> Any:
    """Import a package that an extra installs.

    openvino and nncf report to their makers that they are used, unless the package that does so is missing. Here it
    is missing: nothing about a user's work leaves the machine.

    Raises:
        ConfigError: it is not installed.
    """
    reports = "openvino_telemetry"
    loaded = sys.modules.get(reports)
    sys.modules[reports] = None  # type: ignore[assignment]
    try:
        return import_module(package)
    except ImportError as error:
        raise ConfigError(f"This needs {package}, which is not installed: pip install 's2sent[{extra}]'.") from error
    finally:
        del sys.modules[reports]
        if loaded is not None:
            sys.modules[reports] = loaded


def _check_size(path: Path, size: int) -> None:
    if not exists(path):
        raise ModelError(f"{shown(path)} is missing: the export is incomplete. Copy or export it again.")
    with open_file(path, error=ModelError, hint=_HINT) as file:
        found = file.seek(0, 2)
    if found != size:
        raise ModelError(
            f"{shown(path)} is damaged: it has {found} bytes, and {EXPORT_CONFIG} says {size}. Export it again."
        )


class ExportedEncoder(ABC):
    """An exported model. A runtime is a subclass with the names of its files, `_open` and `_run`.

    Args:
        folder: The exported folder.
        threads: How many threads the runtime may use; by default one per core.
        config: The folder's config, if it has been read.
    """

    GRAPH: ClassVar[str]
    FILES: ClassVar[tuple[str, ...]]
    """The graph's files, which must be there."""

    def __init__(self, folder: str | Path, *, threads: int | None = None, config: ExportConfig | None = None) -> None:
        if threads is not None and not 1 <= threads <= _MAX_THREADS:
            raise ConfigError(f"threads must be from 1 to {_MAX_THREADS:,}, got {threads}.")
        self.folder = Path(folder)
        self.config = config or ExportConfig.read(self.folder)
        tokenizer = _read_tokenizer(self.folder / TOKENIZER, self.config.prepared)
        self.pipeline = TextPipeline(
            **vars(self.config.framing),
            padding=self.config.padding,
            special=frozenset(self.config.special),
            needs_text=self.config.needs_text,
            bucket=self.config.bucket,
            tokenizer=content_tokenizer(tokenizer, literal=self.config.framing.literal),
        )
        self.prompts = self.config.prompts
        self.similarity_fn_name = self.config.similarity
        self.dimension = self.config.dimension
        self.normalizes = self.config.normalizes
        for name in self.FILES:
            open_file(self.folder / name, error=ModelError, hint=_HINT).close()  # the runtime would wait for a FIFO
        with any_error_as(self._cannot_run):
            self._session = self._open(self.folder / self.GRAPH, threads)

    @abstractmethod
    def _open(self, path: Path, threads: int | None) -> Any:
        """Open the graph."""

    @abstractmethod
    def _run(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> Vectors:
        """Return the vectors (b, dimension) of a padded batch (b, l)."""

    def _cannot_run(self, reason: str) -> ModelError:
        return ModelError(f"{shown(self.folder / self.GRAPH)} cannot be run: {reason}. {_HINT}")

    @cached_property
    def fingerprint(self) -> str:
        """Changes whenever the vectors may."""
        return fingerprint_folder(self.folder)

    def get_embedding_dimension(self) -> int:
        """Return the number of features of a vector."""
        return self.dimension

    def embed(self, sequences: Sequence[Sequence[int]]) -> Vectors:
        """Pad framed sequences, run them, and return their vectors: (b, dimension).

        Sequences that are padded to one length are one batch.

        Raises:
            DataError: there is a sequence without text.
        """
        self.pipeline.check_text(sequences)
        vectors = np.empty((len(sequences), self.dimension), dtype=np.float32)
        for rows in batches_of(self.pipeline, sequences):
            vectors[rows] = self._embed_batch([sequences[row] for row in rows])
        return vectors

    def _embed_batch(self, sequences: Sequence[Sequence[int]]) -> Vectors:
        with any_error_as(self._cannot_run):
            vectors = self._run(**self.pipeline.pad(sequences))
        graph = shown(self.folder / self.GRAPH)
        if vectors.shape != (len(sequences), self.dimension):
            raise ModelError(
                f"{graph} gives vectors of shape {vectors.shape}, and {EXPORT_CONFIG} says "
                f"{(len(sequences), self.dimension)}. {_HINT}"
            )
        if not np.isfinite(vectors).all():
            raise ModelError(
                f"{graph} gives vectors that are NaN or infinite: its weights are damaged, or the model's were. Export "
                "a model whose weights are finite."
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
        texts = check_texts(inputs)
        pipeline = self._with_prompt(prompt_name, prompt)
        if not texts:
            return np.array([])  # without a dimension, as sentence-transformers does
        sequences = [pipeline.frame(tokens) for tokens in pipeline.tokenize(texts)]
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        batches = list(batches_of(pipeline, sequences, rows=batch_size))
        results = run_batches(self, lambda encoder, rows: encoder.embed([sequences[row] for row in rows]), batches)
        if show_progress_bar:
            from rich.progress import track

            results = iter(track(results, description="Batches", total=len(batches)))
        for rows, result in zip(batches, results, strict=True):
            vectors[rows] = result
        vectors = vectors[:, :truncate_dim]
        if normalize_embeddings:
            vectors = _normalize(vectors)
        return vectors[0] if isinstance(inputs, str) else vectors

    def encode_query(
        self, inputs: str | Collection[str], prompt_name: str | None = None, prompt: str | None = None, **options: Any
    ) -> NDArray[np.floating]:
        """Encode queries: as `encode` does, with the prompt named `query` if the model has one."""
        return self.encode(inputs, prompt_name or self._first_prompt(prompt, "query"), prompt, **options)

    def encode_document(
        self, inputs: str | Collection[str], prompt_name: str | None = None, prompt: str | None = None, **options: Any
    ) -> NDArray[np.floating]:
        """Encode documents: as `encode` does, with the prompt `document`, `passage` or `corpus` if there is one."""
        name = prompt_name or self._first_prompt(prompt, "document", "passage", "corpus")
        return self.encode(inputs, name, prompt, **options)

    def similarity(self, embeddings1: ArrayLike, embeddings2: ArrayLike) -> NDArray[np.floating]:
        """Compare every vector (n, d) with every other (m, d): (n, m), larger for more similar ones."""
        one, two = (np.atleast_2d(vectors) for vectors in self._comparable(embeddings1, embeddings2))
        if self.similarity_fn_name in _NORMS:
            from scipy.spatial.distance import cdist

            return np.asarray(-cdist(one, two, "minkowski", p=_NORMS[self.similarity_fn_name]), np.float32)
        return np.asarray(one @ two.T)

    def similarity_pairwise(self, embeddings1: ArrayLike, embeddings2: ArrayLike) -> NDArray[np.floating]:
        """Compare the vectors (n, d) with those at the same place (n, d): (n,)."""
        one, two = self._comparable(embeddings1, embeddings2)
        if self.similarity_fn_name in _NORMS:
            return np.asarray(-np.linalg.norm(one - two, _NORMS[self.similarity_fn_name], axis=-1))
        return np.asarray((one * two).sum(axis=-1))

    def _comparable(self, *embeddings: ArrayLike) -> list[Vectors]:
        vectors = [np.asarray(values, np.float32) for values in embeddings]
        return [_normalize(values) for values in vectors] if self.similarity_fn_name == "cosine" else vectors

    def _first_prompt(self, prompt: str | None, *names: str) -> str | None:
        return None if prompt is not None else next((name for name in names if name in self.prompts), None)

    def _with_prompt(self, name: str | None, prompt: str | None) -> TextPipeline:
        if prompt is not None:
            if not isinstance(prompt, str) or lone_surrogate(prompt):
                raise ConfigError(f"prompt must be a text, got {prompt!r}.")
            return replace(self.pipeline, prompt=prompt)
        if name is None:
            return self.pipeline
        if name not in self.prompts:
            known = ", ".join(map(repr, self.prompts)) or "none"
            raise ConfigError(f"This model has no prompt named {name!r}. It has: {known}.")
        return replace(self.pipeline, prompt=self.prompts[name])


def _normalize(vectors: Vectors) -> Vectors:
    normalized: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return normalized


def _read_tokenizer(path: Path, prepared: int) -> Tokenizer:
    from tokenizers import Tokenizer

    values = Table.read_json(path, error=ModelError, hint=_HINT).values
    with any_error_as(lambda reason: ModelError(f"{shown(path)} is not a tokenizer: {reason}. {_HINT}")):
        if prepared:  # the pipeline does it, and it knows that a text may hold added tokens
            rest = values["normalizer"]["normalizers"][prepared:]
            values["normalizer"] = rest[0] if rest else None
        return Tokenizer.from_str(json.dumps(values))
