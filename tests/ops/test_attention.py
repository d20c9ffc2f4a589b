"""ONNX Attention: against onnxruntime, and the rules of the text where onnxruntime has none or another."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import assert_like_ort, ints, rand, run_kernel, spec_of
from tests.ops.ort_oracle import ort_run
from tests.ops.test_slice import room_for

Q, K, V = rand(2, 4, 3, 8), rand(2, 2, 5, 8), rand(2, 2, 5, 6)
PAST_K, PAST_V = rand(2, 2, 7, 8, seed=1), rand(2, 2, 7, 6, seed=1)
KEEP = np.random.default_rng(0).random((2, 1, 3, 5)) < 0.6
KEEP_PAST = np.random.default_rng(1).random((2, 4, 3, 12)) < 0.6


def flat(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


HEADS: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2}
CASES: list[tuple[list, int, dict[str, Any]]] = [
    ([Q, K, V], 1, {}),
    ([flat(Q), flat(K), flat(V)], 1, HEADS),
    ([Q, K, V], 1, {"is_causal": 1}),
    ([Q, K[:, :, :2], V[:, :, :2]], 1, {"is_causal": 1}),
    ([Q[:, :, :1], K, V], 1, {"is_causal": 1}),
    ([Q, K, V], 1, {"scale": 0.1}),
    ([Q, K, V], 1, {"softcap": 0.7}),
    ([Q, K, V, KEEP], 1, {}),
    ([Q, K, V, KEEP[0, 0]], 1, {"is_causal": 1}),
    ([Q, K, V, rand(3, 5)], 1, {}),
    ([Q, K, V, rand(2, 4, 3, 5)], 1, {"is_causal": 1, "softcap": 2.0}),
    ([Q, K, V, np.where(KEEP, np.float32(0), np.float32(-np.inf))], 1, {}),
    ([Q, K, V, np.zeros((3, 5), np.bool_)], 1, {}),
    ([Q, K, V, None, PAST_K, PAST_V], 3, {}),
    ([Q, K, V, None, PAST_K, PAST_V], 3, {"is_causal": 1}),
    ([Q, K, V, KEEP_PAST, PAST_K, PAST_V], 3, {"is_causal": 1}),
    ([flat(Q), flat(K), flat(V), None, PAST_K, PAST_V], 3, {"is_causal": 1, **HEADS}),
    ([Q, K, V, None, PAST_K[:, :, :0], PAST_V[:, :, :0]], 3, {"is_causal": 1}),
    ([Q[:, :, :1], K[:, :, :1], V[:, :, :1], None, PAST_K, PAST_V], 3, {"is_causal": 1}),
    ([Q, K, V, None, None, None, ints(4, 3)], 1, {}),
    ([Q, K, V, None, None, None, ints(5, 3)], 1, {"is_causal": 1}),
    ([Q, K, V, None, None, None, ints(1, 5)], 1, {"is_causal": 1}),
    ([Q[:, :, :1], K, V, None, None, None, ints(2, 5)], 1, {"is_causal": 1}),
    ([Q[:1, :, :1], K[:1], V[:1], None, None, None, ints(3)], 1, {"is_causal": 1}),
    ([Q, K, V, KEEP, None, None, ints(4, 3)], 1, {}),
    ([flat(Q), flat(K), flat(V), None, None, None, ints(5, 3)], 1, {"is_causal": 1, **HEADS}),
    ([Q, K, V], 4, {"qk_matmul_output_mode": 0}),
    ([Q, K, V], 4, {"qk_matmul_output_mode": 0, "softcap": 0.5}),
    ([Q, K, V], 4, {"qk_matmul_output_mode": 1, "softcap": 0.5}),
    ([Q, K, V, rand(3, 5)], 4, {"qk_matmul_output_mode": 2, "softcap": 0.5}),
    ([Q, K, V, KEEP], 4, {"qk_matmul_output_mode": 3, "is_causal": 1}),
    ([Q, K, V, None, PAST_K, PAST_V], 4, {"qk_matmul_output_mode": 3, "is_causal": 1}),
]


@pytest.mark.parametrize(("inputs", "n_outputs", "attributes"), CASES)
def test_attention_agrees_with_onnxruntime(inputs: list, n_outputs: int, attributes: dict) -> None:
    assert_like_ort("Attention", inputs, n_outputs, opset=24, rtol=1e-4, atol=1e-5, **attributes)


@pytest.mark.parametrize("heads", [(1, 1), (6, 6), (6, 3), (8, 1)])
@pytest.mark.parametrize("length", [1, 4])
def test_query_heads_share_key_heads_in_order(heads: tuple, length: int) -> None:
    q, k, v = rand(2, heads[0], length, 4), rand(2, heads[1], 6, 4), rand(2, heads[1], 6, 4, seed=1)
    assert_like_ort("Attention", [q, k, v], opset=23, rtol=1e-4, atol=1e-5)


def test_half_precision_stays_half_precision() -> None:
    half = [x.astype(np.float16) for x in (Q, K, V)]
    assert_like_ort("Attention", half, opset=23, rtol=2e-2, atol=2e-3)
    y = run_kernel("Attention", [x.astype(ml_dtypes.bfloat16) for x in (Q, K, V)], opset=23)[0]
    exact = run_kernel("Attention", [Q, K, V], opset=23)[0]
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(y.astype(np.float32), exact, atol=0.05)


def test_the_softmax_may_run_in_another_precision() -> None:
    half = [x.astype(np.float16) for x in (Q, K, V)]
    y = run_kernel("Attention", half, opset=23, softmax_precision=1)[0]
    exact = run_kernel("Attention", [x.astype(np.float64) for x in half], opset=23)[0]
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.astype(np.float64), exact, atol=5e-3)


@pytest.mark.parametrize(("precision", "dtype"), [(10, np.float16), (16, ml_dtypes.bfloat16)])
def test_a_softmax_of_lower_precision_is_rounded_to_it(precision: int, dtype: type) -> None:
    p = run_kernel("Attention", [Q, K, V], 4, 23, softmax_precision=precision, qk_matmul_output_mode=3)[3]
    exact = run_kernel("Attention", [Q, K, V], 4, 23, qk_matmul_output_mode=3)[3]
    assert p.dtype == np.float32
    np.testing.assert_array_equal(p, p.astype(dtype).astype(np.float32))
    assert 0 < np.abs(p - exact).max() < 0.02


# -- the cache inside -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_rows", [False, True])
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("held", [0, 7])
@pytest.mark.parametrize("rooms", [(True, True), (True, False), (False, True)])
def test_appending_to_the_past_gives_the_same_bits(as_rows: bool, length: int, held: int, rooms: tuple) -> None:
    q, k, v = Q[:, :, :length], K[:, :, :length], V[:, :, :length]
    arguments = [flat(q), flat(k), flat(v)] if as_rows else [q, k, v]
    attributes: dict[str, Any] = {"is_causal": 1, **(HEADS if as_rows else {})}
    pasts = [PAST_K[:, :, :held], PAST_V[:, :, :held]]
    plain = run_kernel("Attention", [*arguments, None, *pasts], 3, 23, **attributes)
    presents = [room_for(p, held + length, 2) if room else None for p, room in zip(pasts, rooms)]
    given = [p if room is None else room[:, :, :held] for p, room in zip(pasts, presents)]

    grown = run_kernel("Attention", [*arguments, None, *given], 3, 23, grown=tuple(presents), **attributes)

    for have, want in zip(grown, plain, strict=True):
        assert have.tobytes() == want.tobytes()
    for have, room, past, new in zip(grown[1:], presents, pasts, (k, v)):
        np.testing.assert_array_equal(have, np.concatenate((past, new), axis=2))
        assert room is None or have is room


def test_appending_costs_the_new_rows_and_otherwise_the_past_as_well() -> None:
    spec = spec_of("Attention", 23)
    one = [Q[:, :, :1], K[:, :, :1], K[:, :, :1]]
    args = [*one, None, PAST_K, PAST_K]
    assert [(g.input, g.output, g.axis(args, {}), g.rows(args, {})) for g in spec.grows] == [(4, 1, 2, 1), (5, 2, 2, 1)]
    assert [g.rows([flat(x) for x in one], {}) for g in spec.grows] == [1, 1]
    assert spec.cost is not None
    outs = run_kernel("Attention", args, 3, 23)
    y, row, past = outs[0].nbytes, K[:, :, :1].nbytes, PAST_K.nbytes
    assert spec.cost(args, outs, False, {}) == (y + 2 * (past + row), 2 * past)

    room = room_for(PAST_K, 8, 2)
    args[4] = room[:, :, :7]
    outs = run_kernel("Attention", args, 3, 23, grown=(room, None))
    assert spec.cost(args, outs, True, {}) == (y + row + past + row, past)


@pytest.mark.parametrize("as_rows", [False, True])
def test_without_a_past_the_presents_are_views_of_keys_and_values(as_rows: bool) -> None:
    arguments = [flat(Q), flat(K), flat(V)] if as_rows else [Q, K, V]
    outs = run_kernel("Attention", arguments, 3, 23, **(HEADS if as_rows else {}))
    spec = spec_of("Attention", 23)
    assert np.shares_memory(outs[1], arguments[1]) and np.shares_memory(outs[2], arguments[2])
    np.testing.assert_array_equal(outs[1], K)
    assert spec.views == (1, 2)
    assert spec.cost is not None
    assert spec.cost(arguments, outs, False, {}) == (outs[0].nbytes, 0)


def test_one_token_after_another_equals_the_whole_prompt() -> None:
    k, v = rand(1, 2, 6, 8), rand(1, 2, 6, 8, seed=1)
    q = rand(1, 4, 6, 8)
    whole = run_kernel("Attention", [q, k, v], opset=23, is_causal=1)[0]
    past: list = [k[:, :, :0], v[:, :, :0]]
    for t in range(6):
        cut = [x[:, :, t : t + 1] for x in (q, k, v)]
        y, *past = run_kernel("Attention", [*cut, None, *past], 3, 23, is_causal=1)
        np.testing.assert_allclose(y[:, :, 0], whole[:, :, t], rtol=1e-4, atol=1e-6)


# -- the cache outside ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 3])
def test_rows_of_one_sequence_beyond_its_valid_ones_are_never_read(length: int) -> None:
    k, v = K[:1].copy(), V[:1].copy()
    arguments = [Q[:1, :, :length], k, v, None, None, None, ints(3)]
    clean = run_kernel("Attention", arguments, opset=24, is_causal=1)[0]
    k[:, :, 3:] = v[:, :, 3:] = np.nan
    np.testing.assert_array_equal(run_kernel("Attention", arguments, opset=24, is_causal=1)[0], clean)


def test_a_mask_may_end_where_the_valid_rows_do() -> None:
    nonpad = [None, None, ints(3, 2)]
    for mask in (KEEP, rand(2, 1, 3, 5)):
        short = run_kernel("Attention", [Q, K, V, mask[..., :3], *nonpad], opset=24)[0]
        np.testing.assert_array_equal(short, run_kernel("Attention", [Q, K, V, mask, *nonpad], opset=24)[0])
    assert_like_ort("Attention", [Q, K, V, KEEP, *nonpad], opset=24, rtol=1e-4, atol=1e-5)


def test_keys_that_a_mask_does_not_reach_are_hidden() -> None:
    short, additive = KEEP[..., :3], rand(3, 3)
    full = np.concatenate((short, np.zeros((2, 1, 3, 2), np.bool_)), axis=-1)
    lowered = np.concatenate((additive, np.full((3, 2), -np.inf, np.float32)), axis=-1)
    for mask, whole in ((short, full), (additive, lowered)):
        want = assert_like_ort("Attention", [Q, K, V, whole], opset=24, rtol=1e-4, atol=1e-5)[0]
        np.testing.assert_array_equal(run_kernel("Attention", [Q, K, V, mask], opset=24)[0], want)


def test_a_count_from_before_the_write_changes_the_result() -> None:
    late, early = (run_kernel("Attention", [Q, K, V, None, None, None, ints(n, n)], opset=24)[0] for n in (4, 3))
    assert np.abs(late - early).max() > 0.01


# -- what a query sees ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [23, 24])
def test_a_query_that_sees_no_key_gives_zeros_and_not_nan(opset: int) -> None:
    mask = KEEP[0, 0].copy()
    mask[1] = False
    additive = np.where(mask, np.float32(0), np.float32(-np.inf))
    for form in (mask, additive):
        y, _, _, p = run_kernel("Attention", [Q, K, V, form], 4, opset, qk_matmul_output_mode=3)
        assert not y[:, :, 1].any() and not p[:, :, 1].any()
        assert y[:, :, [0, 2]].all()


def test_a_hidden_key_stays_hidden_however_large_its_score() -> None:
    k = K.copy()
    k[:, :, 2] = np.inf
    mask = np.zeros((3, 5), np.float32)
    mask[:, 2] = -np.inf
    with np.errstate(invalid="ignore"):
        y = run_kernel("Attention", [np.abs(Q), np.abs(k), V, mask], opset=23)[0]
    np.testing.assert_array_equal(np.isfinite(y), True)


def test_a_query_before_the_first_valid_key_sees_nothing() -> None:
    y = run_kernel("Attention", [Q, K, V, None, None, None, ints(1, 3)], opset=24, is_causal=1)[0]
    assert not y[0, :, :2].any()
    assert y[0, :, 2].all() and y[1].all()


WINDOWS = [(0, 0), (2, -1), (-1, 1), (2, 1), (9, 9), (1, 0)]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("cache", ["none", "inside", "outside"])
def test_a_window_is_the_mask_that_it_describes(window: tuple, causal: int, cache: str) -> None:
    left, right = window
    tail: list = {"none": [], "inside": [None, PAST_K, PAST_V], "outside": [None, None, None, ints(4, 5)]}[cache]
    keys = 12 if cache == "inside" else 5
    offsets = {"none": [0, 0], "inside": [7, 7], "outside": [1, 2]}[cache]
    mask = np.zeros((2, 1, 3, keys), np.bool_)
    for b, _, i, j in np.ndindex(mask.shape):
        p = offsets[b] + i
        mask[b, 0, i, j] = (left < 0 or p - left <= j) and (right < 0 or j <= p + right) and (not causal or j <= p)
    windows: dict[str, Any] = {"left_window_size": left, "right_window_size": right, "is_causal": causal}
    n_outputs = 3 if cache == "inside" else 1
    masked = run_kernel("Attention", [Q, K, V, mask, *tail[1:]], n_outputs, 25)[0]
    by_window = run_kernel("Attention", [Q, K, V, *tail], n_outputs, 25, **windows)[0]
    np.testing.assert_allclose(by_window, masked, rtol=1e-5, atol=1e-6)
    assert_like_ort("Attention", [Q, K, V, mask, *tail[1:]], n_outputs, 24, rtol=1e-4, atol=1e-5)


ERRORS = [
    ([Q, K, V, None, PAST_K, PAST_V, ints(1, 1)], {}, "nonpad_kv_seqlen .* cannot be given with past_key"),
    ([Q, K, V, None, PAST_K], {}, "past_key and past_value must be given together"),
    ([Q, K, V, None, None, None, ints(6, 1)], {}, r"nonpad_kv_seqlen 6 is out of range \[0, 5\]"),
    ([Q, K, V, None, None, None, ints(1)], {}, "nonpad_kv_seqlen holds 1 numbers for a batch of 2"),
    ([Q, K, V, KEEP[..., :2], None, None, ints(3, 1)], {}, "reaches 2 keys, but nonpad_kv_seqlen says that 3"),
    ([flat(Q), flat(K), flat(V)], {}, "need q_num_heads and kv_num_heads"),
    ([flat(Q), flat(K), flat(V)], {"q_num_heads": 5, "kv_num_heads": 2}, "does not divide into 5 heads"),
    ([Q, K, V], {"q_num_heads": 2, "kv_num_heads": 2}, "contradict the shapes"),
    ([Q[:, :3], K, V], {}, "3 query heads are not a multiple of 2 key heads"),
    ([Q, K, V[:, :, :4]], {}, "differ before the last dimension"),
    ([Q[..., :4], K, V], {}, "differ in batch or head size"),
    ([Q, K, flat(V)], {}, "must all have 3 or all have 4 dimensions"),
    ([Q, K, V, np.zeros((3, 6), np.float32)], {}, "longer than the 5 keys"),
    ([Q, K, V, np.zeros((2, 5), np.float32)], {}, "does not broadcast"),
    ([Q, K, V, None, PAST_K[:, :1], PAST_V[:, :1]], {}, "past_key of shape .* does not take new rows"),
    ([Q, K, V, None, PAST_K, PAST_V[:, :, :3]], {}, "past_key holds . rows and past_value ."),
    ([Q, K, V, None, flat(PAST_K), flat(PAST_V)], {}, "past_key must have 4 dimensions"),
    ([Q, K, V, None, None, None, ints(3, 4)[:, None]], {}, "nonpad_kv_seqlen must have one dimension"),
    ([Q, K, V], {"left_window_size": -2}, "must be -1"),
    ([Q, K, V], {"scale": -0.5}, "scale -0.5 must be greater than 0"),
    ([Q, K, V], {"softmax_precision": 7}, "softmax_precision 7 must be 1"),
]


@pytest.mark.parametrize(("inputs", "attributes", "message"), ERRORS)
def test_a_forbidden_combination_names_its_rule(inputs: list, attributes: dict, message: str) -> None:
    with pytest.raises(OpError, match=message):
        run_kernel("Attention", inputs, 3, 25, **attributes)


def test_a_past_without_presents_is_refused_as_by_onnxruntime() -> None:
    for n_outputs in (1, 2):
        with pytest.raises(OpError, match="need present_key and present_value as outputs"):
            run_kernel("Attention", [Q, K, V, None, PAST_K, PAST_V], n_outputs, 24)
        with pytest.raises(Exception, match="being null"):
            ort_run("Attention", [Q, K, V, None, PAST_K, PAST_V], n_outputs, 24)


def test_presents_beside_valid_lengths_are_the_keys_and_values_as_in_onnxruntime() -> None:
    outs = assert_like_ort("Attention", [Q, K, V, None, None, None, ints(3, 4)], 3, 24, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(outs[1], K)


def test_an_unknown_mode_is_refused_where_its_output_is_asked_for() -> None:
    attributes: dict[str, Any] = {"qk_matmul_output_mode": 4}
    assert_like_ort("Attention", [Q, K, V], 1, 24, rtol=1e-4, atol=1e-5, **attributes)
    with pytest.raises(OpError, match="qk_matmul_output_mode 4 must be 0, 1, 2 or 3"):
        run_kernel("Attention", [Q, K, V], 4, 24, **attributes)


def test_head_counts_of_0_and_a_causality_of_2_say_nothing_as_in_onnxruntime() -> None:
    cases: list[dict[str, Any]] = [{"q_num_heads": 0, "kv_num_heads": 0}, {"is_causal": 2}]
    for attributes in cases:
        assert_like_ort("Attention", [Q, K, V], 1, 24, rtol=1e-4, atol=1e-5, **attributes)


def test_only_from_opset_24_on_a_mask_may_be_shorter_than_the_keys() -> None:
    mask = rand(3, 1)
    broadcast = run_kernel("Attention", [Q, K, V, np.repeat(mask, 5, axis=1)], opset=23)[0]
    np.testing.assert_array_equal(run_kernel("Attention", [Q, K, V, mask], opset=23)[0], broadcast)
    first = run_kernel("Attention", [Q, K[:, :, :1], V[:, :, :1]], opset=24)[0]
    np.testing.assert_allclose(run_kernel("Attention", [Q, K, V, mask], opset=24)[0], first, rtol=1e-6)
    with pytest.raises(OpError, match="does not broadcast to 5 keys, as it must before opset 24"):
        run_kernel("Attention", [Q, K, V, rand(3, 4)], opset=23)
