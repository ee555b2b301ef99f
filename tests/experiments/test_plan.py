from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.tiny import Bench
from s2sent.experiments.catalogue import read_catalogue
from s2sent.experiments.inputs import BackboneInput, Evaluation, backbone_input, corpus_fingerprint, read_digest
from s2sent.experiments.plan import Digests, Place, Run, canonical, expand, scale_blocks, unique
from s2sent.experiments.report import About, changes_of, write_report
from s2sent.experiments.reproduce import recorded_settings
from s2sent.experiments.results import collect
from s2sent.experiments.store import Store
from s2sent.selection import SelectionConfig, Selector
from s2sent.training.recipes import SimCSE


def of(entries: list[Place], row: str, kind: str = "train") -> Run:
    (run,) = {e.run.key: e.run for e in entries if e.row == row and e.run.kind == kind and e.seed == 0}.values()
    return run


def scored_on(run: Run, evaluation: Evaluation) -> Run:
    return replace(run, evaluation=evaluation, digests=replace(run.digests, evaluation=evaluation.description()))


def test_a_run_that_several_tables_share_is_one_run(bench: Bench) -> None:
    together = bench.places("main", "squeeze", "blocks-frequencies", "pooling", "beyond")

    def keys_of(*places: tuple[str, str]) -> set[str]:
        chosen = [entry for entry in together if entry.objective == "simcse"]
        return {of([entry for entry in chosen if entry.experiment == name], row).key for name, row in places}

    paper = keys_of(
        ("main", "Last3 · Stack + 2D SS"),
        ("squeeze", "Low-4"),
        ("blocks-frequencies", "n = 3, m = 4"),
        ("pooling", "Avg · S²Sent"),
        ("beyond", "2D SS of 3 (paper)"),
    )
    assert len(paper) == 1
    assert len(keys_of(("squeeze", "GAP"), ("blocks-frequencies", "n = 3, m = 1"))) == 1
    assert len(keys_of(("main", "Last1 · 1D SS"), ("blocks-frequencies", "n = 1, m = 4"))) == 1
    assert len(keys_of(("main", "Last1 · base"), ("main", "Last1 · 1D SS"), ("main", "Last3 · Avg"))) == 3
    keys = [run.key for run in unique(together)]
    assert len(keys) == len(set(keys)) < len(together)


def test_seeds_come_one_after_the_other(bench: Bench) -> None:
    seeds = [run.recipe.seed for run in unique(bench.places("main", "pooling", seeds=3)) if run.kind == "train"]
    assert seeds == sorted(seeds)
    assert set(seeds) == {0, 1, 2}


def test_the_key_does_not_know_places_or_names(bench: Bench, tmp_path: Path) -> None:
    run = of(bench.places("pooling"), "Avg · S²Sent")
    elsewhere = shutil.copytree(bench.backbone, tmp_path / "renamed")
    corpus = shutil.copy(bench.corpus, tmp_path / "other.txt")
    data = shutil.copytree(bench.data, tmp_path / "data")
    settings = replace(
        bench.settings(), backbones=(backbone_input(str(elsewhere)),), corpus=(str(corpus),), data=str(data)
    )
    settings = replace(settings, profile=replace(settings.profile, name="other"))
    catalogue = read_catalogue()
    moved = of(expand(catalogue, [catalogue.experiment("pooling", "cpu")], settings), "Avg · S²Sent")
    assert moved.key == run.key
    assert str(tmp_path) not in str(moved.description)


