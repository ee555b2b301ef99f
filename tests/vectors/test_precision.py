from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers.util import quantize_embeddings

from s2sent.errors import ConfigError
from s2sent.vectors.precision import Form

VECTORS = np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32) * np.logspace(-2, 2, 50)[:, None]
VECTORS = VECTORS.astype(np.float32)


def test_int8_is_undone_to_half_a_step_and_keeps_cosines() -> None:
    packed = Form("int8").pack(VECTORS)
    assert packed.values.dtype == np.int8
    assert packed.scale is not None
    assert np.abs(packed.values).max(axis=1).tolist() == [127] * len(VECTORS)
    undone = packed.values * packed.scale[:, None]
    assert (np.abs(undone - VECTORS).max(axis=1) <= packed.scale * 0.501).all()
    a, b = ((v / np.linalg.norm(v, axis=1, keepdims=True)) for v in (packed.values.astype(np.float32), VECTORS))
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=0.02)


@pytest.mark.parametrize("dim", [20, 16, 3])
def test_binary_is_the_host_s_and_undone_to_signs(dim: int) -> None:
    packed = Form("binary", dim=dim).pack(VECTORS)
    np.testing.assert_array_equal(packed.values, quantize_embeddings(VECTORS[:, :dim], "ubinary"))
    assert packed.values.shape[1] == Form("binary", dim=dim).width(20)
    signs = np.unpackbits(packed.values, axis=-1)[..., :dim] * 2.0 - 1
    np.testing.assert_array_equal(signs, np.sign(VECTORS[:, :dim]))


def test_cut_first_then_brought_to_length_1() -> None:
    packed = Form(dim=7, normalize=True).pack(VECTORS)
    np.testing.assert_allclose(np.linalg.norm(packed.values, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(packed.values, VECTORS[:, :7] / np.linalg.norm(VECTORS[:, :7], axis=1, keepdims=True))


@pytest.mark.parametrize("precision", ["float32", "float16", "int8", "binary"])
def test_what_is_not_a_number_is_found_in_every_precision(precision: str) -> None:
    vectors = np.array([[1, 2], [np.nan, 0], [0, 0], [np.inf, 1], [1e6, 1]], dtype=np.float32)
    packed = Form(precision, normalize=precision == "float32").pack(vectors)
    assert packed.bad.tolist() == [False, True, False, True, precision == "float16"]
    assert packed.values.dtype == Form(precision).dtype


def test_illegal_forms_say_what_is_legal() -> None:
    with pytest.raises(ConfigError, match=r"one of float32.*int4"):
        Form("int4")
    with pytest.raises(ConfigError, match="at least 1"):
        Form(dim=0)
    with pytest.raises(ConfigError, match="dim=33 is more than the model's vectors have: 32"):
        Form(dim=33).check(32)
