"""Wrong calls of cache operators in a run: the error names the node, the rule and the way out, and no byte is written.

The caches are given away, as a part of a larger block or with room behind them, and the whole block is looked at.
"""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.errors import OpError
from tests.ops.kernels import Array, ints, rand
from tests.ops.ort_oracle import one_node_model, ort_run

POLICIES = ("ideal", "rten", "onnxruntime")
MS = "com.microsoft"
Case = tuple[str, list, dict[str, Any], int, str, str]
"""Operator, inputs, attributes, outputs; the rule that is named, and what is to be done."""

# -- TensorScatter ----------------------------------------------------------------------------------------------------

CACHE, ROWS = rand(2, 3, 4, 5), rand(2, 3, 2, 5)
LONG = rand(2, 3, 5, 5)
OFF = "differ off axis 2"
SCATTERS: list[tuple[list, dict[str, Any], str, str]] = [
    ([CACHE, ROWS, ints(0, -1)], {}, "write index -1 of batch entry 1 is negative", "rows count from 0"),
    ([CACHE, ROWS, ints(-1, 0)], {"mode": "circular"}, "write index -1 of batch entry 0", "rows count from 0"),
    ([CACHE, ROWS, ints(0, 3)], {}, "write rows 3 to 4 of a cache with capacity 4", "start at row 2 or before"),
    ([CACHE, LONG, ints(0, 0)], {}, "5 rows is longer than the cache's capacity of 4", "write it in parts"),
    ([CACHE, LONG, ints(0, 0)], {"mode": "circular"}, "5 rows is longer than the cache's", "write it in parts"),
    ([CACHE, ROWS, ints(0)], {}, "write_indices holds 1 numbers for a batch of 2", "give one for each entry"),
    ([CACHE, ROWS[:1], ints(0, 0)], {}, OFF, "must be the same"),
    ([CACHE, ROWS[0], ints(0, 0)], {}, OFF, "must be the same"),
    ([CACHE, ROWS, ints(0, 0)], {"axis": 0}, "axis 0", "must name a dimension after the batch"),
    ([CACHE, ROWS, ints(0, 0)], {"axis": -5}, "axis -5", "must name a dimension after the batch"),
    ([CACHE, ROWS, ints(0, 0)], {"mode": "ring"}, "mode 'ring'", "neither linear nor circular"),
    ([CACHE[0, 0, 0], ROWS[0, 0, 0], ints(0)], {}, r"shape (5,)", "no dimension after the batch"),
    ([CACHE, ROWS, ints(0, 0)[:, None]], {}, "write_indices", "must have one dimension"),
    ([CACHE, ROWS.astype(np.float64), ints(0, 0)], {}, "update has dtype float64", "the cache float32"),
]

# -- Attention and its kin --------------------------------------------------------------------------------------------

