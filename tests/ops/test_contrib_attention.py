"""Attention of com.microsoft: rows that a call appends, what it costs, and what is refused. Numbers are those of the
random calls."""

from typing import Any

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import ints, rand, run_kernel, spec_of
from tests.ops.test_random_gqa import resident
from tests.ops.test_slice import room_for

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


def with_room(inputs: list, rows: int) -> tuple[list, tuple]:
    """The inputs with pasts that begin larger blocks, and the presents in those."""
    rooms = [room_for(past, rows, 2) for past in inputs[3:5]]
    return [*inputs[:3], *[room[:, :, : inputs[3].shape[2]] for room in rooms], *inputs[5:]], tuple(rooms)


def rows_of(op: str, inputs: list, **attributes: Any) -> list:
    return [grow.rows(inputs, attributes) for grow in spec_of(op, domain=MS).grows]


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
        inputs, rooms = with_room(inputs, 7)
    for present in called(inputs, rooms)[1:]:
        assert not present[1:, :, 6].any()
        assert present[0, :, 6].all()


def test_the_table_says_how_many_rows_a_call_appends() -> None:
    places = {GQA: [(3, 1, 2), (4, 2, 2)], MHA: [(6, 1, 2), (7, 2, 2)], PACKED: [(4, 1, 3)]}
    for op, expected in places.items():
        assert [(g.input, g.output, g.axis([], {})) for g in spec_of(op, domain=MS).grows] == expected
    assert rows_of(GQA, grouped()) == [1, 1] and rows_of(GQA, grouped(past=0, new=5)) == [5, 5]
    assert rows_of(GQA, grouped(past=5, capacity=12)) == rows_of(GQA, grouped(past=5, capacity=6)) == [0, 0]
    # The shorter one would write into rows that the past has already, and another op may still read those.
    assert min(rows_of(GQA, grouped(batch=2, ragged=True))) > 2**32
    assert rows_of(MHA, [*OWN, None, None, None, *PAST]) == [3, 3]
    assert rows_of(MHA, [*ONE, None, None, None, *BUFFER, ints(5)]) == [0, 0]
    assert rows_of(MHA, [rand(B, 2, N, 3, H), None, None, None, None, None, *PAST]) == [2, 2]
    assert rows_of(PACKED, [X, WEIGHTS, BIAS, None, BOTH]) == [S]


def test_costs_are_the_rows_written_and_the_past_copied() -> None:
    cost = spec_of(GQA, domain=MS).cost
    assert cost is not None
    inputs = grouped()
    outs = called(inputs)
    y, row, past = outs[0].nbytes, SHARED * SIZE * 4, inputs[3].nbytes
    assert cost(inputs, outs, False, {}) == (y + 2 * (past + row), 2 * past)
    given, rooms = with_room(inputs, 7)
    assert cost(given, called(given, rooms), True, {}) == (y + 2 * row, 0)


@pytest.mark.parametrize(("past", "new", "window"), [(0, 12, 4), (7, 1, 4), (8, 1, 4), (20, 1, 8), (9, 20, 5)])
def test_a_windowed_cache_in_place_costs_what_is_new_or_all_that_it_keeps(past: int, new: int, window: int) -> None:
    how: dict[str, Any] = {"local_window_size": window, "sliding_window_cache": 1}
    inputs, cost = grouped(past, new, capacity=8), spec_of(GQA, domain=MS).cost
    assert cost is not None
    outs, rows = called(inputs, tuple(inputs[3:5]), **how), resident(past + new, 8, window)
    written = new if resident(past, 8, window) + new == rows else rows
    assert cost(inputs, outs, True, how) == (outs[0].nbytes + 2 * written * SHARED * SIZE * 4, 0)
    assert rows_of(GQA, inputs, **how) == [0, 0]


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


def test_a_buffer_costs_its_new_rows_in_place_and_otherwise_all_of_it() -> None:
    inputs, cost = [*ONE, None, None, None, *BUFFER, np.array([5], np.int32)], spec_of(MHA, domain=MS).cost
    assert cost is not None
    outs = run_kernel(MHA, inputs, 3, domain=MS, num_heads=N)
    y, buffer = outs[0].nbytes, BUFFER[0].nbytes
    assert cost(inputs, outs, False, {}) == (y + 2 * buffer, 2 * buffer)
    own = [b.copy() for b in BUFFER]
    given = [*inputs[:6], *own, inputs[8]]
    assert cost(given, run_kernel(MHA, given, 3, domain=MS, grown=tuple(own), num_heads=N), True, {}) == (
        y + 2 * B * D * 4,
        0,
    )


def test_keys_and_values_in_one_tensor_cost_their_rows_and_the_past_that_is_copied() -> None:
    args, cost = [X, WEIGHTS, BIAS, None, BOTH], spec_of(PACKED, domain=MS).cost
    assert cost is not None
    outs = run_kernel(PACKED, args, 2, domain=MS, num_heads=N)
    y, rows = outs[0].nbytes, 2 * B * S * D * 4
    assert cost(args, outs, False, {}) == (y + BOTH.nbytes + rows, BOTH.nbytes)
    room = room_for(BOTH, P + S, 3)
    args[4] = room[:, :, :, :P]
    assert cost(args, run_kernel(PACKED, args, 2, domain=MS, grown=(room,), num_heads=N), True, {}) == (y + rows, 0)


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
