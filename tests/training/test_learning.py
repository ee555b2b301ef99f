"""It learns: SimCSE on a real backbone that was never made for sentences."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from s2sent.selection import SelectionConfig
from s2sent.training import SimCSE, train
from s2sent.training.validation import stsb


@pytest.fixture
def backbone() -> Path:
    folder = Path(os.environ.get("S2SENT_WEIGHTS", "nowhere")) / "distilbert-cased-gec"
    if not folder.is_dir():
        pytest.skip("S2SENT_WEIGHTS does not point at the real weights")
    return folder


@pytest.mark.data
@pytest.mark.weights
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_simcse_raises_stsb_dev_by_ten_points(backbone: Path, data_folder: Path, tmp_path: Path) -> None:
    pairs = stsb("dev")
    dev = tmp_path / "every-third.csv"
    with dev.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["sentence1", "sentence2", "score"])
        rows.writerows(list(zip(pairs.first, pairs.second, pairs.gold, strict=True))[::3])
    recipe = SimCSE(
        backbone=str(backbone),
        corpus=(str(data_folder / "wiki_200k.txt"),),
        selection=SelectionConfig(fusion="last", gate="none", blocks=1),
        steps=30,
        batch_size=32,
        window=4096,
        evaluate_every=30,
        dev=str(dev),
        seed=0,
    )
    done = train(recipe, tmp_path / "out")
    before, after = done.scores.values()
    print(f"STS-B dev, every third pair: {before:.1f} → {after:.1f} at step {done.best_step}")
    assert after >= before + 10
