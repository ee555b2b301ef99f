"""The template against the tokenizer's reading of the whole text, and PromptBERT's positions built by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import s2sent
from conftest import SENTENCES, byte_level, unigram, wordpiece
from s2sent.errors import ConfigError, DataError
from s2sent.model.backbone import first_position
from s2sent.model.prompts import WORDPIECE_TEMPLATES, Template, empty_rows, padded, pipeline_of, published_templates
from s2sent.training import PromptCSELoss

BackboneOf = Callable[[str], Path]
PROMPTED = ["bert", "roberta", "xlm-roberta", "distilbert", "electra", "albert", "mpnet", "modernbert"]


@pytest.mark.parametrize("family", [*PROMPTED, "deberta"])
@pytest.mark.parametrize("template", ["auto", "{sentence} It was {mask}.", "[ {sentence} ]"])
def test_ids_are_those_of_the_whole_text(family: str, template: str, backbone_of: BackboneOf) -> None:
    encoder = s2sent.build(backbone_of(family), blocks=2, frequencies=2, template=template)[0]
    tokenizer = encoder.tokenizer
    for sentence in ("The cat sat on the sill.", "Rain"):
        text = encoder.template.replace("{mask}", tokenizer.mask_token).replace("{sentence}", sentence)
        assert pipeline_of(encoder).token_ids([sentence])[0] == tokenizer(text)["input_ids"]


def test_the_published_pair_is_chosen_by_the_vocabulary(backbone_of: BackboneOf) -> None:
    of = {family: s2sent.build(backbone_of(family), blocks=2, template="auto")[0] for family in ("bert", "roberta")}
    assert of["bert"].template == 'This sentence of "{sentence}" means {mask}.'
    assert of["roberta"].template == "This sentence : ' {sentence} ' means{mask}."
    assert published_templates(of["roberta"].tokenizer)[1] == "The sentence : ' {sentence} ' means{mask}."
    # ModernBERT's mask token is a byte-level [MASK], MPNet's a <mask> among word pieces, ALBERT's a [MASK] of Unigram.
    for make, mask, word_pieces in (
        (byte_level, "[MASK]", False),
        (wordpiece, "<mask>", True),
        (unigram, "[MASK]", False),
    ):
        tokenizer = make()
        tokenizer.mask_token = mask
        assert (published_templates(tokenizer) == WORDPIECE_TEMPLATES) == word_pieces


@pytest.mark.parametrize("family", PROMPTED)
def test_mask_text_in_a_sentence_is_text(family: str, backbone_of: BackboneOf) -> None:
    model = s2sent.build(backbone_of(family), blocks=2, frequencies=2, template="auto")
    tokenizer = model.tokenizer
    ids = pipeline_of(model[0]).token_ids([f"A {tokenizer.mask_token} in the text {tokenizer.mask_token}."])[0]
    assert ids.count(tokenizer.mask_token_id) == 1
    assert np.isfinite(model.encode([f"Only {tokenizer.mask_token}"])).all()


def test_the_sentence_alone_is_cut(bert: Path) -> None:
    model = s2sent.build(bert, blocks=2, frequencies=2, template="auto", max_length=5)
    encoder = model[0]
    ids = pipeline_of(encoder).token_ids([SENTENCES[-1]])[0]
    assert len(ids) == 5 + len(encoder.frame)
    assert ids[-len(encoder.frame.suffix) :] == list(encoder.frame.suffix)
    whole = s2sent.build(bert, blocks=2, frequencies=2, template="auto")
    assert len(pipeline_of(whole[0]).token_ids(["a " * 500])[0]) == 128
    with pytest.raises(ConfigError, match=r"max_length must be from .* got 128"):
        s2sent.build(bert, blocks=2, frequencies=2, template="auto", max_length=128)


def test_the_template_is_saved_with_the_model(bert: Path, tmp_path: Path) -> None:
    model = s2sent.build(bert, blocks=2, frequencies=2, template="{sentence} In a word: {mask}")
    assert model[1].pooling == "mask"
    model.save(str(tmp_path / "saved"))
    for again in (
        s2sent.load(tmp_path / "saved"),
        SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True),
    ):
        assert again[0].template == "{sentence} In a word: {mask}"
        assert np.array_equal(again.encode(SENTENCES), model.encode(SENTENCES))
    alone = np.concatenate([model.encode([sentence]) for sentence in SENTENCES])
    np.testing.assert_allclose(alone, model.encode(SENTENCES), atol=1e-5)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("no place", "exactly once"),
        ("{sentence} {sentence}", "exactly once"),
        ("{sentence}{mask}{mask}", "at most once"),
    ],
)
def test_bad_templates(template: str, said: str, bert: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        s2sent.build(bert, blocks=2, frequencies=2, template=template)


def test_other_mistakes_are_said(bert: Path, backbone_of: BackboneOf) -> None:
    model = s2sent.build(bert, blocks=2, frequencies=2, template="auto")
    with pytest.raises(DataError, match="has no text"):
        model[0].preprocess(["a", " "])
    with pytest.raises(ConfigError, match="no mask token"):
        s2sent.build(backbone_of("qwen3"), blocks=2, frequencies=2, template="{sentence} {mask}")
    with pytest.raises(ConfigError, match="needs a model with a template"):
        PromptCSELoss(s2sent.build(bert, blocks=2, frequencies=2))
    deberta = s2sent.build(backbone_of("deberta"), blocks=2, frequencies=2, template="auto")
    with pytest.raises(ConfigError, match="denoise=False"):
        PromptCSELoss(deberta)


@pytest.mark.parametrize("family", PROMPTED)
def test_positions_given_are_the_models_own(family: str, backbone_of: BackboneOf) -> None:
    model = s2sent.build(backbone_of(family), blocks=2, frequencies=2, template="auto").eval()
    features = padded(model[0], pipeline_of(model[0]).token_ids(["The cat sat.", "The dog sat."]))
    first = first_position(model[0].auto_model)
    assert first == (2 if family in ("roberta", "xlm-roberta", "mpnet") else 0)
    positions = (torch.arange(features["input_ids"].shape[1]) + first).expand_as(features["input_ids"])
    own = model(dict(features))["sentence_embedding"]
    given = model({**features, "position_ids": positions})["sentence_embedding"]
    torch.testing.assert_close(own, given)


def test_empty_rows_are_promptberts_by_hand(backbone_of: BackboneOf) -> None:
    encoder = s2sent.build(backbone_of("roberta"), blocks=2, template="auto")[0]
    prefix, suffix = list(encoder.frame.prefix), list(encoder.frame.suffix)
    ids, positions = empty_rows(encoder.frame, [3, 7], first_position=2)
    assert ids == [prefix + suffix] * 2
    for row, length in zip(positions.tolist(), (3, 7), strict=True):
        whole = [2 + place for place in range(len(prefix) + length + len(suffix))]
        assert row == whole[: len(prefix)] + whole[len(prefix) + length :]


def test_denoising_subtracts_the_template_of_each_length(bert: Path) -> None:
    model = s2sent.build(bert, blocks=2, frequencies=2, template="auto").eval()
    loss = PromptCSELoss(model, temperature=0.5).eval()
    encoder = model[0]
    pipeline = pipeline_of(encoder, 12)
    features = padded(encoder, pipeline.token_ids(SENTENCES))
    seen: list[list[torch.Tensor]] = []
    loss.info_nce = lambda views, **_: seen.append(views) or torch.zeros(())  # type: ignore[func-returns-value,method-assign,misc,assignment]
    with torch.no_grad():
        loss([features])
    second = Template(published_templates(encoder.tokenizer)[1]).around(encoder.tokenizer)
    for view, frame in zip(seen[0], (encoder.frame, second), strict=True):
        for row, sentence in enumerate(SENTENCES):
            ids = replace(pipeline, prefix=frame.prefix, suffix=frame.suffix).token_ids([sentence])[0]
            length = len(ids) - len(frame)
            alone, positions = empty_rows(frame, [length], 0)
            with torch.no_grad():
                whole = model(padded(encoder, [ids]))["sentence_embedding"][0]
                bias = model({**padded(encoder, alone), "position_ids": positions})["sentence_embedding"][0]
            torch.testing.assert_close(view[row], whole - bias, atol=1e-5, rtol=1e-4)
