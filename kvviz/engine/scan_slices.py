"""Scan: what each iteration reads. Scan-8 has a batch axis: its items run one after the other, each from its own state.

Rules: ONNX Scan-9 (any axis, either direction) and Scan-8 (batch on axis 0, sequence on axis 1, optional sequence
lengths).
"""

from __future__ import annotations

import numpy as np

from kvviz.engine.frame import Frame
from kvviz.engine.ghost_kernels import check_known
from kvviz.engine.loop_state import LoopState
from kvviz.engine.plan import Plan, PlannedNode
from kvviz.errors import OpError
from kvviz.memory.ghosts import ghost, is_ghost


def trips(frame: Frame, planned: PlannedNode) -> int:
    """Iterations that a Scan will run."""
    arrays, axes, _ = _scanned(frame, planned)
    if planned.node.opset < 9:
        return sum(_lengths(frame, planned, arrays[0]))
    return int(arrays[0].shape[axes[0]]) if arrays else 0


def start(frame: Frame, planned: PlannedNode, plan: Plan) -> LoopState:
    """The state of a Scan before its first iteration."""
    arrays, axes, backward = _scanned(frame, planned)
    old = planned.node.opset < 9
    carried = len(planned.inputs) - len(arrays) - old
    outputs = len(plan.outputs) - carried
    state = LoopState(plan, trips(frame, planned), 0, carried, outputs)
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


def restart(child: Frame, state: LoopState) -> list[tuple[str, int, str]]:
    """Bind the state variables of a batch item's first iteration."""
    assert child.parent is not None
    noted = []
    for slot, (outer, value) in zip(state.plan.inputs, state.restarts[state.iteration]):
        child.bind_by_reference(slot, value, child.parent.stores[outer])
        noted.append((state.plan.names[slot], slot, "captured by reference"))
    return noted


def slices(child: Frame, state: LoopState) -> list[tuple[str, int, str]]:
    """Bind this iteration's slice of every scan input; a slice is a view of its array."""
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
    """Scan outputs of Scan-8: (batch, sequence, …), zeros behind the end of a shorter item."""
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
