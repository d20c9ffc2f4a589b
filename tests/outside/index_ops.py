"""Nodes that take or put elements by their indices, or find them."""

from dataclasses import replace

import numpy as np

from tests.outside.plain_ops import fixed
from tests.outside.scopes import Scope, Val, on


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
