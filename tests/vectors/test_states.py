"""Kept states against transformers' own hidden states, and against a pass that is killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import s2sent
from conftest import DEPTH, DIM, FAMILIES, SENTENCES
from model.tiny import block_states, expected, pooling_of, tiny
from s2sent.errors import DataError
from s2sent.model.load import open_encoder
from s2sent.selection import SelectionConfig
from s2sent.vectors import states as module
from s2sent.vectors.states import FrozenStates, StateEncoder, Sums, is_whole, keep_states, states_key

BackboneOf = Callable[[str], Path]
ALL = tuple(range(DEPTH + 1))
TEXTS = [f"{a} {b}" for a in SENTENCES[:6] for b in SENTENCES]
EVERYTHING = SelectionConfig(blocks=ALL, frequencies=8, reduction=4)


def keep(folder: Path, backbone: Path, texts: list[str] = TEXTS, *selections: SelectionConfig) -> FrozenStates:
    encoder = StateEncoder(open_encoder(backbone, device="cpu"))
    return keep_states(encoder, texts, folder, Sums.of(selections or (EVERYTHING,), encoder.backbone))


@pytest.mark.parametrize("family", FAMILIES)
def test_sums_are_those_of_transformers_own_states(family: str, backbone_of: BackboneOf, tmp_path: Path) -> None:
    states = keep(tmp_path / "s", backbone_of(family), SENTENCES)
    own = open_encoder(backbone_of(family), device="cpu")
    for row, u in enumerate(block_states(backbone_of(family), family, SENTENCES, own.max_seq_length)):
        u = u[1:]  # of a pre-norm model the oracle has no embeddings
        pooled = states.pooled([row], 1, DEPTH)[0].numpy()
        np.testing.assert_allclose(pooled, u.mean(axis=1), rtol=2e-3, atol=2e-3)
        length = u.shape[1]
        assert int(states.lengths[row]) == length
        for place, (state, b) in enumerate(states.sums.cosines):
            if state:
                cosines = np.cos(np.pi * b * (np.arange(length) + 0.5) / length)
                kept = states.part(0, "cosines")[row, place]
                np.testing.assert_allclose(kept, cosines @ u[state - 1] / length, rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(states.own([row])[0].numpy(), own.encode(SENTENCES[row]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_squeezed_and_fused_they_are_the_models_vectors(pooling: str, bert: Path, tmp_path: Path) -> None:
    model = tiny(bert, blocks=ALL, pooling=pooling, gate="linear", bias=True, frequencies=8)
    encoder = StateEncoder(model)
    assert encoder.pooling == pooling
    selector = pooling_of(model).selector
    states = keep_states(encoder, TEXTS, tmp_path / "s", Sums.of([selector.config], encoder.backbone))
    f = states.squeezed(selector, ALL)
    with torch.no_grad():
        vectors = selector.from_pooled(f.float(), states.pooled(range(len(TEXTS)), 0, DEPTH)).embedding
    np.testing.assert_allclose(vectors, model.encode(TEXTS), rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(states.own(range(len(TEXTS))), model.encode(TEXTS), rtol=1e-4, atol=1e-5)


def test_whole_tokens_are_kept_where_they_are_asked_for(bert: Path, tmp_path: Path) -> None:
    per_token = SelectionConfig(blocks=2, squeeze="none", reduction=4)
    states = keep(tmp_path / "s", bert, SENTENCES, per_token)
    assert states.sums.tokens == (DEPTH - 1, DEPTH)
    model = tiny(bert, blocks=2, squeeze="none")
    rows = [3, 0, 9]
    tokens, starts = states.token_states(rows, (DEPTH - 1, DEPTH))
    with torch.no_grad():
        vectors = pooling_of(model).selector(tokens, cu_seq_lens=starts).embedding
    own = block_states(bert, "bert", SENTENCES, model.max_seq_length)
    wanted = expected(model, [own[row] for row in rows], [DEPTH - 1, DEPTH])
    np.testing.assert_allclose(vectors, wanted, rtol=5e-3, atol=5e-3)


def test_a_killed_pass_goes_on_and_ends_with_the_same_bytes(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_PART", 16)
    whole = keep(tmp_path / "whole", bert)
    assert whole.parts == 4
    runs = []
    run = StateEncoder.run

    def dying(self: StateEncoder, sequences: list[list[int]], sums: Sums) -> object:
        runs.append(len(sequences))
        if len(runs) > 6:
            os._exit(9)
        return run(self, sequences, sums)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(StateEncoder, "run", dying)
        keep_states(
            StateEncoder(open_encoder(bert, device="cpu")), TEXTS, tmp_path / "cut", whole.sums, batch_tokens=256
        )
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    done = [number for number in range(4) if whole.__class__.open(tmp_path / "cut").path(number, "pooled").exists()]
    assert 0 < len(done) < 4
    assert not is_whole(tmp_path / "cut")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cut").glob("part-*.pooled.npy")}
    again = keep(tmp_path / "cut", bert)
    assert is_whole(tmp_path / "cut")
    for name, time in before.items():  # what was done is not done again
        assert (tmp_path / "cut" / name).stat().st_mtime_ns == time
    for number in range(4):
        np.testing.assert_allclose(again.part(number, "pooled"), whole.part(number, "pooled"), rtol=2e-3, atol=1e-3)
        assert np.array_equal(again.part(number, "lengths"), whole.part(number, "lengths"))


def test_what_is_there_is_read_and_the_encoder_is_not_run(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path / "s", bert)
    encoder = StateEncoder(open_encoder(bert, device="cpu"))
    monkeypatch.setattr(StateEncoder, "run", lambda *_: pytest.fail("the encoder was run again"))
    states = keep_states(encoder, TEXTS, tmp_path / "s", Sums.of([EVERYTHING], encoder.backbone))
    assert states.texts == len(TEXTS)


def test_texts_that_the_tokenizer_cannot_read_have_no_length(bert: Path, tmp_path: Path) -> None:
    states = keep(tmp_path / "s", bert, ["​", *SENTENCES, " "])
    assert (states.lengths == 0).tolist() == [True, *[False] * len(SENTENCES), True]


def test_large_states_are_kept_in_full_precision(bert: Path, tmp_path: Path) -> None:
    model = open_encoder(bert, device="cpu")
    with torch.no_grad():
        model[0].auto_model.encoder.layer[0].output.LayerNorm.weight.mul_(1e6)
    encoder = StateEncoder(model)
    states = keep_states(encoder, SENTENCES, tmp_path / "s", Sums.of([EVERYTHING], encoder.backbone))
    assert states.part(0, "pooled").dtype == np.float32
    assert np.isfinite(states.part(0, "pooled")).all()
    assert states.pooled([0], 1, 1).abs().max() > 7e4


def test_a_damaged_folder_is_an_error_that_says_to_delete_it(bert: Path, tmp_path: Path) -> None:
    states = keep(tmp_path / "s", bert)
    path = states.path(0, "lengths")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match=r"part-00000.lengths.npy is missing or damaged.*Delete"):
        _ = FrozenStates.open(tmp_path / "s").lengths
    (tmp_path / "s" / "about.json").write_text("{")
    with pytest.raises(DataError, match="Delete it"):
        FrozenStates.open(tmp_path / "s")


def test_the_key_changes_with_all_that_decides_the_states() -> None:
    sums = Sums(((0, 0),))
    base = states_key("model", ["a", "b"], sums, pooling="mean", precision="fp32")
    others = [
        states_key("other", ["a", "b"], sums, pooling="mean", precision="fp32"),
        states_key("model", ["ab"], sums, pooling="mean", precision="fp32"),
        states_key("model", ["b", "a"], sums, pooling="mean", precision="fp32"),
        states_key("model", ["a", "b"], Sums(((0, 1),)), pooling="mean", precision="fp32"),
        states_key("model", ["a", "b"], sums, pooling="cls", precision="fp32"),
        states_key("model", ["a", "b"], sums, pooling="mean", precision="bf16"),
    ]
    assert len({base, *others}) == 7
    assert base == states_key("model", ["a", "b"], sums, pooling="mean", precision="fp32")


def test_models_with_modules_behind_keep_their_own_vectors(bert: Path, tmp_path: Path) -> None:
    model = s2sent.build(bert, blocks=2, reduction=4, normalize=True, device="cpu")
    encoder = StateEncoder(model)
    states = keep_states(encoder, SENTENCES, tmp_path / "s", Sums.of([EVERYTHING], encoder.backbone))
    own = torch.nn.functional.normalize(states.own(range(len(SENTENCES))), dim=1).numpy()
    np.testing.assert_allclose(own, model.encode(SENTENCES), rtol=1e-4, atol=1e-5)
    assert DIM == states.dim == states.width
