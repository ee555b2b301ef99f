"""What an evaluation needs of a model: its name, its fingerprint, and the vector of each sentence, encoded once."""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from s2sent.atomic import atomic_file
from s2sent.errors import DataError, ModelError, S2SentError
from s2sent.model.fingerprint import fingerprint_folder, fingerprint_model
from s2sent.model.folder import check_model, find_folder, is_export, locate
from s2sent.runtime.exported import ExportConfig, ExportedEncoder
from s2sent.runtime.load import open_export
from s2sent.untrusted import open_file
from s2sent.vectors.encoder import encode_function

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CHUNK = 512
"""Sentences that are encoded between two reports of progress, and saved at a time."""


@dataclass
class Encoder:
    """A named function from sentences to vectors, one row each.

    Attributes:
        name: What a table calls it.
        encode: The function.
        fingerprint: Changes whenever the vectors may; None if that cannot be known, and then nothing is cached.
    """

    name: str
    encode: Callable[[list[str]], Any]
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        given: object = self.fingerprint
        if not isinstance(given, str | None):
            raise ModelError(f"The fingerprint of {self.name} must be a string or None, not {type(given).__name__}.")


def as_encoder(model: Any, name: str | None = None) -> Encoder:
    """Return an encoder from a model folder, a hub id, a model in memory, or any function `list[str] -> array`.

    A folder is loaded only when the first sentence has to be encoded, so scores that are cached cost no loading.

    Raises:
        ModelError: there is no such folder or model, or it cannot be used.
    """
    if isinstance(model, Encoder):
        return model
    if not isinstance(model, str | Path):
        in_torch = callable(getattr(model, "encode", None)) and hasattr(model, "state_dict")
        fingerprint = fingerprint_model(model) if in_torch else getattr(model, "fingerprint", None)
        return Encoder(name or _name_of(model), encode_function(model), fingerprint)
    folder = find_folder(model)
    if folder is None:  # a name on the hub, whose weights can change: only what was loaded has a fingerprint
        return as_encoder(load_model(str(model)), name or str(model))
    # Before the fingerprint, which reads every file.
    ExportConfig.read(folder) if is_export(folder) else check_model(folder)
    loaded = cache(lambda: encode_function(load_model(str(folder))))
    return Encoder(name or folder.resolve().name, lambda texts: loaded()(texts), fingerprint_folder(folder))


def _name_of(model: Any) -> str:
    if isinstance(model, ExportedEncoder):
        return model.folder.resolve().name
    card_name = getattr(getattr(model, "model_card_data", None), "model_name", None)
    return str(card_name or getattr(model, "__name__", type(model).__name__))


def title_of(path: str) -> str:
    """Return what a table calls the model of this path or name."""
    folder = find_folder(path)
    return path if folder is None else folder.resolve().name


def load_model(path: str) -> "SentenceTransformer | ExportedEncoder":
    """Load a folder or hub id. A bare backbone, without a pooling of its own, pools the mean of its last block.

    Raises:
        ModelError: it cannot be loaded; the message says why.
    """
    folder = locate(path)
    if is_export(folder):
        return open_export(folder)
    from s2sent.model.load import no_bars, open_encoder

    with no_bars():
        return open_encoder(folder)


