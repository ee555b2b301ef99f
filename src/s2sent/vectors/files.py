"""`s2sent.encode`: texts into vectors, or files of texts into a file of vectors, however large."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from s2sent.atomic import sync, write_error
from s2sent.data.rows import Label
from s2sent.errors import ConfigError, ModelError, S2SentError
from s2sent.vectors.encoder import (
    WINDOW,
    EncodeOptions,
    TextEncoder,
    encode_texts,
    encode_tokens,
    prefetch,
    text_encoder,
)
from s2sent.vectors.outputs import Layout, check_output, problems_file, write_output
from s2sent.vectors.parts import Part, Parts, Record, missing
from s2sent.vectors.precision import Form
from s2sent.vectors.sources import Source, Window

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_LARGEST = (1 << 63) - 1

OnProgress = Callable[[int, int | None], None]
"""Called with how many lines are done, and how many are expected, if that is known."""


@dataclass(frozen=True)
class EncodeSummary:
    """What an encoding did.

    Attributes:
        lines: All lines of the input.
        vectors: How many of them have a vector.
        bad: How many have none, and are listed in `bad_file`.
        bad_file: None if there are none.
        long: How many were longer than the model takes.
        resumed: How many lines were done before this run began.
        seconds: How long this run took, from the first line read to the output in its place.
        width: Values to a vector.
        output: Where they are.
        done_before: Whether an earlier run had finished it all, and there was nothing to do.
    """

    lines: int
    vectors: int
    bad: int
    bad_file: Path | None
    long: int
    resumed: int
    seconds: float
    width: int
    output: Path
    done_before: bool = False

    @property
    def rate(self) -> float:
        """Lines per second in this run."""
        return (self.lines - self.resumed) / self.seconds if self.seconds else 0.0


@overload
def encode(
    model: SentenceTransformer | TextEncoder | str | Path,
    inputs: str | Collection[str],
    output: None = None,
    **options: Any,
) -> NDArray[np.floating]: ...


@overload
def encode(
    model: SentenceTransformer | TextEncoder | str | Path,
    inputs: str | Path | Iterable[str | Path],
    output: str | Path,
    **options: Any,
) -> EncodeSummary: ...


def encode(  # type: ignore[misc]
    model: SentenceTransformer | TextEncoder | str | Path,
    inputs: Any,
    output: str | Path | None = None,
    *,
    dim: int | None = None,
    normalize: bool = False,
    precision: str = "float32",
    long: str = "truncate",
    column: str | None = None,
    id_column: str | None = None,
    with_text: bool = False,
    stdin_format: str = "txt",
    restart: bool = False,
    shard_lines: int = WINDOW,
    batch_tokens: int | None = None,
    device: str | None = None,
    engine: str = "local",
    workers: tuple[int, int] | None = None,
    on_progress: OnProgress | None = None,
) -> NDArray[np.floating] | EncodeSummary:
    """Encode texts and return their vectors; or, with an `output`, files of texts into a file of vectors.

    An output appears when it is whole. Until then, what is done is in `OUTPUT.parts`, and the same call continues from
    there after any interruption; with a finished output it does nothing. A changed model, input or option is an error.
    A line without a text that can be encoded (empty, not UTF-8, no such field, …) has no vector and is listed in
    `OUTPUT.bad.jsonl`.

    Args:
        model: A model, its folder, or its name on the hub.
        inputs: A text or a list of texts; with an output: files (.txt, .csv, .tsv, .jsonl, .parquet; .gz or .zst of
            these), globs, or `-` for standard input.
        output: .parquet, .npy, .safetensors or .jsonl.
        dim: Keep the first so many features.
        normalize: Give each vector, after the cut, length 1.
        precision: `float32`, `float16`, `int8` or `binary`; see `Precision`. In memory only `float32`.
        long: What to do with a text that is longer than the model takes: `truncate`, or `mean`: split it at the limit
            and average the vectors of the pieces by their length.
        column: Which column or field has the text. By default the only one, or `text`, or `sentence`.
        id_column: Which has each row's id. By default rows are counted over all inputs, from 0.
        with_text: Keep the texts beside the vectors (.parquet, .jsonl).
        stdin_format: `txt`, `csv`, `tsv` or `jsonl`.
        restart: Remove what an interrupted run left, and replace a finished output.
        shard_lines: How many lines are saved at a time. They are sorted by length among themselves.
        batch_tokens: Tokens to a batch. By default what suits the device.
        device: Where to run; by default the best there is.
        engine: `local`, or `ray` for a cluster (the model as a path that every machine sees).
        workers: With ray: at least and at most so many.
        on_progress: Called with how many lines are done, and how many are expected.

    Returns:
        The vectors, (texts, dim), or (dim,) for a single text; with an output, an `EncodeSummary`.

    Example:
        >>> encode("out", ["A sentence.", "Another."]).shape                                        # doctest: +SKIP
        (2, 384)
        >>> encode("out", ["a.txt", "b/*.jsonl.gz"], "vectors.parquet", precision="float16")        # doctest: +SKIP
    """
    form, options = Form(precision, dim, normalize), EncodeOptions(long, batch_tokens)
    if output is None:
        if isinstance(inputs, Path) or column or id_column or with_text or restart or engine != "local":
            raise ConfigError("Files are encoded into a file: give `output`. Without one, `inputs` are texts.")
        if precision != "float32":
            raise ConfigError(f"precision must be float32 without an output file, got {precision!r}.")
        encoder = text_encoder(model, device)
        form.check(encoder.dimension)
        vectors = encode_texts(encoder, inputs, options)
        if not vectors.size:
            return vectors
        packed = form.pack(np.atleast_2d(vectors).astype(np.float32)).values
        return packed[0] if vectors.ndim == 1 else packed  # type: ignore[return-value]

    output = Path(output)
    check_output(output, has_ids=id_column is not None, with_text=with_text)
    source = Source.of(
        [inputs] if isinstance(inputs, str | Path) else inputs,
        leave_out=problems_file(output),  # an earlier run may have left it where a glob finds it
        column=column,
        id_column=id_column,
        stdin_format=stdin_format,
        shard_lines=shard_lines,
    )
    if any(Path(file).resolve() == output.resolve() for file in source.files):
        raise ConfigError(f"{output} is among the inputs. Give the vectors a file of their own.")
    if engine not in ("local", "ray"):
        raise ConfigError(f"engine must be 'local' or 'ray', got {engine!r}.")
    if engine == "ray" and not isinstance(model, str | Path):
        raise ConfigError("engine='ray' needs the model's folder or name: every worker loads it for itself.")

    encoder = text_encoder(model, device)
    started = time.perf_counter()
    form.check(encoder.dimension)
    job = Job(encoder, Parts(output), form, options, with_text)
    run = job.run
    if engine == "ray":
        from s2sent.vectors.ray import RayJob

        run = RayJob(job, str(model), device, workers).run
    record, resumed = _make(job, source, run, restart, on_progress)
    bad = record.lines - record.vectors
    return EncodeSummary(
        lines=record.lines,
        vectors=record.vectors,
        bad=bad,
        bad_file=problems_file(output) if bad else None,
        long=record.long,
        resumed=record.lines if resumed is None else resumed,
        seconds=time.perf_counter() - started,
        width=form.width(encoder.dimension),
        output=output,
        done_before=resumed is None,
    )


Run = Callable[[Source, Mapping[tuple[int, int], Part], OnProgress | None], None]


def _make(
    job: Job, source: Source, run: Run, restart: bool, on_progress: OnProgress | None
) -> tuple[Record, int | None]:
    """Make the output, and return its record and how many lines were done before; None if all was."""
    parts, output = job.parts, job.parts.output
    identity = {"model": job.encoder.fingerprint, **source.identity(), **job.identity()}
    with parts.locked():
        record = Record.read(output)
        if record is not None and not (restart or parts.overwrites):
            record.check(output, identity, source.windows())
            parts.finished = True  # a run that was killed at its very end may have left its parts
            return record, None
        parts.begin(identity, restart=restart)
        done = parts.done()
        resumed = sum(part.rows for part in done.values())
        if missing(done, len(source.groups())):
            run(source, done, on_progress)
            done = parts.done()
            if lost := missing(done, len(source.groups())):
                raise S2SentError(f"{parts.folder} lacks {lost}. Run the same command again: it makes what is missing.")
        note = {
            "model": job.encoder.fingerprint,
            "precision": job.form.precision,
            "dim": str(job.form.dim or job.encoder.dimension),
        }
        layout = Layout(
            parts,
            job.form.width(job.encoder.dimension),
            job.form.dtype,
            note,
            has_ids=source.id_column is not None,
            with_text=job.with_text,
        )
        written = parts.folder / "output"
        write_output(layout, written)
        # The record comes first: whenever the process dies, the output has one or the parts are still there.
        record = Record.write(parts, written, identity, done.values())
        try:
            written.replace(output)
            sync(output.parent)
        except OSError as error:
            raise write_error(output, error) from error
        parts.finished = True
        return record, resumed


@dataclass
class Job:
    """Makes parts of windows: on one machine of all, on a cluster each worker of some.

    Attributes:
        encoder: The model.
        parts: Where the parts go.
        form: Precision, features, length of the vectors.
        options: How texts are encoded.
        with_text: Whether the texts are kept beside the vectors.
    """

    encoder: TextEncoder
    parts: Parts
    form: Form = field(default_factory=Form)
    options: EncodeOptions = field(default_factory=EncodeOptions)
    with_text: bool = False

    def identity(self) -> dict[str, Any]:
        """Return what decides the vectors; how they are batched does not, but for the rounding of an int8 export."""
        return {**asdict(self.form), "long": self.options.long, "with_text": self.with_text}

    def run(self, source: Source, done: Mapping[tuple[int, int], Part], on_progress: OnProgress | None = None) -> None:
        """Make the parts that are missing, in order; the windows that are done are read and checked."""
        lines, share, expected = 0, 0.0, None

        def report(texts: int) -> None:
            nonlocal lines
            lines += texts
            if on_progress is not None:
                on_progress(lines, expected)

        def tokenized() -> Any:
            for window in source.windows():
                part = done.get((window.group, window.number))
                if part is not None:
                    part.check(window)
                yield window, self.tokenize(window) if part is None else None

        for window, tokens in prefetch(tokenized()):
            end = lines + window.rows
            share += window.share
            expected = expect(end, share)
            if tokens is not None:
                self.encode(window, tokens, report)
            report(end - lines)

    def tokenize(self, window: Window) -> list[list[int]]:
        """Return the tokens of a window's readable rows."""
        return self.encoder.pipeline.tokenize([window.texts[place] for place in window.readable])

    def encode(
        self, window: Window, tokens: Sequence[list[int]], on_texts: Callable[[int], None] | None = None
    ) -> None:
        """Encode one window and write its part."""
        places = window.readable
        encoded = encode_tokens(self.encoder, tokens, self.options, on_texts)
        packed = self.form.pack(encoded.vectors)
        if len(tokens) and packed.bad.all():
            file, line = window.lines[places[0]]
            raise ModelError(
                f"{file}, line {line}: the model gives NaN or infinity for it, and for all {len(tokens)} texts of this "
                f"part, in {self.form.precision}. Nothing of it is written. Its weights are damaged, or too large for "
                "the precision: load the model again, or use --precision float32."
            )
        problems = {places[index]: reason for index, reason in encoded.problems.items()} | window.problems
        for index in packed.bad.nonzero()[0].tolist():
            problems.setdefault(places[index], f"has no finite vector in {self.form.precision}")
        columns: dict[str, Any] = {"problem": pa.array(_problem_texts(window, problems), pa.string())}
        ids = [None if place in problems else label for place, label in enumerate(window.ids)]
        if any(label is not None for label in ids):
            columns["id"] = _id_array(ids, whole_numbers=self.parts.output.suffix == ".safetensors")
        if self.with_text:
            texts = [None if place in problems else text for place, text in enumerate(window.texts)]
            columns["text"] = pa.array(texts, pa.string())
        values = np.zeros((window.rows, packed.values.shape[1]), dtype=self.form.dtype)
        values[places] = packed.values
        columns["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        if packed.scale is not None:
            scale = np.zeros(window.rows, dtype=np.float32)
            scale[places] = packed.scale
            columns["scale"] = pa.array(scale)
        part = Part(
            group=window.group,
            number=window.number,
            rows=window.rows,
            checksum=window.checksum,
            last=window.last,
            share=window.share,
            vectors=window.rows - len(problems),
            long=encoded.long,
        )
        self.parts.write(part, pa.table(columns))


def expect(lines: int, share: float) -> int | None:
    """Estimate how many lines there are from how many are in a share of all bytes."""
    return max(lines, round(lines / share)) if share > 0 else None


def _problem_texts(window: Window, problems: Mapping[int, str]) -> list[str | None]:
    """What is wrong with each row, as one line of JSON; None where nothing is."""
    found: list[str | None] = [None] * window.rows
    for place, reason in problems.items():
        file, line = window.lines[place]
        found[place] = json.dumps({"id": window.ids[place], "file": file, "line": line, "reason": reason})
    return found


def _id_array(ids: list[Label | None], *, whole_numbers: bool) -> pa.Array:
    """Whole numbers as such, unless there is a text among them."""
    if whole_numbers:
        ids = [None if label is None else _whole_number(label) for label in ids]
    if all(label is None or (isinstance(label, int) and abs(label) <= _LARGEST) for label in ids):
        return pa.array(ids, pa.int64())
    return pa.array([None if label is None else str(label) for label in ids], pa.string())


def _whole_number(label: Label) -> int:
    try:
        number = int(label)
    except ValueError:
        number = _LARGEST + 1
    if abs(number) > _LARGEST:
        raise ConfigError(
            f"safetensors has no place for ids that are not whole numbers of 64 bits, such as {label!r}. Write "
            ".parquet or .jsonl."
        )
    return number
