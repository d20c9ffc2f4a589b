"""Running recorded steps again: to read a past value, to summarise all values, and to continue from a recorded step.

Inputs are kept within a byte budget. A value that cannot be recomputed is "not recorded"; it is never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kvviz.engine import control_flow
from kvviz.engine.binding import Weights
from kvviz.engine.execution import Execution
from kvviz.engine.frame import Frame
from kvviz.engine.plan import Plan, PlannedNode, may_draw
from kvviz.engine.run_state import Recorder
from kvviz.engine.sessions.recipe import Kept
from kvviz.errors import KvvizError, ReplayError
from kvviz.interrupts import deliver
from kvviz.trace.schema.events import VIEW, Op, OpNode

if TYPE_CHECKING:
    from kvviz.engine.policy import Policy
    from kvviz.trace.recording import Trace

BUDGET = 256 << 20
# Carried inputs are also kept after this many runs, if they are small, so that a replay is never long.
_STRIDE = 64
Carried = Mapping[str, tuple[int, str]]


class Fed(NamedTuple):
    """The inputs of a run. ``donate``: those that it may overwrite. ``carried``: those that are outputs of earlier
    runs, as (run, output)."""

    kept: Kept
    donate: frozenset[str]
    carried: Carried


class Replayer:
    """Copies of the inputs of every run, within a budget; ``runs`` has None for a run whose inputs did not fit."""

    def __init__(self, plan: Plan, policy: Policy) -> None:
        self.plan = plan
        self.policy = policy
        self.runs: list[Fed | None] = []
        self.left = BUDGET
        self._whole = 0

    def note(self, feeds: Mapping[str, Any], donate: frozenset[str], carried: Carried) -> None:
        if len(self.runs) - self._whole >= _STRIDE and Kept.size(feeds) <= self.left // 8:
            self._whole, carried = len(self.runs), {}
        fresh = {name: value for name, value in feeds.items() if name not in carried}
        size = Kept.size(fresh)
        if size > self.left:
            self.runs.append(None)
            return
        self.left -= size
        self.runs.append(Fed(Kept(fresh), donate, dict(carried)))

    def chain(self, run: int) -> range:
        """The runs to repeat so that a run gets its inputs, itself included; empty if inputs were not kept."""
        for first in range(min(run, len(self.runs) - 1), -1, -1):
            entry = self.runs[first]
            if entry is None:
                break
            if not entry.carried:
                return range(first, run + 1)
        return range(0)

    def value(self, trace: Trace, name: str, step: int) -> np.ndarray:
        rows = trace.log
        if not 0 <= step < len(rows):
            raise ReplayError(f"step {step} does not exist; the trace has {len(rows)} steps")
        frame_id = rows[step].frame
        chain = self.chain(rows.frames[frame_id].run)
        if not chain:
            raise ReplayError(f"value {name!r} was not recorded: the inputs of its run were larger than the budget")
        try:
            for rerun in repeated_runs(trace, chain):
                for _ in rerun.steps(step + 1, hold=step):
                    pass
                if rerun.run == chain[-1]:
                    break
        except ReplayError as error:
            raise ReplayError(f"value {name!r} was not recorded: {error}") from None
        return np.array(_find(rerun.execution, frame_id - rerun.frame_shift, name, step))


class Rerun(NamedTuple):
    """A run that is being repeated. ``given``: its inputs, except outputs of earlier runs. ``frame_shift``: difference
    between the number of a frame in the recording and here."""

    trace: Trace
    run: int
    given: Mapping[str, Any]
    execution: Execution
    frame_shift: int

    def steps(self, stop: int, hold: int = -1) -> Iterator[int]:
        """Repeat the recorded steps of the run before ``stop``; yields the number of each afterwards. ``hold``: a step
        whose outputs all stay alive. Raises `ReplayError`: at a step that draws random numbers."""
        rows, run = self.trace.log, self.trace.runs[self.run]
        for step in range(run.first, min(stop, run.last)):
            if is_random(rows[step]):
                raise ReplayError(f"{rows[step].op.node.name} would draw other random numbers")
            repeat(self.execution, self.trace, rows[step], self.frame_shift, step == hold)
            yield step


def repeated_runs(trace: Trace, runs: Sequence[int], kind: type[Execution] = Execution) -> Iterator[Rerun]:
    """Repeat runs in ascending order; the caller repeats the steps of each one. Each run begins with the outputs of
    those before it. Nothing is overwritten, so that every value up to the current step can be read. Raises
    `ReplayError`: if a run whose steps were not kept draws random numbers."""
    replayer: Replayer = trace.replayer
    recorder = Recorder()
    weights = Weights(trace.graph, recorder.ledger)
    last_use: dict[tuple[int, str], int] = {}
    for run in runs:
        entry = replayer.runs[run]
        assert entry is not None
        last_use.update(dict.fromkeys(entry.carried.values(), run))
    made: dict[tuple[int, str], Any] = {}
    for run in runs:
        entry = replayer.runs[run]
        assert entry is not None
        feeds = {**entry.kept.values, **{name: made[source] for name, source in entry.carried.items()}}
        first = next((number for number, frame in enumerate(trace.log.frames) if frame.run == run), 0)
        frame_shift = first - len(recorder.log.frames)
        with np.errstate(all="ignore"):
            execution = kind(replayer.plan, feeds, frozenset(), replayer.policy, recorder, weights, run)
            execution.decide = _never
            execution.placed = False
            yield Rerun(trace, run, entry.kept.values, execution, frame_shift)
            wanted = [name for source, name in last_use if source == run]
            if wanted:
                if trace.runs[run].first == trace.runs[run].last:
                    _check_repeatable(trace)
                # A run whose steps were not kept ran in the order of the plan.
                while execution.step():
                    pass
                outputs = execution.outputs()
                made.update({(run, name): outputs[name] for name in wanted})
        for source in [source for source, last in last_use.items() if last <= run and source in made]:
            del made[source]


def _check_repeatable(trace: Trace) -> None:
    for _, node in trace.graph.walk():
        if may_draw(node):
            raise ReplayError(f"{node.name} would draw other random numbers")


def is_random(row: Op) -> bool:
    """Whether the result of a step is random. A Dropout that only views its input is not in training."""
    node, first = row.op.node, row.outs[0]
    return may_draw(node) and (node.op_type != "Dropout" or (first is not None and first[2] != VIEW))


def _never(frame: Frame, planned: PlannedNode, args: Sequence[Any]) -> tuple:
    """The rule of a replay: nothing is overwritten."""
    return (), (), {}


def repeat(execution: Execution, trace: Trace, row: Op, frame_shift: int = 0, hold: bool = False) -> None:
    """Run the op of a recorded row, after entering the bodies that lead to it; the recorded order may differ from the
    plan's. ``hold``: keep all outputs of the op alive."""
    target = row.frame - frame_shift
    enter_frame(execution, trace, row.frame, frame_shift)
    frame = next(f for f in execution.stack if f.id == target)
    planned = _planned(frame.plan, row.op)
    if hold:
        for slot in planned.outputs:
            frame.uses[slot] += 1
    execution.step(planned if execution.stack[-1].id == target else None)


def enter_frame(execution: Execution, trace: Trace, number: int, frame_shift: int = 0) -> None:
    """Enter the bodies that lead to a recorded frame, unless they are entered already."""
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


def _planned(plan: Plan, record: OpNode) -> PlannedNode:
    found = plan.planned(record.node.index, record.position)
    if found is None or found.node.name != record.node.name:
        raise KvvizError(f"{record.node.name!r} does not run here, so the recorded order cannot be kept")
    return found


def _find(execution: Execution, frame_id: int, name: str, step: int) -> Any:
    frame = next((f for f in execution.stack if f.id == frame_id), None)
    while frame is not None:
        slot = frame.plan.slots.get(name)
        if slot is not None and frame.vals and frame.vals[slot] is not None:
            return frame.vals[slot]
        frame = frame.parent
    raise ReplayError(f"value {name!r} does not exist any more after step {step}")
