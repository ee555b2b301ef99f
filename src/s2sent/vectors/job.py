"""From windows of texts to shards of vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from s2sent.data.text import Label
from s2sent.errors import ConfigError, ModelError
from s2sent.vectors.encoder import EncodeOptions, TextEncoder, encode_tokens, prefetch
from s2sent.vectors.precision import Form
from s2sent.vectors.shards import Shard, Shards
from s2sent.vectors.sources import Window

T = TypeVar("T")
_LARGEST = (1 << 63) - 1

Progress = Callable[[int, int | None], None]
"""Told how many lines are done, and how many there will be, as far as one can tell."""


def expect(lines: int, share: float) -> int | None:
    """Guess how many lines there are from how many are in a share of all bytes."""
    return max(lines, round(lines / share)) if share > 0 else None


@dataclass(frozen=True)
class Options:
    """What is made of a text, besides the model.

    Args:
        form: Precision, features, length.
        encoding: How texts are encoded.
        with_text: Keep the texts beside the vectors (parquet, jsonl).
    """

    form: Form = field(default_factory=Form)
    encoding: EncodeOptions = field(default_factory=EncodeOptions)
    with_text: bool = False

    def identity(self) -> dict[str, Any]:
        """Return what decides the vectors; how they are batched does not, but for the rounding of an int8 export."""
        return {**asdict(self.form), "long": self.encoding.long, "with_text": self.with_text}


class Job:
    """Makes shards of windows: on one machine of all, on a cluster each worker of some."""

    def __init__(self, encoder: TextEncoder, options: Options, shards: Shards) -> None:
        self.encoder, self.options, self.shards = encoder, options, shards

    def run(
        self, windows: Iterator[Window], done: Mapping[tuple[int, int], Shard], on_progress: Progress | None = None
    ) -> None:
        """Make the shards that are missing, in order; the windows that are done are read and checked."""
        lines, share = 0, 0.0

        def tell(texts: int) -> None:
            nonlocal lines
            lines += texts
            if on_progress is not None:
                on_progress(lines, expected)

        def tokenized() -> Iterator[tuple[Window, list[list[int]] | None]]:
            for window in windows:
                shard = done.get((window.group, window.number))
                if shard is not None:
                    shard.check(window)
                yield window, self.encoder.pipeline.tokenize(window.texts) if shard is None else None

        for window, tokens in prefetch(tokenized()):
            end = lines + window.rows
            share += window.share
            expected = expect(end, share)
            if tokens is not None:
                self.encode(window, tokens, tell)
            tell(end - lines)

    def encode(
        self, window: Window, tokens: Sequence[list[int]], on_texts: Callable[[int], None] | None = None
    ) -> Shard:
        """Encode one window and commit its shard."""
        if self.shards.output.suffix == ".safetensors":
            window.labels[:] = map(_whole_number, window.labels)
        encoded = encode_tokens(self.encoder, tokens, self.options.encoding, on_texts)
        packed = self.options.form.pack(encoded.vectors)
        for index in packed.bad.nonzero()[0].tolist():
            encoded.problems.setdefault(index, f"has no finite vector in {self.options.form.precision}")
        if len(tokens) and packed.bad.all():
            file, line = window.lines[0]
            raise ModelError(
                f"{file}, line {line}: the model gives NaN or infinity for it, and for all {len(tokens)} texts of this "
                f"shard, in {self.options.form.precision}. Nothing of it is written. Its weights are damaged, or too "
                "large for the precision: load the model anew, or use --precision float32."
            )
        kept = [index for index in range(len(tokens)) if index not in encoded.problems]
        problems = [*window.problems, *(window.problem(*problem) for problem in encoded.problems.items())]
        problems.sort(key=lambda problem: problem.row)
        return self.shards.commit(window, packed, kept, problems, encoded.long, self.options.with_text)


def _whole_number(label: Label) -> int:
    try:
        number = int(label)
    except ValueError:
        number = _LARGEST + 1
    if not -_LARGEST <= number <= _LARGEST:
        raise ConfigError(
            f"safetensors has no place for ids that are not whole numbers of 64 bits, such as {label!r}. Write "
            ".parquet or .jsonl."
        )
    return number
