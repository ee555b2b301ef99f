"""The losses against plain loops over floats, and against each other."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import s2sent
from conftest import SENTENCES
from s2sent.errors import ConfigError
from s2sent.model.prompts import padded, pipeline_of
from s2sent.training import PromptCSELoss, SimCSELoss, SupervisedLoss, Whitened, WhitenedLoss, train, whiten
from s2sent.training.losses import MaskedLanguageLoss
from training.runs import ended, make_lines, start

KINDS: dict[str, Callable[..., Any]] = {
    "simcse": SimCSELoss,
    "promptcse": PromptCSELoss,
    "whitened": WhitenedLoss,
    "supervised": SupervisedLoss,
}


def a_model(folder: Path, *, dropout: bool = True, **options: Any) -> Any:
    torch.manual_seed(3)
    model = s2sent.build(folder, blocks=2, frequencies=2, **options)
    if not dropout:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        model[0].auto_model.config.attention_probs_dropout_prob = 0.0
        for module in model.modules():
            if hasattr(module, "dropout_prob"):
                module.dropout_prob = 0.0
    return model.train()


def batch(model: Any, texts: list[str]) -> dict[str, Tensor]:
    return padded(model[0], pipeline_of(model[0], 32).token_ids(texts))


def plain_info_nce(anchors: Tensor, candidates: Tensor, temperature: float) -> float:
    """−log of the positive's share, sentence by sentence."""
    total = 0.0
    for i, a in enumerate(anchors.tolist()):
        scores = []
        for c in candidates.tolist():
            dot = sum(x * y for x, y in zip(a, c, strict=True))
            norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in c))
            scores.append(math.exp(dot / norms / temperature))
        total -= math.log(scores[i] / sum(scores))
    return total / len(anchors)


def gradients(loss: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-3, atol=tolerance, msg=name)


def test_simcse_is_the_plain_loop_over_two_dropout_views(bert: Path) -> None:
    model = a_model(bert)
    loss = SimCSELoss(model, temperature=0.2)
    features = batch(model, SENTENCES)
    torch.manual_seed(0)
    value = loss([features])
    torch.manual_seed(0)
    both = model({key: value.repeat(2, 1) for key, value in features.items()})["sentence_embedding"]
    one, two = both.chunk(2)
    assert not torch.allclose(one, two)
    assert value.item() == pytest.approx(plain_info_nce(one, two, 0.2), rel=1e-4)


def test_under_autocast_the_loss_itself_keeps_all_digits(bert: Path) -> None:
    loss = SimCSELoss(a_model(bert, dropout=False), temperature=0.05)
    views = [torch.randn(8, 32) for _ in range(2)]
    with torch.autocast("cpu", torch.bfloat16):
        value = loss._contrast_in_fp32([view.bfloat16() for view in views])
    one, two = (view.bfloat16().float() for view in views)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(plain_info_nce(one, two, 0.05), rel=1e-5)


def test_supervised_counts_hard_negatives(bert: Path) -> None:
    model = a_model(bert, dropout=False)
    columns = [batch(model, SENTENCES[i : i + 3]) for i in (0, 3, 6)]
    value = SupervisedLoss(model, temperature=0.3)([dict(c) for c in columns])
    vectors = [model(dict(c))["sentence_embedding"] for c in columns]
    assert value.item() == pytest.approx(plain_info_nce(vectors[0], torch.cat(vectors[1:]), 0.3), rel=1e-4)
    pair = SupervisedLoss(model, temperature=0.3)([dict(c) for c in columns[:2]])
    assert pair.item() == pytest.approx(plain_info_nce(vectors[0], vectors[1], 0.3), rel=1e-4)
    with pytest.raises(ConfigError, match="takes 2 or 3 texts per example, and the data has 1"):
        SupervisedLoss(model)([columns[0]])


def test_the_head_is_in_the_loss_and_not_in_the_model(bert: Path, tmp_path: Path) -> None:
    model = a_model(bert, pooling="cls")
    loss = SimCSELoss(model, head="mlp")
    loss([batch(model, SENTENCES)]).backward()
    assert {"head.0.weight", "head.0.bias"} <= gradients(loss).keys()
    model.save(str(tmp_path / "saved"))
    assert not any("head" in name for name in s2sent.load(tmp_path / "saved").state_dict())


@pytest.mark.parametrize("objective", KINDS)
def test_gradcache_has_the_plain_gradient(objective: str, bert: Path) -> None:
    template = "auto" if objective == "promptcse" else None
    results = []
    for mini_batch_size in (None, 3):
        model = a_model(bert, dropout=False, template=template)
        torch.manual_seed(0)
        options = {"groups": 16} if objective == "whitened" else {}
        loss = KINDS[objective](model, head="mlp", mini_batch_size=mini_batch_size, temperature=0.5, **options)
        columns = [batch(model, SENTENCES[:8])]
        if objective == "supervised":
            columns.append(batch(model, SENTENCES[1:9]))
        torch.manual_seed(1)  # the whitening's shuffles
        value = loss(columns)
        value.backward()
        results.append((value.item(), gradients(loss)))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-5)
    assert_same(results[0][1], results[1][1])