Q, K, V = rand(2, 4, 3, 8), rand(2, 2, 5, 8), rand(2, 2, 5, 6)
PAST_K, PAST_V = rand(2, 2, 7, 8, seed=1), rand(2, 2, 7, 6, seed=1)
PASTS = [None, PAST_K, PAST_V]
NONPAD = "nonpad_kv_seqlen counts rows of an outside cache"
MASK = np.zeros((3, 13), np.float32)
ATTENTIONS: list[tuple[list, dict[str, Any], int, str, str]] = [
    ([Q, K, V, *PASTS, ints(1, 1)], {}, 3, NONPAD, "cannot be given with past_key"),
    ([Q, K, V, None, PAST_K], {}, 3, "past_key and past_value", "must be given together"),
    ([Q, K, V, *PASTS], {}, 2, "past_key and past_value", "need present_key and present_value as outputs"),
    ([Q, K, V, None, None, None, ints(6, 1)], {}, 1, "nonpad_kv_seqlen 6", "out of range [0, 5]"),
    ([Q, K, V, None, None, None, ints(3)], {}, 1, "nonpad_kv_seqlen holds 1 numbers", "give one for each entry"),
    ([Q, K, V, MASK[:, :2], None, None, ints(3, 1)], {}, 1, "reaches 2 keys", "says that 3 are valid"),
    ([Q[:, 0], K[:, 0], V[:, 0]], {}, 1, "inputs of 3 dimensions", "need q_num_heads and kv_num_heads"),
    ([Q[:, :3], K, V, *PASTS], {}, 3, "3 query heads", "not a multiple of 2 key heads"),
    ([Q, K, V, *PASTS], {"q_num_heads": 2, "kv_num_heads": 2}, 3, "q_num_heads 2", "contradict the shapes"),
    ([Q, K, V[:, :, :4], *PASTS], {}, 3, "K of shape", "differ before the last dimension"),
    ([Q, K, V, None, PAST_K, PAST_V[:, :, :6]], {}, 3, "past_key holds 7 rows", "past_value 6"),
    ([Q, K, V, None, PAST_K[..., :4], PAST_V], {}, 3, "past_key of shape", "does not take new rows"),
    ([Q, K, V, None, PAST_K[0], PAST_V[0]], {}, 3, "past_key", "must have 4 dimensions"),
    # What is wrong with a mask must be known before the new rows are written behind the past.
    ([Q, K, V, MASK, PAST_K, PAST_V], {}, 3, "attn_mask of shape (3, 13)", "longer than the 12 keys"),
    ([Q, K, V, MASK[:2, :12], PAST_K, PAST_V], {}, 3, "attn_mask of shape (2, 12)", "does not broadcast"),
    ([Q, K, V, *PASTS], {"scale": -1.0}, 3, "scale -1.0", "must be greater than 0"),
    ([Q, K, V, *PASTS], {"softmax_precision": 7}, 3, "softmax_precision 7", "must be 1 (float)"),
]
G = [rand(1, 1, 64), rand(1, 1, 32), rand(1, 1, 32)]
G_PASTS = [rand(1, 2, 6, 16, seed=1), rand(1, 2, 6, 16, seed=2)]
LAST, TOTAL = np.array([6], np.int32), np.array(7, np.int32)
GROUP = [*G, *G_PASTS, LAST, TOTAL]
HEADS: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2}
SLIDING = {"sliding_window_cache": 1}
COS, SIN = np.cos(rand(40, 8)), np.sin(rand(40, 8))
GROUPS: list[tuple[list, dict[str, Any], str, str]] = [
    ([*G, *G_PASTS, LAST + 3, TOTAL], {}, "seqlens_k [9]", "do not fit 1 new of 7 rows"),
    ([*GROUP[:-1], TOTAL + 2], {}, "a past of 6 rows and 1 new ones", "do not make 9 rows"),
    ([*G, *G_PASTS, np.array([6, 6], np.int32), TOTAL], {}, "seqlens_k holds 2 numbers", "give one for each entry"),
    ([*G, G_PASTS[0], None, LAST, TOTAL], {}, "past_key and past_value", "must be given together"),
    ([*G, G_PASTS[0], G_PASTS[1][:, :, :5], LAST, TOTAL], {}, "past_key holds 6 rows", "past_value 5"),
    (GROUP, {"do_rotary": 1}, "do_rotary", "needs cos_cache and sin_cache"),
    ([*GROUP, None, None, None, rand(1, 4, 1, 9)], {}, "attention_bias", "must have shape"),
    ([*G, rand(1, 2, 6, 8), G_PASTS[1], LAST, TOTAL], {}, "past_key of shape", "does not take new rows"),
    ([*G, G_PASTS[0][0], G_PASTS[1], LAST, TOTAL], {}, "past_key", "must have 4 dimensions"),
    ([G[0][..., :60], *G[1:], *G_PASTS, LAST, TOTAL], {}, "query, key, value of shapes", "do not fit together"),
    ([G[0], G[1][0], G[2], *G_PASTS, LAST, TOTAL], {}, "key", "must have 3 dimensions"),
    ([*GROUP, COS, SIN[:-1]], {"do_rotary": 1}, "tables of shape", "do not rotate heads of size 16"),
    ([*GROUP, COS, SIN, ints(3, 4)[None]], {"do_rotary": 1}, "position_ids", "must have shape (1, 1)"),
    (GROUP, {"num_heads": 3}, "query", "3 heads for 2 key heads"),
    (GROUP, {"local_window_size": 0}, "local_window_size 0", "must be -1"),
    (GROUP, {"local_window_size": 3, "causal": 0}, "local_window_size 3", "needs causal 1"),
    (GROUP, {"k_quant_type": "PER_TENSOR"}, "a quantized cache (k_quant_type", "is not supported"),
    (GROUP, {**SLIDING, "local_window_size": 7}, "a cache of capacity 6", "does not hold a window of 7"),
    ([*GROUP, *[None] * 4, rand(3)], {}, "head_sink", "must have shape (4,)"),
    ([*GROUP, *[None] * 7, rand(16)], {}, "q_norm_weight and k_norm_weight", "must be given together"),
]
OWN = [rand(2, 3, 32), rand(2, 3, 32, seed=1), rand(2, 3, 32, seed=2)]
BUFFER = [rand(2, 4, 12, 8, seed=5), rand(2, 4, 12, 8, seed=6)]
MULTI: list[tuple[list, str, str]] = [
    ([*OWN, None, None, None, *BUFFER, ints(10).astype(np.int32)], "a past of 12 rows", "take rows 10 to 12"),
    ([*OWN, None, None, None, BUFFER[0]], "past_key and past_value", "must be given together"),
    ([*OWN, None, np.ones((2, 4), np.int32), None, *BUFFER], "a mask of shape (2, 4)", "fits none of"),
    ([*OWN, None, None, rand(1, 4, 3, 9), *BUFFER], "attention_bias", "must have shape"),
    (OWN[:1], "query", "needs a key"),
    (OWN[:2], "key and value", "come together"),
    ([*OWN[:2], OWN[2][:, :2]], "key", "which do not fit"),
    ([rand(2, 3, 30), *OWN[1:]], "query", "does not divide into 4 heads"),
    ([rand(2, 3, 4, 2, 8)], "query", "must hold 4 heads of 3"),
    ([OWN[0], rand(2, 5, 4, 3, 8)], "key", "must hold 4 heads of 2"),
    ([*OWN, rand(97)], "bias", "must have shape (96,)"),
    ([*OWN, None, None, None, BUFFER[0], BUFFER[1][:, :, :5]], "past_key holds 12 rows", "past_value 5"),
    ([*OWN, None, None, None, *(x[..., :4] for x in BUFFER)], "past_key of shape", "does not take new rows"),
]
X, WEIGHTS, BIAS, BOTH = rand(2, 3, 10), rand(10, 96), rand(96), rand(2, 2, 4, 6, 8)
PACKED: list[tuple[list, str, str]] = [
    ([X, WEIGHTS[:-1], BIAS], "weights", "do not fit an input"),
    ([X, WEIGHTS, BIAS, None, BOTH[:, :1]], "a past of shape", "does not take keys"),
    ([X, WEIGHTS, BIAS, np.ones((2, 4), np.int32)], "a mask of shape (2, 4)", "fits none of"),
    ([X, WEIGHTS, BIAS, None, BOTH, None, ints(2).astype(np.int32)], "a shared past buffer", "are not supported"),
    ([X, WEIGHTS, BIAS[:1]], "bias", "must have shape (96,)"),
    ([X, WEIGHTS[0], BIAS], "weights", "must have 2 dimensions"),
    ([X, WEIGHTS, BIAS, None, None, rand(4, 3, 3)], "attention_bias", "must have shape"),
]
CASES: list[Case] = [
    *(("TensorScatter", x, how, 1, rule, advice) for x, how, rule, advice in SCATTERS),
    *(("Attention", *case) for case in ATTENTIONS),
    *((f"{MS}.GroupQueryAttention", x, {**HEADS, **how}, 3, rule, advice) for x, how, rule, advice in GROUPS),
    *((f"{MS}.MultiHeadAttention", x, {"num_heads": 4}, 3, rule, advice) for x, rule, advice in MULTI),
    *((f"{MS}.Attention", x, {"num_heads": 4}, 2, rule, advice) for x, rule, advice in PACKED),
]


