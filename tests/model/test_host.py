"""The model in the hands of the host's own machinery."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)

import s2sent
from conftest import SENTENCES
from model.tiny import pooling_of, tiny
from s2sent.errors import ConfigError, ModelError


@pytest.mark.parametrize("precision", [{}, {"bf16": True}])
@pytest.mark.parametrize("loss", [MultipleNegativesRankingLoss, CachedMultipleNegativesRankingLoss])
def test_the_hosts_trainer_trains_the_selector(
    bert: Path, tmp_path: Path, loss: type[Any], precision: dict[str, bool]
) -> None:
    model = tiny(bert)
    before = {name: value.clone() for name, value in pooling_of(model).state_dict().items()}
    pairs = Dataset.from_dict({"anchor": SENTENCES[:8], "positive": SENTENCES[:8]})
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=4,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        **precision,
    )
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=pairs, loss=loss(model)).train()
    after = pooling_of(model).state_dict()
    assert all(not torch.equal(after[name], value) for name, value in before.items())
    model.save(str(tmp_path / "out"))
    again = s2sent.load(tmp_path / "out", device="cpu")
    # A model trained in bf16 stays wrapped in autocast; the one that is loaded computes in fp32.
    np.testing.assert_allclose(again.encode(SENTENCES), model.encode(SENTENCES), atol=0.05 if precision else 0)


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR])
def test_a_checkpoint_that_lacks_weights_is_refused_however_quiet_the_log(
    bert: Path, tmp_path: Path, level: int
) -> None:
    for file in bert.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.layer.2.output.dense.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    logger = logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(level)
    try:
        with pytest.raises(ModelError, match=r"encoder\.layer\.2\.output\.dense\.weight"):
            s2sent.build(tmp_path, device="cpu")
    finally:
        logger.setLevel(before)


def test_half_precision_survives_the_sum_of_a_long_sentence() -> None:
    config = s2sent.SelectionConfig(blocks=3, scale="sum", reduction=2)
    selector = s2sent.Selector(8, config).half()
    states = [torch.full((1, 512, 8), 60.0, dtype=torch.float16) for _ in range(3)]
    assert torch.isfinite(selector(states).embedding).all()


def test_a_prompt_that_is_kept_out_of_the_pooling_is_not_silently_let_in(bert: Path) -> None:
    plain = SentenceTransformer(modules=list(tiny(bert, fusion="last", gate="none")), device="cpu")
    from sentence_transformers.sentence_transformer.modules import Pooling

    model = SentenceTransformer(modules=[plain[0], Pooling(32, include_prompt=False)], device="cpu")
    with pytest.raises(ConfigError, match="prompt"):
        s2sent.build(model)