def test_the_key_knows_what_decides_the_result(bench: Bench, tmp_path: Path) -> None:
    run = of(bench.places("pooling"), "Avg · S²Sent")
    weights = shutil.copytree(bench.backbone, tmp_path / "w")
    config = (weights / "config.json").read_text()
    (weights / "config.json").write_text(config.replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0.2'))
    corpus = tmp_path / "lines.txt"
    corpus.write_text(bench.corpus.read_text() + "One more.\n")
    data = shutil.copytree(bench.data, tmp_path / "d")
    pairs = data / "STS" / "STSBenchmark" / "sts-test.csv"
    pairs.write_text(pairs.read_text().replace("\ta ", "\tthe ", 1))
    changed = {
        "recipe": replace(run, recipe=replace(run.recipe, learning_rate=1e-4)),
        "seed": replace(run, recipe=replace(run.recipe, seed=5)),
        "selection": replace(run, recipe=replace(run.recipe, selection=SelectionConfig(blocks=3, frequencies=2))),
        "backbone": replace(run, backbone=backbone_input(str(weights))),
        "corpus": replace(run, digests=replace(run.digests, corpus=corpus_fingerprint((str(corpus),)))),
        "data": replace(
            run, digests=replace(run.digests, evaluation=replace(run.evaluation, data=str(data)).description())
        ),
        "every": replace(run, digests=replace(run.digests, evaluation=replace(run.evaluation, every={}).description())),
    }
    keys = {run.key, *(other.key for other in changed.values())}
    assert len(keys) == len(changed) + 1
    quiet = replace(run, recipe=replace(run.recipe, mini_batch_size=2, gradient_checkpointing=True))
    assert quiet.key == run.key  # less memory, the same result


def test_keys_stay_what_they_are() -> None:
    """Committed records are found by these: a change here makes every one of them a run to do again."""
    recipe = SimCSE(
        backbone="anywhere", corpus=("any.txt",), pooling="mean", head="none", temperature=0.05, learning_rate=3e-5,
        warmup=0.0, weight_decay=0.0, clip=1.0, epochs=1, steps=60, batch_size=32, max_length=32, by_length=True,
        window=8192, evaluate_every=30, seed=1, precision="fp32", mlm_weight=0.0,
        selection=SelectionConfig(**read_catalogue().selection),
    )  # fmt: skip
    digests = Digests("c" * 16, {"dev": "d" * 16, "tasks": {"STS-B": "e" * 16}})
    run = Run("train", BackboneInput("anywhere", "x", "b" * 16, 6), recipe, Evaluation(("STS-B",)), digests)
    assert run.key == "62bc1eed17d885619306"


def test_a_report_of_the_committed_records(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "docs" / "results"
    catalogue = read_catalogue(folder / "own.toml")
    chosen = [catalogue.experiment(name, "cpu") for name in ("main", "longer")]
    settings = recorded_settings(catalogue.profile("cpu"), Store(folder / "runs"), seeds=3)
    tables = collect(expand(catalogue, chosen, settings), chosen, Store(folder / "runs"))
    about = About(settings.profile, changes_of(settings), "command", total=1, done=1, failed=[])
    page = write_report(tables, about, tmp_path).read_text()
    assert write_report(tables, about, tmp_path / "again").read_text() == page  # figures and all
    assert "Changed: precision bf16." in page
    assert "distilbert-cased-gec" in page


def test_a_run_is_called_by_what_its_row_changes(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[experiments.mine]\ntitle = "x"\nobjectives = ["simcse"]\nbase = "x"\n'
        'rows = [{ row = "x" }, { row = "y", temperature = 0.02, steps = 3 }]\n'
    )
    catalogue = read_catalogue(tmp_path / "mine.toml")
    entries = expand(catalogue, [catalogue.experiment("mine", "cpu")], bench.settings())
    assert [entry.run.name for entry in entries] == [
        "tiny-bert, simcse, 2D SS of 3, m 4, seed 0",
        "tiny-bert, simcse, 2D SS of 3, m 4, temperature 0.02, steps 3, seed 0",
    ]


def test_gradients_depend_on_nothing_that_only_training_has(bench: Bench) -> None:
    def keys(**recipe: object) -> list[str]:
        return [run.key for run in unique(bench.places("gradients", **recipe))]

    assert keys(steps=60, learning_rate=1e-3, evaluate_every=9) == keys()
    assert not set(keys(temperature=0.1)) & set(keys())
    assert not set(keys(max_length=16)) & set(keys())


@pytest.mark.parametrize(
    "options",
    [
        {"blocks": 3, "gate": "none", "fusion": "average", "frequencies": 9, "reduction": 3, "scale": "sum"},
        {"blocks": 4, "fusion": "last", "frequencies": 2},
        {"blocks": 1, "frequencies": 2},
        {"blocks": 1, "fusion": "average", "frequencies": 2},
        {"blocks": 3, "squeeze": "gap", "frequencies": 7},
        {"blocks": 3, "squeeze": "none", "frequencies": 7, "scale": "sum"},
        {"blocks": 3, "gate": "static", "frequencies": 7, "activation": "tanh"},
        {"blocks": (2, -1), "fusion": "last"},
        {"blocks": 4, "prior": "last", "gate": "linear"},
    ],
)
def test_a_canonical_selection_gives_the_same_vectors(options: dict[str, object]) -> None:
    config = SelectionConfig.from_dict(options)
    plain = canonical(config, read_catalogue().selection)
    states = list(torch.randn(5, 3, 7, 24, generator=torch.Generator().manual_seed(0)))
    outputs = []
    for one in (config, plain):
        torch.manual_seed(1)
        selector = Selector(24, one)
        chosen = [states[number if number >= 0 else len(states) + number] for number in one.chosen]
        outputs.append(selector(chosen, attention_mask=torch.ones(3, 7)).embedding)
    assert torch.equal(*outputs)


def test_blocks_are_scaled_to_a_shallow_backbone(bench: Bench) -> None:
    assert [scale_blocks(n, 6, 4) for n in (1, 3, 6)] == [1, 2, 4]
    assert [scale_blocks(n, 12, 24) for n in (1, 12)] == [1, 12]
    shallow = replace(bench.settings(), backbones=(replace(bench.settings().backbones[0], depth=4),))
    catalogue = read_catalogue()
    entries = expand(catalogue, [catalogue.experiment("main", "cpu")], shallow)
    assert of([e for e in entries if e.objective == "simcse"], "Last6 · Stack + 2D SS").recipe.selection.blocks == 4


def test_thinned_data_keeps_every_class(bench: Bench) -> None:
    evaluation = Evaluation(("MR", "STS-B"), {"MR": 8, "STS-B": 5}, data=str(bench.data))
    labels, pairs = evaluation.read()
    assert set(labels.splits["train"].labels.tolist()) == {0, 1}  # type: ignore[union-attr]
    assert pairs.subsets[0].first == Evaluation(("STS-B",), data=str(bench.data)).read()[0].subsets[0].first[::5]  # type: ignore[union-attr]
    assert read_digest("STS-B", 5, str(bench.data), "file") != read_digest("STS-B", 1, str(bench.data), "file")
