"""ONNX Attention by the text where onnxruntime has no rule or another; and rotary embeddings of both domains."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import check, ints, rand, run_kernel

MS = "com.microsoft"
Q, K, V = rand(2, 4, 3, 8), rand(2, 2, 5, 8), rand(2, 2, 5, 6)


def flat(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


HEADS: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2}


@pytest.mark.parametrize(("precision", "dtype"), [(10, np.float16), (16, ml_dtypes.bfloat16)])
def test_a_softmax_of_lower_precision_is_rounded_to_it(precision: int, dtype: type) -> None:
    p = run_kernel("Attention", [Q, K, V], 4, 23, softmax_precision=precision, qk_matmul_output_mode=3)[3]
    exact = run_kernel("Attention", [Q, K, V], 4, 23, qk_matmul_output_mode=3)[3]
    assert p.dtype == np.float32
    np.testing.assert_array_equal(p, p.astype(dtype).astype(np.float32))
    assert 0 < np.abs(p - exact).max() < 0.02


@pytest.mark.parametrize("as_rows", [False, True])
def test_without_a_past_the_presents_are_views_of_keys_and_values(as_rows: bool) -> None:
    arguments = [flat(Q), flat(K), flat(V)] if as_rows else [Q, K, V]
    outs = run_kernel("Attention", arguments, 3, 23, **(HEADS if as_rows else {}))
    assert np.shares_memory(outs[1], arguments[1]) and np.shares_memory(outs[2], arguments[2])
    np.testing.assert_array_equal(outs[1], K)


@pytest.mark.parametrize("length", [1, 3])
def test_rows_of_one_sequence_beyond_its_valid_ones_are_never_read(length: int) -> None:
    k, v = K[:1].copy(), V[:1].copy()
    arguments = [Q[:1, :, :length], k, v, None, None, None, ints(3)]
    clean = run_kernel("Attention", arguments, opset=24, is_causal=1)[0]
    k[:, :, 3:] = v[:, :, 3:] = np.nan
    np.testing.assert_array_equal(run_kernel("Attention", arguments, opset=24, is_causal=1)[0], clean)


def test_a_hidden_key_stays_hidden_however_large_its_score() -> None:
    k = K.copy()
    k[:, :, 2] = np.inf
    mask = np.zeros((3, 5), np.float32)
    mask[:, 2] = -np.inf
    with np.errstate(invalid="ignore"):
        y = run_kernel("Attention", [np.abs(Q), np.abs(k), V, mask], opset=23)[0]
    np.testing.assert_array_equal(np.isfinite(y), True)


def test_attributes_that_say_nothing_are_overlooked_as_in_onnxruntime() -> None:
    mode: dict[str, Any] = {"qk_matmul_output_mode": 4}
    cases: list[dict[str, Any]] = [{"q_num_heads": 0, "kv_num_heads": 0}, {"is_causal": 2}, mode]
    for attributes in cases:
        check("Attention", [Q, K, V], 1, 24, rtol=1e-4, atol=1e-5, **attributes)
    with pytest.raises(OpError, match="qk_matmul_output_mode 4 must be 0, 1, 2 or 3"):
        run_kernel("Attention", [Q, K, V], 4, 24, **mode)


def test_only_from_opset_24_on_a_mask_may_be_shorter_than_the_keys() -> None:
    mask = rand(3, 1)
    broadcast = run_kernel("Attention", [Q, K, V, np.repeat(mask, 5, axis=1)], opset=23)[0]
    np.testing.assert_array_equal(run_kernel("Attention", [Q, K, V, mask], opset=23)[0], broadcast)
    first = run_kernel("Attention", [Q, K[:, :, :1], V[:, :, :1]], opset=24)[0]
    np.testing.assert_allclose(run_kernel("Attention", [Q, K, V, mask], opset=24)[0], first, rtol=1e-6)
    with pytest.raises(OpError, match="does not broadcast to 5 keys, as it must before opset 24"):
        run_kernel("Attention", [Q, K, V, rand(3, 4)], opset=23)


COS, SIN = np.cos(rand(10, 4)), np.sin(rand(10, 4))
X = rand(2, 3, 5, 8)
ROWS = flat(X)
POSITIONS = np.array([[0, 1, 2, 3, 4], [9, 0, 3, 3, 8]])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(
    "x", [X, ROWS, ROWS.reshape(2, 5, 3, 8).transpose(0, 2, 1, 3)], ids=["by head", "flat", "turned"]
)
def test_rotary_embedding_agrees_with_onnxruntime(x: np.ndarray, interleaved: int) -> None:
    how: dict[str, Any] = {"interleaved": interleaved} | ({"num_heads": 3} if x.ndim == 3 else {})
    parts: list[tuple[int, dict[str, Any]]] = [(4, {}), (2, {"rotary_embedding_dim": 4})]
    for width, part in parts:
        tables = [np.ascontiguousarray(table[:, :width]) for table in (COS, SIN)]
        for inputs in ([*tables, POSITIONS], [table[POSITIONS] for table in tables]):
            check("RotaryEmbedding", [x, *inputs], opset=23, **how, **part)
        if part:
            part = {"num_heads": 3, **part}
        for positions in (POSITIONS, ints(3)) if x.flags.c_contiguous else ():
            check("RotaryEmbedding", [x, positions, *tables], domain=MS, **{**how, **part})
