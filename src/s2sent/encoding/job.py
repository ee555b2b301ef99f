"""From windows of texts to shards of vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from s2sent.encoding.batches import CPU_TOKENS, GPU_TOKENS, encode_tokens
from s2sent.encoding.encoder import TextEncoder
from s2sent.encoding.shards import Shard, Shards
from s2sent.encoding.sources import Window
from s2sent.encoding.vectors import Form
from s2sent.errors import ConfigError

T = TypeVar("T")

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
        long: A text that is longer than the model takes is cut (`truncate`), or split at the limit and its pieces'
            vectors averaged by their length (`mean`).
        with_text: Keep the texts beside the vectors (parquet, jsonl).
        batch_tokens: Tokens to a batch, padding included. None: what suits the device.
    """

    form: Form = field(default_factory=Form)
    long: str = "truncate"
    with_text: bool = False
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.long not in ("truncate", "mean"):
            raise ConfigError(f"long={self.long!r} is not known. Legal: 'truncate', 'mean'.")
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens={self.batch_tokens} is not legal: a batch has at least one token.")

    def identity(self) -> dict[str, Any]:
        """Return what decides the vectors; how they are batched does not."""
        return {**asdict(self.form), "long": self.long, "with_text": self.with_text}


class Job:
    """Makes shards of windows: on one machine of all, on a cluster each worker of some."""

    def __init__(self, encoder: TextEncoder, options: Options, shards: Shards) -> None:
        self.encoder, self.options, self.shards = encoder, options, shards
        on_cpu = str(getattr(encoder, "device", "cpu")) == "cpu"
        self.budget = options.batch_tokens or (CPU_TOKENS if on_cpu else GPU_TOKENS)

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
                yield window, self.encoder.tokenize(window.texts) if shard is None else None

        for window, tokens in ahead(tokenized()):
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
        if self.shards.output.suffix == ".safetensors" and any(isinstance(label, str) for label in window.labels):
            raise ConfigError("safetensors has no place for ids that are not whole numbers. Write .parquet or .jsonl.")
        encoded = encode_tokens(
            self.encoder,
            tokens,
            average_long=self.options.long == "mean",
            budget=self.budget,
            on_texts=on_texts,
        )
        packed = self.options.form.pack(encoded.vectors)
        for index in packed.bad.nonzero()[0].tolist():
            encoded.problems.setdefault(index, f"has no finite vector in {self.options.form.precision}")
        kept = [index for index in range(len(tokens)) if index not in encoded.problems]
        problems = [*window.problems, *(window.problem(*problem) for problem in encoded.problems.items())]
        problems.sort(key=lambda problem: problem.row)
        return self.shards.commit(window, packed, kept, problems, encoded.long, self.options.with_text)


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Make the next item in a thread while the present one is used: reading and tokenising beside computing."""
    end = object()
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item  # type: ignore[misc]
