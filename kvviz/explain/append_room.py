"""What has to change so that an op can append to its past: room behind it, in a block that the run owns.

The past has room if it is an input of the model that the caller put into a larger block, and if on its way to the op it
was neither copied, nor viewed in another way, nor extended by somebody else.
"""

from __future__ import annotations

from math import prod
from typing import Any

from kvviz.explain.changes import Capacity, Change, Donate, GrowAfter, Reserve
from kvviz.explain.sole_use import Unfixable
from kvviz.graph.model import Node
from kvviz.ops.registry import Grow
from kvviz.trace import blockers as b
from kvviz.trace.events import APPEND, NEW, POOL, VIEW
from kvviz.trace.lifetimes import Place
from kvviz.trace.value_index import Index

# Where a policy places outputs, they view what is packed, and copy everything else.
_PACKS = ("Reshape", "Flatten")
# What may be said of a past that only lacks room.
_FIXABLE = b.NO_CAPACITY | b.BORROWED_INPUT | b.POLICY


class Growth:
    """A past of one step, the present that it becomes, and where the past comes from.

    ``input``: the input of the model that it is, or was before others appended to it.
    ``steps``: the ops that append to it, in order; the last one is the step itself.
    ``rows``: length of the present along that axis.
    """

    __slots__ = ("axis", "input", "rows", "run", "steps")

    def __init__(self, index: Index, step: int, grow: Grow) -> None:
        row = index.rows[step]
        past = index.places[row.frame, row.op.node.inputs[grow.input]]
        self.axis, self.rows = _grown(past.shape, row.outs[grow.output].shape)
        self.run = index.frames[row.frame].run
        steps = [step]
        found = _source(index, row.frame, row.op.node.inputs[grow.input], self.axis, steps)
        if found is None:
            raise Unfixable("the past is no input")
        self.input = found
        self.steps = tuple(reversed(steps))


def make_room(index: Index, step: int, position: int) -> tuple[Change, ...]:
    """The changes after which a step appends to one of its pasts.

    Raises `Unfixable`: if no change would do.
    """
    row = index.rows[step]
    grow = next((g for g in row.op.grows if g.input == position), None)
    if grow is None or grow.output >= len(row.outs) or row.outs[grow.output] is None:
        raise Unfixable("the op does not append here")
    growth = Growth(index, step, grow)
    for earlier in growth.steps:
        _check_link(index, earlier)
    rivals = [other for other in growths(index, growth.run) if other.input == growth.input]
    if any(other.steps[-1] < step and other.steps[-1] not in growth.steps for other in rivals):
        raise Unfixable("another op appends first")
    if sum(other.steps[-1] == step for other in rivals) > 1:
        raise Unfixable("the op would append to it twice")
    # Those who append to what this op makes need room behind it.
    rows = max(other.rows for other in rivals if other.steps[: len(growth.steps)] == growth.steps)
    kind = index.trace.options.kind
    if kind == "decode":
        return _in_decode(index, growth)
    if kind != "run":
        raise Unfixable("the chunks of a stream are not reserved")
    main = index.path(row.frame)[0]
    borrowed = index.places[main, growth.input].bound == "borrowed"
    changes: list[Change] = []
    if not _has_room(index, growth, rows):
        changes.append(Reserve(growth.input, growth.axis, rows))
    elif _shares(index, main, growth.input):
        raise Unfixable("other inputs share the buffer")
    if borrowed:
        changes.append(Donate(growth.input))
    return tuple(changes)


def _check_link(index: Index, step: int) -> None:
    """An op that is to append must lack nothing but room."""
    row = index.rows[step]
    if any(mask & ~_FIXABLE for _, mask in row.masks):
        raise Unfixable("an op on the way cannot append")
    node = row.op.node
    past = index.places[row.frame, node.inputs[row.op.grows[0].input]]
    if node.op_type == "GroupQueryAttention" and past.shape is not None and past.shape[0] != 1:
        # Sequences of unequal length write into rows that the past has already.
        raise Unfixable("a batch need not append")


def growths(index: Index, run: int) -> list[Growth]:
    """Every append of a run whose past is an input of the model, if it has been there before with other rows."""
    known: dict[int, list[Growth]] = index.notes.setdefault("growths", {})
    if run not in known:
        known[run] = []
        first, last = index.trace.runs[run].first, index.trace.runs[run].last
        for step in range(first, last):
            row = index.rows[step]
            for grow in row.op.grows:
                if grow.output < len(row.outs) and row.outs[grow.output] is not None:
                    try:
                        known[run].append(Growth(index, step, grow))
                    except Unfixable:
                        continue
    return known[run]


