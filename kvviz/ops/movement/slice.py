"""Cutting and joining: Slice and Split give views; Concat and Pad write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import check_size, counted, distinct, ints, scalar
from kvviz.ops.registry import Grow, op


@op("Slice", views=(0,), moves=True, by_element=True)
def slice_(x, first=None, last=None, where=None, step=None, *, starts=None, ends=None, axes=None):
    """Slice-1 (attributes) to 13. Bounds are clamped to the axis; a negative step runs backwards."""
    begin, end = ints(first, starts), ints(last, ends)
    places, steps = ints(where, axes), ints(step)
    if begin is None or end is None or len(begin) != len(end):
        raise OpError(f"starts {begin} and ends {end} differ in number")
    places = list(range(len(begin))) if places is None else distinct(places, x.ndim)
    steps = [1] * len(begin) if steps is None else steps
    if len(places) != len(begin) or len(steps) != len(begin):
        raise OpError(f"starts {begin}, axes {places} and steps {steps} differ in number")
    if len(begin) > x.ndim:
        raise OpError(f"starts {begin} name more axes than a tensor of shape {x.shape} has")
    if 0 in steps:
        raise OpError(f"a step of 0 among steps {steps} goes nowhere")
    index = [slice(None)] * x.ndim
    for axis, b, e, s in zip(places, begin, end, steps):
        # Running backwards, a start before the first element counts as the first; Python would return nothing.
        index[axis] = slice(max(b, -x.shape[axis]) if s < 0 else b, e, s)
    return x[tuple(index)]


@op("Split", views=(0,), moves=True, by_element=True)
def split(x, lengths=None, *, axis=0, split=None, num_outputs=None, n_outputs=None, opset=18):
    """Split-1 to 18: by lengths (input or attribute), or in ``num_outputs`` parts of which the last may be shorter."""
    axis = counted(axis, x.ndim)
    total = x.shape[axis]
    sizes = ints(lengths, split)
    if sizes is None:
        parts = num_outputs or n_outputs or 1
        chunk = -(-total // parts)
        sizes = [chunk] * (parts - 1) + [total - chunk * (parts - 1)]
        if (sizes[-1] != chunk and opset < 18) or sizes[-1] < 0:
            raise OpError(f"axis {axis} of length {total} does not split into {parts} parts")
    if sum(sizes) != total or min(sizes, default=0) < 0:
        raise OpError(f"lengths {sizes} do not add up to {total}, the length of axis {axis}")
    if n_outputs is not None and len(sizes) != n_outputs:
        raise OpError(f"a split into {len(sizes)} parts, {sizes}, does not fit a node that names {n_outputs} outputs")
    return tuple(x[(slice(None),) * axis + (slice(b, e),)] for b, e in pairwise(accumulate(sizes, initial=0)))


def _concat_axis(args: Sequence[Any], attributes: dict) -> int:
    return counted(attributes.get("axis", 1), args[0].ndim)


def _concat_rows(args: Sequence[Any], attributes: dict) -> int:
    axis = _concat_axis(args, attributes)
    return sum(x.shape[axis] for x in args[1:])


def _concat_cost(args: Sequence[Any], outs: Any, in_place: bool, attributes: dict) -> tuple[int, int]:
    """The first operand, which an append would leave in place, counts as copied."""
    first = args[0].nbytes
    others = sum(x.nbytes for x in args[1:])
    return (others, 0) if in_place else (first + others, first)


@op(
    "Concat",
    moves=True,
    grows=(Grow(0, 0, _concat_axis, _concat_rows, reads=False),),
    cost=_concat_cost,
    by_element=True,
)
def concat(*xs, axis=1, grown=None):
    """Join along an axis. With room after the first operand only the others are written."""
    try:
        if grown is None or grown[0] is None:
            result = np.concatenate(xs, axis)
            # NumPy keeps the order of transposed operands, so the result may not be in C order.
            if not result.flags.c_contiguous:
                result = np.concatenate(xs, axis, out=np.empty(result.shape, result.dtype))
            return result
        present = grown[0]
        axis = counted(axis, present.ndim)
        ends = accumulate(x.shape[axis] for x in xs)
        for x, (start, end) in zip(xs[1:], pairwise(ends)):
            present[(slice(None),) * axis + (slice(start, end),)] = x
        return present
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in xs)
        raise OpError(f"shapes {shapes} do not join along axis {axis}") from None


@op("Pad", moves=True)
def pad(x, amounts=None, fill=None, where=None, *, mode="constant", value=0.0, pads=None, paddings=None):
    """Pad-1 to 25: constant, reflect, edge or wrap. A negative amount crops, before any padding is made."""
    counts = ints(amounts, pads if pads is not None else paddings) or []
    places = range(x.ndim) if where is None else distinct(where.tolist(), x.ndim)
    if len(counts) != 2 * len(places):
        raise OpError(f"pads {counts} must be two numbers for each of the {len(places)} axes")
    befores, afters = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(places):
        befores[axis], afters[axis] = counts[i], counts[i + len(places)]
    cut = tuple(slice(-min(b, 0), n + min(a, 0)) for n, b, a in zip(x.shape, befores, afters))
    if any(s.start > s.stop for s in cut):
        raise OpError(f"pads {counts} cut more than a tensor of shape {x.shape} has")
    core = x[cut]
    befores, afters = [max(b, 0) for b in befores], [max(a, 0) for a in afters]
    check_size((b + n + a for b, n, a in zip(befores, core.shape, afters)), x.dtype)
    if mode == "constant":
        constant = value if fill is None else scalar(fill, "constant_value")
        result = np.full([b + n + a for b, n, a in zip(befores, core.shape, afters)], constant, x.dtype)
        result[tuple(slice(b, b + n) for b, n in zip(befores, core.shape))] = core
        return result
    for axis, (before, after) in enumerate(zip(befores, afters)):
        if before or after:
            core = core.take(_sources(core.shape[axis], before, after, mode), axis)
    return core if core.base is None and core is not x else core.copy()


@lru_cache(maxsize=256)
def _sources(length: int, before: int, after: int, mode: str) -> np.ndarray:
    """Which element of an axis stands at each place of the padded axis."""
    places = np.arange(-before, length + after)
    if length == 0:
        raise OpError(f"an empty axis has nothing to pad with in mode {mode!r}")
    if mode == "edge":
        return places.clip(0, length - 1)
    if mode == "wrap":
        return places % length
    if mode != "reflect":
        raise OpError(f"mode {mode!r} is none of constant, reflect, edge, wrap")
    period = max(2 * (length - 1), 1)
    places %= period
    return np.minimum(places, period - places) if length > 1 else places