def wrong_run(case: Case, layout: str, policy: str) -> tuple[str, list[tuple[Array, Array]]]:
    """What a run says that is given all of its arrays, and their blocks, before and after."""
    qualified, inputs, attributes, n_outputs, _, _ = case
    domain, _, op_type = qualified.rpartition(".")
    proto = one_node_model(op_type, inputs, n_outputs, 21 if domain else 24, domain, **attributes)
    proto.graph.node[0].name = "write"
    # Without shapes: what does not fit is found when it runs.
    for value in proto.graph.input:
        value.type.tensor_type.ClearField("shape")
    model, given = kvviz.load(proto), {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    feeds, blocks = {}, []
    for name, x in given.items():
        block = np.full((3, *x.shape), 77, x.dtype)
        if layout == "with room" and x.ndim == 4:
            feeds[name] = kvviz.reserve(x, 2, x.shape[2] + 9)
            block = np.asarray(feeds[name].base)
            block[:, :, x.shape[2] :] = 77
        else:
            feeds[name] = block[1, ...]
            feeds[name][...] = x
        blocks.append((block.copy(), block))
    with pytest.raises(OpError) as caught:
        kvviz.run(model, feeds, donate=list(feeds), policy=policy)
    return str(caught.value), blocks


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}: {case[4]}, {case[5]}")
def test_a_wrong_call_names_node_rule_and_way_out_and_writes_no_byte_of_the_blocks(case: Case, policy: str) -> None:
    for layout in ("inside", "with room"):
        message, blocks = wrong_run(case, layout, policy)
        assert message.startswith("node 'write' (") and case[0] in message
        assert case[4] in message and case[5] in message
        assert "inputs: x0 float32" in message
        for before, after in blocks:
            np.testing.assert_array_equal(after, before)


# Another softmax_precision is against the text alone.
@pytest.mark.parametrize("case", [case for case in CASES if MS not in case[0] and "softmax_precision" not in case[2]])
def test_onnxruntime_refuses_the_same_calls(case: Case) -> None:
    op_type, inputs, attributes, n_outputs, _, _ = case
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        ort_run(op_type, inputs, n_outputs, opset=24, **attributes)
