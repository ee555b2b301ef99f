"""A plan from records alone: tables and figures need neither weights nor text nor evaluation data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from s2sent.errors import DataError
from s2sent.experiments.catalogue import Profile
from s2sent.experiments.inputs import BackboneInput, told_apart
from s2sent.experiments.plan import SIZES, TRAINED, Digests, Settings
from s2sent.experiments.store import Record, Store


def recorded_settings(
    profile: Profile,
    store: Store,
    seeds: int | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    least_seeds: int = 1,
) -> Settings:
    """What most of a profile's records in a store were made with, but for what a person asks for (`changes`).

    Without `seeds` there are as many as in the records, and at least `least_seeds`.

    Raises:
        DataError: there are none.
    """
    records = [record for record in store.records() if record["profile"] == profile.name]
    if not records:
        raise DataError(
            f"{store.folder} has no finished run of the profile {profile.name!r} to report on. Give another --profile "
            "or --store, or leave --report-only out: then the runs are done."
        )
    backbones = {
        record["description"]["backbone"]: BackboneInput(
            record["backbone"]["name"],
            record["backbone"]["name"],
            record["description"]["backbone"],
            record["backbone"]["depth"],
        )
        for record in records
    }
    described = [record["description"] for record in records if "recipe" in record["description"]]
    trained = [one for one in described if one["kind"] in TRAINED] or described  # others' recipes are less than whole
    sizes = {*profile.recipe, *SIZES}
    recipe = _most([{name: value for name, value in d["recipe"].items() if name in sizes} for d in trained])
    return Settings(
        profile=profile,
        backbones=told_apart(list(backbones.values())),
        corpus=tuple(_most([record["corpus"] for record in records if "corpus" in record]) or ("CORPUS",)),
        seeds=seeds or max([least_seeds, *(1 + d["recipe"]["seed"] for d in trained)]),
        recipe={**(recipe or {}), **(changes or {})},
        digests={suite: _digests(trained, task) for suite, task in (("sts", "STS-B"), ("transfer", "MR"))},
    )


def _digests(trained: Sequence[dict[str, Any]], task: str) -> Digests:
    """The content of the inputs of most runs that were scored on a task."""
    scored = [d for d in trained if task in d.get("evaluation", {}).get("tasks", {})]
    corpus = _most([d["corpus"] for d in scored or trained])
    return Digests(corpus or "", _most([d["evaluation"] for d in scored]) or {})


def _most(values: Sequence[Any]) -> Any:
    counts = Counter(json.dumps(value, sort_keys=True) for value in values)
    return json.loads(counts.most_common(1)[0][0]) if counts else None


def failures(store: Store, keys: Sequence[str]) -> list[tuple[str, str]]:
    """Run and error of those that failed the last time and are not done since."""
    found: list[Record | None] = [store.failure(key) for key in keys if not store.has(key)]
    return [(record["run"], record["error"]) for record in found if record is not None]
