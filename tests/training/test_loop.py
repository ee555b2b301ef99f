"""The run and its command line: what comes out, what is said, what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel
from typer.testing import CliRunner

import s2sent
from conftest import make_backbone
from s2sent.cli import app
from s2sent.data.corpus import Corpus
from s2sent.errors import ConfigError, DataError, S2SentError
from s2sent.listener import Listener
from s2sent.training import PromptCSE, Recipe, SimCSE, distributed, train
from s2sent.training.distributed import best_device, seed_step
from s2sent.training.loop import DivergedError
from s2sent.training.setup import make_loss, make_model, make_optimizer
from s2sent.training.validation import Geometry
from training.runs import make_lines


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join([*make_lines(150), "", "   "]), encoding="utf-8")
    return path


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(app, ["train", *map(str, arguments)])
    if isinstance(result.exception, S2SentError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


class Heard(Listener):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.losses: list[float] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, step: int, total: int, loss: float | None = None) -> None:
        if loss is not None:
            self.losses.append(loss)


def test_the_command_line_trains_saves_and_repeats(bert: Path, corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    shape = ("--blocks", 2, "--frequencies", 2)
    said = run(corpus, "-b", bert, *shape, "-o", out, "--batch-size", 16, "--evaluate-every", 4, "--dev", "heldout")
    assert "2 empty left out" in said.output
    assert "Step" in said.output
    assert {path.name for path in out.iterdir()} >= {"modules.json", "recipe.toml", "README.md", "training"}
    assert (out / "training" / "curve.png").stat().st_size > 1000
    rows = [json.loads(line) for line in (out / "training" / "log.jsonl").read_text().splitlines()]
    assert rows[0].keys() == {"step", "score"}
    assert any("loss" in row for row in rows)
    card = (out / "README.md").read_text()
    assert 'objective = "simcse"' in card
    assert "held out for validation" in card
    assert str(tmp_path) not in card
    assert str(bert) not in card

    again = tmp_path / "again"
    run("--recipe", out / "recipe.toml", "-o", again)
    one, two = (s2sent.load(folder).encode(["A sentence.", "Rain."]) for folder in (out, again))
    assert np.array_equal(one, two)
    assert Recipe.load(again / "recipe.toml") == Recipe.load(out / "recipe.toml")


@pytest.mark.parametrize("objective", ["simcse", "promptcse", "whitened", "supervised"])
@pytest.mark.parametrize(
    "form",
    [
        {"squeeze": "none"},
        {"fusion": "average", "gate": "sigmoid", "prior": "uniform"},
        {"fusion": "last", "gate": "none", "prior": "uniform"},
        {"gate": "linear", "prior": "last"},
        {"gate": "static"},
    ],
)
def test_every_objective_with_every_form(
    objective: str, form: dict[str, str], backbone_of: Callable[[str], Path], corpus: Path, tmp_path: Path
) -> None:
    options: list[object] = [part for name, value in form.items() for part in (f"--{name}", value)]
    if objective == "whitened":
        options += ["--groups", 16]
    if objective == "supervised":
        lines = corpus.read_text().split("\n")[:150]
        corpus = corpus.with_suffix(".tsv")
        corpus.write_text("a\tb\n" + "\n".join(f"{line}\tso {line}" for line in lines))
        options += ["--columns", "a,b"]
    family = "roberta" if objective == "promptcse" else "distilbert"
    run(
        corpus, "-b", backbone_of(family), "--objective", objective, "--blocks", 2, *options, "-o", tmp_path / "out",
        "--batch-size", 16, "--steps", 2, "--dev", "none", "--learning-rate", 0.01,
    )  # fmt: skip
    trained = s2sent.load(tmp_path / "out")
    assert np.isfinite(trained.encode(["A cat sat."])).all()
    recipe = Recipe.load(tmp_path / "out" / "recipe.toml")
    seed_step(recipe.seed, 0, 0)
    untrained = dict(make_model(recipe, torch.device("cpu")).named_parameters())
    still = [name for name, weight in trained.named_parameters() if torch.equal(weight, untrained[name])]
    # Nobody asks the pooler, a key's bias changes nothing, and the two units of so small a selector may both be off.
    assert not [name for name in still if name.endswith("weight") and not re.search(r"pooler|selector", name)]
    assert "1.selector.block_logits" not in still
    assert ("without selection" in (tmp_path / "out" / "README.md").read_text()) == (form.get("gate") == "none")


def test_steps_that_the_text_does_not_have_are_said(bert: Path, corpus: Path, tmp_path: Path) -> None:
    class Ear(Listener):
        def note(self, text: str) -> None:
            notes.append(text)

    notes: list[str] = []
    lines = len(corpus.read_text().splitlines())
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none", steps=1000)
    train(recipe, tmp_path / "out", listener=Ear())
    assert f"{lines // 16} steps, not 1000: the text has no more (--epochs 1)." in notes


def test_mistakes_are_said_before_a_model_is_loaded(
    bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s2sent.training.loop.make_model", lambda *_: pytest.fail("a model was loaded"))
    out = tmp_path / "out"
    with pytest.raises(DataError, match="does not exist"):
        run(tmp_path / "none.txt", "-b", bert, "-o", out)
    with pytest.raises(DataError, match="a batch size of at most 150"):
        run(corpus, "-b", bert, "-o", out, "--batch-size", 200, "--dev", "none")
    with pytest.raises(ConfigError, match="--groups is not an option of the objective 'simcse'"):
        run(corpus, "-b", bert, "-o", out, "--groups", 4)
    with pytest.raises(ConfigError, match="--output"):
        run(corpus, "-b", bert)
    with pytest.raises(ConfigError, match="Give --backbone"):
        run(corpus, "-o", out)
    with pytest.raises(ConfigError, match=r"a file that is there, got nowhere\.csv"):
        run(corpus, "-b", bert, "-o", out, "--dev", "nowhere.csv")
    with pytest.raises(DataError, match=r"lines\.txt/out cannot be written: Not a directory\."):
        run(corpus, "-b", bert, "-o", corpus / "out")
    with pytest.raises(ConfigError, match=r"device='abacus' cannot be used here .*Leave it out to train on"):
        run(corpus, "-b", bert, "-o", out, "--device", "abacus")
    for steps in (0, -1):
        with pytest.raises(ConfigError, match=f"checkpoint_every must be at least 1 step, got {steps}"):
            run(corpus, "-b", bert, "-o", out, "--checkpoint-every", steps)


def test_a_device_this_machine_has_not(bert: Path, corpus: Path, tmp_path: Path) -> None:
    absent = next(name for name in ("cuda", "mps", "xpu") if name != best_device())
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),))
    with pytest.raises(ConfigError, match=f"device='{absent}' cannot be used here"):
        train(recipe, tmp_path / "out", device=absent)


def test_only_the_main_rank_draws_a_bar(
    bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s2sent.cli.screen.ProgressBar", lambda: pytest.fail("a second bar"))
    monkeypatch.setattr("s2sent.cli.screen.errors.status", lambda _: pytest.fail("a second bar"))
    monkeypatch.setenv("RANK", "1")
    run(corpus, "-b", bert, "-o", tmp_path / "out", "--batch-size", 16, "--steps", 1, "--dev", "none")


@pytest.mark.parametrize(("prior", "told"), [("last", False), ("uniform", True)])
def test_what_to_do_when_no_step_helped(
    prior: str, told: bool, bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told to start as they did."""
    falling = iter(range(10, 0, -1))
    monkeypatch.setattr(Geometry, "__call__", lambda *_: float(next(falling)))
    heard = Heard()
    recipe = SimCSE(
        backbone=str(bert), corpus=(str(corpus),), batch_size=16, steps=2, dev="heldout", selection={"prior": prior}
    )
    train(recipe, tmp_path / "out", listener=heard)
    assert heard.notes[-1].startswith("No step was better than the model before training: 10.00 before, 9.00 at best.")
    assert ("--prior last" in heard.notes[-1]) == told
    assert "--learning-rate" in heard.notes[-1]


