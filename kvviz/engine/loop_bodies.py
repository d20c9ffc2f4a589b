"""Loop and Scan: bodies that run once for each iteration.

Rules: ONNX Loop-1…25 and Scan-8…25. An absent trip count means "no limit", an absent condition "true". With zero
trips the results are the initial values and empty scan outputs. Scan outputs are stacked along a new axis at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.engine import body_frames
from kvviz.engine.body_frames import LoopState
from kvviz.engine.frame import Frame
from kvviz.engine.ghost_kernels import check_known, stated
from kvviz.engine.placement import settle
from kvviz.engine.plan import Plan, PlannedNode
from kvviz.engine.recorded_answers import count_of
from kvviz.engine.run_state import RunState
from kvviz.errors import InputError, OpError
from kvviz.graph.model import Value
from kvviz.memory.ghosts import ghost, is_ghost, stack
from kvviz.trace.schema.events import NEW, POOL


def enter(execution: RunState, frame: Frame, planned: PlannedNode) -> bool:
    """Start a Loop or Scan by opening its first iteration; True if it has none and is complete."""
    state, initial, go_on = _start(frame, planned, body_frames.body_plan(execution, planned.node.subgraphs["body"]))
    if not go_on:
        ends = [(frame.vals[slot], frame.stores[slot]) for slot in initial]
        if execution.placed:
            ends = [_copy(execution, state, value, storage) for value, storage in ends]
        _complete(execution, None, planned, frame, state, ends)
        return True
    child = _open(execution, frame, planned, state)
    state.taken = execution.captures(frame, planned)
    noted = body_frames.capture(execution, child, state.plan, frame, planned, state.taken)
    if state.restarts:
        noted += restart_scan(child, state)
    else:
        for i, outer in enumerate(initial):
            slot = state.plan.inputs[state.head + i]
            how = body_frames.pass_argument(frame, outer, child, slot, state.taken)
            if how:
                noted.append((state.plan.names[slot], slot, how))
    _feed(execution, child, state, noted)
    return False


def _copy(execution: RunState, state: LoopState, value: Any, storage: Any) -> tuple[Any, Any]:
    """An initial value as the result of a loop of zero trips, under a policy that copies values it does not own."""
    if not isinstance(value, np.ndarray):
        return value, storage
    copy, storage, allocated = body_frames.own_copy(execution, value)
    state.allocated += allocated
    state.cloned += copy.nbytes
    return copy, storage


def has_iterations(frame: Frame, planned: PlannedNode) -> bool:
    if planned.control == "Loop":
        limit, condition = _loop_head(frame, planned)
        return limit != 0 and condition
    return scan_trips(frame, planned) > 0


def goes_on(frame: Frame) -> bool:
    state, planned = frame.control, frame.caller
    assert planned is not None
    if planned.control == "Loop":
        condition = stated(state.plan, planned, 1, frame.vals[state.plan.outputs[0]])
        if not bool(np.reshape(condition, ())):
            return False
    return state.trips is None or state.iteration + 1 < state.trips


def leave(execution: RunState, frame: Frame) -> bool:
    """End of an iteration: open the next one (False), or complete the node (True)."""
    state, planned, parent = frame.control, frame.caller, frame.parent
    assert planned is not None and parent is not None
    more = goes_on(frame)
    if execution.placed:
        allocated, written = body_frames.own_outputs(execution, frame)
        state.allocated += allocated
        state.cloned += written
    outs = [(frame.vals[slot], frame.stores[slot]) for slot in state.plan.outputs[state.head > 0 :]]
    carried, scanned = outs[: state.carried], outs[state.carried :]
    for kept, (value, storage) in zip(state.collected, scanned):
        storage.holders += 1
        kept.append((value, storage))
    state.iteration += 1
    if state.restarts and (not more or state.iteration in state.restarts):
        for _, storage in carried:
            storage.holders += 1
        state.finals.append(carried)
    if not more:
        _complete(execution, frame, planned, parent, state, carried)
        return True
    # Values left by an iteration are freed before the next one gets its copies of captured values, as in rten's
    # `src/ops/control_flow.rs` (commit c7f7bad9).
    for _, storage in carried:
        storage.holders += 1
    execution.recorder.note_freed(body_frames.close(execution, frame))
    execution.stack.pop()
    child = _open(execution, parent, planned, state)
    noted = body_frames.capture(execution, child, state.plan, parent, planned, state.taken)
    if state.iteration in state.restarts:
        noted += restart_scan(child, state)
    else:
        for slot, (value, storage) in zip(state.plan.inputs[state.head :], carried):
            child.bind(slot, value, storage)
            noted.append((state.plan.names[slot], slot, "passed"))
    for _, storage in carried:
        storage.holders -= 1
    _feed(execution, child, state, noted)
    return False


def _start(frame: Frame, planned: PlannedNode, plan: Plan) -> tuple[LoopState, tuple[int, ...], bool]:
    if planned.control == "Loop":
        return _start_loop(frame, planned, plan)
    state = start_scan(frame, planned, plan)
    return (
        state,
        planned.inputs[len(planned.inputs) - len(state.sliced) - state.carried :][: state.carried],
        bool(state.trips),
    )


def _loop_head(frame: Frame, planned: PlannedNode) -> tuple[int | None, bool]:
    slots = (*planned.inputs, 0, 0)
    limit, condition = frame.vals[slots[0]], frame.vals[slots[1]]
    count = count_of(frame.plan.dry, frame.plan.graph, planned.node) if frame.plan.dry else None
    if count is not None:
        if limit is not None and not is_ghost(limit) and count > limit:
            raise InputError(f"counts says {count} iterations of {planned.node.name!r}, and its trip count is {limit}")
        limit, condition = np.array(count), None
    limit = stated(frame.plan, planned, 0, limit)
    condition = stated(frame.plan, planned, 1, condition)
    trips = None if limit is None else max(int(np.reshape(limit, ())), 0)
    return trips, condition is None or bool(np.reshape(condition, ()))


def _start_loop(frame: Frame, planned: PlannedNode, plan: Plan) -> tuple[LoopState, tuple[int, ...], bool]:
    trips, condition = _loop_head(frame, planned)
    initial = planned.inputs[2:]
    outputs = len(plan.outputs) - 1 - len(initial)
    if len(plan.inputs) != len(initial) + 2 or outputs < 0:
        raise OpError(
            f"node {planned.node.name!r} (Loop) carries {len(initial)} values, but its body has "
            f"{len(plan.inputs)} inputs and {len(plan.outputs)} outputs"
        )
    state = LoopState(plan, trips, 2, len(initial), outputs)
    return state, initial, trips != 0 and condition


def _open(execution: RunState, parent: Frame, planned: PlannedNode, state: LoopState) -> Frame:
    child = execution.open_frame(state.plan, parent, planned, "body", state.iteration)
    child.control = state
    return child


def _feed(execution: RunState, child: Frame, state: LoopState, noted: list[tuple[str, int, str]]) -> None:
    """Bind the iteration number and condition (Loop) or this iteration's slices (Scan), and enter the frame."""
    plan = state.plan
    if state.head:
        for slot, value in zip(plan.inputs, (np.array(state.iteration, np.int64), np.array(True))):
            storage = execution.ledger.new(value.nbytes, value)
            state.allocated += value.nbytes
            child.bind(slot, value, storage)
            noted.append((plan.names[slot], slot, "passed"))
    noted += bind_slices(child, state)
    execution.note_bindings(child, noted)
    execution.stack.append(child)


