"""Random calls of DynamicQuantizeLSTM against onnxruntime."""

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.random_cases import Call, by_ort, normals

MS = "com.microsoft"


def quantised_lstm(seed: int) -> Call:
    rng = np.random.default_rng((seed, 31))
    direction = ("forward", "reverse", "bidirectional")[seed % 3]
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = (int(n) + more for n, more in zip(rng.integers(1, 6, 4), (0, 0, 3, 2)))
    dtype = np.dtype(np.int8 if rng.random() < 0.5 else np.uint8)
    low, high = np.iinfo(dtype).min, int(np.iinfo(dtype).max) + 1
    w = rng.integers(low, high, (ways, size, 4 * hidden)).astype(dtype)
    r = rng.integers(low, high, (ways, hidden, 4 * hidden)).astype(dtype)
    by_column = rng.random() < 0.4
    per = (ways, 4 * hidden) if by_column else (ways,)
    parameters = []
    for _ in range(2):
        parameters.append(rng.uniform(0.002, 0.01, per).astype(np.float32))
        zero = 0 if by_column or rng.random() < 0.4 else rng.integers(low // 4, high // 4, per)
        parameters.append(np.broadcast_to(np.asarray(zero, dtype), per).copy())

    def maybe(share: float, *shape: int) -> np.ndarray | None:
        return normals(rng, *shape) if rng.random() < share else None

    optional: list[np.ndarray | None] = [maybe(0.6, ways, 8 * hidden)]
    optional.append(rng.integers(0, steps + 1, batch).astype(np.int32) if rng.random() < 0.5 else None)
    optional += [maybe(0.4, ways, batch, hidden), maybe(0.4, ways, batch, hidden), maybe(0.3, ways, 3 * hidden)]
    attributes: dict = {"direction": direction, "hidden_size": hidden}
    if rng.random() < 0.2:
        attributes["clip"] = float(rng.uniform(0.5, 2))
    if rng.random() < 0.2:
        attributes["input_forget"] = 1
    inputs = [normals(rng, steps, batch, size), w, r, *optional, *parameters]
    return Call("DynamicQuantizeLSTM", inputs, attributes, 3, 21, MS)


def test_300_random_calls_agree_with_onnxruntime():
    near = 0
    for seed in range(300):
        call = quantised_lstm(seed)
        for have, want in zip(call.run(call.inputs), by_ort(call), strict=True):
            assert (have.shape, have.dtype) == (want.shape, want.dtype), call
            off = np.abs(have - want).max()
            # A number that lies between two whole ones may be rounded the other way after another tanh.
            assert off < 2e-2, f"{seed}: off by {off} in {call}"
            near += off < 1e-5
    assert near > 0.98 * 900


def test_scales_and_lengths_that_do_not_fit_are_refused():
    call = quantised_lstm(0)
    with pytest.raises(OpError, match=r"W_scale has shape \(3,\)"):
        call.run([*call.inputs[:8], np.ones(3, np.float32), *call.inputs[9:]])
    with pytest.raises(OpError, match="R_zero_point is absent"):
        call.run(call.inputs[:-1])
    _, w, r = call.inputs[:3]
    assert w is not None
    x = normals(np.random.default_rng(0), 4, 3, w.shape[1])
    for lengths in ([3], [1, 2, 9], [-1, 2, 1]):
        with pytest.raises(OpError, match=r"sequence_lens .* must be 3 numbers from 0 to 4"):
            call.run([x, w, r, None, np.array(lengths, np.int32), None, None, None, *call.inputs[8:]])
