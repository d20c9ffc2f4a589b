"""Executing a graph step by step. Everything that runs goes through `Execution.step`, or through `run` for many steps.

A step picks a node, decides, calls the kernel, accounts for memory and appends one row to the trace. A control node
(If, Loop, Scan, a local function) is logged when its body is done: a step is a completed op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.engine import control_flow
from kvviz.engine.binding import Weights, bind_inputs, collect_outputs, describe
from kvviz.engine.frame import Frame
from kvviz.engine.placement import (
    UNUSUAL,
    elements_of,
    every_output,
    kernel_homes,
    lender,
    place,
    strides_of,
    usual_place,
)
from kvviz.engine.plan import Plan, PlannedNode
from kvviz.engine.planning import checked_captures, checked_pool, checked_rule
from kvviz.engine.policy import Policy
from kvviz.engine.program.segment import Segment
from kvviz.engine.program.step_program import program_of
from kvviz.engine.run_state import Recorder, raise_failure
from kvviz.interrupts import WAITING
from kvviz.memory.storage import address
from kvviz.trace.schema.events import IN_PLACE, NEW, POOL, VIEW, FrameEvent


class Execution:
    """One run of a graph, advanced op by op.

    ``plan``: the main graph's plan.
    ``feeds``: inputs, already validated.
    ``donate``: inputs that the run may overwrite.
    ``recorder``: where rows go; its ledger holds the storages.
    ``weights``: the model's weights, bound to the same ledger.
    ``run``: number of this run in the trace.
    """

    def __init__(
        self,
        plan: Plan,
        feeds: Mapping[str, Any],
        donate: frozenset[str],
        policy: Policy,
        recorder: Recorder,
        weights: Weights,
        run: int = 0,
    ) -> None:
        self.policy = policy
        self.dry = plan.dry
        self.recorder = recorder
        self.ledger = recorder.ledger
        self.log = recorder.log
        self.weights = weights
        self.run_index = run
        self.decide = checked_rule(policy)
        self.captures = checked_captures(policy)
        self.placed = policy.homes is not None
        self.ledger.pool = checked_pool(policy)
        self.donate = donate
        self.main = self.open_frame(plan, None, None, "", None)
        bind_inputs(self, feeds, donate)
        if self.main.watch is not None:
            self.main.watch.begin(self.main)
        self.stack = [self.main]
        self.finished = False

    def step(self, choice: PlannedNode | None = None) -> bool:
        """Complete one more op, or none where Ctrl-C waits to be heard; False when nothing was left to run. ``choice``:
        a node of the current frame's frontier, to run in place of the next one in plan order."""
        while not self.finished:
            completed, choice = self._go(choice), None
            if completed or (WAITING and not self.finished):
                return True
        return False

    def _go(self, planned: PlannedNode | None) -> bool:
        """Run one op, the next in plan order by default, or enter or leave a body; whether an op is complete now."""
        frame = self.stack[-1]
        planned = planned or frame.following()
        if planned is None:
            if frame is not self.main:
                return control_flow.leave(self, frame)
            self.finished = True
            return False
        if planned.control:
            return control_flow.enter(self, frame, planned)
        self.execute(frame, planned)
        return True

    def run(self) -> None:
        """Complete the run as by `step`, or until Ctrl-C waits; what a step program does is done by it."""
        while not self.finished:
            frame = self.stack[-1]
            planned = frame.following()
            if planned is None and frame.watch is not None:
                if frame is self.main:
                    frame.watch.end(frame)
                if frame.program.watches:
                    frame.program.learn(frame.plan, frame.watch)
            segment = None if planned is None else frame.ahead.pop(planned.position, None)
            if segment is None or not self._ran(frame, segment):
                self._go(planned)
            if WAITING:
                return

    def _ran(self, frame: Frame, segment: Segment) -> bool:
        """Let a segment run; False if it does not begin. Of a frame that is watched, take down how it would."""
        if frame.watch is not None:
            frame.watch.starts[segment.first] = segment.slots, segment.look(frame), frame.uses.copy()
            return False
        begun, whole = segment.run(self, frame)
        frame.program.ran(segment, begun, whole)
        return begun

    def settle(self) -> None:
        """Go on to where the next op runs, without running one: into bodies, and on to a loop's next iteration.
        Afterwards the frame's frontier is what may run next; it is empty if the next step completes a control node. A
        body is entered only if nothing else could run instead: else its node is one choice among others."""
        while not WAITING:
            frame = self.stack[-1]
            planned = frame.following()
            if planned is None:
                if not control_flow.goes_on(frame):
                    self.finished = frame is self.main
                    return
                control_flow.leave(self, frame)
            elif control_flow.has_body(frame, planned) and len(frame.frontier()) == 1:
                control_flow.enter(self, frame, planned)
            else:
                return

    @property
    def frame(self) -> Frame:
        return self.stack[-1]

    def outputs(self) -> dict[str, Any]:
        return collect_outputs(self)

    def execute(self, frame: Frame, planned: PlannedNode, ran: tuple[Any, Any, Any, Any] | None = None) -> None:
        """Run one op that has a kernel, and log it. ``ran``: of an op whose kernel a step program has called:
        arguments, what it returned, and the verdict."""
        vals, stores = frame.vals, frame.stores
        fetch, lone = planned.fetch, planned.lone_input
        args = fetch(vals) if fetch is not None else (vals[lone],) if lone >= 0 else ()
        taken: tuple[int, ...] = ()
        masks: tuple[tuple[int, int], ...] = ()
        placed: tuple
        try:
            if ran is not None:
                args, out, taken, masks = ran
            elif planned.watches or self.placed:
                taken, masks, keywords = self.decide(frame, planned, args)
                out = planned.call(*args, **keywords) if taken else planned.call(*args)
            else:
                out = planned.call(*args)
        except Exception as error:
            raise_failure(planned, args, error)
        ledger, home = self.ledger, None
        storage: Any
        if not planned.plain or type(out) is not np.ndarray:
            how = UNUSUAL
        elif self.placed and (homes := self.policy.homes):
            home = homes(self, frame, planned, args, (out,), taken)[0]
            how, storage = usual_place(frame, planned, args, out, taken, home)
        elif taken:
            how, storage = IN_PLACE if out is args[taken[0]] else UNUSUAL, stores[planned.inputs[taken[0]]]
        elif planned.lone_view and (storage := lender(frame, planned, args, out)) is not None:
            how = VIEW
        else:
            how = NEW
        if how == UNUSUAL:
            placed, allocated, written, copied, more = place(self, frame, planned, args, out, taken, home)
            masks += more
            if frame.watch is not None:
                frame.watch.add(frame, planned, args, out, (taken, masks), placed, (allocated, copied, written), False)
        else:
            # One output in a usual place: what `place` does, written out.
            shape = out.shape
            if shape == planned.shape:
                shape = planned.shape
            else:
                planned.shape = shape
            slot = planned.outputs[0]
            if how == NEW:
                # The common case: memory of its own.
                storage, allocated = ledger.allocate(out)
                storage.holders = 1
                generation = storage.generation
                placed = ((storage.id, generation, POOL if generation else NEW, shape, out.dtype, 0, None),)
                if planned.cost is None:
                    written = out.nbytes
                    copied = written if planned.moves else 0
                else:
                    written, copied = planned.cost(args, (out,), False, planned.attributes)
            elif how == VIEW:
                # Nothing is written; the storage gets one more value.
                storage.holders += 1
                slides = planned.slides and self.recorder.on and out.size
                offset = address(out) - address(storage.root) if slides else None
                strides = strides_of(planned, out)
                placed = ((storage.id, storage.generation, VIEW, shape, out.dtype, offset, strides),)
                allocated = copied = written = 0
            else:
                # Overwritten in place: nothing is allocated.
                storage.generation += 1
                storage.holders += 1
                strides = None if out.flags.c_contiguous else strides_of(planned, out)
                placed = ((storage.id, storage.generation, IN_PLACE, shape, out.dtype, None, strides),)
                allocated = copied = 0
                cost = planned.cost
                written = out.nbytes if cost is None else cost(args, (out,), True, planned.attributes)[0]
            vals[slot] = out
            stores[slot] = storage
            if frame.watch is not None:
                frame.watch.add(frame, planned, args, out, (taken, masks), placed, (allocated, copied, written), True)
        if taken and planned.written is not None:
            self.recorder.note_written(planned, args, [vals[slot] for slot in planned.outputs], placed)
        self.note(frame, planned, taken, masks, placed, allocated, copied, written, ledger.live)

    def note(
        self,
        frame: Frame,
        planned: PlannedNode,
        taken: tuple[int, ...],
        masks: tuple[tuple[int, int], ...],
        placed: tuple,
        allocated: int,
        copied: int,
        written: int,
        live: int,
    ) -> None:
        """Count the reads of a completed op, free what is dead, and append its row."""
        frame.done[planned.position] = 1
        vals, uses, stores, ledger = frame.vals, frame.uses, frame.stores, self.ledger
        freed: list[int] | tuple[()] = ()
        for slot in planned.spends if planned.spends is not None else self._read_out(frame, planned):
            left = uses[slot] - 1
            uses[slot] = left
            if left == 0 and (storage := stores[slot]) is not None:
                vals[slot] = stores[slot] = None
                if self.placed:
                    frame.gone[slot] = storage
                if storage.holders > 1:
                    storage.holders -= 1
                else:
                    freed = freed or []
                    ledger.release(storage, freed)
        for slot in planned.outputs:
            if uses[slot] == 0 and slot and (storage := stores[slot]) is not None:
                vals[slot] = stores[slot] = None
                frame.gone[slot] = storage
                freed = freed or []
                ledger.release(storage, freed)
        log = self.log
        log.written += written
        log.copied += copied
        log.allocated += allocated
        if ledger.grown:
            self.recorder.note_growth()
        if self.recorder.on:
            log.write((frame.id, planned.record, taken, masks, placed, freed, allocated, copied, written, live))

    def _read_out(self, frame: Frame, planned: PlannedNode) -> list[int]:
        """Count all reads of a step except one per value; returns the slots of these values."""
        for slot, count in planned.consumes:
            frame.uses[slot] -= count - 1
        return [slot for slot, _ in planned.consumes]

    def open_frame(
        self, plan: Plan, parent: Frame | None, caller: PlannedNode | None, attribute: str, iteration: int | None
    ) -> Frame:
        frames = self.log.frames
        frame = Frame(len(frames), plan, parent, caller)
        recorded, outer = self.recorder.program(plan), parent.id if parent else None
        entered = caller.record if caller else None
        frames.append(FrameEvent(recorded, outer, entered, attribute, iteration, self.run_index, len(self.log)))
        self.weights.bind(frame)
        program = program_of(plan, self.ledger, self.policy, frozenset() if parent else self.donate)
        if program is not None:
            frame.program, frame.ahead = program, program.by_position()
            frame.watch = program.watch(frame, attribute) if self.recorder.on else None
        return frame

    def note_bindings(self, frame: Frame, how: Sequence[tuple[str, int, str]]) -> None:
        """Record which values a frame starts with: (name, slot, how), without weights."""
        if self.recorder.on:
            noted = [describe(name, frame.vals[slot], frame.stores[slot], manner) for name, slot, manner in how]
            weights = self.weights.described(frame.plan)
            if frame.parent is None and frame.plan.graph.overridable:
                # The caller may replace a weight.
                given = {name for name, *_ in how}
                weights = tuple(weight for weight in weights if weight.name not in given)
            self.log.frames[frame.id].bindings = (*weights, *noted)


