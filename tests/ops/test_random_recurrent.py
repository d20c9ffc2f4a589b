"""Random calls of the operators with a state of fixed size, against onnxruntime's and onnx.reference's kernels."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kvviz
from kvviz.errors import OpError
from tests.ops.kernels import rand, run_kernel, spec_of
from tests.ops.ort_oracle import one_node_model, ort_run
from tests.ops.random_cases import Call, by_ort, cast, dice, tally, trimmed
from tests.ops.test_random_attention import by_reference

MS = "com.microsoft"
RULES = ("linear", "gated", "delta", "gated_delta")


def linear(seed: int, domain: str) -> Call:
    rng, normal, _ = dice(seed, 9)
    batch, shared, group, tokens = (int(n) for n in rng.integers(1, 4, 4))
    size, width, rule = int(rng.integers(1, 9)), int(rng.integers(1, 9)), RULES[seed % 4]
    heads, kv_heads = shared * group, shared
    if domain and group > 1 and rng.random() < 0.3:
        heads, kv_heads = kv_heads, heads
    decay, beta, state = None, None, None
    if "gated" in rule:
        by_key = rng.random() < 0.5
        decay = -np.abs(normal(batch, tokens, kv_heads * (size if by_key else 1)))
    if "delta" in rule:
        by_head = rng.random() < 0.6
        beta = 1 / (1 + np.exp(-normal(batch, tokens, kv_heads if by_head else 1)))
    if rng.random() < 0.7:
        state = normal(batch, kv_heads, size, width)
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": kv_heads, "update_rule": rule}
    if rng.random() < 0.4:
        attributes["scale"] = float(rng.uniform(0.1, 2))
    if rng.random() < 0.3:
        attributes["chunk_size"] = int(rng.integers(1, 5))
    key = normal(batch, tokens, kv_heads, size)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    q, v = normal(batch, tokens, heads * size), normal(batch, tokens, kv_heads * width)
    inputs = trimmed(q, key.reshape(batch, tokens, -1), v, state, decay, beta)
    return Call("LinearAttention", inputs, attributes, 2, 21 if domain else 27, domain)


def conv(seed: int, domain: str) -> Call:
    rng, normal, _ = dice(seed, 10)
    batch, channels, length, taps = (int(n) for n in rng.integers(1, 6, 4))
    attributes: dict[str, Any] = {"activation": ("none", "silu", "swish")[seed % 3]}
    columns, tail = taps - 1, [channels]
    if domain:
        attributes["dilation"] = int(rng.integers(1, 4))
        columns *= attributes["dilation"]
        if rng.random() < 0.5:
            attributes["channels_last"] = 1
            tail = [channels, 2] if rng.random() < 0.5 else tail
    last = "channels_last" in attributes
    channels = int(np.prod(tail))
    x = normal(batch, length, *tail) if last else normal(batch, channels, length)
    state = None
    if rng.random() < 0.7:
        state = normal(batch, columns, *tail) if last else normal(batch, channels, columns)
    bias = normal(channels) if rng.random() < 0.5 else None
    inputs = trimmed(x, normal(channels, 1, taps), bias, state)
    return Call("CausalConvWithState", inputs, attributes, 2, 21 if domain else 27, domain)


@pytest.mark.parametrize("make", [linear, conv])
@pytest.mark.parametrize("domain", ["", MS], ids=["onnx", "microsoft"])
def test_1000_random_calls_with_a_state_agree_with_the_oracle_in_place_and_not(make: Any, domain: str) -> None:
    tally(lambda seed: make(seed, domain), 1000, oracle=by_ort if domain else by_reference, in_place=500)


@pytest.mark.parametrize("make", [linear, conv])
@pytest.mark.parametrize(("domain", "dtype"), [("", np.float64), ("", np.float16), (MS, np.float16)])
def test_200_random_calls_of_another_precision_agree_with_the_oracle(make: Any, domain: str, dtype: type) -> None:
    # onnx.reference keeps its state in float32.
    rtol, atol = (1e-5, 2e-6) if dtype is np.float64 else (2e-2, 4e-3)
    oracle = by_ort if domain else by_reference
    tally(lambda seed: cast(make(seed, domain), dtype), 200, oracle=oracle, rtol=rtol, atol=atol, in_place=80)


# -- the state, and what is refused -----------------------------------------------------------------------------------

GATE = np.abs(rand(2, 1, 2))
LINEAR: list = [rand(2, 1, 16), rand(2, 1, 8, seed=1), rand(2, 1, 6, seed=2), rand(2, 2, 4, 3), -GATE, GATE / 4]


def test_states_keep_their_element_type() -> None:
    inputs = [*(x.astype(ml_dtypes.bfloat16) for x in LINEAR[:3]), LINEAR[3]]
    y, state = run_kernel("LinearAttention", inputs, 2, 27, q_num_heads=4, kv_num_heads=2, update_rule="linear")
    assert (y.dtype, state.dtype) == (ml_dtypes.bfloat16, np.float32)


CONV: list = [rand(2, 3, 4), rand(3, 1, 6), rand(3), rand(2, 3, 5)]
HEADS: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2}


@pytest.mark.parametrize("domain", ["", MS])
@pytest.mark.parametrize("op_type", ["LinearAttention", "CausalConvWithState"])
def test_a_run_overwrites_a_state_that_it_was_given_and_no_other(op_type: str, domain: str) -> None:
    inputs = LINEAR if op_type == "LinearAttention" else CONV
    attributes = HEADS if op_type == "LinearAttention" else {}
    graph = kvviz.load(one_node_model(op_type, inputs, 2, 21 if domain else 27, domain, **attributes))
    feeds = {f"x{i}": x.copy() for i, x in enumerate(inputs)}

    lent = kvviz.run(graph, feeds)
    assert [(b.code.name, b.input) for b in lent.steps[0].decision.blockers] == [("BORROWED_INPUT", "x3")]
    assert lent.steps[0].decision.shares == {}
    np.testing.assert_array_equal(feeds["x3"], inputs[3])

    given = kvviz.run(graph, feeds, donate=["x3"])
    assert given.steps[0].decision.shares == {"y1": "x3"}
    assert np.shares_memory(given.outputs["y1"], feeds["x3"])
    assert lent.bytes_allocated - given.bytes_allocated == inputs[3].nbytes
    for name, want in lent.outputs.items():
        assert given.outputs[name].tobytes() == want.tobytes()


def test_a_state_costs_what_is_computed_anew_and_columns_that_stay_are_moved() -> None:
    spec = spec_of("CausalConvWithState", 27)
    assert [(g.input, g.output, g.rows(CONV, {})) for g in spec.grows] == [(3, 1, 0)]
    assert spec.cost is not None
    outs = run_kernel("CausalConvWithState", CONV, 2, 27)
    y, state, kept = outs[0].nbytes, outs[1].nbytes, 2 * 3 * 1 * 4
    for in_place in (False, True):
        assert spec.cost(CONV, outs, in_place, {}) == (y + state, kept)
    assert spec.cost(CONV[:3], run_kernel("CausalConvWithState", CONV[:3], 2, 27), False, {}) == (y + state, 0)
    last = [x.swapaxes(1, 2) if x.ndim == 3 and i != 1 else x for i, x in enumerate(CONV)]
    assert spec.cost(last, (outs[0], outs[1].swapaxes(1, 2)), False, {"channels_last": 1}) == (y + state, kept)
    assert spec.cost(CONV, run_kernel("CausalConvWithState", CONV, 1, 27), False, {}) == (y, 0)
    assert spec_of("LinearAttention", 27).cost is None


Q = rand(1, 2, 4)
GATES = [Q, Q, Q, None, -np.abs(rand(1, 2, 2)), np.abs(rand(1, 2, 2))]
MISUSED: list[tuple[str, list, dict[str, Any], str]] = [
    ("LinearAttention", [Q, Q, Q], {"update_rule": "delta"}, "'delta' needs beta"),
    ("LinearAttention", [Q, Q, Q, None, Q], {"update_rule": "linear"}, "'linear' takes no decay"),
    ("LinearAttention", [Q, Q, Q], {"update_rule": "odd"}, "'odd' is none of"),
    (
        "LinearAttention",
        [Q, Q, Q],
        {"update_rule": "linear", "q_num_heads": 3},
        "3 query heads (are not|and 2 key heads do not)",
    ),
    ("LinearAttention", [Q, Q, Q, rand(1, 2, 3, 2)], {"update_rule": "linear"}, "past_state must have shape"),
    ("LinearAttention", [Q, Q[:, :1], Q], {"update_rule": "linear"}, "do not fit together"),
    ("LinearAttention", [Q, rand(1, 2, 5), Q], {"update_rule": "linear"}, "does not hold 2 heads"),
    ("LinearAttention", [*GATES[:4], rand(1, 2, 6), GATES[5]], {}, r"decay must have shape \(1, 2, 2 or 4\)"),
    ("LinearAttention", [*GATES[:5], rand(1, 2, 4)], {}, r"beta must have shape \(1, 2, 2 or 1\)"),
    ("CausalConvWithState", [rand(1, 2, 3), rand(3, 1, 2)], {}, "does not fit an input"),
    ("CausalConvWithState", [rand(1, 2, 3), rand(2, 1, 0)], {}, "does not fit an input"),
    ("CausalConvWithState", [rand(1, 2, 3), rand(2, 1, 2), None, rand(1, 2, 2)], {}, r"must have shape \(1, 2, 1\)"),
    ("CausalConvWithState", [rand(1, 2, 3), rand(2, 1, 2), rand(3)], {}, r"bias must have shape \(2,\)"),
    ("CausalConvWithState", [rand(1, 2, 3), rand(2, 1, 2)], {"activation": "relu"}, "'relu' is none of"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "message"), MISUSED)
@pytest.mark.parametrize("domain", ["", MS])
def test_misuse_is_named(op_type: str, inputs: list, attributes: dict, message: str, domain: str) -> None:
    if op_type == "LinearAttention":
        attributes = {"q_num_heads": 2, "kv_num_heads": 2, **attributes}
    with pytest.raises(OpError, match=message):
        run_kernel(op_type, inputs, 2, 27, domain, **attributes)


LAST = {"channels_last": 1}
ONLY_MICROSOFT: list[tuple[list, dict[str, Any], str]] = [
    ([rand(1, 2, 3), rand(2, 1, 2)], {"state_window": 2}, "state_window 2 .* is not supported"),
    ([rand(1, 2, 3), rand(2, 1, 2)], {"dilation": 0}, "dilation 0 must be at least 1"),
    ([rand(1, 2, 3, 3), rand(2, 1, 2, 2)], {"ndim": 2}, "ndim 2 is not supported"),
    ([rand(1, 3, 2), rand(2, 1, 2), None, rand(1, 2, 1)], LAST, r"past_state must have shape \(1, 1, 2\)"),
    ([rand(1, 3), rand(2, 1, 2)], LAST, r"must be \(batch, length, channels"),
]


@pytest.mark.parametrize(("inputs", "attributes", "message"), ONLY_MICROSOFT)
def test_what_onnxruntime_refuses_of_its_own_form_is_refused(inputs: list, attributes: dict, message: str) -> None:
    with pytest.raises(OpError, match=message):
        run_kernel("CausalConvWithState", inputs, 2, domain=MS, **attributes)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        ort_run("CausalConvWithState", inputs, 2, domain=MS, **attributes)
