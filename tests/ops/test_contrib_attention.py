"""com.microsoft.GroupQueryAttention: both cache forms, every mask, and the same bits in place as not."""

from typing import Any

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import frozen, rand, run_kernel, spec_of
from tests.ops.ort_oracle import ort_run
from tests.ops.test_slice import room_for

MS = "com.microsoft"
GQA = "GroupQueryAttention"
HEADS, SHARED, SIZE = 4, 2, 16
COS, SIN = np.cos(rand(40, SIZE // 2)), np.sin(rand(40, SIZE // 2))


def call(
    batch: int = 1,
    new: int = 1,
    past: int = 6,
    capacity: int = 0,
    packed: bool = False,
    rotary: bool = False,
    ragged: bool = False,
    positions: np.ndarray | None = None,
    bias: bool = False,
    sink: bool = False,
    **attributes: Any,
) -> tuple[list, dict]:
    """Inputs and attributes of one call; ``ragged`` makes each sequence one row shorter than the one before it."""
    total = past + new
    last = [max(total - 1 - (b if ragged else 0), new - 1 if past else 0) for b in range(batch)]
    q, k, v = (rand(batch, new, n * SIZE, seed=n + i) for i, n in enumerate((HEADS, SHARED, SHARED)))
    held = (batch, SHARED, capacity or past, SIZE)
    inputs = [
        *([np.concatenate((q, k, v), axis=2), None, None] if packed else [q, k, v]),
        rand(*held, seed=7),
        rand(*held, seed=8),
        np.array(last, np.int32),
        np.array(total, np.int32),
        *([COS, SIN] if rotary else [None, None]),
        positions,
        rand(1, HEADS, new, total, seed=9) if bias else None,
        rand(HEADS) if sink else None,
    ]
    while inputs[-1] is None:
        inputs.pop()
    return inputs, {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": int(rotary), **attributes}


# -- in place ---------------------------------------------------------------------------------------------------------


def test_a_shared_buffer_keeps_the_rows_that_nobody_writes() -> None:
    inputs, attributes = call(past=5, capacity=12)
    present = run_kernel(GQA, inputs, 3, domain=MS, **attributes)[1]
    np.testing.assert_array_equal(present[:, :, :5], inputs[3][:, :, :5])
    np.testing.assert_array_equal(present[:, :, 6:], inputs[3][:, :, 6:])


@pytest.mark.parametrize("in_place", [False, True])
def test_rows_between_a_shorter_sequence_and_the_end_are_0(in_place: bool) -> None:
    inputs, attributes = call(past=6, batch=3, ragged=True)
    rooms = [room_for(p, 7, 2) for p in inputs[3:5]]
    given = [*inputs[:3], *[r[:, :, :6] for r in rooms], *inputs[5:]] if in_place else inputs
    presents = run_kernel(GQA, given, 3, domain=MS, grown=tuple(rooms) if in_place else None, **attributes)[1:]
    for present in presents:
        assert not present[1:, :, 6].any()
        assert present[0, :, 6].all()


def rows_of(inputs: list, attributes: dict) -> list:
    return [grow.rows(inputs, attributes) for grow in spec_of(GQA, domain=MS).grows]


def test_the_table_says_how_many_rows_a_call_appends() -> None:
    assert [(g.input, g.output, g.axis([], {})) for g in spec_of(GQA, domain=MS).grows] == [(3, 1, 2), (4, 2, 2)]
    assert rows_of(*call(past=6, new=1)) == [1, 1]
    assert rows_of(*call(past=0, new=5)) == [5, 5]
    assert rows_of(*call(past=5, new=1, capacity=12)) == [0, 0]
    assert rows_of(*call(past=5, new=1, capacity=6)) == [0, 0]


def test_sequences_of_unequal_length_cannot_append() -> None:
    # The shorter one would write into rows that the past has already, and another op may still read those.
    assert min(rows_of(*call(past=6, new=1, batch=2, ragged=True))) > 2**32


def test_costs_are_the_rows_written_and_the_past_copied() -> None:
    cost = spec_of(GQA, domain=MS).cost
    assert cost is not None
    inputs, attributes = call(past=6)
    outs = run_kernel(GQA, inputs, 3, domain=MS, **attributes)
    y, row, past = outs[0].nbytes, SHARED * SIZE * 4, inputs[3].nbytes
    assert cost(inputs, outs, False, attributes) == (y + 2 * (past + row), 2 * past)
    rooms = [room_for(p, 7, 2) for p in inputs[3:5]]
    given = [*inputs[:3], *[r[:, :, :6] for r in rooms], *inputs[5:]]
    outs = run_kernel(GQA, given, 3, domain=MS, grown=tuple(rooms), **attributes)
    assert cost(given, outs, True, attributes) == (y + 2 * row, 0)


# -- a cache that holds a window --------------------------------------------------------------------------------------

WINDOWS = [
    (0, 1, 8, 4),
    (0, 5, 8, 4),
    (0, 12, 8, 4),
    (7, 1, 8, 4),
    (8, 1, 8, 4),
    (20, 1, 8, 8),
    (11, 3, 8, 4),
    (9, 20, 8, 5),
]


def resident(tokens: int, capacity: int, window: int) -> int:
    """The resident count, by dropping a batch of rows whenever the cache overflows."""
    while tokens > capacity:
        tokens -= capacity - window + 1
    return tokens


@pytest.mark.parametrize(("past", "new", "capacity", "window"), WINDOWS)
@pytest.mark.parametrize("bias", [False, True])
def test_a_windowed_cache_agrees_with_onnxruntime(past: int, new: int, capacity: int, window: int, bias: bool) -> None:
    inputs, attributes = call(
        past=past, new=new, capacity=capacity, rotary=True, bias=bias, local_window_size=window, sliding_window_cache=1
    )
    outputs = run_kernel(GQA, frozen(inputs), 3, domain=MS, **attributes)
    expected = ort_run(GQA, inputs, 3, domain=MS, **attributes)
    rows = resident(past + new, capacity, window)
    np.testing.assert_allclose(outputs[0], expected[0], rtol=1e-4, atol=1e-5)
    for have, want in zip(outputs[1:], expected[1:], strict=True):
        assert have.shape == want.shape
        np.testing.assert_allclose(have[:, :, :rows], want[:, :, :rows], rtol=1e-4, atol=1e-5)

    own = [p.copy() for p in inputs[3:5]]
    shared = run_kernel(GQA, [*inputs[:3], *own, *inputs[5:]], 3, domain=MS, grown=tuple(own), **attributes)
    assert shared[1] is own[0]
    for have, want in zip(shared, outputs, strict=True):
        assert have.tobytes() == want.tobytes()
    cost = spec_of(GQA, domain=MS).cost
    assert cost is not None
    written = new if resident(past, capacity, window) + new == rows else rows
    bytes_written = shared[0].nbytes + 2 * written * SHARED * SIZE * 4
    assert cost([*inputs[:3], *own, *inputs[5:]], shared, True, attributes) == (bytes_written, 0)
    assert rows_of(inputs, attributes) == [0, 0]


def altered(position: int, value: np.ndarray | None, rotary: bool = False, **attributes: Any) -> tuple[list, dict]:
    inputs, given = call(rotary=rotary)
    inputs += [None] * (position + 1 - len(inputs))
    inputs[position] = value
    return inputs, given | attributes


QUERY = rand(1, 1, 64)
ERRORS = [
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


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_an_error_names_what_does_not_fit(arguments: tuple, message: str) -> None:
    inputs, attributes = arguments
    with pytest.raises(OpError, match=message):
        run_kernel(GQA, inputs, 3, domain=MS, **attributes)