# A kernel with more bytes of inputs is not tried; what it would allocate is then unknown.
TRIED_BYTES = 1 << 22


def preview(execution: Execution, frame: Frame, planned: PlannedNode) -> tuple[int | None, int]:
    """Bytes that a ready node of the running frame would allocate (None if unknown) and free."""
    if planned.control:
        return None, 0
    args = [frame.vals[slot] for slot in planned.inputs]
    stores = [frame.stores[slot] for slot in planned.inputs]
    taken: tuple[int, ...] = ()
    if planned.watches or execution.placed:
        taken = execution.decide(frame, planned, args)[0]
    read = [bool(frame.uses[slot]) for slot in planned.outputs]  # an output that nobody reads dies at once
    dying = Counter(
        storage
        for slot, count in planned.consumes
        if frame.uses[slot] == count and (storage := frame.stores[slot]) is not None
    )
    if taken and not execution.placed:
        if any(read):
            dying.subtract(stores[position] for position in taken)
        return 0, _freed(dying)
    outs = _tried(planned, args)
    if outs is None:
        return None, _freed(dying)
    allocated, unread, pool = 0, 0, execution.ledger.pool
    for value, home, kept in zip(
        outs, (execution.policy.homes or kernel_homes)(execution, frame, planned, args, outs, taken), read
    ):
        if not isinstance(value, np.ndarray):
            dying.subtract(elements_of(value, filter(None, stores)) if kept else ())
        elif home.how != NEW:
            dying[home.storage or stores[home.position]] -= kept
        else:
            size = max(value.nbytes, home.elements * value.itemsize)
            unread += size * (not kept)
            if not (home.pooled and pool is not None and pool.has(value)):
                allocated += size
    return allocated, _freed(dying) + unread


def _freed(dying: Counter[Any]) -> int:
    """Bytes of the storages that die. ``dying``: how many of its holders each storage loses."""
    freed, left = 0, list(dying)
    for storage in left:
        if dying[storage] == storage.holders:
            freed += storage.capacity
            dying[storage] = 0  # it may come again as an element
            dying.update(storage.parts)
            left += storage.parts
    return freed


def _tried(planned: PlannedNode, args: list[Any]) -> tuple[Any, ...] | None:
    """The outputs that a kernel returns; None if it is not tried or fails, which is reported when the op runs."""
    if sum(getattr(value, "nbytes", 0) for value in args) > TRIED_BYTES:
        return None
    try:
        with np.errstate(all="ignore"):
            outs = every_output(planned, planned.call(*args))
    except Exception:
        return None
    return tuple(np.asarray(value) if isinstance(value, np.generic) else value for value in outs)
