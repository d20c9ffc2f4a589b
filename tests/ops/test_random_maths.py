"""Random calls of operators on elements, rows and axes against onnxruntime, in place and not.

Numbers in half precision are judged by what it computes in single precision, rounded once.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ops.kernels import Array
from tests.ops.random_cases import Call, cast, in_single, tally

MS = "com.microsoft"
Rng = np.random.Generator
EDGES = np.array([0, -0.0, 1e-9, -1e-9, 88, -88, 500, -500, np.inf, -np.inf], np.float32)

# Numbers from and to, and the types that onnxruntime has a kernel for.
FUNCTIONS: dict[str, tuple[float, float, str]] = {
    **dict.fromkeys(("Abs", "Neg"), (-6, 6, "f4 f8 i4 i8 i1")),
    **dict.fromkeys(("Exp", "Tanh", "Floor", "Ceil", "Round", "Sin", "Cos"), (-6, 6, "f4 f8")),
    **dict.fromkeys(("Atan", "Asinh", "Erf"), (-6, 6, "f4")),
    **dict.fromkeys(("Sinh", "Cosh"), (-3, 3, "f4")),
    **dict.fromkeys(("Tan", "Asin", "Acos"), (-1, 1, "f4")),
    **dict.fromkeys(("IsNaN", "IsInf"), (-1, 1, "f4 f8")),
    "Sign": (-6, 6, "f4 f8 i4 i8"),
    "Sqrt": (0, 9, "f4 f8"),
    "Log": (0.1, 6, "f4 f8"),
    "Reciprocal": (0.5, 6, "f4 f8"),
    "Acosh": (1.1, 6, "f4"),
    "Atanh": (-0.9, 0.9, "f4"),
    "BitwiseNot": (-9, 9, "i4 i8 i1"),
    "Not": (0, 1, "?"),
}
ACTIVATIONS: dict[tuple[str, str], list[dict[str, Any]]] = {
    **{(name, ""): [{}] for name in ("Relu", "Sigmoid", "HardSwish", "Softplus", "Softsign", "Mish")},
    **{(name, MS): [{}] for name in ("Gelu", "FastGelu")},
    ("LeakyRelu", ""): [{}, {"alpha": 0.3}, {"alpha": 2.0}],
    ("Elu", ""): [{}, {"alpha": 0.7}],
    ("Celu", ""): [{"alpha": 0.7}],
    ("Selu", ""): [{}, {"alpha": 1.5, "gamma": 2.0}],
    ("ThresholdedRelu", ""): [{}, {"alpha": 0.4}],
    ("HardSigmoid", ""): [{}, {"alpha": 0.4, "beta": 0.3}],
    ("Shrink", ""): [{}, {"bias": 0.2, "lambd": 1.0}],
    ("Gelu", ""): [{}, {"approximate": "tanh"}],
    ("Swish", ""): [{}, {"alpha": 1.3}],
    ("QuickGelu", MS): [{}, {"alpha": 1.0}],
}
TO_THE_EDGE = {"Relu", "Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Elu", "LeakyRelu", "IsInf"}


def some(rng: Rng, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def shape_of(rng: Rng, low: int = 0, rank: int | None = None) -> tuple[int, ...]:
    """Up to three dimensions, now and then a long one."""
    shape = [int(n) for n in rng.integers(low, 6, int(rng.integers(low, 4)) if rank is None else rank)]
    if shape and rng.random() < 0.15:
        shape[-1] = 1001
    return tuple(shape)


def numbers(rng: Rng, shape: tuple[int, ...], low: float, high: float, dtype: Any) -> Array:
    """Numbers in a range, in an array that may lie transposed or with gaps."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    x = rng.integers(int(low), int(high), shape) if dtype.kind in "iu" else rng.uniform(low, high, shape)
    array: Array = np.asarray(x).astype(dtype)
    if rng.random() < 0.2:
        return np.asfortranarray(array)
    return np.repeat(array, 2, -1)[..., ::2] if array.ndim and rng.random() < 0.1 else array


