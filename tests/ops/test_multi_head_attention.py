"""com.microsoft.MultiHeadAttention: inputs in every packing, masks, and its two cache forms."""

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import ints, rand, run_kernel, spec_of

MS = "com.microsoft"
MHA = "MultiHeadAttention"
B, S, L, N, H, P = 2, 3, 5, 4, 8, 6
D = N * H
Q, K, V = rand(B, S, D), rand(B, L, D, seed=1), rand(B, L, D, seed=2)
OWN = [Q, rand(B, S, D, seed=3), rand(B, S, D, seed=4)]
ONE = [x[:, :1].copy() for x in OWN]
PAST = [rand(B, N, P, H, seed=5), rand(B, N, P, H, seed=6)]
BUFFER = [rand(B, N, 12, H, seed=5), rand(B, N, 12, H, seed=6)]


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
    ([Q], "needs a key"),
    ([Q, K], "come together"),
    ([Q, K, V[:, :4]], "which do not fit"),
    ([rand(B, S, 30), K, V], "does not divide into 4 heads"),
    ([rand(B, S, N, 2, H)], "must hold 4 heads of 3"),
    ([Q, rand(B, L, N, 3, H)], "must hold 4 heads of 2"),
    ([Q, K, V, rand(3 * D + 1)], r"bias must have shape \(96,\)"),
    ([*OWN, None, None, None, PAST[0], PAST[1][:, :, :5]], "past_key holds . rows and past_value ."),
    ([*ONE, None, None, None, *(b[..., :4] for b in BUFFER), ints(3)], "does not take new rows"),
]


@pytest.mark.parametrize(("inputs", "message"), ERRORS)
def test_an_error_names_what_does_not_fit(inputs: list, message: str) -> None:
    with pytest.raises(OpError, match=message):
        run_kernel(MHA, inputs, 3, domain=MS, num_heads=N)