class Vectors:
    """The vectors of many sentences, each encoded once however often it occurs.

    Args:
        encoder: What encodes them.
        kept: A folder for chunks as they are finished. Chunks that a killed run left there are used.
    """

    def __init__(self, encoder: Encoder, kept: Path | None = None) -> None:
        self.encoder = encoder
        self.kept = kept
        self._row: dict[str, int] = {}
        self._blocks: list[NDArray[np.float32]] = []

    def missing(self, sentences: Iterable[str]) -> list[str]:
        """Return the sentences without a vector so far, each once, longest first: chunks of one length waste least."""
        found = {sentence for sentence in sentences if sentence not in self._row}
        return sorted(found, key=lambda sentence: (-len(sentence), sentence))

    def add(self, sentences: Iterable[str], progress: Callable[[int], None] | None = None) -> None:
        """Encode what is missing of `sentences`; `progress` is called with the number of sentences after every chunk.

        Raises:
            ModelError: the encoder gives another number of rows than sentences, rows of unequal width, or a value that
                is not finite; the message names the sentence.
        """
        wanted = self.missing(sentences)
        if self.kept is not None:
            self._read_chunks(self.kept, wanted)
            if progress is not None:
                progress(len(wanted) - len(self.missing(wanted)))
            wanted = self.missing(wanted)
        for start in range(0, len(wanted), CHUNK):
            chunk = wanted[start : start + CHUNK]
            block = self._append(chunk, self._encode(chunk))
            if self.kept is not None:
                names = np.array([_digest(sentence) for sentence in chunk])
                path = self.kept / f"{_digest(''.join(chunk)).decode()}.npz"
                with suppress(S2SentError, OSError):  # a full disk does not stop the evaluation
                    self.kept.mkdir(parents=True, exist_ok=True)
                    with atomic_file(path) as file:
                        np.savez(file, names=names, vectors=block)
            if progress is not None:
                progress(len(chunk))

    def _read_chunks(self, folder: Path, wanted: list[str]) -> None:
        """Take what a killed run had encoded of `wanted`; a damaged file is skipped."""
        by_digest = {_digest(sentence): sentence for sentence in wanted}
        for path in sorted(folder.glob("*.npz")):
            with suppress(OSError, ValueError, TypeError, LookupError, EOFError, BadZipFile, zlib.error):
                with open_file(path) as file, np.load(file) as chunk:
                    names, vectors = chunk["names"].tolist(), chunk["vectors"]
                rows = [row for row, name in enumerate(names) if name in by_digest]
                if rows:
                    self._append([by_digest[names[row]] for row in rows], vectors[rows])
                    by_digest = {name: text for name, text in by_digest.items() if text not in self._row}

    def _encode(self, sentences: list[str]) -> Any:
        try:
            return self.encoder.encode(sentences)
        except DataError:
            # CR and MPQA have empty lines, which count. SimCSE encodes them as they are, and so do we; for a model that
            # refuses them, as ours do, SentEval's own encoders use a full stop.
            if "" not in sentences:
                raise
            return self.encoder.encode([sentence or "." for sentence in sentences])

    def __getitem__(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of these sentences, one row each, repetitions included."""
        return self._matrix()[[self._row[sentence] for sentence in sentences]]

    def columns(self, columns: slice) -> "Vectors":
        """Return some features of all vectors; they share their memory."""
        part = Vectors(self.encoder)
        part._row, part._blocks = self._row, [self._matrix()[:, columns]]
        return part

    def _matrix(self) -> NDArray[np.float32]:
        if len(self._blocks) > 1:
            self._blocks = [np.concatenate(self._blocks)]
        return self._blocks[0]

    def __len__(self) -> int:
        return len(self._row)

    def _append(self, sentences: list[str], output: Any) -> NDArray[np.float32]:
        block = self._checked(sentences, output)
        self._row.update((sentence, len(self._row)) for sentence in sentences)
        self._blocks.append(block)
        return block

    def _checked(self, sentences: list[str], output: Any) -> NDArray[np.float32]:
        name = self.encoder.name
        try:
            if hasattr(output, "detach"):
                output = output.detach().cpu().float()
            values = np.asarray(output, dtype=np.float32)
        except (TypeError, ValueError) as error:  # strings, rows of unequal length, sparse matrices
            raise ModelError(
                f"{name} gave a {type(output).__name__} that is no array of numbers, with one row of the same length "
                f"for each of {len(sentences)} sentences: {error}."
            ) from error
        if values.ndim != 2 or len(values) != len(sentences) or values.shape[1] == 0:
            raise ModelError(
                f"{name} gave an array of shape {values.shape} for {len(sentences)} sentences; one row each is needed."
            )
        if self._blocks and values.shape[1] != self._blocks[0].shape[1]:
            raise ModelError(
                f"{name} gave vectors of {values.shape[1]} features after others of {self._blocks[0].shape[1]}."
            )
        bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(bad):
            # SentEval turns these into 0 and continues; the score is then a number without a meaning.
            raise ModelError(
                f"{name} gave NaN or infinity for {len(bad)} of {len(sentences)} sentences: {sentences[bad[0]]!r}. "
                "No score is computed from such vectors; look for overflow in half precision or a broken checkpoint."
            )
        return values


def _digest(text: str) -> bytes:
    # In hexadecimal: numpy drops zero bytes at the end.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32].encode()