def _complete(
    execution: RunState,
    frame: Frame | None,
    planned: PlannedNode,
    parent: Frame,
    state: LoopState,
    ends: list[tuple[Any, Any]],
) -> None:
    written = state.cloned
    if state.finals:
        ends = []
        for slot, values in zip(planned.outputs, zip(*state.finals)):
            if not slot:
                ends.append((None, None))
                continue
            stacked = stack([value for value, _ in values])
            storage, more = execution.ledger.allocate(stacked)
            state.allocated += more
            written += stacked.nbytes
            ends.append((stacked, storage))
    copies = execution.policy.copies_state and frame is not None and planned.control == "Loop"
    if copies:
        ends = [
            _own(execution, planned, parent, state, i, value) if isinstance(value, np.ndarray) else (value, storage)
            for i, (value, storage) in enumerate(ends)
        ]
        written = state.cloned
    # A copy has a storage of its own, unlike an output of the body.
    own = copies or bool(state.finals) or (frame is None and execution.placed)
    placed: list[tuple | None] = []
    for slot, (value, storage) in zip(planned.outputs, ends):
        handed = body_frames.hand_out(parent, slot, value, storage)
        placed.append(_made(value, storage) if own and slot and isinstance(value, np.ndarray) else handed)
    declared = state.plan.graph.outputs[len(state.plan.outputs) - len(state.collected) :]
    for i, slot in enumerate(planned.outputs[state.carried :]):
        if not slot:
            placed.append(None)
            continue
        kept = [value for value, _ in state.collected[i]]
        if state.batches:
            stacked = stack_batches(kept, state.batches)
        else:
            stacked = _stack(kept[::-1] if state.out_backward[i] else kept, state.out_axes[i], declared[i])
        if copies:
            stacked, storage = _own(execution, planned, parent, state, state.carried + i, stacked)
        else:
            storage, more = execution.ledger.allocate(stacked)
            state.allocated += more
        written += stacked.nbytes
        parent.bind(slot, stacked, storage)
        placed.append(_made(stacked, storage))
    spent = [storage for pairs in (*state.collected, *state.finals) for _, storage in pairs]
    body_frames.finish(execution, frame, planned, parent, tuple(placed), state.allocated, written, spent)


