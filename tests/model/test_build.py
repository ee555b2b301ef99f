"""Building: options, pooling, models that are there already, and what is refused."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

import s2sent
from conftest import DEPTH, DIM, POSITIONS, SENTENCES, make_backbone
from model.tiny import OPTIONS, block_states, expected, pooling_of, tiny, with_gradients
from s2sent import SelectionConfig, SelectivePooling
from s2sent.errors import ConfigError, DataError, ModelError, S2SentError
from selection import oracle

BackboneOf = Callable[[str], Path]


@pytest.fixture
def host(bert: Path) -> SentenceTransformer:
    """A sentence-transformers model as somebody else made it."""
    torch.manual_seed(3)
    encoder = Transformer(str(bert), max_seq_length=40)
    modules = [encoder, Pooling(DIM, pooling_mode="cls"), Dense(DIM, 8), Normalize()]
    return SentenceTransformer(modules=modules, device="cpu", prompts={"query": "find: "}, default_prompt_name="query")


# --- what is built ------------------------------------------------------------------------------------------------


def test_options_one_by_one_or_as_a_config_build_the_same(bert: Path) -> None:
    torch.manual_seed(0)
    one = s2sent.build(bert, device="cpu", blocks=2, frequencies=2, reduction=4)
    torch.manual_seed(0)
    other = s2sent.build(str(bert), device="cpu", selection=SelectionConfig(blocks=2, frequencies=2, reduction=4))
    assert np.array_equal(one.encode(SENTENCES), other.encode(SENTENCES))


def test_the_selector_adds_as_many_parameters_as_the_paper_counts(bert: Path) -> None:
    plain = sum(p.numel() for p in Transformer(str(bert)).parameters())
    model = s2sent.build(bert, device="cpu", **OPTIONS)
    assert sum(p.numel() for p in model.parameters()) - plain == DIM * (DIM // 4) * (1 + 3)
    assert sum(p.numel() for p in pooling_of(model).parameters()) == DIM * (DIM // 4) * (1 + 3)


@pytest.mark.parametrize("mode", ["mean", "cls", "mask"])
@pytest.mark.parametrize("squeeze", ["dct", "none"])
def test_pooling_takes_the_tokens_it_says(mode: str, squeeze: str, bert: Path) -> None:
    texts = [f"{text} It is [MASK], or [MASK]." for text in SENTENCES[:5]]
    model = tiny(bert, pooling=mode, squeeze=squeeze)
    states = block_states(bert, "bert", texts, model.max_seq_length)
    pools = []
    for u, text in zip(states, texts, strict=True):
        ids = model.tokenizer(text)["input_ids"]
        pool = np.zeros(u.shape[1])
        if mode == "mean":
            pool[:] = 1 / u.shape[1]
        elif mode == "cls":
            pool[0] = 1
        else:
            pool[max(i for i, token in enumerate(ids) if token == model.tokenizer.mask_token_id)] = 1
        pools.append(pool)
    embeddings, _, _ = oracle.answers(pooling_of(model).selector, [u[-3:] for u in states], pools)
    np.testing.assert_allclose(model.encode(texts), embeddings, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(with_gradients(model, texts), embeddings, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("blocks", [(0, -1), (0, 1, 2, 3, 4), (0,), (-5, -1)])
def test_the_embedding_output_counts_as_block_zero(blocks: tuple[int, ...], bert: Path) -> None:
    model = tiny(bert, blocks=blocks)
    states = block_states(bert, "bert", SENTENCES, model.max_seq_length)
    numbers = [n % (DEPTH + 1) for n in blocks]
    np.testing.assert_allclose(model.encode(SENTENCES), expected(model, states, numbers), rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(with_gradients(model, SENTENCES), expected(model, states, numbers), rtol=1e-4, atol=2e-5)


def test_normalised_vectors_have_length_one_and_the_same_direction(bert: Path, tmp_path: Path) -> None:
    plain, unit = tiny(bert), tiny(bert, normalize=True)
    a, b = plain.encode(SENTENCES), unit.encode(SENTENCES)
    np.testing.assert_allclose(a / np.linalg.norm(a, axis=1, keepdims=True), b, rtol=1e-5, atol=1e-6)
    unit.save(str(tmp_path))
    assert np.array_equal(s2sent.load(tmp_path, device="cpu").encode(SENTENCES), b)


@pytest.mark.parametrize("blocks", [2, 4])
def test_average_baseline_is_the_mean_of_the_blocks(blocks: int, bert: Path) -> None:
    model = s2sent.build(bert, blocks=blocks, fusion="average", gate="none", device="cpu")
    states = block_states(bert, "bert", SENTENCES, model.max_seq_length)
    own = np.stack([u[-blocks:].mean(axis=(0, 1)) for u in states])
    np.testing.assert_allclose(model.encode(SENTENCES), own, rtol=1e-4, atol=1e-5)


def test_a_freshly_built_model_can_be_pickled(bert: Path) -> None:
    model = tiny(bert)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.encode(SENTENCES), model.encode(SENTENCES))
    assert pooling_of(again)._stream is not pooling_of(model)._stream


# --- from a model that is there already ---------------------------------------------------------------------------


def test_the_given_models_other_modules_settings_and_pooling_stay(host: SentenceTransformer) -> None:
    dense = host[2]
    model = tiny(host)
    assert [type(m) for m in model] == [Transformer, SelectivePooling, Dense, Normalize]
    assert model[2] is dense
    assert pooling_of(model).pooling == "cls"
    assert model.max_seq_length == 40
    assert model.prompts["query"] == "find: "
    assert model.default_prompt_name == "query"
    vectors = model.encode(SENTENCES)
    assert vectors.shape == (len(SENTENCES), 8)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_the_given_models_similarity_and_truncation_stay(bert: Path) -> None:
    modules = [Transformer(str(bert)), Pooling(DIM)]
    given = SentenceTransformer(modules=modules, device="cpu", similarity_fn_name="dot", truncate_dim=16)
    model = tiny(given)
    assert model.similarity_fn_name == "dot"
    assert model.encode("yes").shape == given.encode("yes").shape == (16,)


def test_the_given_model_goes_on_as_before(host: SentenceTransformer) -> None:
    before = host.encode(SENTENCES)
    model = tiny(host)
    model.encode(SENTENCES)
    assert np.array_equal(host.encode(SENTENCES), before)


def test_models_built_on_one_encoder_do_not_disturb_each_other(host: SentenceTransformer, bert: Path) -> None:
    """As when one compares several selections without loading the backbone again and again."""
    options: list[dict[str, Any]] = [
        {"blocks": 3},
        {"blocks": 2, "frequencies": 2},
        {"blocks": (1, -1), "pooling": "mean"},
    ]
    models = [tiny(host, seed=i, **o) for i, o in enumerate(options)]
    for model in models:
        np.testing.assert_allclose(
            model.encode(SENTENCES, prompt=""), with_gradients(model, SENTENCES), rtol=1e-5, atol=1e-5
        )


def test_rebuilding_replaces_the_selection(bert: Path) -> None:
    first = tiny(bert, blocks=2)
    second = tiny(first, blocks=3)
    assert [type(m) for m in second] == [Transformer, SelectivePooling]
    states = block_states(bert, "bert", SENTENCES, second.max_seq_length)
    np.testing.assert_allclose(second.encode(SENTENCES), expected(second, states, [2, 3, 4]), rtol=1e-4, atol=2e-5)


def test_a_folder_of_a_sentence_model_is_a_backbone_too(host: SentenceTransformer, tmp_path: Path) -> None:
    host.save(str(tmp_path))
    from_folder, in_memory = tiny(tmp_path), tiny(host)
    assert np.array_equal(from_folder.encode(SENTENCES), in_memory.encode(SENTENCES))


def test_normalize_false_takes_the_normalisation_away(host: SentenceTransformer) -> None:
    assert not any(isinstance(m, Normalize) for m in tiny(host, normalize=False))


def test_a_pooling_that_cannot_be_followed_is_refused(bert: Path) -> None:
    given = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(DIM, pooling_mode="max")], device="cpu")
    with pytest.raises(ConfigError, match=r"max.*'mean'"):
        tiny(given)
    tiny(given, pooling="mean")


def test_a_model_without_a_pooling_is_refused(bert: Path) -> None:
    with pytest.raises(ModelError, match=r"Transformer.*Pooling"):
        tiny(SentenceTransformer(modules=[Transformer(str(bert))], device="cpu"))


# --- length -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "limit"), [("bert", POSITIONS), ("roberta", POSITIONS - 2), ("mpnet", POSITIONS - 2)]
)
def test_texts_of_any_length_fit_the_backbones_positions(family: str, limit: int, backbone_of: BackboneOf) -> None:
    model = tiny(backbone_of(family))
    assert model.max_seq_length == limit
    assert np.isfinite(model.encode(" ".join(SENTENCES * 3))).all()
    longest = tiny(backbone_of(family), max_length=limit)
    assert np.isfinite(longest.encode(" ".join(SENTENCES * 3))).all()
    with pytest.raises(ConfigError, match=rf"max_length must be .*{limit} .*got {limit + 1}"):
        tiny(backbone_of(family), max_length=limit + 1)


def test_max_length_cuts_the_text(bert: Path) -> None:
    model = tiny(bert, max_length=5)
    ids = model.preprocess([SENTENCES[2]])["input_ids"]
    assert ids.shape == (1, 5)
    assert np.isfinite(model.encode(SENTENCES[2])).all()


@pytest.mark.parametrize("max_length", [0, 1, 2, -3])
def test_max_length_must_leave_room_for_text(max_length: int, bert: Path) -> None:
    with pytest.raises(ConfigError, match=rf"max_length must be from 3 .*got {max_length}"):
        tiny(bert, max_length=max_length)


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [DEPTH + 1, 99, (DEPTH + 1,), (1, 9), (-6, -1)])
def test_blocks_beyond_the_depth_are_refused(blocks: Any, bert: Path) -> None:
    with pytest.raises(ConfigError, match=rf"blocks={re.escape(str(blocks))}.*{DEPTH} blocks.*Give 1 to"):
        tiny(bert, blocks=blocks)


@pytest.mark.parametrize("blocks", [(-1, 1), (3, 2), (4, -1)])
def test_blocks_out_of_order_or_twice_are_refused(blocks: tuple[int, ...], bert: Path) -> None:
    with pytest.raises(ConfigError, match=rf"blocks={re.escape(str(blocks))}.*once"):
        tiny(bert, blocks=blocks)


def test_blocks_beyond_the_depth_are_refused_even_if_only_the_last_is_used(bert: Path) -> None:
    with pytest.raises(ConfigError, match="blocks=99"):
        s2sent.build(bert, blocks=99, fusion="last", device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": 0}, "blocks must be .* at least 1, got 0"),
        ({"reduction": DIM + 1}, f"reduction={DIM + 1}.*{DIM}"),
        ({"frequencies": DIM + 1}, f"frequencies={DIM + 1}.*{DIM}"),
        ({"squeeze": "fft"}, "squeeze must be one of 'dct', 'gap', 'none', got 'fft'"),
        ({"layers": 3}, "layers.*Legal.*blocks"),
        ({"pooling": "max"}, "'mean', 'cls', 'mask', got 'max'"),
        ({"selection": SelectionConfig(), "blocks": 2}, "either.*blocks"),
    ],
)
def test_illegal_options_are_refused(options: dict[str, Any], message: str, bert: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        s2sent.build(bert, device="cpu", **options)


def test_a_backbone_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        s2sent.build(tmp_path / "nowhere" / "at-all" / "really")
    with pytest.raises(ModelError, match="no-such-model"):
        s2sent.build("no-such-model")
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="is a file"):
        s2sent.build(tmp_path / "file")


def test_mask_pooling_needs_a_mask_token_in_the_tokenizer(backbone_of: BackboneOf) -> None:
    with pytest.raises(ConfigError, match="mask token"):
        tiny(backbone_of("qwen3"), pooling="mask")


def test_mask_pooling_needs_a_mask_token_in_the_text(bert: Path) -> None:
    model = tiny(bert, pooling="mask")
    with pytest.raises(DataError, match=r"of this batch has no mask token"):
        model.encode(["a much longer text with a [MASK].", "No mask at all, no.", "[MASK]!"], batch_size=3)
    with pytest.raises(DataError, match="mask token"):
        with_gradients(model, ["No mask at all."])


@pytest.mark.parametrize("family", ["bert", "roberta", "qwen3"])
@pytest.mark.parametrize("texts", [[""], ["", "Rain."], ["Rain.", "yes", ""]])
def test_a_sentence_without_text_is_refused(family: str, texts: list[str], backbone_of: BackboneOf) -> None:
    model = tiny(backbone_of(family))
    with pytest.raises(DataError, match=r"(?i)text|empty"):
        model.encode(texts)
    with pytest.raises(DataError, match=r"(?i)text|empty"):
        with_gradients(model, texts)


def test_no_sentences_give_no_vectors(bert: Path) -> None:
    assert len(tiny(bert).encode([])) == 0


def test_an_empty_batch_is_refused(bert: Path) -> None:
    model = tiny(bert)
    empty = {"input_ids": torch.zeros(0, 5, dtype=torch.long), "attention_mask": torch.zeros(0, 5, dtype=torch.long)}
    with pytest.raises(S2SentError, match=r"(?i)empty"), torch.no_grad():
        model(dict(empty))


def test_missing_hidden_states_are_refused_not_replaced_by_the_last_block(bert: Path) -> None:
    pooling = SelectivePooling(DIM, {"reduction": 4})
    model = SentenceTransformer(modules=[Transformer(str(bert))], device="cpu")
    model.append(pooling)
    with pytest.raises(ModelError, match="output_hidden_states=True"):
        model.encode(SENTENCES)


def test_hidden_states_switched_off_later_are_refused(bert: Path) -> None:
    model = tiny(bert)
    model[0].auto_model.config.output_hidden_states = False
    with pytest.raises(ModelError, match="output_hidden_states=True"):
        with_gradients(model, SENTENCES)


def test_appended_by_hand_with_hidden_states_it_works(bert: Path) -> None:
    built = tiny(bert)
    model = SentenceTransformer(
        modules=[Transformer(str(bert), config_kwargs={"output_hidden_states": True})], device="cpu"
    )
    by_hand = SelectivePooling(DIM, pooling_of(built).selection)
    by_hand.load_state_dict(pooling_of(built).state_dict())
    model.append(by_hand)
    np.testing.assert_allclose(model.encode(SENTENCES), built.encode(SENTENCES), rtol=1e-5, atol=1e-5)


def test_a_selector_of_another_width_is_refused(bert: Path) -> None:
    with pytest.raises(ConfigError, match=rf"48.*{DIM}"):
        SentenceTransformer(modules=[Transformer(str(bert)), SelectivePooling(48)], device="cpu")


def test_a_checkpoint_that_lacks_weights_of_the_encoder_is_refused(tmp_path: Path) -> None:
    folder = make_backbone(tmp_path, "bert")
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.2.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"encoder\.layer\.2\.output\.dense\.weight"):
        tiny(folder)


def test_heads_of_a_checkpoint_are_no_matter(tmp_path: Path, bert: Path) -> None:
    """A masked language model has a head too many and a pooler too few."""
    config = BertConfig.from_pretrained(bert)
    BertForMaskedLM(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path)
    assert np.isfinite(tiny(tmp_path).encode(SENTENCES)).all()


def test_a_normal_run_is_quiet(bert: Path, tmp_path: Path) -> None:
    script = f"""
import s2sent
model = s2sent.build({str(bert)!r}, blocks=3, reduction=4, normalize=True)
model.encode({SENTENCES!r})
model.encode({SENTENCES!r}, output_value="token_embeddings")
model.save({str(tmp_path / "saved")!r})
s2sent.load({str(tmp_path / "saved")!r}).encode({SENTENCES!r})
"""
    run = subprocess.run(
        [sys.executable, "-W", "default", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )
    progress = re.compile(r"\s*(Loading weights|Writing model shards)\b.*")
    lines = [line for line in re.split(r"[\r\n]+", run.stdout + run.stderr) if line.strip()]
    assert [line for line in lines if not progress.fullmatch(line)] == []
