"""Adapting a frozen encoder: it helps where it can, does no harm where it cannot, and its result is a plain model."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize

import s2sent
from conftest import DEPTH, DIM, SENTENCES, make_backbone
from model.tiny import pooling_of
from s2sent.errors import ConfigError, DataError, S2SentError
from s2sent.model.load import open_encoder
from s2sent.options import to_toml
from s2sent.selection import SelectionConfig
from s2sent.training.adapt import AdaptResult, adapt, assemble
from s2sent.training.adapt_recipe import AdaptRecipe
from s2sent.training.frozen import TEMPERATURES, split
from s2sent.training.recipes import SimCSE
from s2sent.training.setup import make_model
from s2sent.vectors.states import StateEncoder

WORDS = sorted({word.strip(".,;:!?") for sentence in SENTENCES for word in sentence.split() if word.isascii()})
QUICK = {"precision": "fp32", "steps": 60, "batch_size": 64, "map_learning_rates": (1e-2,)}
BackboneOf = Callable[[str], Path]


def sentences(count: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, size=8, replace=False)) for _ in range(count)]


def variant(text: str, random: np.random.Generator) -> str:
    """The same words in another order, but for two."""
    words = random.permutation(text.split()).tolist()
    return " ".join([*words[:6], *random.choice(WORDS, size=2)])


def write(path: Path, names: list[str], rows: list[tuple[object, ...]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(1)
    rows = [(text, variant(text, random)) for text in sentences(400)]
    return write(tmp_path_factory.mktemp("pairs") / "pairs.csv", ["anchor", "positive"], rows)


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder whose last block has turned to something else: all of its states point nearly one way."""
    folder = make_backbone(tmp_path_factory.mktemp("spoiled"), "bert")
    model = open_encoder(folder, device="cpu")
    norm = model[0].auto_model.encoder.layer[-1].output.LayerNorm
    with torch.no_grad():
        norm.weight.mul_(0.05)
        norm.bias.normal_(0, 1, generator=torch.Generator().manual_seed(0))
    model[0].auto_model.save_pretrained(folder)
    return folder


def found(model: SentenceTransformer, texts: list[str], others: list[str]) -> float:
    """How many texts find their own variant among all."""
    u, v = (torch.nn.functional.normalize(model.encode(t, convert_to_tensor=True), dim=1) for t in (texts, others))
    return float(((u @ v.T).argmax(dim=1).cpu() == torch.arange(len(texts))).float().mean())


