"""TensorScatter writes rows into a cache."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.errors import OpError
from tests.ops.kernels import assert_like_ort, ints, rand, run_kernel, spec_of
from tests.ops.ort_oracle import ort_run


def rowwise(past: np.ndarray, update: np.ndarray, starts: list, axis: int, mode: str) -> np.ndarray:
    """The operator's pseudocode: one row at a time."""
    present = past.copy()
    cache, new = np.moveaxis(present, axis, 1), np.moveaxis(update, axis, 1)
    for b, start in enumerate(starts):
        for s in range(new.shape[1]):
            cache[b, (start + s) % cache.shape[1] if mode == "circular" else start + s] = new[b, s]
    return present


def random_scatter(seed: int, mode: str) -> tuple[list, int]:
    rng = np.random.default_rng((seed, len(mode)))
    shape = [int(n) for n in rng.integers(1, 6, rng.integers(2, 6))]
    axis = int(rng.integers(1, len(shape)))
    capacity = shape[axis] = int(rng.integers(1, 9))
    rows = [*shape[:axis], int(rng.integers(0, capacity + 1)), *shape[axis + 1 :]]
    last = capacity - rows[axis] if mode == "linear" else 3 * capacity
    starts = rng.integers(0, last + 1, shape[0])
    return [rand(*shape, seed=seed), rand(*rows, seed=seed), starts], axis


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("seed", range(20))
def test_tensor_scatter_agrees_with_onnxruntime_on_any_axis(seed: int, mode: str) -> None:
    inputs, axis = random_scatter(seed, mode)
    signed = axis - inputs[0].ndim if seed % 2 else axis
    assert_like_ort("TensorScatter", inputs, opset=24, axis=signed, mode=mode)


def test_tensor_scatter_writes_from_row_0_where_no_index_is_given() -> None:
    assert_like_ort("TensorScatter", [rand(2, 3, 4, 5), rand(2, 3, 2, 5)], opset=24)


@given(seed=st.integers(0, 10**6), mode=st.sampled_from(["linear", "circular"]), in_place=st.booleans())
def test_tensor_scatter_is_its_pseudocode(seed: int, mode: str, in_place: bool) -> None:
    (past, update, starts), axis = random_scatter(seed, mode)
    own = past.copy()
    y = run_kernel(
        "TensorScatter", [own, update, starts], opset=24, axis=axis, mode=mode, out=own if in_place else None
    )[0]
    assert (y is own) == in_place
    assert y.tobytes() == rowwise(past, update, starts.tolist(), axis, mode).tobytes()


def test_a_cache_with_heads_keeps_its_heads_apart() -> None:
    past, update = np.zeros((2, 8, 4, 3), np.float32), rand(2, 8, 1, 3)
    y = assert_like_ort("TensorScatter", [past, update, ints(1, 3)], opset=24)[0]
    np.testing.assert_array_equal(y[0, :, 1], update[0, :, 0])
    np.testing.assert_array_equal(y[1, :, 3], update[1, :, 0])
    assert np.count_nonzero(y.any(axis=-1)) == 16


def test_a_cache_that_is_a_view_is_copied_row_major() -> None:
    assert_like_ort("TensorScatter", [rand(6, 4, 2).transpose(2, 1, 0), rand(2, 1, 6), ints(3, 0)], opset=24)


def test_tensor_scatter_in_place_costs_the_update() -> None:
    spec = spec_of("TensorScatter", 24)
    args = [rand(1, 4, 100, 16), rand(1, 4, 1, 16), ints(7)]
    assert spec.overwrites == (0,)
    assert spec.fits is not None and spec.cost is not None
    assert spec.fits(args, 0, {}) == ""
    assert spec.cost(args, (args[0],), True, {}) == (256, 0)
    assert spec.cost(args, (args[0],), False, {}) == (25_600 + 256, 25_600)


CACHE, ROW = rand(2, 3, 4, 5), rand(2, 3, 2, 5)
REFUSED = [
    ([CACHE, ROW, ints(0, 3)], {}, "batch entry 1 would write rows 3 to 4 of a cache with capacity 4"),
    ([CACHE, ROW, ints(-1, 0)], {}, "write index -1 of batch entry 0 is negative"),
    ([CACHE, ROW, ints(0, -1)], {"mode": "circular"}, "write index -1 of batch entry 1 is negative"),
    ([CACHE, rand(2, 3, 5, 5), ints(0, 0)], {}, "5 rows is longer than the cache's capacity of 4"),
    ([CACHE, rand(2, 3, 5, 5), ints(0, 0)], {"mode": "circular"}, "5 rows is longer than the cache's capacity of 4"),
    ([CACHE, ROW, ints(0)], {}, "write_indices holds 1 numbers for a batch of 2"),
    ([CACHE, ROW, ints(0, 0, 0)], {}, "write_indices holds 3 numbers for a batch of 2"),
    ([CACHE, rand(2, 3, 2, 4), ints(0, 0)], {}, "differ off axis 2"),
    ([CACHE, rand(3, 2, 5), ints(0, 0)], {}, "differ off axis 2"),
    ([CACHE, ROW, ints(0, 0)], {"axis": 0}, "axis 0 must name a dimension after the batch"),
    ([CACHE, ROW, ints(0, 0)], {"axis": -4}, "axis -4 must name a dimension after the batch"),
    ([CACHE, ROW, ints(0, 0)], {"axis": 4}, "axis 4 must name a dimension after the batch"),
    ([CACHE, ROW, ints(0, 0)], {"mode": "ring"}, "mode 'ring' is neither"),
]


@pytest.mark.parametrize(("inputs", "attributes", "message"), REFUSED)
def test_what_onnxruntime_refuses_is_refused_before_anything_is_written(
    inputs: list, attributes: dict, message: str
) -> None:
    own = inputs[0].copy()
    with pytest.raises(OpError, match=message):
        run_kernel("TensorScatter", [own, *inputs[1:]], opset=24, out=own, **attributes)
    np.testing.assert_array_equal(own, inputs[0])
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        ort_run("TensorScatter", inputs, opset=24, **attributes)
