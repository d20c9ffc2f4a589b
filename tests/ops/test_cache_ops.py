"""TensorScatter writes rows into a cache; CausalConvWithState and LinearAttention carry a state."""

from __future__ import annotations

from typing import Any

import ml_dtypes
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


@pytest.mark.parametrize("taps", [1, 2, 4])
@pytest.mark.parametrize("length", [1, 3, 7])
def test_a_convolution_in_steps_equals_one_over_all_columns(taps: int, length: int) -> None:
    x, weight, bias = rand(2, 3, 10), rand(3, 1, taps), rand(3)
    padded = np.pad(x, ((0, 0), (0, 0), (taps - 1, 0)))
    whole = assert_like_ort("Conv", [padded, weight, bias], group=3)[0]

    parts, state = [], None
    for start in range(0, 10, length):
        y, state = run_kernel("CausalConvWithState", [x[:, :, start : start + length], weight, bias, state], 2, 27)
        parts.append(y)

    np.testing.assert_allclose(np.concatenate(parts, axis=2), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(state, padded[:, :, 10:])
    assert not np.shares_memory(state, x)


def test_a_convolution_may_end_in_silu() -> None:
    x, weight = rand(1, 2, 4), rand(2, 1, 3)
    plain = run_kernel("CausalConvWithState", [x, weight], 2, 27)[0]
    for name in ("silu", "swish"):
        y = run_kernel("CausalConvWithState", [x, weight], 2, 27, activation=name)[0]
        np.testing.assert_allclose(y, plain / (1 + np.exp(-plain)), rtol=1e-6)


RULES = [("linear", False, False), ("gated", True, False), ("delta", False, True), ("gated_delta", True, True)]


def attention_inputs(tokens: int, gated: bool, delta: bool, per_key: bool, dtype: type = np.float32) -> list:
    decay = -np.abs(rand(2, tokens, 8 if per_key else 2)) if gated else None
    beta = 1 / (1 + np.exp(-rand(2, tokens, 2, seed=4))) if delta else None
    arrays = [
        rand(2, tokens, 16),
        rand(2, tokens, 8, seed=1),
        rand(2, tokens, 6, seed=2),
        rand(2, 2, 4, 3),
        decay,
        beta,
    ]
    return [None if a is None else a.astype(dtype) for a in arrays]


def recurrence(inputs: list, scale: float) -> tuple:
    """The recurrence with one explicit loop a batch entry, head and token; 4 query heads on 2 key heads."""
    q, k, v, state, decay, beta = inputs
    state, y = state.astype(np.float64), np.zeros((*q.shape[:2], 4, 3))
    for b, h, t in np.ndindex(2, 2, q.shape[1]):
        key, value = k[b, t, 4 * h : 4 * h + 4], v[b, t, 3 * h : 3 * h + 3].astype(np.float64)
        s = state[b, h]
        if decay is not None:
            gate = decay[b, t, h : h + 1] if decay.shape[2] == 2 else decay[b, t, 4 * h : 4 * h + 4]
            s *= np.exp(gate)[:, None]
        if beta is not None:
            value = beta[b, t, h] * (value - s.T @ key)
        s += np.outer(key, value)
        for g in (2 * h, 2 * h + 1):
            y[b, t, g] = scale * (q[b, t, 4 * g : 4 * g + 4] @ s)
    return y.reshape(*q.shape[:2], 12), state


@pytest.mark.parametrize(("rule", "gated", "delta"), RULES)
@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize("scale", [0.0, 0.3])
def test_linear_attention_is_its_recurrence(rule: str, gated: bool, delta: bool, per_key: bool, scale: float) -> None:
    inputs = attention_inputs(5, gated, delta, per_key)
    before = inputs[3].copy()
    y, state = run_kernel(
        "LinearAttention", inputs, 2, 27, q_num_heads=4, kv_num_heads=2, update_rule=rule, scale=scale
    )
    want, final = recurrence(inputs, scale or 0.5)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, final, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(inputs[3], before)


def test_linear_attention_token_by_token_equals_all_at_once() -> None:
    inputs = attention_inputs(6, True, True, False, np.float64)
    heads: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2}
    whole, final = run_kernel("LinearAttention", inputs, 2, 27, **heads)
    state, parts = inputs[3], []
    for t in range(6):
        cut = [None if x is None else x[:, t : t + 1] for x in inputs]
        y, state = run_kernel("LinearAttention", [*cut[:3], state, *cut[4:]], 2, 27, **heads)
        parts.append(y)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-12)
    np.testing.assert_allclose(state, final, rtol=1e-12)


def test_states_keep_their_element_type() -> None:
    inputs = attention_inputs(2, False, False, False, ml_dtypes.bfloat16)
    inputs[3] = inputs[3].astype(np.float32)
    y, state = run_kernel("LinearAttention", inputs, 2, 27, q_num_heads=4, kv_num_heads=2, update_rule="linear")
    assert (y.dtype, state.dtype) == (ml_dtypes.bfloat16, np.float32)


Q = rand(1, 2, 4)
MISUSED = [
    ("LinearAttention", [Q, Q, Q], {"update_rule": "delta"}, "'delta' needs beta"),
    ("LinearAttention", [Q, Q, Q, None, Q], {"update_rule": "linear"}, "'linear' takes no decay"),
    ("LinearAttention", [Q, Q, Q], {"update_rule": "odd"}, "'odd' is none of"),
    (
        "LinearAttention",
        [Q, Q, Q],
        {"update_rule": "linear", "q_num_heads": 3},
        "3 query heads are not a multiple of 2",
    ),
    ("LinearAttention", [Q, Q, Q, rand(1, 2, 3, 2)], {"update_rule": "linear"}, "past_state must have shape"),
    ("CausalConvWithState", [rand(1, 2, 3), rand(3, 1, 2)], {}, "does not fit an input"),
    ("CausalConvWithState", [rand(1, 2, 3), rand(2, 1, 2), None, rand(1, 2, 2)], {}, r"must have shape \(1, 2, 1\)"),
    ("CausalConvWithState", [rand(1, 2, 3), rand(2, 1, 2)], {"activation": "relu"}, "'relu' is none of"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "message"), MISUSED)
def test_misuse_is_named(op_type: str, inputs: list, attributes: dict, message: str) -> None:
    if op_type == "LinearAttention":
        attributes = {"q_num_heads": 2, "kv_num_heads": 2, **attributes}
    with pytest.raises(OpError, match=message):
        run_kernel(op_type, inputs, 2, 27, **attributes)