@pytest.mark.parametrize("options", [(), ("--objective", "promptcse", "--template", "So: {sentence}")])
def test_mask_pooling_without_a_mask_is_refused_before_the_first_score(
    options: tuple[str, ...], bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s2sent.training.loop._Run._score", lambda *_: pytest.fail("it was scored"))
    with pytest.raises(ConfigError, match=r"pooling='mask' takes the vector of a template's \{mask\}"):
        run(corpus, "-b", bert, "-o", tmp_path / "out", "--pooling", "mask", "--batch-size", 16, *options)


def test_a_corpus_of_one_sentence(bert: Path, tmp_path: Path) -> None:
    same = tmp_path / "same.txt"
    same.write_text("the same\n" * 100)
    with pytest.raises(DataError, match="no batch of 16 different texts"):
        train(SimCSE(backbone=str(bert), corpus=(str(same),), batch_size=16, dev="none"), tmp_path / "out")


@pytest.mark.parametrize("kind", [SimCSE, PromptCSE])
def test_lines_without_a_token_are_left_out_and_counted(kind: type[Recipe], bert: Path, tmp_path: Path) -> None:
    some = tmp_path / "some.txt"
    nothing = ["\u200b" * number for number in range(1, 41)]  # survives `str.strip`, and no BERT has a token for it
    some.write_text("\n".join([*make_lines(120), *nothing]))
    done = train(kind(backbone=str(bert), corpus=(str(some),), batch_size=8, dev="heldout"), tmp_path / "out")
    held_out = Corpus([str(some)], held_out=int(2**32 * 32 / 160)).held_out_examples(1000)
    hidden = sum(text.startswith("\u200b") for (text,) in held_out)
    assert hidden
    assert f"{40 - hidden} times a line was left out, because the tokenizer finds no text in it" in done.data


def test_a_run_of_fewer_steps_than_planned_ends_well(bert: Path, tmp_path: Path) -> None:
    some = tmp_path / "some.txt"
    some.write_text("\n".join([*make_lines(20), *["the same"] * 12]))
    done = train(SimCSE(backbone=str(bert), corpus=(str(some),), batch_size=16, dev="none"), tmp_path / "out")
    assert done.steps == 1
    assert "filled no batch" in done.data
    rows = [json.loads(line) for line in (tmp_path / "out" / "training" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1]


def test_bf16_that_kills_falls_back_with_a_line(
    bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "_BF16_TRIAL", "import os; os.kill(os.getpid(), 4)")
    heard = Heard()
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, steps=2, dev="none", precision="bf16")
    train(recipe, tmp_path / "out", listener=heard)
    assert heard.notes == ["Training in fp32: bfloat16 arithmetic kills a process on this CPU (signal 4)."]
    assert 'precision = "fp32"' in (tmp_path / "out" / "README.md").read_text()
    assert Recipe.load(tmp_path / "out" / "recipe.toml").precision == "bf16"  # the same command is the same run


@pytest.mark.parametrize(("kind", "dropout", "notes"), [(SimCSE, 0.0, 1), (SimCSE, 0.1, 0), (PromptCSE, 0.0, 0)])
def test_views_that_are_the_same_are_told_of(
    kind: type[Recipe], dropout: float, notes: int, corpus: Path, tmp_path: Path
) -> None:
    options = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": dropout}
    backbone = make_backbone(tmp_path / "backbone", "bert", **options)
    heard = Heard()
    recipe = kind(backbone=str(backbone), corpus=(str(corpus),), batch_size=16, steps=1, dev="none")
    train(recipe, tmp_path / "out", listener=heard)
    assert sum("has no dropout" in note for note in heard.notes) == notes


def test_gradient_checkpointing_and_gradcache_change_nothing_but_memory(corpus: Path, tmp_path: Path) -> None:
    # Without dropout, whose draws would come in another order.
    still = make_backbone(tmp_path / "still", "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    losses = []
    for number, options in enumerate(({}, {"gradient_checkpointing": True}, {"mini_batch_size": 5})):
        heard = Heard()
        recipe = SimCSE(
            backbone=str(still),
            corpus=(str(corpus),),
            batch_size=16,
            steps=3,
            dev="none",
            learning_rate=1e-3,
            **options,
        )
        train(recipe, tmp_path / str(number), listener=heard)
        losses.append(heard.losses)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[2] == pytest.approx(losses[0], rel=1e-4)
    assert losses[0][0] != pytest.approx(losses[0][-1], rel=1e-2)  # it did learn


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_backbone_stored_in_half_is_trained_in_full(
    dtype: torch.dtype, bert: Path, corpus: Path, tmp_path: Path
) -> None:
    half = tmp_path / "half"
    shutil.copytree(bert, half)
    AutoModel.from_pretrained(bert, dtype=dtype).save_pretrained(half)
    assert {tensor.dtype for tensor in load_file(half / "model.safetensors").values()} == {dtype}
    recipe = SimCSE(backbone=str(half), corpus=(str(corpus),), head="mlp", mlm_weight=0.1)
    loss = make_loss(recipe, make_model(recipe, torch.device("cpu")))
    assert {parameter.dtype for parameter in loss.parameters()} == {torch.float32}


def test_the_selector_has_its_own_learning_rate(bert: Path, corpus: Path, tmp_path: Path) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), learning_rate=1e-5, selector_learning_rate=1e-2)
    loss = make_loss(recipe, make_model(recipe, torch.device("cpu")))
    rates = {id(p): group["lr"] for group in make_optimizer(recipe, loss).param_groups for p in group["params"]}
    assert {rates[id(p)] for p in loss.model[1].parameters()} == {1e-2}
    assert {rates[id(p)] for p in loss.model[0].parameters()} == {1e-5}


