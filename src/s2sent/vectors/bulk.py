"""Encode files of texts into a file of vectors, however large; interrupted, it goes on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from s2sent.errors import ConfigError, S2SentError
from s2sent.vectors.encoder import EncodeOptions, text_encoder
from s2sent.vectors.job import Job, Options, Progress
from s2sent.vectors.outputs import assemble, check_output, problems_file
from s2sent.vectors.precision import Form
from s2sent.vectors.shards import ExistsError, Record, Shards, State, missing
from s2sent.vectors.sources import WINDOW, Source, Window

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from s2sent.vectors.encoder import TextEncoder


@dataclass(frozen=True)
class Summary:
    """What an encoding did.

    Attributes:
        lines: All lines of the input.
        vectors: How many of them have a vector.
        bad: How many have none, and are listed in
        bad_file; None if there are none.
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


def encode_files(
    model: SentenceTransformer | TextEncoder | str | Path,
    inputs: str | Path | Iterable[str | Path],
    output: str | Path,
    *,
    column: str | None = None,
    id_column: str | None = None,
    stdin_format: str = "txt",
    precision: str = "float32",
    dim: int | None = None,
    normalize: bool = False,
    long: str = "truncate",
    with_text: bool = False,
    shard_lines: int = WINDOW,
    batch_tokens: int | None = None,
    device: str | None = None,
    restart: bool = False,
    engine: str = "local",
    workers: tuple[int, int] | None = None,
    on_progress: Progress | None = None,
) -> Summary:
    """Encode texts and write their vectors, in the order of the texts.

    The output appears when it is whole. Until then, what is done is in `OUTPUT.parts`, and the same call goes on from
    there after any interruption; with a finished output it does nothing. A changed model, input or option is an
    error. A line without a text that can be encoded (empty, not UTF-8, no such field, …) has no vector and is listed
    in `OUTPUT.bad.jsonl`.

    Args:
        model: A model, its folder, or its name on the hub.
        inputs: Files (.txt, .csv, .tsv, .jsonl, .parquet; .gz or .zst of these), globs, or `-` for standard input.
        output: .parquet, .npy, .safetensors or .jsonl.
        column: Which column or field has the text. By default the only one, or `text`, or `sentence`.
        id_column: Which has each row's id. By default rows are counted over all inputs, from 0.
        stdin_format: `txt`, `csv`, `tsv` or `jsonl`.
        precision: `float32`, `float16`, `int8` or `binary`; see `Precision`.
        dim: Keep the first so many features.
        normalize: Bring each vector, after the cut, to length 1.
        long: `truncate` or `mean`; see `Options`.
        with_text: Keep the texts beside the vectors (.parquet, .jsonl).
        shard_lines: How many lines are saved at a time. They are sorted by length among themselves.
        batch_tokens: Tokens to a batch. By default what suits the device.
        device: Where to run; by default the best there is.
        restart: Throw away what an interrupted run left, and write over a finished output.
        engine: `local`, or `ray` for a cluster (the model as a path that every machine sees).
        workers: With ray: at least and at most so many.
        on_progress: Told how many lines are done, and how many are expected.

    Example:
        >>> encode_files("out", ["a.txt", "b/*.jsonl.gz"], "vectors.parquet", precision="float16")  # doctest: +SKIP
    """
    output = Path(output)
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    check_output(output, labelled=id_column is not None, with_text=with_text)
    options = Options(Form(precision, dim, normalize), EncodeOptions(long, batch_tokens), with_text)
    source = Source.of(
        inputs,
        leave_out=problems_file(output),  # an earlier start may have left it where a glob finds it
        column=column,
        label=id_column,
        stdin_format=stdin_format,
        window=shard_lines,
    )
    if any(Path(file).resolve() == output.resolve() for file in source.files):
        raise ConfigError(f"{output} is among the inputs. Give the vectors a file of their own.")
    if engine not in ("local", "ray"):
        raise ConfigError(f"engine={engine!r} is not known. Legal: 'local', 'ray'.")
    if engine == "ray" and not isinstance(model, str | Path):
        raise ConfigError("engine='ray' needs the model's folder or name: every worker loads it for itself.")

    encoder = text_encoder(model, device)
    fingerprint = encoder.fingerprint
    started = time.perf_counter()
    options.form.check(encoder.dimension)
    shards = Shards(output)
    identity = {"model": fingerprint, **source.identity(), **options.identity()}
    width = options.form.width(encoder.dimension)

    def windows() -> Iterator[Window]:
        return chain.from_iterable(map(source.windows, range(len(source.groups()))))

    def summary(record: Record, resumed: int, *, done_before: bool = False) -> Summary:
        bad = record.lines - record.vectors
        return Summary(
            lines=record.lines,
            vectors=record.vectors,
            bad=bad,
            bad_file=problems_file(output) if bad else None,
            long=record.long,
            resumed=resumed,
            seconds=time.perf_counter() - started,
            width=width,
            output=output,
            done_before=done_before,
        )

    try:
        state = State(shards, identity, restart=restart)
    except ExistsError:
        record = Record.read(output)
        if record is None:
            raise
        record.check(output, identity, windows())
        return summary(record, record.lines, done_before=True)
    try:
        done = shards.done()
        resumed = sum(shard.rows for shard in done.values())
        groups = len(source.groups())
        if missing(done, groups):  # whatever the state says: a disk may have lost a shard since
            if engine == "ray" and isinstance(model, str | Path):
                from s2sent.vectors.ray_engine import run_on_ray

                run_on_ray(model, fingerprint, source, options, shards, done, workers, device, on_progress)
            else:
                Job(encoder, options, shards).run(windows(), done, on_progress)
            done = shards.done()
            if lost := missing(done, groups):
                raise S2SentError(
                    f"{shards.folder} lacks {lost}. Run the same command again: it makes what is missing."
                )
        state.completed()
        note = {"model": fingerprint, "precision": precision, "dim": str(dim or encoder.dimension)}
        assemble(shards, width, options.form.dtype, note)
        record = Record.of(identity, done.values())
        record.write(shards)  # while the shards are there: whenever we die, the same command finds one or the other
        shards.remove()
    except BaseException:
        if not shards.any():  # a mistake in the input, most often: leave nothing behind
            shards.remove()
        raise
    finally:
        state.close()
    return summary(record, resumed)
