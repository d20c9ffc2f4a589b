"""Whether a change that makes a runtime plan anew still lets an op have its input for itself.

Dropping an output or exchanging operands changes what a planner sees, so its whole order may be another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.engine.plan import needed
from kvviz.engine.policy import Schedule
from kvviz.errors import KvvizError
from kvviz.explain.changes import Change, Drop, Swap, arguments, asked
from kvviz.explain.fix_wording import graph_at
from kvviz.explain.plans import planned_of
from kvviz.explain.row_major import is_row_major
from kvviz.explain.sole_use import Unfixable
from kvviz.graph.model import Graph, Node
from kvviz.runtimes.policy_data import policy_of
from kvviz.trace.value_index import Index


def check_order(index: Index, step: int, position: int, changes: Sequence[Change], picked: bool) -> None:
    """Raise `Unfixable` if, in the order as planned anew, another op would read the input's bytes later.

    ``step, position``: the op and its input.
    ``picked``: as in `kvviz.explain.changes.arguments`.
    """
    trace = index.trace
    # The model's own order does not depend on what is asked for.
    stays = Swap if trace.policy.schedule == ("model",) and not picked else (Drop, Swap)
    if not any(isinstance(change, stays) for change in changes):
        return
    policy = policy_of(trace)
    assert policy is not None
    told = arguments(trace, changes, picked, policy)
    graph: Graph = told.get("graph", trace.graph)
    schedule: Schedule = told.get("policy", policy).schedule
    row = index.rows[step]
    path = index.path(row.frame)
    nodes = [index.frames[frame].caller.node for frame in path[1:]] + [row.op.node]
    place = index.places[row.frame, row.op.node.inputs[position]]
    members = index.members[place.storage, place.contents]
    moved = False
    for frame, node in zip(path, nodes):
        inside = graph_at(graph, index.frames[frame].program.graph.path)
        outputs = tuple(told.get("outputs", asked(trace))) if frame == path[0] else index.outputs(frame)
        try:
            order = schedule(inside, needed(inside, outputs), outputs)
        except KvvizError:
            raise Unfixable("the order cannot be told beforehand") from None
        moved = moved or [n.index for n in order] != [op.node.index for op in index.frames[frame].program.order]
        names = [name for at, name in members if at == frame and _was_there(index, at, name, node)]
        if not _is_last(inside, [n.index for n in order], node, names, outputs):
            raise Unfixable("another op would read it later")
    plans = trace.policy.base == "onnxruntime"
    # What has planned all memory beforehand never leaves gaps.
    if moved and not plans and not _is_always_row_major(index, row.frame, row.op.node.inputs[position]):
        raise Unfixable("it may be laid out in another way")


_ROW_MAJOR_VIEWS = {"BitCast", "Cast", "CastLike", "Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
"""Views that are row-major if what they view is."""


def _is_always_row_major(index: Index, frame: int, name: str) -> bool:
    """Whether a value is row-major whichever of the ops before it are run in place, as another order lets others be.

    What appends to its past, and what cuts a part out of its input, leaves gaps; other ops do where theirs has some.
    """
    stack, seen = [(frame, name)], set()
    while stack:
        key = stack.pop()
        place = index.places.get(key)
        if place is None:
            return False
        if key in seen:
            continue
        seen.add(key)
        if place.bound:
            outer = index.outer(*key)
            if outer is not None and place.bound != "weight":
                stack.append(outer)
            elif not is_row_major(index, *key):
                return False
            continue
        row = index.rows[place.step]
        planned = planned_of(index, row)
        node = planned.node
        # What may be run in place by the rules of a runtime is in its notes, and nothing else is a view there.
        noted = getattr(planned.notes, "candidates", None)
        taken = (*planned.views, *(i for i, _ in planned.candidates)) if noted is None else tuple(i for i, _ in noted)
        cuts = bool(planned.views and taken) and node.op_type not in _ROW_MAJOR_VIEWS
        if planned.control or planned.grows or cuts:
            return False
        stack += [(key[0], node.inputs[position]) for position in taken]
    return True


def _was_there(index: Index, frame: int, name: str, node: Node) -> bool:
    place = index.places[frame, name]
    return bool(place.bound) or place.step < index.step_of[frame, node.index]


def _is_last(graph: Graph, order: list[int], node: Node, names: Sequence[str], outputs: Any) -> bool:
    """Whether no reader of these values comes after a node, and nobody asks for them."""
    if node.index not in order:
        return False
    later = set(order[order.index(node.index) + 1 :])
    read = {reader.index for name in names for reader in graph.consumers.get(name, ())}
    return not (read & later) and not set(names) & set(outputs)
