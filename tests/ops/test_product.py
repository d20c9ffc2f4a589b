"""Products are those of `numpy.matmul`, whichever way they are computed."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import kvviz.ops.maths.matmul as module
from kvviz.ops.maths.matmul import gemm, matmul, product

RANDOM = np.random.default_rng(7)


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Random numbers near 1."""
    return RANDOM.standard_normal(shape).astype(dtype)


def turned(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """A matrix whose columns are what lies together."""
    return normal(*shape[:-2], shape[-1], shape[-2], dtype=dtype).swapaxes(-1, -2)


def check(a: np.ndarray, b: np.ndarray, dtype: type = np.float32) -> None:
    """Against NumPy in float64, as near as a sum of that length can be; and the operands are left as they were."""
    before = a.copy(), b.copy()
    found = product(a, b)
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    assert found.shape == expected.shape and found.dtype == dtype
    scale = np.abs(expected).max(initial=1) * np.sqrt(a.shape[-1])
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * np.finfo(dtype).eps * scale)
    np.testing.assert_array_equal(a, before[0])
    np.testing.assert_array_equal(b, before[1])


@pytest.mark.parametrize("columns", [96, 256, 3072, 3073, 4100])
def test_one_row_times_a_large_matrix_is_what_numpy_computes(columns: int) -> None:
    for row in ((1, 320), (1, 1, 320)):
        for dtype in (np.float32, np.float64):
            check(normal(*row, dtype=dtype), normal(320, columns, dtype=dtype), dtype)
            check(normal(*row, dtype=dtype), turned(320, columns, dtype=dtype), dtype)
    gaps = [normal(512, 512)[:, ::2], normal(512, 513)[:, :512], normal(1024, 512)[::2], turned(1024, 512)[:512]]
    for b in (*gaps, normal(512, 8)):
        check(normal(1, 512), b)


@pytest.mark.parametrize("keys", [1, 417, 700, 6000])
def test_few_rows_times_transposed_keys_are_what_numpy_computes(keys: int) -> None:
    block = normal(2, 3, keys + 8, 64)
    for rows in (2, 3, 32, 33):
        for past in (block[:, :, :keys], normal(2, 3, keys, 64)):
            check(normal(2, 3, rows, 64), past.swapaxes(2, 3))
        check(normal(2, 1, rows, 64), block[:1, :, :keys].swapaxes(2, 3))


def test_one_row_times_a_transposed_matrix_is_read_column_by_column() -> None:
    with patch.object(module.np, "vecdot", wraps=np.vecdot) as called:
        check(normal(1, 1, 512), turned(512, 512))
        check(normal(1, 1, 512), normal(512, 512))
    assert called.call_count == 1


def test_a_batch_of_rows_times_a_matrix_is_one_product() -> None:
    with patch.object(module.np, "matmul", wraps=np.matmul) as called:
        check(normal(4, 5, 32), normal(32, 48))
    assert called.call_args_list[0].args[0].shape == (20, 32)


def test_operators_give_the_row_shapes_of_onnx_in_memory_of_their_own() -> None:
    a, w = normal(1, 1, 512), normal(512, 512)
    for y in (matmul(a, w), gemm(a[0], w), gemm(a[0], w.T, transB=1), gemm(a[0].T, w, transA=1)):
        assert y.flags.c_contiguous and y.flags.owndata and not np.shares_memory(y, w)
        np.testing.assert_allclose(y.reshape(-1), a.reshape(-1) @ w, atol=2e-3)


def test_operands_that_do_not_fit_are_refused_as_by_numpy() -> None:
    for a, b in ((normal(256, 2), normal(512, 512)), (normal(1, 511), normal(512, 512)), (normal(3, 4), normal(3, 4))):
        with pytest.raises(ValueError, match="mismatch"):
            product(a, b)


@pytest.mark.parametrize("spread", [lambda x: x[..., ::-1].copy()[..., ::-1], lambda x: np.repeat(x, 2, -1)[..., ::2]])
@pytest.mark.parametrize("shapes", [((5,), (5, 3)), ((3, 5), (5,)), ((3, 5), (5, 4)), ((2, 1, 5), (2, 5, 4))])
def test_reversed_and_spread_out_operands_give_the_bits_of_packed_ones(spread: Any, shapes: Any) -> None:
    for _ in range(50):
        a, b = (normal(*shape) for shape in shapes)
        expected = product(a, b)
        for one, two in ((spread(a), b), (a, spread(b)), (spread(a), spread(b))):
            np.testing.assert_array_equal(product(one, two), expected)
