"""What has to change so that rten runs an op in place: its rules ask more than memory safety does.

Every in-place input that is present must be free, not one of them; of a commutative op only one operand is tried; and
an op that is called in place still allocates if its buffer cannot hold the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.explain.append_room import make_room
from kvviz.explain.changes import Change, Donate, Swap
from kvviz.explain.plans import plan_of, planned_of
from kvviz.explain.row_major import is_row_major
from kvviz.explain.sole_use import Clearing, Unfixable
from kvviz.runtimes.policy_data import policy_of
from kvviz.runtimes.rten.dispatch_rule import NOT_TRIED
from kvviz.runtimes.rten.rten_policy import BY_REFERENCE
from kvviz.trace import blockers as b
from kvviz.trace.events import IN_PLACE, VIEW
from kvviz.trace.value_index import Index

_CLEARED = b.NOT_LAST_USE | b.REQUESTED_OUTPUT | b.BORROWED_INPUT | b.CAPTURED_BY_REFERENCE | b.ALIASED
_NOTHING = b.OTHER_INPUT_BUSY | NOT_TRIED


def under_rten(index: Index, step: int, position: int, mask: int) -> tuple[Change, ...]:
    """The changes after which rten runs a step in place, in the storage of one of its inputs.

    ``mask``: why the input was refused, or could not hold the output of an op that was called in place.

    Raises `Unfixable`: if no change would do.
    """
    row = index.rows[step]
    if row.taken:
        if mask != b.NO_CAPACITY:
            raise Unfixable("its buffer cannot hold the output")
        return make_room(index, step, position)
    notes = planned_of(index, row).notes
    if notes.commutative:
        return _for_one_operand(index, step, position)
    changes: dict[Change, None] = {}
    for i, _ in notes.candidates:
        changes.update(dict.fromkeys(_free(index, step, i)))
    if any(grow.input == position for grow in row.op.grows):
        changes.update(dict.fromkeys(make_room(index, step, position)))
    elif not _holds_output(index, step, position):
        raise Unfixable("its buffer could not hold the output")
    return tuple(changes)


def _for_one_operand(index: Index, step: int, position: int) -> tuple[Change, ...]:
    """A commutative op tries the operand with the most elements, of equal ones the last."""
    row = index.rows[step]
    changes = _free(index, step, position)
    if not _holds_output(index, step, position):
        raise Unfixable("its buffer could not hold the output")
    if "one_operand" not in index.trace.policy.options:
        return changes
    donated = {change.input for change in changes if isinstance(change, Donate)}
    scores = {i: _elements(index, step, i, donated) for i, _ in planned_of(index, row).notes.candidates}
    tried = max(scores, key=lambda i: (scores[i], i))
    if tried == position:
        return changes
    if sorted(scores) != [0, 1] or scores[0] != scores[1]:
        raise Unfixable("the other operand is larger")
    return (*changes, Swap(index.frames[row.frame].program.graph.path, row.op.node.index))


def _elements(index: Index, step: int, position: int, donated: set[str]) -> int:
    """Elements of an operand that rten takes for its own; captured and lent ones count as empty."""
    row = index.rows[step]
    name = row.op.node.inputs[position]
    place = index.places[row.frame, name]
    plan = plan_of(index, row.frame)
    if (
        place.shape is None
        or plan.slots[name] in plan.notes.captured
        or place.bound in ("weight", "captured by reference")
    ):
        return 0
    main = index.path(row.frame)[0]
    for bound, storage, _, how, *_ in index.frames[main].bindings:
        if storage == place.storage and (how == "weight" or (how == "borrowed" and bound not in donated)):
            return 0
    return int(np.prod(place.shape, dtype=np.int64))


def _free(index: Index, step: int, position: int) -> tuple[Change, ...]:
    """The changes after which an input has no other use, and belongs to this run."""
    mask = dict(index.rows[step].masks).get(position, 0) & ~_NOTHING
    if mask & ~_CLEARED:
        raise Unfixable("no change of the run would do")
    if not mask:
        return ()
    return tuple(Clearing(index, step, position, handed_over, copies_views=True).changes)


def handed_over(index: Index, frame: int, name: str) -> str:
    """How a body takes over a value of the outer frame: an If what one of its bodies names, once."""
    row = index.frames[frame]
    caller = row.caller
    if caller.control != "If" or name in caller.node.inputs or (frame, name) not in index.places:
        return ""
    if BY_REFERENCE in index.trace.policy.options:
        return ""
    here = index.places[frame, name].storage
    others = (index.places.get((row.parent, other)) for other in caller.node.captures if other != name)
    if any(other is not None and other.storage == here for other in others):
        # The body holds the storage by two names, and lets go of neither before it is over.
        return ""
    parent = plan_of(index, row.parent)
    planned, slot = parent.order[caller.position], parent.slots.get(name, 0)
    return "as it is" if planned.reads.get(slot) == 1 and slot not in parent.notes.sticky else ""


def _holds_output(index: Index, step: int, position: int) -> bool:
    """Whether the output would live in an input's buffer, as the policy's own rule says of arrays of the same kind."""
    row = index.rows[step]
    planned = planned_of(index, row)
    weights = index.frames[row.frame].program.graph.weights
    args: list[Any] = []
    for name in planned.node.inputs:
        place = index.places.get((row.frame, name))
        if place is None:
            args.append(None)
        elif place.shape is None:
            return False
        elif name in weights and place.bound == "weight":
            args.append(weights[name])
        else:
            args.append(_array(place, is_row_major(index, row.frame, name)))
    if planned.node.op_type == "Slice" and any(
        arg is not None and name not in weights for name, arg in _steps(planned, args)
    ):
        return False
    outs = tuple(None if out is None else np.empty(out.shape or (), out.dtype) for out in row.outs)
    policy: Any = policy_of(index.trace)
    homes = policy.homes(None, None, planned, args, outs, (position,))
    return homes[0].how in (VIEW, IN_PLACE)


def _array(place: Any, row_major: bool) -> np.ndarray:
    """An array like a value. What may not be row-major is taken to be transposed, and a vector to have gaps."""
    if row_major:
        return np.empty(place.shape, place.dtype)
    if sum(n != 1 for n in place.shape) < 2:
        return np.empty((*place.shape, 2), place.dtype)[..., 0]
    return np.empty(place.shape[::-1], place.dtype).T


def _steps(planned: Any, args: list[Any]) -> list[tuple[str, Any]]:
    return list(zip(planned.node.inputs, args))[4:5]
