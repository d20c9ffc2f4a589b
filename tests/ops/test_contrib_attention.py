"""com.microsoft.GroupQueryAttention: both cache forms, every mask, and the same bits in place as not."""

from __future__ import annotations

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


def assert_valid_rows_like_ort(inputs: list, n_outputs: int, attributes: dict) -> tuple:
    """onnxruntime leaves garbage in the outputs of padding and in rows beyond the valid ones; all else must agree."""
    outputs = run_kernel(GQA, frozen(inputs), n_outputs, domain=MS, **attributes)
    expected = ort_run(GQA, inputs, n_outputs, domain=MS, **attributes)
    new = inputs[0].shape[1]
    prompt = new == inputs[6]
    for have, want in zip(outputs, expected, strict=True):
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        assert have.flags.c_contiguous
    for b, last in enumerate(inputs[5].tolist()):
        rows = [min(new, last + 1) if prompt else new, last + 1, last + 1]
        for i, axis in enumerate((0, 1, 1)):
            have, want = (np.moveaxis(x[i][b], axis, 0)[: rows[i]] for x in (outputs, expected))
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
    return outputs


CALLS: list[dict[str, Any]] = [
    {"new": 5, "past": 0},
    {"new": 1, "past": 6},
    {"new": 3, "past": 5},
    {"new": 5, "past": 0, "batch": 3, "ragged": True},
    {"new": 1, "past": 6, "batch": 3, "ragged": True},
    {"new": 5, "past": 0, "capacity": 12},
    {"new": 1, "past": 5, "capacity": 12, "batch": 2, "ragged": True},
    {"new": 3, "past": 5, "capacity": 12},
    {"new": 1, "past": 5, "capacity": 6},
]
EXTRAS: list[dict[str, Any]] = [
    {},
    {"packed": True},
    {"rotary": True},
    {"rotary": True, "packed": True, "rotary_interleaved": 1},
    {"local_window_size": 1},
    {"local_window_size": 3},
    {"softcap": 2.0},
    {"bias": True},
    {"bias": True, "softcap": 1.5, "local_window_size": 4},
    {"smooth_softmax": 1},
    {"sink": True, "local_window_size": 2},
    {"causal": 0},
    {"scale": 0.3},
]


@pytest.mark.parametrize("extra", EXTRAS, ids=str)
@pytest.mark.parametrize("shape", CALLS, ids=str)
def test_group_query_attention_agrees_with_onnxruntime(shape: dict, extra: dict) -> None:
    inputs, attributes = call(**shape, **extra)
    assert_valid_rows_like_ort(inputs, 3, attributes)


@pytest.mark.parametrize("offset", [0, 4])
def test_positions_of_a_prompt_count_on_from_the_first_one(offset: int) -> None:
    inputs, attributes = call(new=3, past=0, rotary=True, positions=np.arange(offset, offset + 3)[None])
    assert_valid_rows_like_ort(inputs, 3, attributes)


def test_positions_of_later_tokens_are_taken_as_they_are() -> None:
    inputs, attributes = call(batch=2, past=5, rotary=True, positions=np.array([[4], [2]]))
    assert_valid_rows_like_ort(inputs, 3, attributes)


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("shape", [CALLS[0], CALLS[1], CALLS[6]], ids=str)
@pytest.mark.parametrize("extra", [{}, {"softcap": 2.0, "bias": True}], ids=str)
def test_scores_come_out_before_or_after_the_softmax(mode: int, shape: dict, extra: dict) -> None:
    inputs, attributes = call(**shape, **extra, qk_output=mode)
    have = run_kernel(GQA, inputs, 4, domain=MS, **attributes)[3]
    want = ort_run(GQA, inputs, 4, domain=MS, **attributes)[3]
    assert have.shape == want.shape
    for b, last in enumerate(inputs[5].tolist()):
        np.testing.assert_allclose(have[b, ..., : last + 1], want[b, ..., : last + 1], rtol=1e-4, atol=1e-5)


def test_half_precision_stays_half_precision() -> None:
    inputs, attributes = call(new=4, past=0, rotary=True)
    half = [x.astype(np.float16) if x is not None and x.dtype == np.float32 else x for x in inputs]
    outputs = run_kernel(GQA, half, 3, domain=MS, **attributes)
    for have, want in zip(outputs, ort_run(GQA, half, 3, domain=MS, **attributes), strict=True):
        assert have.dtype == np.float16
        np.testing.assert_allclose(have.astype(np.float32), want.astype(np.float32), atol=5e-3)


