"""com.microsoft.Attention: projection, masks, and one cache tensor for keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import assert_like_ort, ints, rand, run_kernel, spec_of
from tests.ops.test_slice import room_for

MS = "com.microsoft"
B, S, W, N, H, P = 2, 3, 10, 4, 8, 5
D = N * H
X, WEIGHTS, BIAS = rand(B, S, W), rand(W, 3 * D) / 3, rand(3 * D)
PAST = rand(2, B, N, P, H)


def seen(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, 2, shape).astype(np.int32)


CASES: list[tuple[list, int, dict[str, Any]]] = [
    ([X, WEIGHTS, BIAS], 1, {}),
    ([X, WEIGHTS, BIAS], 2, {"unidirectional": 1}),
    ([X, WEIGHTS, BIAS], 1, {"scale": 0.2}),
    ([X, WEIGHTS, BIAS, seen(B, S)], 1, {}),
    ([X, WEIGHTS, BIAS, seen(B, S, S)], 1, {"unidirectional": 1}),
    ([X, WEIGHTS, BIAS, np.array([1, 3], np.int32)], 1, {}),
    ([X, WEIGHTS, BIAS, np.array([3, 2, 1, 0], np.int32)], 1, {}),
    ([X, WEIGHTS, BIAS, None, None, rand(1, N, S, S)], 1, {}),
    ([X, WEIGHTS, BIAS, None, PAST], 2, {"unidirectional": 1}),
    ([X, WEIGHTS, BIAS, seen(B, S + P), PAST], 2, {"unidirectional": 1}),
    ([X, rand(W, 2 * D + 2 * N), rand(2 * D + 2 * N)], 1, {"qkv_hidden_sizes": [D, D, 2 * N]}),
]


@pytest.mark.parametrize(("inputs", "n_outputs", "attributes"), CASES)
def test_packed_attention_agrees_with_onnxruntime(inputs: list, n_outputs: int, attributes: dict) -> None:
    assert_like_ort("Attention", inputs, n_outputs, domain=MS, rtol=1e-4, atol=1e-5, num_heads=N, **attributes)


@pytest.mark.parametrize("held", [0, P])
def test_appending_to_the_past_gives_the_same_bits(held: int) -> None:
    past = PAST[:, :, :, :held]
    inputs = [X, WEIGHTS, BIAS, None, past]
    plain = run_kernel("Attention", inputs, 2, domain=MS, num_heads=N, unidirectional=1)
    room = room_for(past, held + S, 3)
    given = [*inputs[:4], room[:, :, :, :held]]

    grown = run_kernel("Attention", given, 2, domain=MS, grown=(room,), num_heads=N, unidirectional=1)

    assert grown[1] is room
    for have, want in zip(grown, plain, strict=True):
        assert have.tobytes() == want.tobytes()


def test_the_table_says_how_the_cache_grows_and_what_it_costs() -> None:
    spec = spec_of("Attention", domain=MS)
    args = [X, WEIGHTS, BIAS, None, PAST]
    (grow,) = spec.grows
    assert (grow.input, grow.output, grow.axis(args, {}), grow.rows(args, {})) == (4, 1, 3, S)
    assert spec.cost is not None
    outs = run_kernel("Attention", args, 2, domain=MS, num_heads=N)
    y, row = outs[0].nbytes, 2 * B * S * D * 4
    assert spec.cost(args, outs, False, {}) == (y + PAST.nbytes + row, PAST.nbytes)
    room = room_for(PAST, P + S, 3)
    args[4] = room[:, :, :, :P]
    outs = run_kernel("Attention", args, 2, domain=MS, grown=(room,), num_heads=N)
    assert spec.cost(args, outs, True, {}) == (y + row, 0)


ERRORS: list[tuple[list, dict[str, Any], str]] = [
    ([X, WEIGHTS[:-1], BIAS], {}, "do not fit an input"),
    ([X, WEIGHTS, BIAS, None, PAST[:, :1]], {}, "a past of shape .* does not take keys"),
    ([X, WEIGHTS, BIAS, seen(B, S + 1)], {}, "fits none of"),
    ([X, WEIGHTS, BIAS, None, PAST, None, ints(2)], {}, "are not supported"),
    ([X, WEIGHTS, BIAS[:1]], {}, r"bias must have shape \(96,\)"),
    ([X, WEIGHTS[0], BIAS], {}, "weights must have 2 dimensions"),
    ([X, WEIGHTS, BIAS, None, None, rand(N, S, S)], {}, "attention_bias must have shape"),
]


@pytest.mark.parametrize(("inputs", "attributes", "message"), ERRORS)
def test_an_error_names_what_does_not_fit(inputs: list, attributes: dict, message: str) -> None:
    with pytest.raises(OpError, match=message):
        run_kernel("Attention", inputs, 2, domain=MS, num_heads=N, **attributes)
