"""Nodes without bodies: each function adds one kind to a graph, or does nothing where no value fits."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tests.outside.scopes import FLOATS, INTS, Scope, Val, on, tensor_type

UNARY: dict[str, tuple[tuple[str, bool], ...]] = {
    "float32": (
        *(("Relu", True), ("Neg", True), ("Abs", True), ("Sigmoid", False), ("Tanh", False), ("Erf", False)),
        *(("LeakyRelu", True), ("HardSigmoid", False), ("Softplus", False), ("Floor", True), ("Ceil", True)),
        *(("Sign", True), ("Elu", False), ("Softsign", False), ("Sin", False), ("Identity", True), ("Gelu", False)),
    ),
    "float64": (("Relu", True), ("Neg", True), ("Abs", True), ("Sigmoid", False), ("Tanh", False), ("Floor", True)),
    "float16": (("Relu", True), ("Neg", True), ("Abs", True), ("Tanh", False), ("Sigmoid", False)),
    "int64": (("Neg", True), ("Abs", True), ("Sign", True)),
    "int32": (("Neg", True), ("Abs", True), ("Sign", True)),
    "bool": (("Not", True),),
    "uint8": (("BitwiseNot", True),),
}
BINARY = {
    **dict.fromkeys(("float32", "float64"), ("Add", "Sub", "Mul", "Max", "Min", "Sum", "Add")),
    "float16": ("Add", "Sub", "Max"),
    **dict.fromkeys(("int64", "int32"), ("Add", "Sub", "Mul", "Max", "Min")),
    "bool": ("And", "Or", "Xor"),
    "uint8": ("BitwiseAnd", "BitwiseOr", "BitwiseXor"),
}
ROUNDS = {"Floor", "Ceil", "Sign"}


def fixed(value: Val) -> bool:
    return value.grows is None


def partner(s: Scope, value: Val) -> Val:
    """A value that broadcasts with another one: itself, one that is there, or a new constant."""
    r = s.random
    if r.random() < 0.12:
        return value

    def fits(other: Val) -> bool:
        if other.dtype != value.dtype or other.rank > 5:
            return False
        if value.grows or other.grows:
            return (other.grows, other.shape) == (value.grows, value.shape) or (other.rank == 0 and not other.grows)
        pairs = zip(reversed(other.shape), reversed(value.shape))
        return all(a == b or 1 in (a, b) for a, b in pairs) and prod(_spread(other.shape, value.shape)) < 3000

    found = s.pick(fits) if r.random() < 0.75 else None
    if found is not None:
        return found
    shape = (
        () if value.grows else tuple(n if r.random() < 0.7 else 1 for n in value.shape[r.randrange(value.rank + 1) :])
    )
    held = [c for c in s.model.constants if c.dtype == value.dtype and c.shape == shape]
    if held and not s.function and r.random() < 0.5:
        return r.choice(held)
    return s.constant(s.numbers(value.dtype, shape))


def _spread(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(a, b))


@on(lambda v: v.dtype in UNARY)
def unary(s: Scope, value: Val) -> None:
    op, exact = s.random.choice(UNARY[value.dtype])
    if (op in ROUNDS and not value.exact) or (op == "Gelu" and s.model.opset < 20):
        return
    # Cast from half and back may be left out between two ops.
    exact = exact and value.exact and value.dtype != "float16"
    s.make(op, [value], replace(value, exact=exact, big=value.big + 1))


@on(lambda v: v.dtype in BINARY)
def binary(s: Scope, value: Val) -> None:
    other, op = partner(s, value), s.random.choice(BINARY[value.dtype])
    big = value.big * other.big if op == "Mul" else value.big + other.big
    if value.dtype not in ("uint8", "bool") and big > (1e4 if value.dtype != "float16" else 200):
        return
    exact = value.exact and other.exact and value.dtype != "float16"
    pair = [value, other] if s.random.random() < 0.6 else [other, value]
    more = [value] if op in ("Max", "Sum", "Min") and s.random.random() < 0.2 else []
    like = value if value.grows else replace(value, shape=_spread(value.shape, other.shape))
    s.make(op, pair + more, replace(like, exact=exact and not (more and op == "Sum"), big=big * 2))


@on(lambda v: v.dtype in ("float32", "float64", "int64", "int32"))
def divide(s: Scope, value: Val) -> None:
    by = s.constant(np.asarray(s.random.choice((2, 3, 4)), value.dtype))
    if value.dtype in FLOATS:
        s.make("Div", [value, by], value)
    elif s.random.choice((False, True)):
        s.make("Mod", [value, by], value)


@on(lambda v: v.exact and v.dtype in ("float32", "int64", "int32", "float64"))
def compare(s: Scope, value: Val) -> None:
    other = partner(s, value)
    if other.exact:
        op = s.random.choice(("Less", "Greater", "Equal", "LessOrEqual"))
        like = value if value.grows else replace(value, shape=_spread(value.shape, other.shape))
        s.make(op, [value, other], replace(like, dtype="bool", big=1))


@on(lambda v: v.dtype in ("float32", "float64", "int64", "int32", "uint8") and fixed(v))
def where(s: Scope, value: Val) -> None:
    other = partner(s, value)
    shape = _spread(value.shape, other.shape)
    chosen = s.pick(lambda v: v.dtype == "bool" and fixed(v) and _fits_into(v.shape, shape))
    chosen = chosen or s.constant(s.numbers("bool", shape[-1:]))
    pair = [value, other] if s.random.random() < 0.5 else [other, value]
    exact = value.exact and other.exact
    s.make("Where", [chosen, *pair], replace(value, shape=shape, exact=exact, big=max(value.big, other.big)))


def _fits_into(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    try:
        return _spread(small, shape) == shape
    except ValueError:
        return False


@on(lambda v: v.dtype in ("float32", "float64", "int64", "int32"))
def clip(s: Scope, value: Val) -> None:
    ends: list[Any] = [s.constant(np.asarray(n, value.dtype)) for n in (-2, 3)]
    ends[s.random.randrange(2)] = s.random.choice(("", ends[1]))
    if ends[0] == "" == ends[1] or (ends[0] != "" and ends[0] == ends[1]):
        return
    s.make("Clip", [value, *ends], replace(value, big=max(value.big, 3)))


@on(lambda v: True)
def cast(s: Scope, value: Val) -> None:
    floats = FLOATS[:2] if s.model.plain else FLOATS
    to = value.dtype if s.random.random() < 0.3 else s.random.choice((*floats, *INTS, "bool"))
    whole = to in (*INTS, "bool") and value.dtype in FLOATS
    if (whole and not value.exact) or (to == "uint8" and value.dtype not in ("uint8", "bool")):
        return
    if to == "float16" and value.big > 500:
        return
    exact = value.exact and (to == value.dtype or "float16" not in (to, value.dtype))
    s.make("Cast", [value], replace(value, dtype=to, exact=exact), to=tensor_type(to))


@on(lambda v: v.dtype in ("float32", "float64", "int32", "int64") and v.rank >= 1 and fixed(v) and v.big < 1e3)
def matmul(s: Scope, value: Val) -> None:
    n = value.shape[-1]
    other = s.pick(lambda v: v.dtype == value.dtype and v.rank == 2 and fixed(v) and v.shape[0] == n and v.big < 1e3)
    if other is None or s.random.random() < 0.3:
        other = s.constant(s.numbers(value.dtype, (n, s.random.randrange(1, 4))))
    big = value.big * other.big * max(n, 1)
    if big > 1e5:
        return
    exact = value.dtype in INTS and value.exact
    shape = (*value.shape[:-1], other.shape[1])
    if value.rank == 2 and value.dtype in FLOATS and s.random.random() < 0.5:
        bias = s.pick(lambda v: v.dtype == value.dtype and fixed(v) and _fits_into(v.shape, shape))
        s.make("Gemm", [value, other, *([bias] if bias else [])], Val("", value.dtype, shape, False, big + 50))
    else:
        s.make("MatMul", [value, other], Val("", value.dtype, shape, exact and other.exact, big))


@on(lambda v: v.dtype in ("float32", "float64", "int32", "int64") and v.rank > 0 and v.big < 1e4)
def reduce_some(s: Scope, value: Val) -> None:
    if 0 in value.shape:
        return
    op = s.random.choice(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum", "ReduceL2"))
    axis = s.random.randrange(value.rank)
    if value.grows and (axis == value.grows[1] and op != "ReduceSum"):
        return
    if value.dtype in INTS and op in ("ReduceMean", "ReduceL2"):
        op = "ReduceSum"
    keep = s.random.randrange(2)
    shape = tuple(n if i != axis else 1 for i, n in enumerate(value.shape) if i != axis or keep)
    grows = value.grows
    if grows:
        grows = None if grows[1] == axis else (grows[0], grows[1] - (not keep and axis < grows[1]))
        if grows and not keep:
            grows = (f"{grows[0]}r{axis}", grows[1])
    axes = s.constant(np.array([axis - value.rank * s.random.randrange(2)], np.int64))
    exact = value.exact and (op in ("ReduceMax", "ReduceMin") or value.dtype in INTS)
    like = Val("", value.dtype, shape, exact, value.big * 40, grows)
    s.make(op, [value, axes] if s.model.opset >= 18 or op == "ReduceSum" else [value], like, keepdims=keep)


@on(lambda v: v.dtype in ("float32", "float64") and v.rank > 0 and 0 not in v.shape)
def normalise(s: Scope, value: Val) -> None:
    if value.grows or value.dtype == "float64" or s.random.random() < 0.6:
        op = s.random.choice(("Softmax", "LogSoftmax"))
        axis = s.random.randrange(-value.rank, value.rank)
        s.make(op, [value], replace(value, exact=False, big=max(1.0, value.big * 2)), axis=axis)
        return
    scale = s.constant(s.numbers(value.dtype, value.shape[-1:]))
    bias = s.pick(lambda v: v.dtype == value.dtype and v.shape == value.shape[-1:] and fixed(v))
    names = [value.name, scale.name, *([bias.name] if bias else [])]
    outputs = s.emit("LayerNormalization", names, s.random.choice((1, 1, 2, 3)), epsilon=0.1)
    shapes = [value.shape, (*value.shape[:-1], 1), (*value.shape[:-1], 1)]
    for name, shape in zip(outputs, shapes):
        s.add(Val(name, value.dtype, shape, False, 50 + value.big))