def _made(value: np.ndarray, storage: Any) -> tuple:
    how = POOL if storage.generation else NEW
    return storage.id, storage.generation, how, value.shape, value.dtype, 0, None


def _own(
    execution: RunState, planned: PlannedNode, parent: Frame, state: LoopState, position: int, value: np.ndarray
) -> tuple[np.ndarray, Any]:
    """A result of a Loop, copied to where the policy places it; the value of the last iteration dies."""
    assert execution.policy.homes is not None
    outs = tuple(value if i == position else None for i in range(len(planned.outputs)))
    home = execution.policy.homes(execution, parent, planned, [], outs, ())[position]
    carried = position < state.carried
    value, storage, more = settle(execution.ledger, [value] if carried else [], value, home)
    state.allocated += more
    state.cloned += value.nbytes if carried else 0
    return value, storage


def _stack(values: list[Any], axis: int, declared: Value) -> np.ndarray:
    if not values:
        shape = tuple(dim if isinstance(dim, int) else 0 for dim in declared.shape or ())
        return np.empty((0, *shape), declared.dtype or np.float32)
    try:
        return stack(values, axis)
    except ValueError:
        shapes = sorted({value.shape for value in values})
        raise OpError(f"scan output {declared.name!r} has different shapes in different iterations: {shapes}") from None


# Each iteration of a Scan reads slices of its scan inputs. Scan-8 has a batch axis: its items run one after the other,
# each from its own initial state. Rules: ONNX Scan-9 (any axis, either direction) and Scan-8 (batch on axis 0, sequence
# on axis 1, optional sequence lengths).


def scan_trips(frame: Frame, planned: PlannedNode) -> int:
    arrays, axes, _ = _scanned(frame, planned)
    if planned.node.opset < 9:
        return sum(_lengths(frame, planned, arrays[0]))
    return int(arrays[0].shape[axes[0]]) if arrays else 0