def one_operand(seed: int) -> Call:
    rng = np.random.default_rng((seed, 20))
    if rng.random() < 0.5:
        name = list(FUNCTIONS)[seed % len(FUNCTIONS)]
        low, high, dtypes = FUNCTIONS[name]
        x, domain, attributes = numbers(rng, shape_of(rng), low, high, some(rng, dtypes.split())), "", {}
        if name == "IsInf":
            attributes = {"detect_negative": int(rng.integers(2)), "detect_positive": int(rng.integers(2))}
    else:
        name, domain = list(ACTIVATIONS)[seed % len(ACTIVATIONS)]
        attributes = some(rng, ACTIVATIONS[name, domain])
        # Of a scalar onnxruntime has no FastGelu.
        x = numbers(rng, shape_of(rng, int(name == "FastGelu")), -6, 6, "f4")
    if name in TO_THE_EDGE and rng.random() < 0.3:
        x = rng.permutation(EDGES).astype(x.dtype)
    return Call(name, [x], attributes, 1, 24 if name == "Swish" else 21, domain)


PAIRS: dict[str, str] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Min", "Max"), "f4 f8 i4 i8"),
    **dict.fromkeys(("Greater", "Less"), "f4 f8 i4 i8"),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual"), "f4 i8"),
    **dict.fromkeys(("And", "Or", "Xor"), "?"),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), "u1 i4 i8"),
    **dict.fromkeys(("Sum", "Mean", "PRelu"), "f4"),
    "Equal": "f4 f8 i4 i8 ?",
    "Mod": "i1 u1 i2 u2 i4 u4 i8 u8",
    "Pow": "f4 f8 i4 i8",
    "BitShift": "u1 u4 u8",
    "Where": "f4 f8 i4 i8 u1",
    "Clip": "f4 f8 i4 i8 i1 u1",
}


