"""com.microsoft.Attention: projection, masks, and one cache tensor for keys and values."""

from typing import Any

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import ints, rand, run_kernel, spec_of
from tests.ops.test_slice import room_for

MS = "com.microsoft"
B, S, W, N, H, P = 2, 3, 10, 4, 8, 5
D = N * H
X, WEIGHTS, BIAS = rand(B, S, W), rand(W, 3 * D) / 3, rand(3 * D)
PAST = rand(2, B, N, P, H)


def seen(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, 2, shape).astype(np.int32)


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
