"""Killed at any instant, a run goes on and ends with the very same weights."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import s2sent
from s2sent.atomic import DiskFullError
from s2sent.errors import ConfigError, DataError, ModelError, S2SentError
from s2sent.listener import Listener
from s2sent.selection import SelectionConfig
from s2sent.training import PromptCSE, Recipe, SimCSE, Supervised, Whitened, train
from s2sent.training.checkpoint import Checkpoints, Progress
from training.runs import ended, make_lines, start


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A text file of 200 sentences."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(make_lines(200)), encoding="utf-8")
    return path


def weights(folder: Path) -> dict[str, bytes]:
    files = [folder / "model.safetensors", folder / "1_SelectivePooling" / "model.safetensors"]
    return {
        f"{file}:{name}"[len(str(folder)) :]: t.numpy().tobytes()
        for file in files
        for name, t in load_file(file).items()
    }


def a_recipe(kind: str, backbone: Path, corpus: Path) -> Recipe:
    common = {"backbone": str(backbone), "batch_size": 16, "evaluate_every": 4, "learning_rate": 1e-3, "window": 64}
    match kind:
        case "simcse":
            return SimCSE(corpus=(str(corpus),), epochs=2, head="mlp", dev="heldout", **common)
        case "promptcse":
            return PromptCSE(corpus=(str(corpus),), pooling="mask", dev="heldout", **common)
        case "whitened":
            return Whitened(corpus=(str(corpus),), groups=8, dev="none", **common)
    table = corpus.with_suffix(".csv")
    lines = make_lines(300, seed=1)
    rows = [f'"{a}","{b}","{c}"' for a, b, c in zip(lines[:100], lines[100:200], lines[200:], strict=True)]
    table.write_text("\n".join(["sent0,sent1,hard_neg", *(row for row in rows)]), encoding="utf-8")
    return Supervised(corpus=(str(table),), **{**common, "dev": "none"})


@pytest.mark.parametrize("kind", ["simcse", "promptcse", "whitened", "supervised"])
def test_killed_and_resumed_is_bit_identical(
    kind: str, backbone_of: Callable[[str], Path], corpus: Path, tmp_path: Path
) -> None:
    recipe = a_recipe(kind, backbone_of("bert"), corpus)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert ended(start(lambda: train(recipe, whole))) == 0

    chance = random.Random(kind)
    for target in sorted(chance.sample(range(8), 3)):  # 0: before there is any checkpoint
        pid = start(lambda: train(recipe, killed, checkpoint_every=1))
        while target and not any(int(path.name[5:]) >= target for path in (killed / "checkpoints").glob("step-*")):
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.03))  # anywhere in a step, an evaluation or a checkpoint
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL
    assert ended(start(lambda: train(recipe, killed))) == 0
    assert weights(killed) == weights(whole)
    assert not (killed / "checkpoints").exists()
    steps = [row["step"] for row in map(json.loads, (killed / "training" / "log.jsonl").read_text().splitlines())]
    assert steps == sorted(steps)


def test_stopped_politely_it_says_so_and_goes_on(bert: Path, corpus: Path, tmp_path: Path) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=8, dev="none", epochs=4)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(recipe, whole)

    def until_step_5() -> None:
        class Stop(Listener):
            def progress(self, step: int, total: int, loss: float | None = None) -> None:
                if step == 5:
                    os.kill(os.getpid(), signal.SIGTERM)

        try:
            train(recipe, stopped, listener=Stop())
        except KeyboardInterrupt:
            os._exit(42)

    assert ended(start(until_step_5)) == 42
    newest = Checkpoints(stopped / "checkpoints").newest()
    assert newest is not None
    assert newest.progress.step == 5
    train(recipe, stopped)
    assert weights(stopped) == weights(whole)


def interrupt_at(step: int, recipe: Recipe, output: Path, **options: Any) -> list[str]:
    """Stop a run after a step; what it said."""
    notes: list[str] = []

    class Stop(Listener):
        def progress(self, now: int, total: int, loss: float | None = None) -> None:
            if now == step:
                os.kill(os.getpid(), signal.SIGINT)

        def note(self, text: str) -> None:
            notes.append(text)

    with pytest.raises(KeyboardInterrupt):
        train(recipe, output, **{"checkpoint_every": 1, **options}, listener=Stop())
    return notes


def test_stopped_while_the_last_score_is_taken(bert: Path, corpus: Path, tmp_path: Path) -> None:
    """The signal comes after the last step: the score is waited for, and nothing is computed again."""
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="heldout", evaluate_every=100)
    train(recipe, tmp_path / "whole")

    class Stop(Listener):
        def evaluated(self, step: int, score: float, is_best: bool) -> None:
            if step:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "out", listener=Stop())
    newest = Checkpoints(tmp_path / "out" / "checkpoints").newest()
    assert newest is not None
    assert newest.progress.done
    train(recipe, tmp_path / "out")
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


def test_a_damaged_checkpoint_is_skipped(bert: Path, corpus: Path, tmp_path: Path) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none")
    train(recipe, tmp_path / "whole")
    interrupt_at(6, recipe, tmp_path / "out")
    checkpoints = Checkpoints(tmp_path / "out" / "checkpoints")
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.progress.step == 6
    file = newest.folder / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    older = checkpoints.newest()
    assert older is not None
    assert older.progress.step == 5
    said = interrupt_at(7, recipe, tmp_path / "out")
    assert said[0].startswith(f"Skipped the checkpoint {newest.folder}, which cannot be used: {file} is damaged")
    train(recipe, tmp_path / "out")
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


def test_checkpoints_that_cannot_be_used_do_not_push_out_new_ones(bert: Path, corpus: Path, tmp_path: Path) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none")
    interrupt_at(6, recipe, tmp_path / "out")
    folder = tmp_path / "out" / "checkpoints"
    for state in folder.glob("step-*/state.json"):
        state.write_text("{}")
    said = interrupt_at(3, recipe, tmp_path / "out")
    assert [line.partition(",")[0] for line in said] == [
        f"Skipped the checkpoint {folder / 'step-000000006'}",
        f"Skipped the checkpoint {folder / 'step-000000005'}",
        "No usable checkpoint is left: starting at the first step.",
        "Stopped after step 3. The same command continues from there.",
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000002", "step-000000003"]


def test_a_best_step_is_kept_as_long_as_a_checkpoint_names_it(tmp_path: Path) -> None:
    """However many steps are the best so far between two checkpoints, no more than the last of them stays."""
    checkpoints, loss = Checkpoints(tmp_path), torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(loss.parameters())

    def write(step: int, best: int) -> None:
        checkpoints.write(loss, optimizer, Progress(step=step, best_step=best, best_score=1.0), {"recipe": {}})

    def best() -> list[int]:
        return sorted(int(path.name[5:]) for path in tmp_path.glob("best-*"))

    checkpoints.write_best(loss, 1)
    write(1, best=1)
    for step in (2, 3, 4):
        checkpoints.write_best(loss, step)
        assert best() == [1, step]
    write(4, best=4)
    assert best() == [1, 4]
    checkpoints.write_best(loss, 5)
    write(5, best=5)
    assert best() == [4, 5]
    shutil.rmtree(tmp_path / "best-000000005")
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.progress.step == 4
    assert "best-000000005" in checkpoints.skipped[0]


def test_a_full_disk_leaves_the_last_checkpoint(
    bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none")
    train(recipe, tmp_path / "whole")
    interrupt_at(4, recipe, tmp_path / "out")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("s2sent.training.checkpoint.save_file", full)
        with pytest.raises(DiskFullError, match=r"disk is full.*continues"):
            train(recipe, tmp_path / "out", checkpoint_every=1)
    folder = tmp_path / "out" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000003", "step-000000004"]
    train(recipe, tmp_path / "out")
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a file system takes more rights")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("room", [0, 30_000, 300_000])  # for nothing, for the log alone, for half a checkpoint
def test_a_disk_that_is_really_full(room: int, bert: Path, corpus: Path, tmp_path: Path, small_disk: Path) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none")
    train(recipe, tmp_path / "whole")
    out = small_disk / "out"
    interrupt_at(4, recipe, out)
    shutil.rmtree(out / "checkpoints" / "step-000000003")
    ballast = small_disk / "ballast"
    with ballast.open("wb") as file:
        file.write(bytes(max(shutil.disk_usage(small_disk).free - room, 0)))
    with pytest.raises(DiskFullError, match="disk is full"):
        train(recipe, out, checkpoint_every=1)
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-000000004"]
    ballast.unlink()
    train(recipe, out)
    assert weights(out) == weights(tmp_path / "whole")


def test_killed_while_the_checkpoints_are_removed(
    bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="heldout", evaluate_every=4)
    removed: list[Path] = []

    def killed(path: Path, **_: object) -> None:
        removed.append(path)
        if path.name == ".checkpoints.removed" and path.exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("s2sent.atomic.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "out")
    assert removed
    assert (tmp_path / "out" / ".checkpoints.removed").exists()
    assert s2sent.load(tmp_path / "out").encode(["A sentence."]).shape == (1, 32)
    with pytest.raises(ConfigError, match="Done already: the model of this run is in "):
        train(recipe, tmp_path / "out")
    assert not (tmp_path / "out" / ".checkpoints.removed").exists()


def test_another_recipe_or_text_does_not_go_on(bert: Path, corpus: Path, tmp_path: Path) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none")
    interrupt_at(3, recipe, tmp_path / "out")
    said = interrupt_at(3, recipe, tmp_path / "out", restart=True)
    assert said == ["Stopped after step 3. The same command without --restart continues from there."]
    with pytest.raises(ConfigError, match="differs in learning_rate"):
        train(replace(recipe, learning_rate=1.0), tmp_path / "out")
    corpus.write_text("\n".join(make_lines(200, seed=5)), encoding="utf-8")
    with pytest.raises(DataError, match="has changed since"):
        train(recipe, tmp_path / "out")
    done = train(recipe, tmp_path / "out", restart=True)
    assert done.steps == 12
    with pytest.raises(ConfigError, match="Done already: the model of this run is in "):
        train(recipe, tmp_path / "out")
    assert s2sent.load(tmp_path / "out").encode(["A sentence."]).shape == (1, 32)


def test_an_output_with_other_things_in_it_is_left_alone(bert: Path, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.doc").write_text("years of work")
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none")
    for restart in (False, True):
        with pytest.raises(ConfigError, match=r"not empty: it has thesis\.doc"):
            train(recipe, tmp_path / "home", restart=restart)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the lock, which is empty."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_restart_clears_a_run_and_nothing_else(bert: Path, corpus: Path, tmp_path: Path) -> None:
    """A folder with a person's recipe, another tool's checkpoint or a file beside a run's own stays as it is."""
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none", steps=2)
    project, foreign, out = tmp_path / "project", tmp_path / "foreign", tmp_path / "out"
    train(recipe, out)
    for path, text in (
        (project / "recipe.toml", "# why these values\n" + (out / "recipe.toml").read_text()),
        (foreign / "checkpoints" / "step-000000009" / "model.pt", "of another tool"),
        (out / "1_SelectivePooling" / "notes.txt", "of mine"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        folder = next(folder for folder in (project, foreign, out) if path.is_relative_to(folder))
        before = contents(folder)
        for restart in (True, False) if folder is not out else (True,):
            with pytest.raises(ConfigError, match=f"it has {path.relative_to(folder)}, which no run wrote"):
                train(recipe, folder, restart=restart)
        assert contents(folder) == before
    (out / "1_SelectivePooling" / "notes.txt").unlink()
    other = replace(recipe, selection=SelectionConfig(fusion="last", gate="none"))
    train(other, out, restart=True)
    train(other, tmp_path / "new")
    kept, new = ({path.relative_to(of).with_suffix("") for path in of.rglob("*")} for of in (out, tmp_path / "new"))
    assert {path for path in kept if "tfevents" not in path.name} == {p for p in new if "tfevents" not in p.name}
    assert contents(out)[str(out / "model.safetensors")] == (tmp_path / "new" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"backbone": "nowhere/typo"}, ModelError),
        ({"backbone": "out"}, ConfigError),
        ({"corpus": "out/training/log.jsonl", "columns": "step"}, ConfigError),
        ({"dev": "missing.csv"}, ConfigError),
        ({"batch_size": 1000}, DataError),
    ],
)
def test_a_restart_that_cannot_begin_keeps_the_old_model(
    change: dict[str, Any],
    error: type[S2SentError],
    bert: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none", steps=2)
    train(recipe, "out")
    before = contents(tmp_path / "out")
    with pytest.raises(error):
        train(replace(recipe, **change), "out", restart=True)
    assert contents(tmp_path / "out") == before


def test_a_restart_killed_while_it_clears_can_be_given_again(
    bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none", steps=2)
    whole = tmp_path / "whole"
    train(recipe, whole)
    count = len(contents(whole)) - 1  # the log stays
    unlink = Path.unlink
    for survived in range(0, count, 2):
        out = tmp_path / str(survived)
        shutil.copytree(whole, out)
        left = survived

        def unlink_some(path: Path, missing_ok: bool = False) -> None:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            unlink(path, missing_ok)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", unlink_some)
            with pytest.raises(KeyboardInterrupt):
                train(recipe, out, restart=True)
        assert (out / "modules.json").exists() == (survived == 0)
        train(recipe, out, restart=survived % 4 == 0)
        assert weights(out) == weights(whole)


def test_a_run_of_listed_blocks_goes_on(bert: Path, corpus: Path, tmp_path: Path) -> None:
    form = SelectionConfig(blocks=(1, -1))
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none", selection=form)
    interrupt_at(3, recipe, tmp_path / "out")
    assert train(recipe, tmp_path / "out").steps == 12


def test_a_checkpoint_from_before_an_option_was_there_goes_on(bert: Path, corpus: Path, tmp_path: Path) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none")
    interrupt_at(3, recipe, tmp_path / "out")
    for path in (tmp_path / "out" / "checkpoints").glob("step-*/state.json"):
        state = json.loads(path.read_text())
        del state["run"]["recipe"]["mlm_weight"]
        path.write_text(json.dumps(state))
    assert train(recipe, tmp_path / "out").steps == 12


def test_a_run_keeps_to_what_auto_meant_when_it_began(
    bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With S2SENT_DATA or without it, in the shell that begins and in the one that goes on."""
    data = tmp_path / "data" / "STS" / "STSBenchmark"
    data.mkdir(parents=True)
    for part in ("dev", "test"):
        rows = [f"g\tf\ty\t1\t{n % 6}.0\t{a}\t{a} {b}" for n, (a, b) in enumerate(pairwise(make_lines(20)))]
        (data / f"sts-{part}.csv").write_text("\n".join(rows), encoding="utf-8")
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, evaluate_every=4)
    monkeypatch.delenv("S2SENT_DATA", raising=False)
    interrupt_at(5, recipe, tmp_path / "heldout")
    monkeypatch.setenv("S2SENT_DATA", str(tmp_path / "data"))
    interrupt_at(5, recipe, tmp_path / "stsb")
    scores = train(recipe, tmp_path / "heldout").scores
    assert "STS-B dev" not in scores
    train(replace(recipe, dev="heldout"), tmp_path / "whole")
    assert weights(tmp_path / "heldout") == weights(tmp_path / "whole")
    monkeypatch.delenv("S2SENT_DATA")
    with pytest.raises(DataError, match="best step by STS-B dev, and S2SENT_DATA no longer names"):
        train(recipe, tmp_path / "stsb")
    monkeypatch.setenv("S2SENT_DATA", str(tmp_path / "data"))
    assert "STS-B dev" in train(recipe, tmp_path / "stsb").scores


def test_a_run_that_began_in_fp32_goes_on_in_it(
    bert: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none", precision="bf16")
    with monkeypatch.context() as patch:
        patch.setattr("s2sent.training.loop.bf16_problem", lambda _: "an old CPU")
        interrupt_at(3, recipe, tmp_path / "out")
    monkeypatch.setattr("s2sent.training.loop.bf16_problem", lambda _: None)
    train(recipe, tmp_path / "out")
    train(replace(recipe, precision="fp32"), tmp_path / "whole")
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


def test_two_processes_do_not_train_in_one_folder(bert: Path, corpus: Path, tmp_path: Path) -> None:
    from s2sent.listener import Listener

    recipe = SimCSE(backbone=str(bert), corpus=(str(corpus),), batch_size=16, dev="none")
    refused = []

    class Second(Listener):
        def progress(self, step: int, total: int, loss: float | None = None) -> None:
            if step in (1, 5):
                with pytest.raises(ConfigError, match="Another process is training in") as said:
                    train(recipe, tmp_path / "out", restart=step == 5)
                refused.append(said)

    train(recipe, tmp_path / "whole")
    train(recipe, tmp_path / "out", checkpoint_every=2, listener=Second())
    assert len(refused) == 2
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")