def test_tensorboard_has_what_the_log_has(bert: Path, corpus: Path, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = tmp_path / "out"
    train(SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=8, evaluate_every=5, dev="heldout"), out)
    rows = [json.loads(line) for line in (out / "training" / "log.jsonl").read_text().splitlines()]
    events = accumulator.EventAccumulator(str(out / "training")).Reload()
    for name in ("loss", "score", "learning_rate"):
        written = [(row["step"], row[name]) for row in rows if name in row]
        shown = [(event.step, event.value) for event in events.Scalars(name)]
        assert [step for step, _ in shown] == [step for step, _ in written]
        assert [value for _, value in shown] == pytest.approx([value for _, value in written], rel=1e-5)


def test_a_score_that_is_no_number_is_not_the_best(
    bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([nan, nan, 3.0, nan, 2.0])  # the first is before training
    monkeypatch.setattr("s2sent.training.loop._Run._score", lambda *_: next(scores))
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, steps=4, evaluate_every=1, dev="heldout")
    assert train(recipe, tmp_path / "out").best_step == 2


def test_a_run_that_diverges_says_so_and_keeps_its_weights(bert: Path, corpus: Path, tmp_path: Path) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none", learning_rate=1e30)
    with pytest.raises(DivergedError, match=r"diverged at step \d+: .* smaller learning rate than 1e\+30"):
        train(recipe, tmp_path / "out")