def _source(index: Index, frame: int, name: str, axis: int, steps: list[int]) -> str | None:
    """The model's input that a past is, going back through bodies and through those who append to it (``steps``)."""
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
        row = index.rows[place.step]
        node = row.op.node
        if row.op.control:
            inner = index.inner(frame, name)
            if inner is None:
                return None
            frame, name = inner
        elif place.how == VIEW and _is_same(node, place, index.places.get((frame, node.inputs[0]))):
            if index.trace.policy.places_outputs and node.op_type in _PACKS and prod(place.shape[:axis]) > 1:
                # Between the rows of a block with room there are gaps, which these ops close in a new block.
                return None
            name = node.inputs[0]
        else:
            grow = next((g for g in row.op.grows if node.outputs[g.output] == name), None)
            if grow is None or place.how not in (APPEND, NEW, POOL):
                return None
            past = index.places[frame, node.inputs[grow.input]]
            if _grown(past.shape, place.shape)[0] != axis:
                return None
            steps.append(place.step)
            name = node.inputs[grow.input]


def _is_clone(place: Place, outer: Place | None) -> bool:
    """Whether a frame was given a block of its own, which has no room whatever the outer one has."""
    return place.bound == "captured by value" and outer is not None and place.storage != outer.storage


def _is_same(node: Node, view: Place, viewed: Place | None) -> bool:
    """Whether a view leaves shape and strides as they are, as that of a Cast to the same type does."""
    if viewed is None or (view.shape, view.offset, str(view.dtype)) != (viewed.shape, viewed.offset, str(viewed.dtype)):
        return False
    if node.op_type == "Slice" and any(stride < 0 for stride in view.strides or ()):
        # A single row is reversed, too, and a block with room is not.
        return False
    axes = list(range(len(view.shape or ())))
    return node.op_type != "Transpose" or list(node.attributes.get("perm", axes[::-1])) == axes


def _grown(past: tuple[int, ...] | None, present: tuple[int, ...] | None) -> tuple[int, int]:
    """(axis, length) of what a past became."""
    if past is None or present is None or len(past) != len(present):
        raise Unfixable("the shapes are not known")
    longer = [(axis, new) for axis, (old, new) in enumerate(zip(past, present)) if new != old]
    if len(longer) != 1 or longer[0][1] < past[longer[0][0]]:
        raise Unfixable("it does not grow along one axis")
    return longer[0]


def _has_room(index: Index, growth: Growth, rows: int) -> bool:
    """Whether the caller has put the input into a block with enough room."""
    layout = index.trace.options.layouts.get(growth.input)
    room = None if layout is None else layout.room
    return room is not None and room[0] == growth.axis and room[1] >= rows


def _shares(index: Index, main: int, name: str) -> bool:
    """Whether another input lies in the same memory, be it one that no op reads."""
    layouts = index.trace.options.layouts
    if name in layouts and any(o.block == layouts[name].block for other, o in layouts.items() if other != name):
        return True
    storage = index.places[main, name].storage
    return sum(bound.storage == storage for bound in index.frames[main].bindings) > 1


# -- decode -------------------------------------------------------------------------------------------------------


def _in_decode(index: Index, growth: Growth) -> tuple[Change, ...]:
    """Room for a cache: from the start where every run carries the block on, else made anew after a run."""
    trace, options = index.trace, index.trace.options
    cache = next((c for c in trace.caches if c.input == growth.input), None)
    if cache is None or cache.protocol != "growing" or cache.axis != growth.axis:
        raise Unfixable("the past is no growing cache")
    # A capacity is for caches that a decode makes itself.
    given = index.places[index.mains[0], cache.input].bound == "borrowed" or cache.input in options.donate
    capacity = options.kv_capacity or 0
    if not growth.run:
        if given or capacity >= growth.rows:
            raise Unfixable("it has room, or was given without")
        return (Capacity(options.rows),)
    if options.growth == "after":
        raise Unfixable("it gets room after every run")
    if not given and all(_carries_on(index, cache, run) for run in range(growth.run)):
        return () if capacity >= options.rows else (Capacity(options.rows),)
    return (GrowAfter(),)


def _carries_on(index: Index, cache: Any, run: int) -> bool:
    """Whether the present of a run lies in the block of its past, if that has room."""
    if run not in index.mains:
        # Its steps were not kept; it went as the others did.
        return True
    main = index.mains[run]
    steps: list[int] = []
    try:
        if _source(index, main, cache.output, cache.axis, steps) != cache.input:
            return False
        for step in steps:
            _check_link(index, step)
    except Unfixable:
        return False
    rivals = [growth.steps[-1] for growth in growths(index, run) if growth.input == cache.input]
    return all(step in steps or step > max(steps, default=-1) for step in rivals)
