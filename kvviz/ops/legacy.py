"""Operators of two tensors up to opset 6: B is broadcast to A only where ``broadcast`` says so, from ``axis`` on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.elementwise import div, power
from kvviz.ops.numeric import contiguous, keeps
from kvviz.ops.registry import op


def _aligned(a: np.ndarray, b: np.ndarray, axis: int | None, broadcast: int) -> np.ndarray:
    """B in a shape that NumPy broadcasts to A's."""
    if a.shape == b.shape:
        return b
    start = a.ndim - b.ndim if axis is None else axis + a.ndim * (axis < 0)
    fits = start >= 0 and all(n in (1, m) for n, m in zip(b.shape, a.shape[start:]))
    if b.size == 1 and broadcast:
        return b.reshape(())
    if not (broadcast and fits and start + b.ndim <= a.ndim):
        raise OpError(f"an operand of shape {b.shape} cannot be broadcast to {a.shape} from axis {axis}")
    return b.reshape(*b.shape, *(1,) * (a.ndim - start - b.ndim))


def _old(apply: Callable) -> Callable:
    def kernel(a, b, *, axis=None, broadcast=0, out=None):
        return contiguous(apply(a, _aligned(a, b, axis, broadcast), out=out))

    kernel.__name__ = f"old_{apply.__name__}"
    return kernel


def _old_test(apply: Callable) -> Callable:
    def kernel(a, b, *, axis=None, broadcast=0):
        return contiguous(apply(a, _aligned(a, b, axis, broadcast)))

    kernel.__name__ = f"old_{apply.__name__}"
    return kernel


for _name, _apply in (
    ("Add", np.add),
    ("Sub", np.subtract),
    ("Mul", np.multiply),
    ("Div", div),
    ("Pow", power),
    ("And", np.logical_and),
    ("Or", np.logical_or),
    ("Xor", np.logical_xor),
):
    op(_name, since=1, overwrites=(0,), fits=keeps)(_old(_apply))
for _name, _apply in (("Equal", np.equal), ("Greater", np.greater), ("Less", np.less)):
    op(_name, since=1)(_old_test(_apply))
