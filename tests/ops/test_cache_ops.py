"""TensorScatter writes rows into a cache."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import assert_like_ort, ints, rand, run_kernel, spec_of
from tests.ops.ort_oracle import ort_run


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
