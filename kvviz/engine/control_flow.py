"""Control nodes: entering an If branch, a loop body or a local function, and leaving it again.

Captures and arguments are passed *by value* (the body takes them over) if the outer frame no longer needs them, else
*by reference*. A loop body may be entered again, so its captures are passed by reference.
"""

from __future__ import annotations

import numpy as np

from kvviz.engine import loop_bodies
from kvviz.engine.body_frames import body_plan, capture, finish, hand_out, own_outputs, pass_argument
from kvviz.engine.frame import Frame
from kvviz.engine.ghost_kernels import stated
from kvviz.engine.plan import PlannedNode
from kvviz.engine.run_state import RunState
from kvviz.errors import OpError


def enter(execution: RunState, frame: Frame, planned: PlannedNode) -> bool:
    """Open the first body frame of a control node; True if it has nothing to run and is complete."""
    if planned.control == "If":
        _enter_branch(execution, frame, planned)
    elif planned.control == "function":
        _enter_function(execution, frame, planned)
    else:
        return loop_bodies.enter(execution, frame, planned)
    return False


def has_body(frame: Frame, planned: PlannedNode) -> bool:
    """Whether running this node now would open a frame (a loop of zero trips does not)."""
    return bool(planned.control) and (
        planned.control in ("If", "function") or loop_bodies.has_iterations(frame, planned)
    )


def goes_on(frame: Frame) -> bool:
    return frame.control is not None and loop_bodies.goes_on(frame)


def leave(execution: RunState, frame: Frame) -> bool:
    """Close a finished body frame; True if its control node is complete and logged, False if an iteration follows."""
    planned = frame.caller
    assert planned is not None and frame.parent is not None
    if frame.control is not None:
        return loop_bodies.leave(execution, frame)
    parent = frame.parent
    allocated, written = own_outputs(execution, frame) if execution.placed else (0, 0)
    placed = [
        hand_out(parent, slot, frame.vals[inner], frame.stores[inner])
        for slot, inner in zip(planned.outputs, frame.plan.outputs)
    ]
    finish(execution, frame, planned, parent, tuple(placed), allocated, written, [])
    return True


def _enter_branch(execution: RunState, frame: Frame, planned: PlannedNode) -> None:
    condition = frame.vals[planned.inputs[0]]
    condition = stated(frame.plan, planned, 0, condition)
    if condition is None or np.size(condition) != 1:
        raise OpError(
            f"node {planned.node.name!r} (If) needs a condition of one element, got shape {np.shape(condition)}"
        )
    attribute = "then_branch" if bool(np.reshape(condition, ())) else "else_branch"
    plan = body_plan(execution, planned.node.subgraphs[attribute])
    child = execution.open_frame(plan, frame, planned, attribute, None)
    taken = execution.captures(frame, planned)
    execution.note_bindings(child, capture(execution, child, plan, frame, planned, taken))
    execution.stack.append(child)


def _enter_function(execution: RunState, frame: Frame, planned: PlannedNode) -> None:
    body = planned.node.function
    assert body is not None
    plan = body_plan(execution, body)
    child = execution.open_frame(plan, frame, planned, "function", None)
    noted = []
    taken = execution.captures(frame, planned)
    for value, slot, outer in zip(body.inputs, plan.inputs, planned.inputs):
        how = pass_argument(frame, outer, child, slot, taken)
        if how:
            noted.append((value.name, slot, how))
    execution.note_bindings(child, noted)
    execution.stack.append(child)
