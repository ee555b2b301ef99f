"""Anything that turns sentences into vectors, and the vectors of an evaluation: each sentence encoded once."""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
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

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH_CHARACTERS = 4096
"""Characters to a batch: 32 sentences of the usual length, more phrases, fewer paragraphs. Larger batches of long text
leave the cache, smaller ones of short text leave the processor idle."""
CHUNK = 512
"""Sentences to a call of the encoder, so that progress can be shown."""


@dataclass
class Encoder:
    """A named function from sentences to vectors, one row each.

    Attributes:
        name: what a table calls it.
        encode: the function.
        fingerprint: changes whenever the vectors may; ``None`` when that cannot be known, and then nothing is cached.
    """

    name: str
    encode: Callable[[list[str]], Any]
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        given: object = self.fingerprint
        if not isinstance(given, str | None):
            raise ModelError(f"The fingerprint of {self.name} must be a string or None, not {type(given).__name__}.")


def as_encoder(model: Any, name: str | None = None) -> Encoder:
    """An encoder from a model folder, a hub id, a model in memory, or any callable ``list[str] -> array``.

    A folder is loaded only when the first sentence has to be encoded, so scores that are cached cost no loading.

    Raises:
        ModelError: there is no such folder or model, or it cannot be used.
    """
    if isinstance(model, Encoder):
        return model
    if isinstance(model, str | Path):
        return _from_path(str(model), name)
    if isinstance(model, ExportedEncoder):
        return Encoder(name or model.folder.resolve().name, _host_encode(model), model.fingerprint)
    if callable(getattr(model, "encode", None)) and hasattr(model, "state_dict"):
        title = str(
            name or getattr(getattr(model, "model_card_data", None), "model_name", None) or type(model).__name__
        )
        return Encoder(title, _host_encode(model), fingerprint_model(model))
    if callable(model):
        title = name or str(getattr(model, "__name__", type(model).__name__))
        return Encoder(title, model, getattr(model, "fingerprint", None))
    raise ModelError(
        f"{model!r} cannot encode sentences: give a model folder, a hub id, a SentenceTransformer or a function that "
        "takes a list of sentences and returns one vector each."
    )


def _from_path(path: str, name: str | None) -> Encoder:
    folder = find_folder(path)
    if folder is not None:
        loaded: list[Callable[[list[str]], Any]] = []

        def encode(sentences: list[str]) -> Any:
            if not loaded:
                loaded.append(_host_encode(load_model(str(folder))))
            return loaded[0](sentences)

        # Before the fingerprint, which reads every file.
        ExportConfig.read(folder) if is_export(folder) else check_model(folder)
        return Encoder(name or title_of(path), encode, fingerprint_folder(folder))
    # A name on the hub can come to mean other weights: only what was really loaded can be fingerprinted.
    return as_encoder(load_model(path), name or path)


def title_of(path: str) -> str:
    """What a table calls the model of this path or name."""
    folder = find_folder(path)
    return path if folder is None else folder.resolve().name


def load_model(path: str) -> "SentenceTransformer | ExportedEncoder":
    """Load a folder or hub id with this package's own loader, which refuses foreign code.

    A bare backbone, without a pooling of its own, pools the mean of its last block. An exported model runs as it is.

    Raises:
        ModelError: it cannot be loaded; the message says why.
    """
    folder = locate(path)
    if is_export(folder):
        return open_export(folder)

    from transformers.utils import logging

    from s2sent.model.load import open_encoder  # slow to import, and not needed for scores that are cached

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return open_encoder(folder)


