"""com.microsoft.MultiHeadAttention: inputs in every packing, masks, and its two cache forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import assert_like_ort, ints, rand, run_kernel, spec_of
from tests.ops.test_slice import room_for

MS = "com.microsoft"
MHA = "MultiHeadAttention"
B, S, L, N, H, P = 2, 3, 5, 4, 8, 6
D = N * H
Q, K, V = rand(B, S, D), rand(B, L, D, seed=1), rand(B, L, D, seed=2)
OWN = [Q, rand(B, S, D, seed=3), rand(B, S, D, seed=4)]
ONE = [x[:, :1].copy() for x in OWN]
PAST = [rand(B, N, P, H, seed=5), rand(B, N, P, H, seed=6)]
BUFFER = [rand(B, N, 12, H, seed=5), rand(B, N, 12, H, seed=6)]
BIAS = rand(3 * D)


def seen(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, 2, shape).astype(np.int32)


CASES: list[tuple[str, list, int, dict[str, Any]]] = [
    ("self", OWN, 3, {}),
    ("cross", [Q, K, V], 1, {}),
    ("wider values", [Q, K, rand(B, L, 2 * D)], 1, {}),
    ("bias", [*OWN, BIAS], 3, {}),
    ("keys by head", [Q, rand(B, N, L, H), rand(B, N, L, H, seed=1)], 1, {}),
    ("keys by head, bias", [Q, rand(B, N, L, H), rand(B, N, L, H, seed=1), BIAS], 1, {}),
    ("lengths", [Q, K, V, None, np.array([3, 5], np.int32)], 1, {}),
    ("length 0", [Q, K, V, None, np.array([0, 5], np.int32)], 1, {}),
    ("mask of keys", [Q, K, V, None, seen(B, L)], 1, {}),
    ("mask of pairs", [Q, K, V, None, seen(B, S, L)], 1, {}),
    ("weak mask", [Q, K, V, None, seen(B, L)], 1, {"mask_filter_value": -3.0}),
    ("causal", OWN, 3, {"unidirectional": 1}),
    ("causal, mask of keys", [*OWN, None, seen(B, S)], 3, {"unidirectional": 1}),
    ("causal, mask of pairs", [*OWN, None, seen(B, S, S)], 3, {"unidirectional": 1}),
    ("attention bias", [Q, K, V, None, None, rand(1, N, S, L)], 1, {}),
    ("attention bias, mask", [Q, K, V, None, seen(B, L), rand(B, 1, S, L)], 1, {}),
    ("past", [*OWN, None, None, None, *PAST], 3, {}),
    ("past, bias, causal", [*OWN, BIAS, None, None, *PAST], 3, {"unidirectional": 1}),
    ("past, mask", [*OWN, None, seen(B, S + P), None, *PAST], 3, {}),
    ("buffer", [*ONE, None, None, None, *BUFFER, np.array([5], np.int32)], 3, {}),
    ("buffer, three rows", [*OWN, None, None, None, *BUFFER, np.array([5], np.int32)], 3, {}),
    ("buffer, mask", [*ONE, None, seen(B, 6), None, *BUFFER, np.array([5], np.int32)], 3, {}),
    ("scale", [Q, K, V], 1, {"scale": 0.5}),
]


@pytest.mark.parametrize(("inputs", "n_outputs", "attributes"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_multi_head_attention_agrees_with_onnxruntime(inputs: list, n_outputs: int, attributes: dict) -> None:
    assert_like_ort(MHA, inputs, n_outputs, domain=MS, rtol=1e-4, atol=1e-5, num_heads=N, **attributes)


@pytest.mark.parametrize("bias", [[], [BIAS]])
def test_packed_inputs_are_the_same_as_three(bias: list) -> None:
    by_head = [x.reshape(B, S, N, H) for x in OWN]
    three = run_kernel(MHA, [*OWN, *bias], domain=MS, num_heads=N)[0]
    packed = run_kernel(MHA, [np.stack(by_head, axis=3), None, None, *bias], domain=MS, num_heads=N)[0]
    pair = run_kernel(MHA, [OWN[0], np.stack(by_head[1:], axis=3), None, *bias], domain=MS, num_heads=N)[0]
    np.testing.assert_allclose(packed, three, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(pair, three, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("rooms", [(True, True), (True, False), (False, True)])
def test_appending_to_the_past_gives_the_same_bits(length: int, rooms: tuple) -> None:
    new = [x[:, :length] for x in OWN]
    inputs = [*new, BIAS, None, None, *PAST]
    plain = run_kernel(MHA, inputs, 3, domain=MS, num_heads=N)
    presents = [room_for(p, P + length, 2) if room else None for p, room in zip(PAST, rooms)]
    given = [*inputs[:6], *[p if r is None else r[:, :, :P] for p, r in zip(PAST, presents)]]

    grown = run_kernel(MHA, given, 3, domain=MS, grown=tuple(presents), num_heads=N)

    for have, want in zip(grown, plain, strict=True):
        assert have.tobytes() == want.tobytes()
    for have, present in zip(grown[1:], presents):
        assert present is None or have is present


def test_a_buffer_is_written_in_place_with_the_same_bits() -> None:
    inputs = [*ONE, None, None, None, *BUFFER, np.array([5], np.int32)]
    plain = run_kernel(MHA, inputs, 3, domain=MS, num_heads=N)
    own = [b.copy() for b in BUFFER]
    given = [*inputs[:6], *own, inputs[8]]

    written = run_kernel(MHA, given, 3, domain=MS, grown=tuple(own), num_heads=N)

    for have, want in zip(written, plain, strict=True):
        assert have.tobytes() == want.tobytes()
    assert written[1] is own[0] and written[2] is own[1]
    spec = spec_of(MHA, domain=MS)
    assert spec.cost is not None
    y, row, buffer = written[0].nbytes, B * D * 4, BUFFER[0].nbytes
    assert spec.cost(given, written, True, {}) == (y + 2 * row, 0)
    assert spec.cost(inputs, plain, False, {}) == (y + 2 * buffer, 2 * buffer)


def test_the_table_says_how_many_rows_a_call_appends() -> None:
    grows = spec_of(MHA, domain=MS).grows
    assert [(g.input, g.output, g.axis([], {})) for g in grows] == [(6, 1, 2), (7, 2, 2)]
    assert [g.rows([*OWN, None, None, None, *PAST], {}) for g in grows] == [3, 3]
    assert [g.rows([*ONE, None, None, None, *BUFFER, ints(5)], {}) for g in grows] == [0, 0]
    assert grows[0].rows([rand(B, 2, N, 3, H), None, None, None, None, None, *PAST], {}) == 2


ERRORS = [
    ([*ONE, None, None, None, *BUFFER, ints(12)], "a past of 12 rows does not take rows 12 to 12"),
    ([*ONE, None, None, None, BUFFER[0]], "given together"),
    ([*OWN, None, seen(B, S), None, *PAST], "fits none of"),
    ([Q], "needs a key"),
    ([Q, K], "come together"),
    ([Q, K, V[:, :4]], "which do not fit"),
    ([rand(B, S, 30), K, V], "does not divide into 4 heads"),
    ([rand(B, S, N, 2, H)], "must hold 4 heads of 3"),
    ([Q, rand(B, L, N, 3, H)], "must hold 4 heads of 2"),
    ([Q, K, V, rand(3 * D + 1)], r"bias must have shape \(96,\)"),
    ([Q, K, V, None, None, rand(N, S, L)], r"attention_bias must have shape \(1 or 2, 1 or 4, 3, 5\)"),
    ([*OWN, None, None, None, PAST[0], PAST[1][:, :, :5]], "past_key holds . rows and past_value ."),
    ([*ONE, None, None, None, *(b[..., :4] for b in BUFFER), ints(3)], "does not take new rows"),
]


@pytest.mark.parametrize(("inputs", "message"), ERRORS)
def test_an_error_names_what_does_not_fit(inputs: list, message: str) -> None:
    with pytest.raises(OpError, match=message):
        run_kernel(MHA, inputs, 3, domain=MS, num_heads=N)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_last_query_sees_all_keys_of_a_longer_sequence_as_in_onnxruntime(length: int) -> None:
    inputs = [Q[:, :length], K, V]
    assert_like_ort(MHA, inputs, domain=MS, num_heads=N, unidirectional=1)
    y = run_kernel(MHA, inputs, domain=MS, num_heads=N, unidirectional=1)[0]
    free = run_kernel(MHA, inputs, domain=MS, num_heads=N)[0]
    np.testing.assert_array_equal(y[:, -1], free[:, -1])
    assert length == 1 or np.abs(y[:, 0] - free[:, 0]).max() > 0.01
