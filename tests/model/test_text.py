"""From text to sequences of tokens: against the host, and with a tokenizer whose tokens are letters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import SENTENCES
from model.tiny import tiny
from s2sent.errors import DataError
from s2sent.model.load import open_encoder
from s2sent.model.prompts import padded, pipeline_of
from s2sent.model.text import TextPipeline


class Letters:
    """A tokenizer whose tokens are letters, with a record of how much it was given at a time."""

    class Encoding:
        def __init__(self, text: str) -> None:
            self.ids = [ord(letter) for letter in text]

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> list[Encoding]:
        assert not add_special_tokens
        self.sizes.append(sum(map(len, texts)))
        return [self.Encoding(text) for text in texts]


def test_no_call_of_the_tokenizer_is_much_longer_than_the_longest_text() -> None:
    letters = Letters()
    texts = [f"{number} " * 2000 for number in range(300)]  # 10,000 characters and less
    tokens = TextPipeline((1,), (2,), room=4, tokenizer=letters).tokenize(texts)
    assert ["".join(map(chr, row)) for row in tokens] == texts
    assert sum(letters.sizes) == sum(map(len, texts))
    assert max(letters.sizes) < 300_000


def test_the_no_text_rule() -> None:
    plain = TextPipeline((1,), (2,), room=4, special=frozenset({1, 2}), tokenizer=Letters())
    strict = TextPipeline((1,), (2,), room=4, special=frozenset({1, 2}), needs_text=True, tokenizer=Letters())
    assert [plain.accepts(tokens) for tokens in ([], [2], [2, 65])] == [False, True, True]
    assert [strict.accepts(tokens) for tokens in ([], [2], [2, 65])] == [False, False, True]
    assert plain.encodes_empty
    assert not strict.encodes_empty
    assert plain.token_ids(["", "\x02", "A"]) == strict.token_ids(["", "\x02", "A"]) == [[], [], [1, 65, 2]]
    plain.check_text([[1, 2], [1, 2, 2]])
    for sequence in ([1, 2], [1, 2, 2], []):
        with pytest.raises(DataError, match="has no text"):
            strict.check_text([[1, 65, 2], sequence])


def test_texts_are_cut_and_padded_on_either_side() -> None:
    for keep_end, left, expected in (
        (False, False, [[1, 65, 66, 2], [1, 65, 2, 0]]),
        (True, True, [[1, 67, 68, 2], [0, 1, 65, 2]]),
    ):
        pipeline = TextPipeline((1,), (2,), room=2, keep_end=keep_end, pad_left=left, tokenizer=Letters())
        batch = pipeline.pad(pipeline.token_ids(["ABCD", "A"]))
        assert batch["input_ids"].tolist() == expected
        assert batch["attention_mask"].tolist() == [[int(token > 0) for token in row] for row in expected]


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "modernbert", "qwen3"])
def test_training_cuts_texts_as_the_tokenizer_does(backbone_of: Callable[[str], Path], family: str) -> None:
    encoder = open_encoder(backbone_of(family), device="cpu")[0]
    host = encoder.tokenizer(SENTENCES, truncation=True, max_length=5, padding=True, return_tensors="pt")
    ours = padded(encoder, pipeline_of(encoder, 5).token_ids(SENTENCES))
    assert ours["input_ids"].tolist() == host["input_ids"].tolist()
    assert ours["attention_mask"].tolist() == host["attention_mask"].tolist()


def test_what_a_model_refuses_is_read_off_its_modules(bert: Path) -> None:
    assert pipeline_of(tiny(bert)).needs_text
    assert not pipeline_of(open_encoder(bert, device="cpu")).needs_text