def start_scan(frame: Frame, planned: PlannedNode, plan: Plan) -> LoopState:
    arrays, axes, backward = _scanned(frame, planned)
    old = planned.node.opset < 9
    carried = len(planned.inputs) - len(arrays) - old
    outputs = len(plan.outputs) - carried
    state = LoopState(plan, scan_trips(frame, planned), 0, carried, outputs)
    state.sliced = list(zip(planned.inputs[len(planned.inputs) - len(arrays) :], arrays, axes, backward))
    sizes = {array.shape[axis] for array, axis in zip(arrays, axes)}
    if len(sizes) > 1:
        raise OpError(f"node {planned.node.name!r} (Scan) has scan inputs of different lengths: {sorted(sizes)}")
    attributes = planned.attributes
    if old:
        state.batches = _lengths(frame, planned, arrays[0])
        states = planned.inputs[1 : 1 + carried]
        at = 0
        for item, length in enumerate(state.batches):
            state.restarts[at] = [(slot, frame.vals[slot][item, ...]) for slot in states]
            at += length
    else:
        state.out_axes = list(attributes.get("scan_output_axes") or (0,) * outputs)
        state.out_backward = [bool(d) for d in attributes.get("scan_output_directions") or (0,) * outputs]
    return state


def restart_scan(child: Frame, state: LoopState) -> list[tuple[str, int, str]]:
    assert child.parent is not None
    noted = []
    for slot, (outer, value) in zip(state.plan.inputs, state.restarts[state.iteration]):
        child.bind_by_reference(slot, value, child.parent.stores[outer])
        noted.append((state.plan.names[slot], slot, "captured by reference"))
    return noted


def bind_slices(child: Frame, state: LoopState) -> list[tuple[str, int, str]]:
    assert child.parent is not None
    noted = []
    item, at = _item(state)
    for slot, (outer, array, axis, backward) in zip(state.plan.inputs[state.head + state.carried :], state.sliced):
        if item is not None:
            length = state.batches[item]
            value = array[item, length - 1 - at if backward else at, ...]
        else:
            value = np.moveaxis(array, axis, 0)[array.shape[axis] - 1 - at if backward else at, ...]
        child.bind_by_reference(slot, value, child.parent.stores[outer])
        noted.append((state.plan.names[slot], slot, "captured by reference"))
    return noted


def stack_batches(values: list[np.ndarray], lengths: list[int]) -> np.ndarray:
    """Scan outputs of Scan-8, (batch, sequence, …), with zeros after the end of a shorter item."""
    shape = (len(lengths), max(lengths), *values[0].shape)
    if any(map(is_ghost, values)):
        return ghost(shape, values[0].dtype)
    result = np.zeros(shape, values[0].dtype)
    rest = iter(values)
    for item, length in enumerate(lengths):
        for at in range(length):
            result[item, at] = next(rest)
    return result


def _item(state: LoopState) -> tuple[int | None, int]:
    at = state.iteration
    for item, length in enumerate(state.batches):
        if at < length:
            return item, at
        at -= length
    return None, at


def _scanned(frame: Frame, planned: PlannedNode) -> tuple[list[np.ndarray], tuple[int, ...], tuple[bool, ...]]:
    attributes = planned.attributes
    count = attributes["num_scan_inputs"]
    arrays = [frame.vals[slot] for slot in planned.inputs[len(planned.inputs) - count :]]
    old = planned.node.opset < 9
    axes = (1,) * count if old else attributes.get("scan_input_axes") or (0,) * count
    directions = attributes.get("directions" if old else "scan_input_directions") or (0,) * count
    return arrays, tuple(axes), tuple(bool(d) for d in directions)


def _lengths(frame: Frame, planned: PlannedNode, array: np.ndarray) -> list[int]:
    given = frame.vals[planned.inputs[0]]
    check_known(planned, 0, given)
    return [array.shape[1]] * array.shape[0] if given is None else [int(n) for n in given]