def batch_size_for(sentences: list[str]) -> int:
    """Sentences to a batch when these, of about one length, are encoded together."""
    longest = max(map(len, sentences), default=1)
    return min(max(BATCH_CHARACTERS // max(longest, 1), 8), 256)


def _host_encode(model: Any) -> Callable[[list[str]], Any]:
    def encode(sentences: list[str]) -> Any:
        size = batch_size_for(sentences)
        return model.encode(sentences, batch_size=size, show_progress_bar=False, convert_to_numpy=True)

    return encode


def _digest(text: str) -> bytes:
    # In hexadecimal: numpy drops zero bytes at the end.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32].encode()


def _keep(folder: Path, sentences: list[str], block: NDArray[np.float32]) -> None:
    names = np.array([_digest(sentence) for sentence in sentences])
    path = folder / f"{_digest(''.join(sentences)).decode()}.npz"
    with (
        suppress(S2SentError),
        atomic_file(path) as file,
    ):  # a full disk must not fail the run
        np.savez(file, names=names, vectors=block)


class Vectors:
    """The vectors of many sentences, each encoded once however often it occurs.

    Args:
        encoder: what encodes them.
        kept: a folder for chunks as they are finished; one that a killed run left there is read instead of encoded.
    """

    def __init__(self, encoder: Encoder, kept: Path | None = None) -> None:
        self.encoder = encoder
        self.kept = kept
        self._row: dict[str, int] = {}
        self._blocks: list[NDArray[np.float32]] = []
        self._matrix: NDArray[np.float32] | None = None

    def missing(self, sentences: Iterable[str]) -> list[str]:
        """The sentences without a vector so far, each once, longest first: batches of one length waste least."""
        found = {sentence for sentence in sentences if sentence not in self._row}
        return sorted(found, key=lambda sentence: (-len(sentence), sentence))

    def add(self, sentences: Iterable[str], progress: Callable[[int], None] | None = None) -> None:
        """Encode what is missing of ``sentences``; ``progress`` hears the number encoded after every chunk.

        Raises:
            ModelError: the encoder gives another number of rows than sentences, rows of unequal width, or a value that
                is not finite; the message names the sentence.
        """
        progress = progress or (lambda number: None)
        wanted = self.missing(sentences)
        if self.kept is not None:
            self._recover(wanted)
            progress(len(wanted) - len(self.missing(wanted)))
            wanted = self.missing(wanted)
        for start in range(0, len(wanted), CHUNK):
            chunk = wanted[start : start + CHUNK]
            block = self._checked(chunk, self._encode(chunk))
            self._append(chunk, block)
            if self.kept is not None:
                _keep(self.kept, chunk, block)
            progress(len(chunk))

    def _append(self, sentences: list[str], block: NDArray[np.float32]) -> None:
        self._row.update((sentence, len(self._row)) for sentence in sentences)
        self._blocks.append(block)
        self._matrix = None

    def _recover(self, wanted: list[str]) -> None:
        """Take over what a run that was killed had encoded."""
        assert self.kept is not None
        left = {_digest(sentence): sentence for sentence in wanted}
        for path in sorted(self.kept.glob("*.npz")):
            try:
                with open_file(path) as file, np.load(file) as chunk:
                    names, vectors = chunk["names"].tolist(), chunk["vectors"]
                rows = {row: left[name] for row, name in enumerate(names) if name in left}
                if rows:
                    sentences = list(rows.values())
                    self._append(sentences, self._checked(sentences, vectors[list(rows)]))
                    left = {_digest(sentence): sentence for sentence in self.missing(left.values())}
            except (OSError, ValueError, TypeError, LookupError, EOFError, BadZipFile, zlib.error):
                continue  # damaged: encoded again

    def _encode(self, sentences: list[str]) -> Any:
        try:
            return self.encoder.encode(sentences)
        except DataError:
            # CR and MPQA have empty lines, which count. SimCSE encodes them as they are, and so do we; to a model that
            # refuses them, as ours do, SentEval's own encoders show the way: a full stop.
            if "" not in sentences:
                raise
            return self.encoder.encode([sentence or "." for sentence in sentences])

    def __getitem__(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of these sentences, one row each, repetitions included."""
        return self.part(sentences, slice(None))

    def part(self, sentences: Sequence[str], columns: slice) -> NDArray[np.float32]:
        """Some columns of them, without a copy of the others."""
        if self._matrix is None:
            self._matrix = np.concatenate(self._blocks)
            self._blocks = [self._matrix]
        return self._matrix[:, columns][[self._row[sentence] for sentence in sentences]]

    def __len__(self) -> int:
        return len(self._row)

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
            # SentEval turns these into 0 and goes on; the score is then a number without a meaning.
            raise ModelError(
                f"{name} gave NaN or infinity for {len(bad)} of {len(sentences)} sentences: {sentences[bad[0]]!r}. "
                "No score is computed from such vectors; look for overflow in half precision or a broken checkpoint."
            )
        return values
