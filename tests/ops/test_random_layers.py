"""Products, convolutions, pools and recurrent layers against onnxruntime: random calls, and what these do not reach."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import Array, check, rand, run
from tests.ops.random_cases import Call, by_ort, cast, in_single, normals, tally, trimmed
from tests.ops.test_random_maths import MS, Rng, part_of, some

EQUATIONS: dict[str, list[tuple[int, ...]]] = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "bhqd,bhkd->bhqk": [(1, 2, 3, 4), (1, 2, 5, 4)],
    "bhqk,bhkd->bqhd": [(1, 2, 3, 5), (1, 2, 5, 4)],
    "...ij,...jk->...ik": [(2, 3, 4), (2, 4, 5)],
    "i,i->": [(5,), (5,)],
    "ij->ji": [(2, 3)],
    "ii->i": [(4, 4)],
    "ij->": [(3, 4)],
    "ij": [(3, 4)],
    "ba": [(3, 4)],
    "i, j -> i j": [(3,), (4,)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)],
    "bij,bjk->bik": [(3, 40, 50), (3, 50, 60)],
}


def matrix(rng: Rng, *shape: int) -> Array:
    """Normal numbers that may lie transposed."""
    x = np.asarray(normals(rng, *shape))
    return np.asfortranarray(x) if rng.random() < 0.15 else x


def products(seed: int) -> Call:
    rng = np.random.default_rng((seed, 24))
    kind = ("MatMul", "Gemm", "FusedMatMul", "Einsum", "MatMulInteger")[seed % 5]
    m, k, n = (int(size) for size in rng.integers((0, 1, 0) if kind == "MatMul" else 1, 9, 3))
    if kind == "MatMul":
        stack = tuple(int(size) for size in rng.integers(1, 5, int(rng.integers(3))))
        a, b = matrix(rng, *part_of(rng, stack), m, k), matrix(rng, *part_of(rng, stack), k, n)
        if m and n and rng.random() < 0.2:
            a, b = some(rng, ((a[..., 0, :], b), (a, b[:, 0] if b.ndim == 2 else b)))
        dtype = some(rng, ("f4", "f4", "f8", "i4", "u4", "i8", "u8"))
        inputs: list[Array | None] = [a, b] if dtype == "f4" else [abs(x * 9).astype(dtype) for x in (a, b)]
        return Call(kind, inputs, {})
    swaps = [bool(rng.integers(2)) for _ in range(2)]
    scales: dict[str, Any] = {"alpha": float(some(rng, (1.0, 0.5, -1.5)))}
    if kind == "Gemm":
        flags: dict[str, Any] = {"transA": int(swaps[0]), "transB": int(swaps[1]), **scales}
        c = matrix(rng, *some(rng, ((), (1,), (n,), (m, 1), (1, n), (m, n)))) if rng.random() < 0.8 else None
        a, b = matrix(rng, *((k, m) if swaps[0] else (m, k))), matrix(rng, *((n, k) if swaps[1] else (k, n)))
        return Call(kind, trimmed(a, b, c), {**flags, "beta": float(some(rng, (1.0, -2.0, 0.0)))})
    if kind == "FusedMatMul":
        stack = (2, 3)[: int(rng.integers(3))]
        inputs, flags = [], dict(scales)
        for place, (rows, columns) in enumerate(((m, k), (k, n))):
            if swaps[place]:
                rows, columns, flags[f"trans{'AB'[place]}"] = columns, rows, 1
            x = matrix(rng, *stack, rows, columns)
            if stack and rng.random() < 0.3:
                # Its batch lies between rows and columns.
                x, flags[f"transBatch{'AB'[place]}"] = np.moveaxis(x, -2, 0), 1
            inputs.append(x)
        if not stack and rng.random() < 0.3:
            # A vector is not transposed.
            inputs[0] = normals(rng, k)
        return Call(kind, inputs, flags, 1, 21, MS)
    if kind == "Einsum":
        equation = some(rng, list(EQUATIONS))
        terms = [matrix(rng, *shape) for shape in EQUATIONS[equation]]
        return Call(kind, [*terms], {"equation": equation})
    a, b = (rng.integers(0, 100, shape).astype(some(rng, ("u1", "i1"))) for shape in ((2, m, k), (k, n)))
    zero = np.asarray(9, b.dtype) if rng.random() < 0.5 else rng.integers(0, 50, n).astype(b.dtype)
    zeros = [np.asarray(5, a.dtype), zero][: int(rng.integers(3))]
    return Call(kind, [a, b, *zeros], {})


def windows(seed: int) -> Call:
    """A convolution, its transpose or a pool, over one to three axes."""
    rng = np.random.default_rng((seed, 25))
    kind = ("Conv", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "Global")[seed % 7]
    rank, group = int(rng.choice([1, 2, 3, 3])), int(some(rng, (1, 1, 2, 4, 4)))
    image = tuple(int(n) for n in rng.integers(6, 9, rank))
    kernel = [int(n) for n in rng.integers(1, 4, rank)]
    x = matrix(rng, int(rng.integers(1, 3)), 4, *image)
    if kind == "Global":
        return Call(f"Global{some(rng, ('Average', 'Max', 'Lp'))}Pool", [x], {})
    how: dict[str, Any] = {"strides": tuple(int(n) for n in rng.integers(1, 4, rank))}
    auto = some(rng, ("", "", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if auto.startswith("SAME") and kind == "MaxPool":
        # onnxruntime refuses windows that leave gaps, although only here.
        how["strides"] = tuple(min(pair) for pair in zip(how["strides"], kernel))
    if auto:
        how["auto_pad"] = auto
    else:
        how["pads"] = tuple(int(rng.integers(0, n)) for n in (*kernel, *kernel))
    if not auto and kind in ("Conv", "ConvTranspose", "MaxPool"):
        how["dilations"] = tuple(int(n) for n in rng.integers(1, 3, rank))
    if "Conv" in kind:
        out = 4 if kind == "Conv" else 3
        w = matrix(rng, 4, (4 if kind == "Conv" else 3 * group) // group, *kernel)
        bias = normals(rng, out if kind == "Conv" else out * group) if rng.random() < 0.5 else None
        if kind == "ConvTranspose":
            w = matrix(rng, 4, 3, *kernel)
            if not auto and rng.random() < 0.3:
                how["output_padding"] = tuple(int(n > 1) for n in how["strides"])
        return Call(kind, trimmed(x, w, bias), {**how, "group": group})
    how["kernel_shape"] = tuple(kernel)
    if kind == "MaxPool":
        outputs, order = some(rng, ((1, {}), (2, {"storage_order": int(rng.integers(2))})))
        return Call(kind, [x], {**how, **order}, outputs)
    how |= {"count_include_pad": int(rng.integers(2))} if kind == "AveragePool" else {"p": some(rng, (1, 2, 3))}
    return Call(kind, [x], how)


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS: dict[str, list[tuple[list[str], list[float], list[float]]]] = {
    "LSTM": [
        (["Sigmoid", "Softsign", "Relu"], [], []),
        (["HardSigmoid", "ScaledTanh", "Tanh"], [0.3, 0.8], [0.4, 0.6]),
    ],
    "GRU": [(["HardSigmoid", "LeakyRelu"], [0.25, 0.1], [0.4]), (["Sigmoid", "Softplus"], [], [])],
    "RNN": [(["Relu"], [], []), (["Affine"], [0.5], [0.1]), (["Elu"], [0.7], []), (["ThresholdedRelu"], [0.2], [])],
}


def maybe(rng: Rng, share: float, *shape: int) -> Array | None:
    return normals(rng, *shape) if rng.random() < share else None


def recurrent(seed: int) -> Call:
    rng = np.random.default_rng((seed, 26))
    name = list(GATES)[seed % 3]
    gates, direction = GATES[name], some(rng, ("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = (int(n) for n in rng.integers(1, 6, 4))

    lengths = rng.integers(0, steps + 1, batch).astype(np.int32) if rng.random() < 0.5 else None
    inputs: list[Array | None] = [normals(rng, steps, batch, size), normals(rng, ways, gates * hidden, size)]
    inputs += [normals(rng, ways, gates * hidden, hidden), maybe(rng, 0.6, ways, 2 * gates * hidden), lengths]
    inputs.append(maybe(rng, 0.5, ways, batch, hidden))
    how: dict[str, Any] = {"direction": direction, "hidden_size": hidden}
    if name == "LSTM":
        inputs += [maybe(rng, 0.5, ways, batch, hidden), maybe(rng, 0.3, ways, 3 * hidden)]
        how |= {"input_forget": 1} if rng.random() < 0.2 else {}
    elif name == "GRU":
        how |= {"linear_before_reset": int(rng.integers(2))}
    if rng.random() < 0.3:
        how["clip"] = 0.3
    if rng.random() < 0.4:
        # Both directions of a layer may have functions of their own.
        chosen = [some(rng, ACTIVATIONS[name]) for _ in range(ways)]
        names, alphas, betas = ([one for part in parts for one in part] for parts in zip(*chosen))
        how |= {"activations": tuple(names)}
        how |= {"activation_alpha": tuple(alphas)} if alphas else {}
        how |= {"activation_beta": tuple(betas)} if betas else {}
    return Call(name, trimmed(*inputs), how, 3 if name == "LSTM" else 2)


def each_channel_alone(seed: int) -> Call:
    """A convolution over three axes in which every channel has a filter of its own, of each small shape, over few
    positions and over many."""
    few, *places = np.unravel_index(seed % 54, (2, 3, 3, 3))
    rng, kernel = np.random.default_rng((seed, 27)), [int(place) + 1 for place in places]
    image = [n + more for n, more in zip(kernel, (0, 0, 1) if few else (4, 5, 3))]
    return Call("Conv", [matrix(rng, 2, 3, *image), matrix(rng, 3, 1, *kernel)], {"group": 3})


MAKERS: dict[Callable[[int], Call], int] = {products: 700, windows: 700, recurrent: 450, each_channel_alone: 54}


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_random_calls_agree_with_onnxruntime(make: Callable[[int], Call]) -> None:
    tally(make, MAKERS[make], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_half_precision_adds_up_in_single_precision(make: Callable[[int], Call]) -> None:
    for dtype, rtol, atol in ((np.float16, 3e-3, 2e-3), (ml_dtypes.bfloat16, 0.02, 0.02)):
        calls = [cast(make(seed), dtype) for seed in range(150)]
        tally(calls.__getitem__, 150, oracle=in_single, rtol=rtol, atol=atol)


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
    optional, state = [maybe(rng, 0.6, ways, 8 * hidden)], (ways, batch, hidden)
    optional.append(rng.integers(0, steps + 1, batch).astype(np.int32) if rng.random() < 0.5 else None)
    optional += [maybe(rng, 0.4, *state), maybe(rng, 0.4, *state), maybe(rng, 0.3, ways, 3 * hidden)]
    attributes: dict = {"direction": direction, "hidden_size": hidden}
    if rng.random() < 0.2:
        attributes["clip"] = float(rng.uniform(0.5, 2))
    if rng.random() < 0.2:
        attributes["input_forget"] = 1
    inputs = [normals(rng, steps, batch, size), w, r, *optional, *parameters]
    return Call("DynamicQuantizeLSTM", inputs, attributes, 3, 21, MS)


def test_300_random_calls_of_a_quantised_layer_agree_with_onnxruntime() -> None:
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


def test_scales_and_lengths_that_do_not_fit_are_refused() -> None:
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


# -- what random calls do not reach -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_a_product_over_an_empty_axis_is_zero(dtype: str) -> None:
    assert not check("MatMul", [rand(2, 3, 0, dtype=dtype), rand(0, 2, dtype=dtype)])[0].any()


def test_filters_that_can_be_written_may_differ_in_the_next_call() -> None:
    x, w = rand(1, 8, 4, 4), rand(2, 8, 3, 3, seed=1)
    for _ in range(2):
        check("Conv", [x, w], rtol=1e-4, atol=1e-5, pads=[1, 1, 1, 1])
        w *= 2


def test_a_sequence_of_no_steps_keeps_its_initial_state() -> None:
    initial, cell = rand(1, 3, 6, seed=4), rand(1, 3, 6, seed=5)
    weights = [rand(1, 24, 4), rand(1, 24, 6), None, None]
    y, h, c = run("LSTM", [rand(0, 3, 4), *weights, initial, cell], 3, hidden_size=6)
    assert y.shape == (0, 1, 3, 6)
    np.testing.assert_array_equal([h, c], [initial, cell])
