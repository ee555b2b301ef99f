"""Every illegal thing is refused with a message that names it and says what is legal."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from s2sent.errors import ConfigError, S2SentError
from s2sent.selection import SelectionConfig, Selector
from selection import oracle

DIM = 24


@pytest.mark.parametrize("name", ["blocks", "frequencies", "reduction"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "3", None, True])
def test_numbers_must_be_positive_and_whole(name: str, value: Any) -> None:
    with pytest.raises(
        ConfigError, match=rf"{name} must be a whole number of at least 1, got {re.escape(repr(value))}"
    ):
        SelectionConfig(**{name: value})


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("squeeze", ["dct", "gap", "none"]),
        ("scale", ["mean", "orthonormal", "sum"]),
        ("fusion", ["stack", "average", "last"]),
        ("activation", ["relu", "tanh"]),
        ("gate", ["sigmoid", "linear", "static", "none"]),
        ("prior", ["uniform", "last"]),
    ],
)
@pytest.mark.parametrize("value", ["Stack", "", None, 3, ["dct"]])
def test_an_unknown_choice_is_named_with_the_legal_ones(name: str, legal: list[str], value: Any) -> None:
    with pytest.raises(ConfigError) as error:
        SelectionConfig(**{name: value})
    assert f"{name} must be one of" in str(error.value)
    assert f"got {value!r}" in str(error.value)
    assert all(repr(choice) in str(error.value) for choice in legal)


@pytest.mark.parametrize("blocks", [(), [], (1.0, 2), ("1",), (True, 2), (1, 1), (-1, -1)])
def test_a_list_of_blocks_has_distinct_whole_numbers(blocks: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(blocks))):
        SelectionConfig(blocks=blocks)


@pytest.mark.parametrize(
    "options",
    [
        {"fusion": "stack", "gate": "none"},
        {"fusion": "last", "gate": "linear"},
        {"fusion": "average", "gate": "static"},
        {"fusion": "average", "prior": "last"},
        {"blocks": 1, "gate": "linear"},
        {"blocks": 1, "prior": "last"},
        {"blocks": (4,), "gate": "static"},
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        SelectionConfig(**options)
    named = [f"{name}={value!r}" for name, value in options.items() if name in ("gate", "prior")]
    assert all(name in str(error.value) for name in named)
    assert "Use" in str(error.value)


def test_an_option_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match=r"(?s)block_count, layers.*blocks.*frequencies.*reduction.*prior"):
        SelectionConfig.from_dict({"layers": 3, "block_count": 4, "blocks": 3})


@pytest.mark.parametrize("blocks", [1, 2, 3, 12])
def test_a_config_survives_json(blocks: int) -> None:
    for config in oracle.every_config(blocks, 4, 12):
        assert SelectionConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    listed = SelectionConfig(blocks=(1, -1))
    assert SelectionConfig.from_dict(json.loads(json.dumps(listed.to_dict()))) == listed


@given(st.dictionaries(st.sampled_from(list(SelectionConfig().to_dict())), st.none() | st.integers() | st.text()))
def test_whatever_a_json_file_says_makes_a_config_or_our_own_error(options: dict[str, Any]) -> None:
    with suppress(S2SentError):
        assert isinstance(SelectionConfig.from_dict(options), SelectionConfig)


def test_a_reduction_beyond_the_features_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reduction=25.*24"):
        Selector(24, SelectionConfig(reduction=25))
    Selector(24, SelectionConfig(reduction=24))


def test_more_frequencies_than_features_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"frequencies=25.*24"):
        Selector(24, SelectionConfig(frequencies=25, reduction=4))
    Selector(24, SelectionConfig(frequencies=24, reduction=4))


@pytest.mark.parametrize("given_blocks", [0, 1, 2, 4, 13])
def test_a_wrong_number_of_hidden_states_is_refused(given_blocks: int) -> None:
    with pytest.raises(ConfigError, match=rf"{given_blocks} hidden states.*3 blocks"):
        Selector(DIM)([torch.zeros(2, 4, DIM)] * given_blocks)


@pytest.mark.parametrize("shape", [(2, 4, DIM - 1), (2, 5, DIM), (3, 4, DIM), (4, DIM), (1, 2, 4, DIM)])
def test_hidden_states_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=re.escape(str(shape))):
        Selector(DIM)([torch.zeros(2, 4, DIM), torch.zeros(2, 4, DIM), torch.zeros(shape)])


@pytest.mark.parametrize("shape", [(0, 4, DIM), (2, 0, DIM), (0, 0, DIM)])
def test_an_empty_batch_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"(?i)empty"):
        Selector(DIM)([torch.zeros(shape)] * 3, torch.ones(shape[:2]))


@pytest.mark.parametrize("shape", [(2, 5), (3, 4), (2,), (1, 4)])
def test_a_mask_that_does_not_fit_the_states_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(S2SentError, match=re.escape(str(shape))):
        Selector(DIM)([torch.zeros(2, 4, DIM)] * 3, torch.ones(shape))


@pytest.mark.parametrize(("batch", "ends"), [(1, [0, 3, 7]), (1, [0, 3, 9]), (2, [0, 3, 8]), (2, [0, 4, 8])])
def test_lengths_that_do_not_fit_the_flat_states_are_refused(batch: int, ends: list[int]) -> None:
    with pytest.raises(S2SentError):
        Selector(DIM)([torch.zeros(batch, 8, DIM)] * 3, cu_seq_lens=torch.tensor(ends))


def test_a_sentence_without_a_token_is_refused() -> None:
    states, mask = oracle.padded(oracle.ragged(np.random.default_rng(0), 3, DIM, [4, 2]))
    mask[1] = 0
    with pytest.raises(ConfigError, match=r"Sentence 1 .* no tokens"):
        Selector(DIM)(states, mask)
