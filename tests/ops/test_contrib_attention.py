"""Attention of com.microsoft: rows that a call appends, and what is refused. Numbers are those of the random calls."""

from typing import Any

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import ints, rand, room_for, run_kernel, spec_of

MS = "com.microsoft"
GQA, MHA, PACKED = "GroupQueryAttention", "MultiHeadAttention", "Attention"
HEADS, SHARED, SIZE = 4, 2, 16
COS, SIN = np.cos(rand(40, SIZE // 2)), np.sin(rand(40, SIZE // 2))


def grouped(past: int = 6, new: int = 1, capacity: int = 0, batch: int = 1, ragged: bool = False) -> list:
    """Inputs of one call; ``ragged`` makes each sequence one row shorter than the one before it."""
    held, total = (batch, SHARED, capacity or past, SIZE), past + new
    last = [max(total - 1 - (b if ragged else 0), new - 1 if past else 0) for b in range(batch)]
    own = [rand(batch, new, n * SIZE, seed=n + i) for i, n in enumerate((HEADS, SHARED, SHARED))]
    return [*own, rand(*held, seed=7), rand(*held, seed=8), np.array(last, np.int32), np.array(total, np.int32)]


def called(inputs: list, grown: tuple | None = None, **attributes: Any) -> tuple:
    return run_kernel(GQA, inputs, 3, domain=MS, grown=grown, num_heads=HEADS, kv_num_heads=SHARED, **attributes)


# -- GroupQueryAttention ----------------------------------------------------------------------------------------------


def test_a_shared_buffer_keeps_the_rows_that_nobody_writes() -> None:
    inputs = grouped(past=5, capacity=12)
    present = called(inputs)[1]
    np.testing.assert_array_equal(present[:, :, :5], inputs[3][:, :, :5])
    np.testing.assert_array_equal(present[:, :, 6:], inputs[3][:, :, 6:])


@pytest.mark.parametrize("in_place", [False, True])
def test_rows_between_a_shorter_sequence_and_the_end_are_0(in_place: bool) -> None:
    inputs, rooms = grouped(batch=3, ragged=True), None
    if in_place:
        rooms = tuple(room_for(past, 7, 2) for past in inputs[3:5])
        inputs[3:5] = [room[:, :, :6] for room in rooms]
    for present in called(inputs, rooms)[1:]:
        assert not present[1:, :, 6].any()
        assert present[0, :, 6].all()


def test_of_sequences_of_different_lengths_none_is_appended_to() -> None:
    # The shorter one would write into rows that the past has already, and another op may still read those.
    assert min(grow.rows(grouped(batch=2, ragged=True), {}) for grow in spec_of(GQA, domain=MS).grows) > 2**32


def altered(position: int, value: np.ndarray | None, rotary: bool = False, **attributes: Any) -> tuple[list, dict]:
    inputs = [*grouped(), *([COS, SIN] if rotary else [])]
    inputs += [None] * (position + 1 - len(inputs))
    inputs[position] = value
    return inputs, {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": int(rotary), **attributes}


QUERY = rand(1, 1, 64)
GROUPED = [
    (altered(3, rand(1, 2, 6, 8)), "does not take new rows"),
    (altered(3, rand(2, 6, SIZE)), "past_key must have 4 dimensions"),
    (altered(0, rand(1, 1, 60)), "do not fit together|does not divide"),
    (altered(1, rand(1, 32)), "key must have 3 dimensions"),
    (altered(8, SIN[:-1], rotary=True), "do not rotate heads of size 16"),
    (altered(9, np.array([[3, 4]]), rotary=True), r"position_ids must have shape \(1, 1\), but have \(1, 2\)"),
    (altered(0, QUERY, num_heads=3), "3 heads for 2 key heads"),
    (altered(0, QUERY, local_window_size=0), "must be -1"),
    (altered(0, QUERY, local_window_size=3, causal=0), "needs causal 1"),
    (altered(0, QUERY, k_quant_type="PER_TENSOR"), "quantized cache"),
    (altered(0, QUERY, sliding_window_cache=1, local_window_size=7), "does not hold a window of 7"),
    (altered(11, rand(3)), r"head_sink must have shape \(4,\)"),
    (altered(14, rand(SIZE)), "q_norm_weight and k_norm_weight must be given together"),
]

# -- MultiHeadAttention, and Attention with its own projection --------------------------------------------------------

B, S, L, N, H, P = 2, 3, 5, 4, 8, 6
D = N * H
Q, K, V = rand(B, S, D), rand(B, L, D, seed=1), rand(B, L, D, seed=2)
OWN = [Q, rand(B, S, D, seed=3), rand(B, S, D, seed=4)]
ONE = [x[:, :1].copy() for x in OWN]
PAST = [rand(B, N, P, H, seed=5), rand(B, N, P, H, seed=6)]
BUFFER = [rand(B, N, 12, H, seed=5), rand(B, N, 12, H, seed=6)]
X, WEIGHTS, BIAS, BOTH = rand(B, S, 10), rand(10, 3 * D) / 3, rand(3 * D), rand(2, B, N, P, H)


HEADED: list[tuple[str, list, str]] = [
    (MHA, [Q], "needs a key"),
    (MHA, [Q, K], "come together"),
    (MHA, [Q, K, V[:, :4]], "which do not fit"),
    (MHA, [rand(B, S, 30), K, V], "does not divide into 4 heads"),
    (MHA, [rand(B, S, N, 2, H)], "must hold 4 heads of 3"),
    (MHA, [Q, rand(B, L, N, 3, H)], "must hold 4 heads of 2"),
    (MHA, [Q, K, V, rand(3 * D + 1)], r"bias must have shape \(96,\)"),
    (MHA, [*OWN, None, None, None, PAST[0], PAST[1][:, :, :5]], "past_key holds . rows and past_value ."),
    (MHA, [*ONE, None, None, None, *(b[..., :4] for b in BUFFER), ints(3)], "does not take new rows"),
    (PACKED, [X, WEIGHTS[:-1], BIAS], "do not fit an input"),
    (PACKED, [X, WEIGHTS, BIAS, None, BOTH[:, :1]], "a past of shape .* does not take keys"),
    (PACKED, [X, WEIGHTS, BIAS, np.ones((B, S + 1), np.int32)], "fits none of"),
    (PACKED, [X, WEIGHTS, BIAS, None, BOTH, None, ints(2)], "are not supported"),
    (PACKED, [X, WEIGHTS, BIAS[:1]], r"bias must have shape \(96,\)"),
    (PACKED, [X, WEIGHTS[0], BIAS], "weights must have 2 dimensions"),
    (PACKED, [X, WEIGHTS, BIAS, None, None, rand(N, S, S)], "attention_bias must have shape"),
]
ERRORS = [(GQA, *arguments, message) for arguments, message in GROUPED]
ERRORS += [(op, inputs, {"num_heads": N}, message) for op, inputs, message in HEADED]


@pytest.mark.parametrize(("op", "inputs", "attributes", "message"), ERRORS)
def test_an_error_names_what_does_not_fit(op: str, inputs: list, attributes: dict, message: str) -> None:
    with pytest.raises(OpError, match=message):
        run_kernel(op, inputs, 2 if op == PACKED else 3, domain=MS, **attributes)
