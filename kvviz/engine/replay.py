"""Reading a past value: run the same steps again, in the same order, up to the one that was asked for.

Inputs are kept within a byte budget; a value that cannot be computed again is said to be "not recorded", never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kvviz.engine import control_flow
from kvviz.engine.execution import Execution
from kvviz.engine.plan import Plan
from kvviz.engine.recipe import Kept
from kvviz.engine.recorder import Recorder
from kvviz.engine.weights import Weights
from kvviz.errors import KvvizError, ReplayError
from kvviz.graph.model import Node
from kvviz.interrupts import deliver
from kvviz.trace.events import VIEW, Op

if TYPE_CHECKING:
    from kvviz.engine.policy import Policy
    from kvviz.trace.recording import Trace

BUDGET = 256 << 20
# Every so many runs the carried inputs are kept as well, where they are small, so that a replay is never long.
_STRIDE = 64
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
Carried = Mapping[str, tuple[int, str]]


class Fed(NamedTuple):
    """What a run was given: the inputs, those that it may overwrite, and those that are outputs of earlier runs."""

    kept: Kept
    donate: frozenset[str]
    carried: Carried


class Replayer:
    """Copies of every run's inputs, within a budget.

    ``runs``: ``carried`` maps an input to the (run, output) that it was; None where the budget was used up.
    """

    def __init__(self, plan: Plan, policy: Policy) -> None:
        self.plan = plan
        self.policy = policy
        self.runs: list[Fed | None] = []
        self.left = BUDGET
        self._whole = 0

    def note(self, feeds: Mapping[str, Any], donate: frozenset[str], carried: Carried) -> None:
        """Keep the inputs of a run that starts now."""
        if len(self.runs) - self._whole >= _STRIDE and Kept.size(feeds) <= self.left // 8:
            self._whole, carried = len(self.runs), {}
        fresh = {name: value for name, value in feeds.items() if name not in carried}
        size = Kept.size(fresh)
        if size > self.left:
            self.runs.append(None)
            return
        self.left -= size
        self.runs.append(Fed(Kept(fresh), donate, dict(carried)))

    def value(self, trace: Trace, name: str, step: int) -> np.ndarray:
        """A value of the step's frame as it was right after that step; see `Trace.value`."""
        return _value_at(self, trace, name, step)


def _value_at(replayer: Replayer, trace: Trace, name: str, step: int) -> np.ndarray:
    rows = trace.log
    if not 0 <= step < len(rows):
        raise ReplayError(f"step {step} does not exist; the trace has {len(rows)} steps")
    frame_id = rows[step].frame
    run = trace.log.frames[frame_id].run
    first = run
    while first >= 0 and (entry := replayer.runs[first]) is not None and entry.carried:
        first -= 1
    if first < 0 or any(replayer.runs[k] is None for k in range(first, run + 1)):
        raise ReplayError(f"value {name!r} was not recorded: the inputs of its run were larger than the budget")
    random = next(_random_nodes(trace, first, run, step), None)
    if random is not None:
        raise ReplayError(f"value {name!r} was not recorded: {random} would draw other random numbers")
    recorder = Recorder()
    weights = Weights(trace.graph, recorder.ledger)
    entries = [entry for k in range(first, run + 1) if (entry := replayer.runs[k]) is not None]
    wanted = {source for entry in entries for source in entry.carried.values()}
    made: dict[tuple[int, str], Any] = {}
    for k, entry in zip(range(first, run + 1), entries):
        feeds = {**entry.kept.values, **{name: made[source] for name, source in entry.carried.items()}}
        first_frame = next((f for f, r in enumerate(trace.log.frames) if r.run == k), 0)
        frame_shift = first_frame - len(recorder.log.frames)
        with np.errstate(all="ignore"):
            # Nothing is overwritten in a replay, so that every value up to the step can still be read.
            execution = Execution(replayer.plan, feeds, frozenset(), replayer.policy, recorder, weights, k)
            execution.decide = never
            execution.placed = False
            start, stop = trace.runs[k].first, trace.runs[k].last
            for index in range(start, step + 1 if k == run else stop):
                repeat(execution, trace, rows[index], frame_shift, k == run and index == step)
            if k < run:
                # A run whose steps were not kept went in the order of the plan.
                while execution.step():
                    pass
                made.update({(k, n): v for n, v in execution.outputs().items() if (k, n) in wanted})
    value = _find(execution, frame_id - frame_shift, name)
    if value is None:
        raise ReplayError(f"value {name!r} does not exist any more after step {step}")
    return np.array(value)