def part_of(rng: Rng, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another one."""
    own = [n if rng.random() < 0.75 else 1 for n in shape]
    return tuple(own[int(rng.integers(len(own) + 1)) if rng.random() < 0.4 else 0 :])


def operands(seed: int) -> Call:
    rng = np.random.default_rng((seed, 21))
    name = list(PAIRS)[seed % len(PAIRS)]
    # Of a scalar onnxruntime takes a slope of one element, which ONNX does not.
    dtype, shape, attributes = np.dtype(some(rng, PAIRS[name].split())), shape_of(rng, int(name == "PRelu")), {}

    def operand(shape: tuple[int, ...], low: float = -9, high: float = 9, dtype: Any = dtype) -> Array:
        # Without zeros, so that it may divide.
        x = numbers(rng, shape, max(low, 1) if np.dtype(dtype).kind == "u" else low, high, dtype)
        return np.where(x == 0, np.ones(1, x.dtype), x) if x.dtype.kind in "iu" else x

    inputs: list[Array | None] = [operand(shape), operand(part_of(rng, shape))]
    if name in ("Min", "Max", "Sum", "Mean"):
        inputs = [operand(part_of(rng, shape)) for _ in range(int(rng.integers(1, 5)))]
    elif name == "Mod" and rng.random() < 0.4:
        dtype = np.dtype(some(rng, ("f4", "f8", "i4", "i8")))
        inputs, attributes = [operand(x.shape, dtype=dtype) for x in inputs if x is not None], {"fmod": 1}
    elif name == "Pow":
        low = operand(shape, 1, 9), rng.random() < 0.5
        to = some(rng, ("f4", "f8", "i4", "i8") if dtype.kind == "f" else (dtype.str[1:], "f4"))
        inputs = [low[0], operand(part_of(rng, shape), 1, 4, to)]
        if dtype == np.float32 and low[1]:
            inputs[1] = np.full(some(rng, ((), (1,))), some(rng, (2.0, 0.5, 1.0, 3.0, 0.0, -1.0, -0.5)), np.float32)
    elif name == "BitShift":
        inputs, attributes = [operand(shape), operand(shape[-1:], 1, 7)], {"direction": some(rng, ("LEFT", "RIGHT"))}
    elif name == "Where":
        inputs = [operand(part_of(rng, shape), dtype="?"), *(operand(part_of(rng, shape)) for _ in range(2))]
    elif name == "Clip":
        bounds = [np.asarray(abs(n) if dtype.kind == "u" else n, dtype) for n in some(rng, ((-1, 2), (3, -3)))]
        inputs = [operand(shape), *(bound if rng.random() < 0.6 else None for bound in bounds)]
    elif name not in ("PRelu", "Sub", "Div") and rng.random() < 0.5:
        inputs.reverse()
    while inputs[-1] is None:
        inputs.pop()
    return Call(name, inputs, attributes, 1, 21)


AXES = [None, [0], [1], [2], [-1], [0, 2], [1, 2], [2, 0], [0, 1, 2], []]
REDUCED = {
    **dict.fromkeys(("ReduceMax", "ReduceMin"), "f4 f8 i4 i8 i1 u1"),
    "ReduceSum": "f4 f8 i4 i8",
    "ReduceMean": "f4 f8 i4",
    "ReduceProd": "f4 i4 i8",
    "ReduceL1": "f4 i4",
    "ReduceL2": "f4 f8",
    "ReduceSumSquare": "f4 f8 i4",
    "ReduceLogSum": "f4 i8",
    "ReduceLogSumExp": "f4 f8",
}


def along_axes(seed: int) -> Call:
    rng = np.random.default_rng((seed, 22))
    kind = ("soft", "reduce", "reduce", "extreme", "top", "running")[seed % 6]
    if kind == "soft":
        name, opset = some(rng, ("Softmax", "LogSoftmax", "Hardmax")), some(rng, (9, 11, 13, 21))
        x, axis = numbers(rng, shape_of(rng, 1, 3), -6, 6, "f4"), int(rng.integers(0 if opset < 11 else -3, 3))
        return Call(name, [x], some(rng, ({}, {"axis": axis})), 1, opset)
    if kind == "reduce":
        name, axes, attributes = some(rng, list(REDUCED)), some(rng, AXES), {"keepdims": int(rng.integers(2))}
        x = numbers(rng, shape_of(rng, 1, 3), 1, 9, some(rng, REDUCED[name].split()))
        if x.dtype == np.int32:
            x = x * np.int32(some(rng, (1, 1 << 28)))  # ends at the limits
        elif name == "ReduceProd":
            x = np.minimum(x[:2, :2, :5], np.array(2, x.dtype))
        if rng.random() < 0.3 and axes != [] and x.dtype.kind == "f":
            attributes |= {} if axes is None else {"axes": axes}
            return Call(name, [x], attributes, 1, 11)
        return Call(name, [x, None if axes is None else np.array(axes, np.int64)], attributes, 1, 18)
    # Few different numbers, so that there are ties.
    x = numbers(rng, shape_of(rng, int(kind != "running"), 3), 0, 3, np.int64).astype(some(rng, ("f4", "i4", "i8")))
    axis = int(rng.integers(-3, 3))
    if kind == "extreme":
        how = {"axis": axis, "keepdims": int(rng.integers(2)), "select_last_index": int(rng.integers(2))}
        x = x.astype(some(rng, ("f4", "i4")))
        return Call(some(rng, ("ArgMax", "ArgMin")), [x], how)
    if kind == "top":
        count = int(rng.integers(0, x.shape[axis] + 1))
        if rng.random() < 0.2:
            x = rng.integers(0, some(rng, (5, 100_000)), (2, 5000)).astype(np.float32)
            axis, count = -1, some(rng, (0, 1, 40, 600))
        how = {"axis": axis, "largest": int(rng.integers(2))}
        return Call("TopK", [x, np.array([count])], how, 2)
    how = {"exclusive": int(rng.integers(2)), "reverse": int(rng.integers(2))}
    return Call("CumSum", [x, np.array(axis, some(rng, ("i4", "i8")))], how)


def norms(seed: int) -> Call:
    """A normalisation. Of the outputs of a sum and its norm onnxruntime computes the first and the last one only."""
    rng = np.random.default_rng((seed, 23))

    def normal(*shape: int) -> Array:
        x = rng.standard_normal(shape).astype(np.float32)
        return np.asfortranarray(x) if rng.random() < 0.1 else x

    name = ("Layer", "RMS", "Simplified", "SkipSimplified", "Skip", "Batch", "Instance", "Group", "Group 18", "LRN",
            "MeanVariance", "Lp", "Bias", "Fast")[seed % 14]  # fmt: skip
    x = normal(int(rng.integers(1, 4)), 4, int(rng.integers(1, 9)))
    axis = int(rng.integers(-3 if name == "Layer" else -2, 3))
    tail, last = x.shape[axis:], x.shape[-1]
    bias = normal(last) if rng.random() < 0.5 else None
    eps: dict[str, Any] = {"epsilon": float(some(rng, (1e-5, 0.01, 0.1)))}
    channels = [normal(4), normal(4)]
    if name == "Layer":
        inputs = [x, normal(*tail), normal(*tail) if bias is not None else None]
        return Call("LayerNormalization", inputs, {"axis": axis, **eps}, some(rng, (1, 3)))
    if name in ("RMS", "Simplified"):
        full, opset = ("RMSNormalization", 23) if name == "RMS" else ("SimplifiedLayerNormalization", 21)
        return Call(full, [x, normal(*tail)], {"axis": axis, **eps}, 1, opset)
    if name.startswith("Skip"):
        skip = normal(*some(rng, (x.shape, x.shape, x.shape[1:], (1, *x.shape[1:]))))
        more = [] if name == "SkipSimplified" else [normal(last) if rng.random() < 0.5 else None]
        inputs = [x, skip, normal(last), *more, bias]
        return Call(f"{name}LayerNormalization", inputs, eps, some(rng, (1, 4)), 21, MS)
    if name in ("Bias", "Fast"):
        return Call(f"{name}Gelu", [x, normal(last)], {}, 1, 21, MS)
    if name == "Batch":
        x = normal(2, 4, *shape_of(rng, 1, int(rng.integers(0, 3))))
        inputs = [x, *channels, normal(4), np.abs(normal(4)) + np.float32(0.1)]
        return Call("BatchNormalization", inputs, eps, 1, some(rng, (7, 9, 14, 15)))
    if name == "LRN":
        return Call(name, [normal(2, 4, 3, 5)], {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 1.5})
    if name == "MeanVariance":
        return Call("MeanVarianceNormalization", [x], {"axes": (0, 2)})
    if name == "Lp":
        x[0] = 0
        return Call("LpNormalization", [x], {"p": some(rng, (1, 2)), "axis": axis})
    how = {"num_groups": 2, **eps} if name.startswith("Group") else eps
    own = [c[:2] for c in channels] if name == "Group 18" else channels
    full = "InstanceNormalization" if name == "Instance" else "GroupNormalization"
    return Call(full, [x, *own], how, 1, 18 if name == "Group 18" else 21)


def first_and_last(call: Call, outputs: Any) -> list[Array]:
    return [outputs[0], outputs[3]] if call.op_type.startswith("Skip") and call.n_outputs == 4 else list(outputs)


MAKERS: dict[Callable[[int], Call], tuple[int, int]] = {
    # All but IsNaN and IsInf; each function is asked some twenty times.
    one_operand: (1500, 1370),
    operands: (1500, 300),
    along_axes: (1200, 80),
    norms: (700, 300),
}


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_random_calls_agree_with_onnxruntime_in_place_and_not(make: Callable[[int], Call]) -> None:
    count, in_place = MAKERS[make]
    tally(make, count, first_and_last, rtol=1e-4, atol=1e-5, in_place=in_place)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_single_precision_rounded_once(make: Callable[[int], Call], dtype: type) -> None:
    rtol, atol = (2e-3, 1e-3) if dtype is np.float16 else (0.01, 0.02)
    tally(lambda seed: cast(make(seed), dtype), 400, first_and_last, in_single, rtol, atol)