def test_norm_weights_normalize_each_head_before_the_rotation() -> None:
    inputs, attributes = call(new=3, past=0, rotary=True)
    weights = [rand(SIZE, seed=1), rand(SIZE, seed=2)]

    def normed(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        heads = x.reshape(1, 3, -1, SIZE)
        return ort_run("RMSNormalization", [heads, weight], opset=23, epsilon=1e-6)[0].reshape(x.shape)

    by_hand = [normed(inputs[0], weights[0]), normed(inputs[1], weights[1]), *inputs[2:]]
    want = ort_run(GQA, by_hand, 3, domain=MS, **attributes)
    given = [*inputs, *[None] * (14 - len(inputs)), *weights]
    for have, expected in zip(run_kernel(GQA, given, 3, domain=MS, **attributes), want, strict=True):
        np.testing.assert_allclose(have, expected, rtol=1e-4, atol=1e-5)


# -- in place ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", EXTRAS, ids=str)
@pytest.mark.parametrize("rooms", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("held", [0, 6])
def test_appending_to_the_past_gives_the_same_bits(held: int, rooms: tuple, extra: dict) -> None:
    inputs, attributes = call(batch=2, new=1 if held else 4, past=held, **extra)
    plain = run_kernel(GQA, inputs, 3, domain=MS, **attributes)
    total = int(inputs[6])
    presents = [room_for(p, total, 2) if room else None for p, room in zip(inputs[3:5], rooms)]
    given = list(inputs)
    for i, present in enumerate(presents):
        if present is not None:
            given[3 + i] = present[:, :, :held]

    grown = run_kernel(GQA, given, 3, domain=MS, grown=tuple(presents), **attributes)

    for have, want in zip(grown, plain, strict=True):
        assert have.tobytes() == want.tobytes()
    for have, present in zip(grown[1:], presents):
        assert present is None or have is present


@pytest.mark.parametrize("shape", [CALLS[5], CALLS[6], CALLS[7], CALLS[8]], ids=str)
def test_writing_into_a_shared_buffer_gives_the_same_bits(shape: dict) -> None:
    inputs, attributes = call(**shape, rotary=True)
    plain = run_kernel(GQA, inputs, 3, domain=MS, **attributes)
    own = [p.copy() for p in inputs[3:5]]

    shared = run_kernel(GQA, [*inputs[:3], *own, *inputs[5:]], 3, domain=MS, grown=tuple(own), **attributes)

    for have, want in zip(shared, plain, strict=True):
        assert have.tobytes() == want.tobytes()
    assert shared[1] is own[0] and shared[2] is own[1]
    for have, past in zip(plain[1:], inputs[3:5]):
        assert not np.shares_memory(have, past)


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
    (altered(5, np.array([9], np.int32)), r"seqlens_k \[9\] do not fit 1 new of 7 rows"),
    (altered(5, np.array([1, 1], np.int32)), "holds 2 numbers for a batch of 1"),
    (altered(6, np.array(9, np.int32)), "a past of 6 rows and 1 new ones do not make 9 rows"),
    (altered(3, rand(1, 2, 6, 8)), "does not take new rows"),
    (altered(3, rand(1, 2, 9, SIZE)), "past_key holds . rows and past_value ."),
    (altered(3, rand(2, 6, SIZE)), "past_key must have 4 dimensions"),
    (altered(4, None), "given together"),
    (altered(0, rand(1, 1, 60)), "do not fit together|does not divide"),
    (altered(1, rand(1, 32)), "key must have 3 dimensions"),
    (altered(0, QUERY, do_rotary=1), "needs cos_cache and sin_cache"),
    (altered(8, SIN[:-1], rotary=True), "do not rotate heads of size 16"),
    (altered(9, np.array([[3, 4]]), rotary=True), r"position_ids must have shape \(1, 1\), but have \(1, 2\)"),
    (altered(0, QUERY, num_heads=3), "3 heads for 2 key heads"),
    (altered(0, QUERY, local_window_size=0), "must be -1"),
    (altered(0, QUERY, local_window_size=3, causal=0), "needs causal 1"),
    (altered(0, QUERY, k_quant_type="PER_TENSOR"), "quantized cache"),
    (altered(0, QUERY, sliding_window_cache=1, local_window_size=7), "does not hold a window of 7"),
    (altered(10, rand(1, 4, 1, 9)), r"attention_bias must have shape \(1 or 1, 1 or 4, 1, 7\)"),
    (altered(11, rand(3)), r"head_sink must have shape \(4,\)"),
    (altered(14, rand(SIZE)), "q_norm_weight and k_norm_weight must be given together"),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_an_error_names_what_does_not_fit(arguments: tuple, message: str) -> None:
    inputs, attributes = arguments
    with pytest.raises(OpError, match=message):
        run_kernel(GQA, inputs, 3, domain=MS, **attributes)