def _random_nodes(trace: Trace, first: int, run: int, step: int) -> Iterator[str]:
    """Names of nodes that a replay of these runs would get other numbers from."""
    for row in trace.log[trace.runs[first].first : step + 1]:
        if is_random(row):
            yield row.op.node.name
    if any(trace.runs[k].first == trace.runs[k].last for k in range(first, run)):
        for _, node in trace.graph.walk():
            if may_be_random(node):
                yield node.name


def may_be_random(node: Node) -> bool:
    """Whether a node may give something else each time it runs."""
    return (node.op_type in _RANDOM or _may_drop(node)) and "seed" not in node.attributes


def is_random(row: Op) -> bool:
    """Whether a step gives something else each time; a Dropout does where it is in training, else it is a view."""
    node, placed = row.op.node, row.outs
    drops = _may_drop(node) and placed[0] is not None and placed[0][2] != VIEW
    return (drops or node.op_type in _RANDOM) and "seed" not in node.attributes


def _may_drop(node: Node) -> bool:
    """Whether a Dropout asks if it is in training; otherwise it is not, though a runtime may copy its input."""
    return node.op_type == "Dropout" and len(node.inputs) > 2 and bool(node.inputs[2])


def never(frame: Any, planned: Any, args: list) -> tuple:
    """The rule of a replay: nothing is overwritten."""
    return (), (), {}


def repeat(execution: Any, trace: Trace, row: Op, frame_shift: int = 0, hold: bool = False) -> None:
    """Run the op of a recorded row, entering the bodies that lead to it; ``hold`` also what nobody reads of it.

    The execution may have planned another order than the recorded one.
    """
    target = row.frame - frame_shift
    enter_frame(execution, trace, row.frame, frame_shift)
    frame = next(f for f in execution.stack if f.id == target)
    planned = _planned(frame.plan, row.op)
    if hold:
        for slot in planned.outputs:
            frame.uses[slot] += 1
    execution.step(planned if execution.stack[-1].id == target else None)


def enter_frame(execution: Any, trace: Trace, number: int, frame_shift: int = 0) -> None:
    """Enter the bodies that lead to a recorded frame, as far as they are not entered yet."""
    while execution.stack[-1].id < number - frame_shift:
        frame = execution.stack[-1]
        if frame.following() is None:
            execution.settle()
            deliver()
            continue
        inner = trace.log.frames[number]
        while inner.parent is not None and inner.parent != frame.id + frame_shift:
            inner = trace.log.frames[inner.parent]
        assert inner.caller is not None
        control_flow.enter(execution, frame, _planned(frame.plan, inner.caller))


def _planned(plan: Plan, record: Any) -> Any:
    """What is planned for the node of a recorded op."""
    found = plan.planned(record.node.index, record.position)
    if found is None or found.node.name != record.node.name:
        raise KvvizError(f"{record.node.name!r} does not run here, so the recorded order cannot be kept")
    return found


def _find(execution: Any, frame_id: int, name: str) -> Any:
    frame = next((f for f in execution.stack if f.id == frame_id), None)
    while frame is not None:
        slot = frame.plan.slots.get(name)
        if slot is not None and frame.vals and frame.vals[slot] is not None:
            return frame.vals[slot]
        frame = frame.parent
    return None