def own_loss(model: SentenceTransformer, rows: list[tuple[str, str]]) -> float:
    """InfoNCE on the held-out pairs that forms are compared on, at the best temperature, from a model's own vectors."""
    _, held_out = split([anchor for anchor, _ in rows], 0.2, 2000, seed=0)
    chosen = [rows[i] for i in held_out.tolist()][len(held_out) // 2 :]
    u, v = (torch.tensor(model.encode([row[side] for row in chosen])).double() for side in (0, 1))
    cosines = torch.nn.functional.cosine_similarity(u[:, None], v[None], dim=2)
    scaled = [cosines / temperature for temperature in TEMPERATURES]
    return min(float((torch.logsumexp(one, dim=1) - one.diagonal()).mean()) for one in scaled)


@pytest.fixture(scope="module")
def adapted(spoiled: Path, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> AdaptResult:
    output = tmp_path_factory.mktemp("out") / "adapted"
    return adapt(spoiled, pairs, output, device="cpu", states=output.parent / "states", **QUICK)


def test_a_spoiled_last_block_is_left_for_the_others(adapted: AdaptResult, spoiled: Path) -> None:
    names = ["as-is", "as-is+map", "blocks", "blocks+map", "gate", "gate+map"]
    assert [result.form.name for result in adapted.forms] == names
    assert adapted.kept is min(adapted.forms, key=lambda result: result.loss)
    assert adapted.kept.form.selection is not None
    assert adapted.kept.beats(adapted.forms[0])
    assert sum(adapted.forms[2].shares.values()) == pytest.approx(1, abs=1e-5)
    random = np.random.default_rng(9)
    texts = sentences(100, seed=5)
    others = [variant(text, random) for text in texts]
    before, after = found(open_encoder(spoiled, device="cpu"), texts, others), found(adapted.model, texts, others)
    assert after > before + 0.3


def test_the_encoder_has_not_changed(adapted: AdaptResult, spoiled: Path) -> None:
    before = open_encoder(spoiled, device="cpu")[0].auto_model.state_dict()
    after = adapted.model[0].auto_model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_result_is_a_model_like_every_other(adapted: AdaptResult, tmp_path: Path) -> None:
    assert adapted.output is not None
    vectors = adapted.model.encode(SENTENCES)
    for loaded in (
        s2sent.load(adapted.output, device="cpu"),
        SentenceTransformer(str(adapted.output), trust_remote_code=True, device="cpu"),
    ):
        assert np.array_equal(loaded.encode(SENTENCES), vectors)
    s2sent.export(adapted.output, tmp_path / "onnx")
    np.testing.assert_allclose(s2sent.load(tmp_path / "onnx").encode(SENTENCES), vectors, rtol=1e-3, atol=1e-4)
    card = (adapted.output / "README.md").read_text()
    assert "| gate+map |" in card
    assert str(adapted.output.parent) not in card


@pytest.mark.parametrize("number", range(6))
def test_what_was_trained_on_kept_states_is_what_the_model_computes(
    number: int, adapted: AdaptResult, spoiled: Path, pairs: Path
) -> None:
    """The held-out loss of every form, computed again from the assembled model's own vectors."""
    result = adapted.forms[number]
    model = assemble(open_encoder(spoiled, device="cpu"), result)
    with pairs.open(newline="") as file:
        rows = [(row["anchor"], row["positive"]) for row in csv.DictReader(file)]
    assert own_loss(model, rows) == pytest.approx(result.loss, abs=2e-2)
    assert len(result.losses) == 40  # of 400 a fifth is held out, and half of that chose the step


def test_a_good_encoder_is_kept_as_it_is_where_there_is_nothing_to_gain(bert: Path, tmp_path: Path) -> None:
    """Partners that have nothing to do with each other: whatever is learned is noise."""
    rows = list(zip(sentences(200, seed=1), sentences(200, seed=2), strict=True))
    data = write(tmp_path / "noise.csv", ["anchor", "positive"], rows)
    result = adapt(bert, data, tmp_path / "out", device="cpu", states=tmp_path / "states", **QUICK)
    assert result.kept is result.forms[0]
    assert result.kept.form.name == "as-is"
    assert any("kept as it is" in note for note in result.notes)
    before = open_encoder(bert, device="cpu").encode(SENTENCES)
    assert np.array_equal(s2sent.load(tmp_path / "out", device="cpu").encode(SENTENCES), before)


def test_a_second_run_starts_at_the_training(
    adapted: AdaptResult, spoiled: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = StateEncoder.run
    batches: list[int] = []

    def counted(self: StateEncoder, sequences: list[list[int]], sums: object) -> object:
        batches.append(len(sequences))
        return run(self, sequences, sums)  # type: ignore[arg-type]

    monkeypatch.setattr(StateEncoder, "run", counted)
    assert adapted.states is not None
    again = adapt(
        spoiled,
        pairs,
        tmp_path / "out",
        device="cpu",
        states=adapted.states.parent,
        forms=("gate", "features"),
        **QUICK,
    )
    assert batches == [1]  # the one sentence that every encoder is tried on
    assert [result.form.name for result in again.forms] == ["as-is", "gate", "features"]
    assert np.array_equal(again.forms[1].losses, adapted.forms[4].losses)


def test_a_saved_recipe_gives_the_same_bits(adapted: AdaptResult, tmp_path: Path) -> None:
    assert adapted.output is not None
    recipe = AdaptRecipe.load(adapted.output / "recipe.toml")
    again = adapt(recipe=recipe, output=tmp_path / "again", device="cpu", states=tmp_path / "states")
    assert np.array_equal(again.model.encode(SENTENCES), adapted.model.encode(SENTENCES))
    for one, other in zip(again.forms, adapted.forms, strict=True):
        assert np.array_equal(one.losses, other.losses)
    (tmp_path / "copy.toml").write_text(to_toml(recipe.to_dict()))
    assert AdaptRecipe.load(tmp_path / "copy.toml") == recipe


def test_the_same_call_again_finds_its_result(adapted: AdaptResult, spoiled: Path, pairs: Path) -> None:
    assert adapted.output is not None
    again = adapt(spoiled, pairs, adapted.output, device="cpu", **QUICK)
    assert again.kept is None
    assert "already" in again.notes[0]
    assert np.array_equal(again.model.encode(SENTENCES), adapted.model.encode(SENTENCES))
    with pytest.raises(ConfigError, match="another recipe, model or data"):
        adapt(spoiled, pairs, adapted.output, device="cpu", **{**QUICK, "steps": 61})


def test_a_strangers_folder_is_never_replaced(spoiled: Path, pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("precious")
    for restart in (False, True):
        with pytest.raises(ConfigError):
            adapt(spoiled, pairs, tmp_path / "mine", device="cpu", states=tmp_path / "s", restart=restart, **QUICK)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize("kind", ["shuffled", "scores"])
def test_what_cannot_be_learned_is_not_taken_for_a_gain(kind: str, spoiled: Path, pairs: Path, tmp_path: Path) -> None:
    """Smaller cosines have a lower loss at a fixed temperature, whatever they are worth: that must not count."""
    random = np.random.default_rng(2)
    texts, others = sentences(400, seed=1), sentences(400, seed=2)
    if kind == "shuffled":
        data = write(tmp_path / "a.csv", ["anchor", "positive"], list(zip(texts, others, strict=True)))
    else:
        rows = list(zip(texts, others, random.random(400).tolist(), strict=True))
        data = write(tmp_path / "a.csv", ["sentence1", "sentence2", "score"], rows)
    for number in range(3):
        result = adapt(spoiled, data, device="cpu", states=tmp_path / "s", seed=number, **QUICK)
        assert result.kept is result.forms[0]


def test_changed_data_or_another_model_is_not_taken_for_the_same(bert: Path, pairs: Path, tmp_path: Path) -> None:
    data = tmp_path / "pairs.csv"
    data.write_bytes(pairs.read_bytes())
    options = {
        "device": "cpu",
        "states": tmp_path / "s",
        "forms": ("blocks",),
        "selection": {"blocks": [1, 2]},
        **QUICK,
    }
    adapt(bert, data, tmp_path / "out", **options)  # type: ignore[arg-type]
    again = adapt(bert, data, tmp_path / "out", **{**options, "selection": {"blocks": (1, 2)}})  # type: ignore[arg-type]
    assert again.kept is None
    data.write_text("".join(data.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ConfigError, match="another recipe, model or data"):
        adapt(bert, data, tmp_path / "out", **options)  # type: ignore[arg-type]
    one, other = open_encoder(bert, device="cpu"), open_encoder(bert, device="cpu")
    with torch.no_grad():
        other[0].auto_model.embeddings.word_embeddings.weight.mul_(-1)
    adapt(one, data, tmp_path / "memory", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="another recipe, model or data"):
        adapt(other, data, tmp_path / "memory", **options)  # type: ignore[arg-type]


def test_a_failed_restart_leaves_the_old_model(
    adapted: AdaptResult, spoiled: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert adapted.output is not None
    shutil.copytree(adapted.output, tmp_path / "out")
    before = s2sent.load(tmp_path / "out", device="cpu").encode(SENTENCES)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    options = {"device": "cpu", "states": tmp_path / "s", "restart": True, "forms": ("blocks",), **QUICK}
    with monkeypatch.context() as patch:
        patch.setattr(SentenceTransformer, "save", full)
        with pytest.raises(S2SentError, match="disk is full"):
            adapt(spoiled, pairs, tmp_path / "out", **options)  # type: ignore[arg-type]
    assert np.array_equal(s2sent.load(tmp_path / "out", device="cpu").encode(SENTENCES), before)
    adapt(spoiled, pairs, tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not np.array_equal(s2sent.load(tmp_path / "out", device="cpu").encode(SENTENCES), before)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_negative_blocks_with_a_depth_are_the_ones_that_are_kept(spoiled: Path, pairs: Path, tmp_path: Path) -> None:
    options = {"device": "cpu", "states": tmp_path / "s", "forms": ("blocks",), **QUICK}
    result = adapt(
        spoiled,
        pairs,
        tmp_path / "out",
        depth=3,
        selection={"blocks": (-3, -2)},
        **options,  # type: ignore[arg-type]
    )
    trained = result.forms[1]
    assert set(trained.shares) == {1, 2}
    whole = assemble(open_encoder(spoiled, device="cpu"), trained)
    if result.kept is trained:
        loaded = s2sent.load(tmp_path / "out", device="cpu")
        assert pooling_of(loaded).block_numbers == (1, 2)
        np.testing.assert_allclose(loaded.encode(SENTENCES), whole.encode(SENTENCES), rtol=1e-5, atol=1e-5)


def test_scored_pairs_teach_their_order(spoiled: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    rows: list[tuple[object, ...]] = []
    for text in sentences(1200, seed=7):
        kept = int(random.integers(0, 9))
        words = [*text.split()[:kept], *random.choice(WORDS, size=8 - kept)]
        rows.append((text, " ".join(words), kept / 8))
    data = write(tmp_path / "scored.csv", ["sentence1", "sentence2", "score"], rows)
    result = adapt(spoiled, data, tmp_path / "out", device="cpu", states=tmp_path / "s", **QUICK)
    assert result.kept is not result.forms[0]

    def correlation(model: SentenceTransformer) -> float:
        u, v = (torch.tensor(model.encode([str(row[side]) for row in rows])) for side in (0, 1))
        cosine = torch.nn.functional.cosine_similarity(u, v)
        return float(np.corrcoef(cosine, [float(str(row[2])) for row in rows])[0, 1])

    assert correlation(result.model) > correlation(open_encoder(spoiled, device="cpu")) + 0.1


def test_plain_text_leaves_a_spoiled_block_and_keeps_a_good_one(spoiled: Path, tmp_path: Path) -> None:
    good = make_backbone(tmp_path / "good", "bert")
    model = open_encoder(good, device="cpu")[0].auto_model
    with torch.no_grad():  # every block hands on what it is given: the last one knows as much as the first
        for block in model.encoder.layer:
            block.attention.output.dense.weight.mul_(0.01)
            block.output.dense.weight.mul_(0.01)
    model.save_pretrained(good)
    path = tmp_path / "lines.txt"
    random = np.random.default_rng(6)
    topics = [random.choice(WORDS, size=3, replace=False) for _ in range(300)]  # each line has words of its own
    path.write_text("\n".join(" ".join(random.choice(topic, size=20)) for topic in topics))
    better = adapt(spoiled, path, tmp_path / "a", device="cpu", states=tmp_path / "s", **QUICK)
    assert [result.form.name for result in better.forms] == ["as-is", "blocks"]
    assert better.forms[0].loss > 4 * better.forms[1].loss
    assert better.kept is better.forms[1]
    kept = adapt(good, path, tmp_path / "b", device="cpu", states=tmp_path / "s", **QUICK)
    assert kept.kept is kept.forms[0]
    assert any("Pairs or scored pairs" in note for note in kept.notes)


@pytest.mark.parametrize("family", ["qwen3", "llama", "modernbert", "albert", "deberta", "distilbert"])
def test_every_family_and_decoders_too(family: str, backbone_of: BackboneOf, pairs: Path, tmp_path: Path) -> None:
    result = adapt(
        backbone_of(family), pairs, tmp_path / "out", device="cpu", states=tmp_path / "s", forms=("gate+map",), **QUICK
    )
    trained = assemble(open_encoder(backbone_of(family), device="cpu"), result.forms[1])
    assert result.forms[1].loss < result.forms[0].loss
    texts, random = sentences(60, seed=8), np.random.default_rng(4)
    others = [variant(text, random) for text in texts]
    assert found(trained, texts, others) >= found(open_encoder(backbone_of(family), device="cpu"), texts, others) - 0.05
    assert np.isfinite(s2sent.load(tmp_path / "out", device="cpu").encode(SENTENCES)).all()


def test_depth_auto_keeps_the_fewest_blocks_that_lose_nothing(spoiled: Path, pairs: Path, tmp_path: Path) -> None:
    result = adapt(
        spoiled, pairs, tmp_path / "out", device="cpu", states=tmp_path / "s", forms=("blocks",), depth="auto", **QUICK
    )
    assert [one.depth for one in result.depths] == [1, 2, 3, 4]
    assert result.kept is not None
    depth = next(one.depth for one in result.depths if one.result is result.kept)
    best = min((one.result for one in result.depths), key=lambda one: one.loss)
    assert not best.beats(result.kept)
    assert all(best.beats(one.result) for one in result.depths if one.depth < depth)
    loaded = s2sent.load(tmp_path / "out", device="cpu")
    assert loaded[0].auto_model.config.num_hidden_layers == depth == len(loaded[0].auto_model.encoder.layer)
    whole = assemble(open_encoder(spoiled, device="cpu"), result.kept)
    np.testing.assert_allclose(loaded.encode(SENTENCES), whole.encode(SENTENCES), rtol=1e-5, atol=1e-5)
    if depth < DEPTH:
        assert result.speedup is not None


def test_a_depth_can_be_given(spoiled: Path, pairs: Path, tmp_path: Path) -> None:
    options = {"device": "cpu", "states": tmp_path / "s", **QUICK}
    result = adapt(spoiled, pairs, tmp_path / "out", forms=("gate",), depth=2, **options)  # type: ignore[arg-type]
    assert s2sent.load(tmp_path / "out", device="cpu")[0].auto_model.config.num_hidden_layers == 2
    assert set(result.forms[1].shares) == {0, 1, 2}
    with pytest.raises(ConfigError, match="depth must be at most 4"):
        adapt(spoiled, pairs, tmp_path / "deep", depth=9, **options)  # type: ignore[arg-type]


def test_modules_behind_the_pooling_stay_and_the_map_comes_before_normalize(
    bert: Path, pairs: Path, tmp_path: Path
) -> None:
    plain = open_encoder(bert, device="cpu")
    torch.manual_seed(0)
    dense = Dense(DIM, 24, activation_function=torch.nn.Tanh())
    model = SentenceTransformer(modules=[*plain, dense, Normalize()], device="cpu")
    model.save(str(tmp_path / "model"))
    result = adapt(
        tmp_path / "model", pairs, tmp_path / "out", device="cpu", states=tmp_path / "s", forms=("gate+map",), **QUICK
    )
    assembled = assemble(model, result.forms[1])
    kinds = [type(module).__name__ for module in assembled]
    assert kinds == ["Transformer", "SelectivePooling", "Dense", "Dense", "Normalize"]
    assert torch.equal(assembled[2].linear.weight, dense.linear.weight)
    assert np.allclose(np.linalg.norm(assembled.encode(SENTENCES), axis=1), 1, atol=1e-5)


def test_a_trained_model_can_be_adapted_and_an_adapted_one_trained(bert: Path, pairs: Path, tmp_path: Path) -> None:
    from s2sent.training import train

    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(sentences(64)))
    recipe = SimCSE(backbone=str(bert), corpus=(str(lines),), steps=2, batch_size=8, dev="none", max_length=16)
    train(recipe, tmp_path / "trained", device="cpu")
    result = adapt(
        tmp_path / "trained", pairs, tmp_path / "adapted", device="cpu", states=tmp_path / "s", forms=("gate",), **QUICK
    )
    trained = s2sent.load(tmp_path / "trained", device="cpu")
    with pairs.open(newline="") as file:
        rows = [(row["anchor"], row["positive"]) for row in csv.DictReader(file)]
    assert result.forms[0].loss == pytest.approx(own_loss(trained, rows), abs=2e-2)  # as-is is the trained model
    again = SimCSE(
        backbone=str(tmp_path / "adapted"), corpus=(str(lines),), steps=2, batch_size=8, dev="none", max_length=16
    )
    done = train(again, tmp_path / "again", device="cpu")
    assert done.steps == 2
    # The adapted selector goes on learning; another selection replaces it.
    before, after = (pooling_of(model) for model in (result.model, done.model))
    assert after.selection == before.selection
    before_logits, after_logits = before.selector.block_logits, after.selector.block_logits
    assert torch.allclose(after_logits, before_logits, atol=1e-3)
    assert not torch.equal(after_logits, before_logits)
    other = replace(again, selection=SelectionConfig(blocks=2))
    replaced = train(other, tmp_path / "other", device="cpu").model
    assert pooling_of(replaced).selection == SelectionConfig(blocks=2)


def test_unequal_blocks_are_brought_to_one_size(bert: Path, pairs: Path, tmp_path: Path) -> None:
    model = open_encoder(bert, device="cpu")
    with torch.no_grad():
        model[0].auto_model.encoder.layer[1].output.LayerNorm.weight.mul_(50)
        model[0].auto_model.encoder.layer[1].output.LayerNorm.bias.mul_(50)
    model.save(str(tmp_path / "large"))
    result = adapt(
        tmp_path / "large", pairs, tmp_path / "out", device="cpu", states=tmp_path / "s", forms=("gate",), **QUICK
    )
    assert any("unequal size" in note for note in result.notes)
    selection = result.forms[1].form.selection
    assert selection is not None
    scales = selection.block_scales
    some = adapt(
        tmp_path / "large", pairs, tmp_path / "b", device="cpu", states=tmp_path / "s", forms=("blocks",),
        selection={"blocks": (2, -1)}, **QUICK,
    )  # fmt: skip
    assert some.forms[1].form.selection is not None
    assert some.forms[1].form.selection.block_scales == (scales[2], 1.0)
    assert scales[2] == max(scales) > 10
    assert scales[-1] == 1
    loaded = assemble(model, result.forms[1])
    loaded.save(str(tmp_path / "saved"))
    assert pooling_of(s2sent.load(tmp_path / "saved", device="cpu")).selection.block_scales == scales


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be from 1 to 1,000,000, got 0"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"temperature": float("inf")}, "temperature must be a finite number"),
        ({"temperature": -1.0}, "temperature must be above 0, got -1.0"),
        ({"held_out": 0.9}, "held_out must be above 0 and at most 0.5, got 0.9"),
        ({"forms": ("best",)}, "no form 'best'.*as-is"),
        ({"depth": 0}, "depth must be 'auto' or a number"),
        ({"map_learning_rates": ()}, "map_learning_rates must be numbers above 0"),
        ({"precision": "int8"}, "precision must be one of"),
        ({"selection": {"gate": "wide"}}, "gate"),
        ({"selection": {"blocks": 9}}, "reaches beyond"),
        ({"selection": {"blocks": 10**9}}, "blocks"),
        ({"selection": {"frequencies": 10**9}}, "frequencies"),
        ({"selection": {"blocks": (1, 4)}, "depth": 3}, "reaches beyond"),
        ({"forms": 3}, "forms must be a list of texts"),
        ({"columns": 5}, "columns must be a list of texts"),
        ({"seed": -1}, "seed must be from 0"),
        ({"seed": 2**70}, "seed must be a finite number"),
        ({"held_out": 0.004}, "holds . of 400 examples out"),
        ({"selection": "gate"}, "must be a table"),
    ],
)
def test_mistakes_are_said_before_the_pass(
    options: dict[str, object], message: str, bert: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s2sent.training.adapt.keep_states", lambda *_, **__: pytest.fail("the pass has begun"))
    with pytest.raises(ConfigError, match=message):
        adapt(bert, pairs, tmp_path / "out", device="cpu", states=tmp_path / "s", **options)
    assert not (tmp_path / "out").exists()


def test_too_few_examples_are_said_before_the_model_is_loaded(tmp_path: Path) -> None:
    data = write(tmp_path / "few.csv", ["anchor", "positive"], [("a", "b")] * 3)
    with pytest.raises(DataError, match="At least 50"):
        adapt("no-such-model", data, tmp_path / "out")


def test_a_cut_output_is_no_model(spoiled: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it saves, nothing is at the output; the same call then makes it."""

    def dying(self: SentenceTransformer, path: str, **_: object) -> None:
        Path(path, "config.json").write_text("half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SentenceTransformer, "save", dying)
        with pytest.raises(KeyboardInterrupt):
            adapt(spoiled, pairs, tmp_path / "out", device="cpu", states=tmp_path / "s", forms=("blocks",), **QUICK)
    assert not (tmp_path / "out").exists()
    adapt(spoiled, pairs, tmp_path / "out", device="cpu", states=tmp_path / "s", forms=("blocks",), **QUICK)
    assert (tmp_path / "out" / "modules.json").exists()
    shutil.rmtree(tmp_path / "out")


def test_every_trained_form_encodes_other_texts(bert: Path, pairs: Path, tmp_path: Path) -> None:
    result = adapt(bert, pairs, device="cpu", states=tmp_path / "s", forms=("blocks", "gate+map"), **QUICK)
    model = open_encoder(bert, device="cpu")
    texts = [*SENTENCES[:5], SENTENCES[0]]
    np.testing.assert_allclose(result.encode(texts, "as-is"), model.encode(texts), rtol=1e-3, atol=1e-4)
    for one in result.forms[1:]:
        expected = assemble(model, one).encode(texts)
        np.testing.assert_allclose(result.encode(texts, one.form.name), expected, rtol=2e-2, atol=5e-3)
    with pytest.raises(ConfigError, match=r"no trained form 'features'.*as-is, blocks, gate\+map"):
        result.encode(texts, "features")


def test_training_keeps_the_selector_of_a_model_that_pools_otherwise(bert: Path, tmp_path: Path) -> None:
    s2sent.build(bert, blocks=2, pooling="cls", device="cpu").save(str(tmp_path / "cls"))
    recipe = SimCSE(backbone=str(tmp_path / "cls"), corpus=("lines.txt",))
    own = pooling_of(s2sent.load(tmp_path / "cls", device="cpu")).selector.expand.weight
    kept = pooling_of(make_model(recipe, torch.device("cpu")))
    assert (kept.pooling, kept.selection.blocks) == ("cls", 2)
    assert torch.equal(kept.selector.expand.weight, own)
    other = pooling_of(
        make_model(replace(recipe, selection=SelectionConfig(blocks=2, frequencies=2)), torch.device("cpu"))
    )
    assert not torch.equal(other.selector.expand.weight, own)


def test_a_recipe_and_a_model_are_not_given_together(bert: Path, pairs: Path) -> None:
    with pytest.raises(ConfigError, match="either a recipe"):
        adapt("other", recipe=AdaptRecipe(model=str(bert), data=(str(pairs),)))
