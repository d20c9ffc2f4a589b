"""Pasts that ops append to, and the inputs of the model from which they come."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from kvviz.graph.model import Node
from kvviz.trace.index.value_index import Index, Place
from kvviz.trace.schema.events import APPEND, NEW, POOL, VIEW, Grows, grown

# If a policy places outputs, these operators view packed values, and copy all others.
_PACKS = ("Reshape", "Flatten")


class Growth(NamedTuple):
    """A past of one step, the present that it becomes, and where the past comes from.

    ``frame, past``: the value.
    ``input``: the input of the model that it is, or was before others appended to it.
    ``steps``: the ops that append to it, in order, the step itself last.
    ``axis, rows``: the axis along which it grows, and the length of the present there.
    """

    frame: int
    past: str
    input: str
    steps: tuple[int, ...]
    axis: int
    rows: int


def growths(index: Index, run: int) -> list[Growth]:
    """Every append of a run whose past comes from an input of the model."""
    known: dict[int, list[Growth]] = index.notes.setdefault("growths", {})
    if run not in known:
        known[run] = []
        first, last = index.trace.runs[run].first, index.trace.runs[run].last
        for step in range(first, last):
            for grow in index.values.ops[step].grows:
                found = _growth(index, step, grow) if grow.output < index.values.counts[step] else None
                known[run] += [] if found is None else [found]
    return known[run]


def _growth(index: Index, step: int, grow: Grows) -> Growth | None:
    frame, name = int(index.values.frame[step]), index.values.ops[step].node.inputs[grow.input]
    present = index.rows.output(step, grow.output)
    longer = grown(index.places[frame, name].shape, None if present is None else present.shape)
    if longer is None or present is None or present.shape is None:
        return None
    steps, axis = [step], longer[0]
    source = _source(index, frame, name, axis, steps)
    return None if source is None else Growth(frame, name, source, tuple(reversed(steps)), axis, present.shape[axis])


def _source(index: Index, frame: int, name: str, axis: int, steps: list[int]) -> str | None:
    """The model's input from which a past comes, through bodies and the ops that append to it, added to ``steps``."""
    while True:
        place = index.places.get((frame, name))
        if place is None or place.shape is None:
            return None
        if place.bound:
            if place.bound in ("borrowed", "donated"):
                return name
            outer = index.outer(frame, name)
            if outer is None or place.bound == "weight" or _is_clone(place, index.places.get(outer)):
                return None
            frame, name = outer
            continue
        op = index.values.ops[place.step]
        node = op.node
        if op.control:
            inner = index.inner(frame, name)
            if inner is None:
                return None
            frame, name = inner
        elif place.how == VIEW and _is_same(node, place, index.places.get((frame, node.inputs[0]))):
            if index.trace.policy.places_outputs and node.op_type in _PACKS and prod(place.shape[:axis]) > 1:
                # The rows of a block with room have gaps, which these operators close in a new block.
                return None
            name = node.inputs[0]
        else:
            grow = next((g for g in op.grows if node.outputs[g.output] == name), None)
            if grow is None or place.how not in (APPEND, NEW, POOL):
                return None
            past = index.places[frame, node.inputs[grow.input]]
            longer = grown(past.shape, place.shape)
            if longer is None or longer[0] != axis:
                return None
            steps.append(place.step)
            name = node.inputs[grow.input]


def _is_clone(place: Place, outer: Place | None) -> bool:
    """Whether a frame got a copy in a block of its own, which has no room to grow."""
    return place.bound == "captured by value" and outer is not None and place.storage != outer.storage


def _is_same(node: Node, view: Place, viewed: Place | None) -> bool:
    """Whether a view keeps shape and strides, as a Cast to the same type does."""
    if viewed is None or (view.shape, view.offset, str(view.dtype)) != (viewed.shape, viewed.offset, str(viewed.dtype)):
        return False
    if node.op_type == "Slice" and any(stride < 0 for stride in view.strides or ()):
        # A single row may be reversed too, and a block with room is not.
        return False
    axes = list(range(len(view.shape or ())))
    return node.op_type != "Transpose" or list(node.attributes.get("perm", axes[::-1])) == axes
