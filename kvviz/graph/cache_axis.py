"""The sequence axis of a cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvviz.graph.model import Node, Value
from kvviz.graph.trace_back import Frame, Write, constant


def sequence_axis(before: Value, after: Value, carrying: Sequence[Write], protocol: str) -> int | None:
    """The sequence axis of a cache, from 0: where its writers work, seen through the views behind them."""
    shape = after.shape if after.shape is not None else before.shape
    if shape is None:
        return next((write.axis for write in carrying if not write.chain), None)
    for write in carrying:
        if write.node is not None:
            if write.axis is None:
                return None
            axes = _axes_at(write, len(shape))
            axis = _scattered_axis(write) if write.node.op_type == "ScatterND" else write.axis
            if axes and axis is not None and -len(axes) <= axis < len(axes) and axes[axis] is not None:
                return axes[axis]
    if before.shape and after.shape and protocol != "cross":
        different = [i for i, (a, b) in enumerate(zip(before.shape, after.shape)) if a != b]
        if len(different) == 1:
            return different[0]
    # Where all else fails, the layout that exporters use: (batch, heads, rows, size), packed, or both halves in one.
    return {3: 1, 4: 2, 5: 3}.get(len(shape))


def _axes_at(write: Write, rank: int) -> list[int | None]:
    """For each axis of the writer's output the axis of the cache that it becomes; empty where that is unclear."""
    axes: list[int | None] = list(range(rank))
    for node in write.chain:
        if node.op_type == "Transpose":
            perm = node.attributes.get("perm") or tuple(reversed(range(len(axes))))
            if sorted(perm) != list(range(len(axes))):
                return []
            inner: list[int | None] = [None] * len(axes)
            for place, axis in enumerate(perm):
                inner[axis] = axes[place]
            axes = inner
        elif node.op_type in ("Unsqueeze", "Squeeze"):
            places = _places(write.frame, node)
            if places is None:
                return []
            full = len(axes) + (len(places) if node.op_type == "Squeeze" else 0)
            there = {place % full for place in places} if full else set()
            if node.op_type == "Unsqueeze":
                axes = [axis for place, axis in enumerate(axes) if place not in there]
            else:
                left = iter(axes)
                axes = [None if place in there else next(left, None) for place in range(full)]
        elif node.op_type in ("Reshape", "Flatten"):
            return []
    return axes


def _places(frame: Frame, node: Node) -> list[int] | None:
    if "axes" in node.attributes:
        return [int(axis) for axis in node.attributes["axes"]]
    array = constant(frame, node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    return None if array is None else [int(axis) for axis in np.ravel(array)]


def _scattered_axis(write: Write) -> int | None:
    """The last axis that ScatterND's indices address; None where their length is not known."""
    assert write.node is not None
    frame, name = write.frame, write.node.inputs[1]
    maker = frame.graph.producers.get(name)
    if maker is not None and maker.op_type == "Unsqueeze":
        return 0
    if maker is not None and maker.op_type == "Concat":
        return len(maker.inputs) - 1
    array = constant(frame, name)
    shape = array.shape if array is not None else getattr(frame.graph.value_info.get(name), "shape", None)
    return shape[-1] - 1 if shape and isinstance(shape[-1], int) else None