@pytest.mark.parametrize("groups", [32, 16, 8, 4])
def test_whitened_groups_have_unit_covariance(groups: int) -> None:
    torch.manual_seed(0)
    x = (torch.randn(64, 32) @ torch.randn(32, 32)).requires_grad_()
    order = torch.randperm(32)
    out = whiten(x, groups, order)
    for group in order.view(groups, -1):  # the shuffle is undone: the group's features are where they were
        part = out[:, group].double()
        assert part.mean(dim=0).abs().max() < 1e-5
        torch.testing.assert_close(part.T @ part / 64, torch.eye(len(group), dtype=torch.float64), rtol=0, atol=2e-3)
    # W is a constant to the gradient: the backward pass of a plain linear map of the centred input.
    weights = torch.randn_like(out)
    (out * weights).sum().backward()
    x2 = x.detach()
    centred = x2 - x2.mean(dim=0)
    expected = torch.zeros_like(x2)
    for group in order.view(groups, -1):
        part = centred[:, group].double()
        values, vectors = torch.linalg.eigh(part.T @ part / 64)
        root = (vectors * values.rsqrt()) @ vectors.T
        towards = weights[:, group].double() @ root.T
        expected[:, group] = (towards - towards.mean(dim=0)).float()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, expected, rtol=1e-2, atol=1e-2)


def test_whitening_is_tame_in_degenerate_batches() -> None:
    x = torch.randn(8, 32)
    x[:, 3] = 1.0  # constant
    x[:, 4] = x[:, 5]  # dependent
    assert whiten(x, 8, torch.arange(32)).abs().max() < 1e3
    with pytest.raises(ConfigError, match=r"groups=5 does not divide the 32 features.*32, 16, 8, 4"):
        whiten(x, 5, torch.arange(32))
    with pytest.raises(ConfigError, match="batch of 8 cannot be whitened in groups of 8"):
        whiten(x, 4, torch.arange(32))


def test_a_batch_too_small_to_whiten_is_said_before_the_first_score(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s2sent.training.loop._Run._score", lambda *_: pytest.fail("it was scored"))
    corpus = tmp_path / "lines.txt"
    corpus.write_text("\n".join(make_lines(100)))
    with pytest.raises(ConfigError, match="batch of 8 cannot be whitened in groups of 8"):
        train(Whitened(backbone=str(bert), corpus=(str(corpus),), groups=4, batch_size=8), tmp_path / "out")


def test_whitened_is_a_sum_of_terms_anchored_on_the_first_view(bert: Path) -> None:
    model = a_model(bert)
    loss = WhitenedLoss(model, groups=32, views=3, temperature=0.5)
    views = [torch.randn(8, 32) for _ in range(3)]
    order = torch.arange(32)  # width 1: the shuffle does not matter
    z = [whiten(view, 32, order) for view in views]
    expected = plain_info_nce(z[0], z[1], 0.5) + plain_info_nce(z[0], z[2], 0.5)
    assert loss.contrast(views).item() == pytest.approx(expected, rel=1e-4)
    assert loss([batch(model, SENTENCES)]).isfinite()


def test_every_view_is_whitened_in_groups_of_its_own(bert: Path) -> None:
    loss = WhitenedLoss(a_model(bert), groups=16, views=3, temperature=0.5)
    view = torch.randn(8, 32) @ torch.randn(32, 32)
    torch.manual_seed(0)
    z = [whiten(view, 16, torch.randperm(32)) for _ in range(3)]
    assert not torch.allclose(z[0], z[1])
    expected = plain_info_nce(z[0], z[1], 0.5) + plain_info_nce(z[0], z[2], 0.5)
    torch.manual_seed(0)
    assert loss.contrast([view] * 3).item() == pytest.approx(expected, rel=1e-4)


def test_mlm_trains_the_encoder_and_its_own_head(bert: Path) -> None:
    model = a_model(bert)
    language = MaskedLanguageLoss(model[0], bert)
    loss = SimCSELoss(model, auxiliary=language, auxiliary_weight=0.1)
    features = batch(model, SENTENCES)
    torch.manual_seed(0)
    both = loss([features])
    torch.manual_seed(0)
    alone = SimCSELoss(model)([features])
    assert both > alone
    both.backward()
    names = gradients(loss)
    assert any("language_model" in name for name in names)
    words = model[0].auto_model.embeddings.word_embeddings.weight
    output = language.language_model.get_output_embeddings().weight
    assert words is output
    assert set(model.state_dict()) == set(a_model(bert).state_dict())


def rank_of_two(rank: int, port: int, objective: str, folder: Path, result: Path) -> None:
    from s2sent.training.distributed import Ranks

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = Ranks.join("cpu")
    value, loss = one_step(objective, folder, SENTENCES[rank:8:2], rank)
    ranks.average_gradients(loss.parameters())
    value = ranks.mean(value.detach())
    if ranks.is_main:
        save_file({**gradients(loss), "value": value.reshape(1)}, result)
    ranks.barrier()
    ranks.leave()


def one_step(objective: str, folder: Path, texts: list[str], rank: int = 0) -> tuple[Tensor, nn.Module]:
    model = a_model(folder, dropout=False, template="auto" if objective == "promptcse" else None)
    torch.manual_seed(0)
    options = {"groups": 16} if objective == "whitened" else {}
    loss = KINDS[objective](model, head="mlp", temperature=0.5, **options)
    torch.manual_seed(1 + rank)  # as in a run; the whitening's shuffles must be the same all the same
    columns = [batch(model, texts)]
    if objective == "supervised":
        columns.append(batch(model, [f"Not so: {text}" for text in texts]))
    value = loss(columns)
    value.backward()
    return value, loss


@pytest.mark.parametrize("objective", KINDS)
def test_two_ranks_are_one_rank_of_twice_the_batch(objective: str, bert: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = tmp_path / "two"
    pids = [
        start(lambda rank=rank: rank_of_two(rank, port, objective, bert, result))  # type: ignore[misc]
        for rank in range(2)
    ]
    assert [ended(pid) for pid in pids] == [0, 0]
    two = load_file(result)
    value, loss = one_step(objective, bert, SENTENCES[:8])
    assert two.pop("value").item() == pytest.approx(value.item(), rel=1e-5)
    assert_same(two, gradients(loss))
