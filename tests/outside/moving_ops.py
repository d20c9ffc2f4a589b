"""Nodes that move elements or show them in another shape, and those that take, put or find them by indices."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tests.outside.plain_ops import fixed
from tests.outside.scopes import Scope, Val, on

FAR = 2**62


def _ints(s: Scope, *numbers: int) -> Val:
    return s.constant(np.array(numbers, np.int64))


@on(fixed)
def reshape(s: Scope, value: Val) -> None:
    size, r = prod(value.shape), s.random
    ways: list[tuple[int, ...]] = [(size,), (1, size), (size, 1), value.shape[::-1]]
    ways += [(size // n, n) for n in (2, 3) if size and size % n == 0]
    shape = r.choice(ways)
    asked = list(shape)
    if size and asked and r.random() < 0.4:
        asked[r.randrange(len(asked))] = -1
    if r.random() < 0.2:
        # The shape is that of another value, worked out while the model runs.
        other = s.pick(lambda v: fixed(v) and prod(v.shape) == size)
        if other is not None:
            s.make("Reshape", [value, s.emit("Shape", [other.name])[0]], replace(value, shape=other.shape))
            return
    zero = {"allowzero": 1} if 0 in shape else {}
    s.make("Reshape", [value, _ints(s, *asked)], replace(value, shape=shape), **zero)


@on(lambda v: v.rank > 0)
def transpose(s: Scope, value: Val) -> None:
    order = list(range(value.rank))
    s.random.shuffle(order)
    grows = (value.grows[0] + "t" + "".join(map(str, order)), order.index(value.grows[1])) if value.grows else None
    like = replace(value, shape=tuple(value.shape[i] for i in order), grows=grows)
    s.make("Transpose", [value], like, perm=order)


@on(lambda v: v.rank > 0)
def slice_some(s: Scope, value: Val) -> None:
    r = s.random
    axis, step = r.randrange(value.rank), r.choice((1, 1, 1, 2, -1, -2))
    n = value.shape[axis]
    if value.grows and value.grows[1] == axis:
        if step not in (1, -1):
            return
        start, stop = (0, FAR) if step > 0 else (-1, -FAR)
        like = value
    else:
        start, stop = (
            (r.randrange(0, n + 1), r.choice((n, FAR, -1, n - 1))) if step > 0 else (-1, r.choice((-FAR, 0, -n)))
        )
        length = len(range(n)[slice(start, None if stop <= -FAR else stop, step)])
        like = replace(value, shape=(*value.shape[:axis], length, *value.shape[axis + 1 :]))
        if value.grows:
            like = replace(like, grows=(f"{value.grows[0]}s{axis}_{length}", value.grows[1]))
    numbers: list[Any] = [_ints(s, n) for n in (start, stop, axis - value.rank * r.randrange(2))]
    if axis == 0 and step == 1 and r.random() < 0.4:
        numbers = numbers[:2]
    elif step != 1 or r.random() < 0.3:
        numbers.append(_ints(s, step))
    s.make("Slice", [value, *numbers], like)


@on(lambda v: fixed(v) and v.rank < 5)
def unsqueeze(s: Scope, value: Val) -> None:
    if 1 in value.shape and s.random.random() < 0.5:
        axis = value.shape.index(1)
        shape = (*value.shape[:axis], *value.shape[axis + 1 :])
        s.make("Squeeze", [value, _ints(s, axis)], replace(value, shape=shape))
        return
    axis = s.random.randrange(value.rank + 1)
    s.make("Unsqueeze", [value, _ints(s, axis)], replace(value, shape=(*value.shape[:axis], 1, *value.shape[axis:])))


@on(fixed)
def flatten(s: Scope, value: Val) -> None:
    axis = s.random.randrange(value.rank + 1)
    shape = (prod(value.shape[:axis]), prod(value.shape[axis:]))
    s.make("Flatten", [value], replace(value, shape=shape), axis=axis)


@on(lambda v: fixed(v) and prod(v.shape) < 200 and v.rank < 5)
def expand(s: Scope, value: Val) -> None:
    shape = tuple(n if n != 1 else s.random.choice((1, 2, 3)) for n in value.shape)
    if s.random.random() < 0.3:
        shape = (2, *shape)
    if s.random.random() < 0.8:
        s.make("Expand", [value, _ints(s, *shape)], replace(value, shape=shape))
    elif value.rank:
        times = [s.random.choice((1, 1, 2)) for _ in value.shape]
        repeated = tuple(n * t for n, t in zip(value.shape, times))
        s.make("Tile", [value, _ints(s, *times)], replace(value, shape=repeated))


@on(lambda v: v.rank > 0 and v.grows is None)
def split(s: Scope, value: Val) -> None:
    axis = s.random.randrange(value.rank)
    n = value.shape[axis]
    first = s.random.randrange(0, n + 1)
    parts = [first, n - first] if s.random.random() < 0.7 else [0, first, n - first]
    names = s.emit("Split", [value.name, _ints(s, *parts).name], len(parts), axis=axis)
    for name, part in zip(names, parts):
        s.add(replace(value, name=name, shape=(*value.shape[:axis], part, *value.shape[axis + 1 :])))


@on(lambda v: True)
def identity(s: Scope, value: Val) -> None:
    op = s.random.choice(("Identity", "Identity", "Dropout")) if value.dtype == "float32" else "Identity"
    s.make(op, [value], value)


@on(lambda v: v.rank > 0 and prod(v.shape) < 500)
def concat(s: Scope, value: Val) -> None:
    axis = value.grows[1] if value.grows else s.random.randrange(value.rank)
    rest = (value.shape[:axis], value.shape[axis + 1 :])

    def joins(v: Val) -> bool:
        alike = (v.dtype, v.rank) == (value.dtype, value.rank)
        return fixed(v) and alike and (v.shape[:axis], v.shape[axis + 1 :]) == rest

    more = [s.pick(joins) or value for _ in range(s.random.choice((1, 1, 2)))]
    if value.grows:
        more = [v if fixed(v) else s.constant(s.numbers(value.dtype, (*rest[0], 1, *rest[1]))) for v in more]
    length = sum(v.shape[axis] for v in more)
    grows = (f"{value.grows[0]}c{length}", axis) if value.grows else None
    parts = [value, *more]
    if s.random.random() < 0.25 and not value.grows:
        s.random.shuffle(parts)
    like = Val("", value.dtype, (*rest[0], value.shape[axis] + length, *rest[1]), all(v.exact for v in parts))
    like = replace(like, big=max(v.big for v in parts), grows=grows)
    s.make("Concat", parts, like, axis=axis - value.rank * s.random.randrange(2))


@on(lambda v: v.rank > 0 and fixed(v) and v.dtype in ("float32", "int64", "float64", "int32"))
def pad(s: Scope, value: Val) -> None:
    if 0 in value.shape:
        return
    ends = [s.random.choice((0, 0, 1, 2)) for _ in range(2 * value.rank)]
    mode = s.random.choice(("constant", "constant", "edge"))
    if mode == "constant" and s.random.random() < 0.3 and value.shape[0] > 1:
        ends[0] = -1
    shape = tuple(n + ends[i] + ends[i + value.rank] for i, n in enumerate(value.shape))
    s.make("Pad", [value, _ints(s, *ends)], replace(value, shape=shape), mode=mode)


@on(fixed)
def about_shape(s: Scope, value: Val) -> None:
    way = s.random.randrange(4)
    if way == 0 and value.rank:
        s.make("Shape", [value], Val("", "int64", (value.rank,), big=3000.0))
    elif way == 1:
        s.make("Size", [value], Val("", "int64", (), big=3000.0))
    elif value.rank:
        (shape,) = s.emit("Shape", [value.name])
        if way == 2:
            n = value.shape[0]
            (length,) = s.emit("Gather", [shape, s.constant(np.array(0, np.int64)).name])
            ends = [s.constant(np.array(k, np.int64)) for k in (0, 1)]
            s.make("Range", [ends[0], length, ends[1]], Val("", "int64", (n,), big=max(n, 1)))
        else:
            s.make("ConstantOfShape", [shape], Val("", "float32", value.shape, big=1.0))


def _index(s: Scope, n: int, shape: tuple[int, ...]) -> Val:
    """Indices below n: fixed ones, or worked out from a value."""
    found = s.pick(lambda v: v.dtype == "int64" and v.shape == shape and fixed(v) and v.exact)
    if found is not None and s.random.random() < 0.5:
        size = s.make("Abs", [found], found)
        return s.make("Mod", [size, s.constant(np.array(n, np.int64))], replace(found, big=n))
    return s.constant(np.random.default_rng(s.random.getrandbits(32)).integers(-n, n, shape).astype(np.int64))


@on(lambda v: v.rank > 0 and 0 not in v.shape and fixed(v))
def gather(s: Scope, value: Val) -> None:
    axis, op = s.random.randrange(value.rank), s.random.choice(("Gather", "GatherElements", "GatherND"))
    n = value.shape[axis]
    if op == "Gather":
        index = _index(s, n, s.random.choice(((), (2,), (1, 2), (0,))))
        like = replace(value, shape=(*value.shape[:axis], *index.shape, *value.shape[axis + 1 :]))
        s.make(op, [value, index], like, axis=axis)
    elif op == "GatherElements":
        shape = tuple(m if i != axis else s.random.choice((1, 2, m)) for i, m in enumerate(value.shape))
        s.make(op, [value, _index(s, n, shape)], replace(value, shape=shape), axis=axis)
    else:
        index = _index(s, value.shape[0], (s.random.choice((1, 2)), 1))
        s.make(op, [value, index], replace(value, shape=(index.shape[0], *value.shape[1:])))


@on(lambda v: v.rank > 0 and 0 not in v.shape and fixed(v) and v.dtype in ("float32", "int64", "float64"))
def scatter(s: Scope, value: Val) -> None:
    r, n = s.random, value.shape[0]
    adds = {"reduction": "add"} if r.random() < 0.25 and value.exact else {}
    draw = np.random.default_rng(r.getrandbits(32))
    if r.random() < 0.5:
        rows = draw.permutation(n)[: r.randrange(1, n + 1)].astype(np.int64)
        shape: tuple[int, ...] = (len(rows), *value.shape[1:])
        index = s.constant(rows[:, None])
        op, extra = "ScatterND", {}
    else:
        axis = r.randrange(value.rank)
        m = value.shape[axis]
        column = draw.permutation(m)[: r.randrange(1, m + 1)].astype(np.int64)
        shape = tuple(len(column) if i == axis else k for i, k in enumerate(value.shape))
        spread = [1] * value.rank
        spread[axis] = len(column)
        index = s.constant(np.broadcast_to(column.reshape(spread), shape))
        op, extra = "ScatterElements", {"axis": axis}
    updates = s.pick(lambda v: v.dtype == value.dtype and v.shape == shape and fixed(v) and v.big < 1e4)
    updates = updates or s.constant(s.numbers(value.dtype, shape))
    like = replace(value, exact=value.exact and updates.exact, big=value.big + updates.big)
    if like.big < 1e4:
        s.make(op, [value, index, updates], like, **extra, **adds)


@on(lambda v: v.rank > 0 and fixed(v) and v.exact and v.dtype in ("float32", "int64") and 0 not in v.shape)
def ordered(s: Scope, value: Val) -> None:
    axis = s.random.randrange(value.rank)
    shape = tuple(1 if i == axis else n for i, n in enumerate(value.shape))
    way = s.random.randrange(3)
    if way == 0:
        s.make("ArgMax", [value], Val("", "int64", shape, big=9.0), axis=axis, keepdims=1)
    elif way == 1:
        at = s.constant(np.array(axis, np.int64))
        s.make("CumSum", [value, at], replace(value, exact=value.dtype == "int64", big=value.big * 9))
    else:
        k = s.constant(np.array([1], np.int64))
        names = s.emit("TopK", [value.name, k.name], 2, axis=axis)
        s.add(replace(value, name=names[0], shape=shape))
