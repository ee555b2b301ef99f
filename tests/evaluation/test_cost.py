from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conftest import DIM, SENTENCES
from model.tiny import pooling_of, tiny
from s2sent.evaluation.cost import count_parameters, interleaved_seconds, paired_ratios, peak_memory


def test_peak_memory_counts_what_is_alive_at_once() -> None:
    before = torch.zeros(100_000)

    def run() -> None:
        before.view(10, -1)  # was there already
        a = torch.zeros(1000)
        b = a + 1
        del a
        c = b * 2
        b[:10].add_(1)  # a view owns nothing
        del b, c

    assert peak_memory(run) == 2 * 4000


def test_rounds_are_interleaved_and_go_back_and_forth() -> None:
    order: list[str] = []
    runs = {name: (lambda name=name: order.append(name)) for name in "abc"}
    seconds = interleaved_seconds(runs, rounds=2)
    assert "".join(order) == "cba" + "abc" + "cba"
    assert all(len(values) == 2 for values in seconds.values())
    assert paired_ratios([2.0, 3.0], [1.0, 2.0]) == [2.0, 1.5]


@pytest.mark.parametrize("options", [{}, {"blocks": 4}, {"blocks": 4, "fusion": "average"}, {"pooling": "cls"}])
def test_inference_keeps_no_more_than_one_block_of_states(bert: Path, options: dict[str, object]) -> None:
    texts = [text for text in SENTENCES if len(text) > 60] * 20
    plain, selective = tiny(bert, fusion="last", gate="none"), tiny(bert, **options)
    features = plain.preprocess(texts)
    states = features["input_ids"].numel() * DIM * 4

    def peak(model: torch.nn.Module) -> int:
        with torch.inference_mode():
            return peak_memory(lambda: model(dict(features)))

    assert peak(selective) - peak(plain) <= states
    for hook in pooling_of(selective)._stream.handles:  # type: ignore[union-attr]
        hook.remove()
    assert peak(selective) - peak(plain) > states, "without streaming, hidden states pile up: else this shows nothing"


def test_the_papers_form_has_the_papers_number_of_parameters(bert: Path) -> None:
    pooling = pooling_of(tiny(bert, blocks=3, reduction=5))
    assert count_parameters(pooling) == DIM * (DIM // 5) * (1 + 3)
