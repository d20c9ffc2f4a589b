"""Executing a graph step by step. Everything that runs goes through `Execution.step`.

A step picks a node, decides, calls the kernel, accounts for memory and appends one row to the trace. A control
node (If, Loop, Scan, a local function) is logged when its body is done: a step is a completed op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.engine import control
from kvviz.engine.binding import Weights, bind_inputs, collect_outputs, describe, dtype_of
from kvviz.engine.frame import Frame
from kvviz.engine.placing import execute_placed
from kvviz.engine.plan import Plan, PlannedNode
from kvviz.engine.policy import Policy
from kvviz.engine.rows import APPEND, IN_PLACE, NEW, POOL, VIEW, FrameRow, Recorder
from kvviz.errors import KvvizError, LimitError, OpError
from kvviz.memory.storage import Storage, address
from kvviz.ops import foreign
from kvviz.ops.decline import Decline


class Execution:
    """One run of a graph, advanced op by op.

    Parameters
    ----------
    plan : Plan
        The main graph's plan.
    feeds : mapping of str to ndarray
        Inputs, already validated.
    donate : set of str
        Inputs that the run may overwrite.
    policy : Policy
    recorder : Recorder
        Where rows go; its ledger holds the storages.
    weights : Weights
        The model's weights, bound to the same ledger.
    run : int
        Number of this run in the trace.
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
        self.recorder = recorder
        self.ledger = recorder.ledger
        self.weights = weights
        self.run_index = run
        self.decide = policy.in_place
        self.placed = policy.homes is not None
        self.ledger.pool = policy.pool() if policy.pool else None
        self.main = self.open_frame(plan, None, None, "", None)
        bind_inputs(self, feeds, donate)
        self.stack = [self.main]
        self.finished = False

    # -- stepping ---------------------------------------------------------------------------------------------------

    def step(self, choice: PlannedNode | None = None) -> bool:
        """Complete one more op; False when nothing was left to run.

        Parameters
        ----------
        choice : PlannedNode, optional
            A node of the current frame's frontier, to run in place of the next one in plan order.
        """
        if self.finished:
            return False
        while True:
            frame = self.stack[-1]
            planned = choice or frame.following()
            choice = None
            if planned is None:
                if frame is self.main:
                    self.finished = True
                    return False
                if control.leave(self, frame):
                    return True
            elif planned.control:
                if control.enter(self, frame, planned):
                    return True
            else:
                self.execute(frame, planned)
                return True

    def settle(self) -> None:
        """Go on to where the next op runs, without running one: into bodies, and on to a loop's next iteration.

        Afterwards the frame's frontier is what may run next; it is empty where the next step completes a control node.
        A body is entered only where nothing else could run instead: else its node is one choice among others.
        """
        while True:
            frame = self.stack[-1]
            planned = frame.following()
            if planned is None:
                if not control.goes_on(frame):
                    self.finished = frame is self.main
                    return
                control.leave(self, frame)
            elif control.has_body(frame, planned) and len(frame.frontier()) == 1:
                control.enter(self, frame, planned)
            else:
                return

    @property
    def frame(self) -> Frame:
        """The innermost frame that is running."""
        return self.stack[-1]

    def outputs(self) -> dict[str, Any]:
        """What the run returns, by name; call it once the run is finished."""
        return collect_outputs(self)

    # -- one op -----------------------------------------------------------------------------------------------------

    def execute(self, frame: Frame, planned: PlannedNode) -> None:
        """Run one op that has a kernel, and log it."""
        if self.placed:
            execute_placed(self, frame, planned)
            return
        vals = frame.vals
        fetch = planned.fetch
        args = fetch(vals) if fetch is not None else [vals[slot] for slot in planned.inputs]
        taken: tuple[int, ...] = ()
        masks: tuple[tuple[int, int], ...] = ()
        placed: tuple
        try:
            if planned.watches:
                taken, masks, how = self.decide(frame, planned, args)
                out = planned.call(*args, **how) if taken else planned.call(*args)
            else:
                out = planned.call(*args)
        except Exception as error:
            out = self.after_failure(planned, args, error)
            taken = ()
        if planned.plain and taken and out is args[taken[0]]:
            # Overwritten in place: the storage changes hands, nothing is allocated.
            position = taken[0]
            storage = frame.stores[planned.inputs[position]]
            storage.generation += 1
            slot = planned.outputs[0]
            vals[slot] = out
            frame.stores[slot] = storage
            storage.holders += 1
            placed = ((storage.id, storage.generation, IN_PLACE, out.shape, out.dtype, None, None),)
            allocated = copied = 0
            cost = planned.cost
            written = out.nbytes if cost is None else cost(args, (out,), True, planned.attributes)[0]
        elif (
            planned.lone_view
            and type(out) is np.ndarray
            and (shared := self._viewed(frame, planned, args, out)) is not None
        ):
            # A view of its first input: nothing is written, the storage gets one more value.
            slot = planned.outputs[0]
            vals[slot] = out
            frame.stores[slot] = shared
            shared.holders += 1
            offset = address(out) - address(shared.root) if planned.slides and self.recorder.on and out.size else None
            placed = ((shared.id, shared.generation, VIEW, out.shape, out.dtype, offset, out.strides),)
            allocated = copied = written = 0
        elif planned.plain and not taken and type(out) is np.ndarray:
            # The common case, written out: one output in memory of its own.
            storage, allocated = self.ledger.allocate(out)
            slot = planned.outputs[0]
            vals[slot] = out
            frame.stores[slot] = storage
            storage.holders = 1
            generation = storage.generation
            placed = ((storage.id, generation, POOL if generation else NEW, out.shape, out.dtype, 0, None),)
            if planned.cost is None:
                written = out.nbytes
                copied = written if planned.moves else 0
            else:
                written, copied = planned.cost(args, (out,), False, planned.attributes)
        else:
            placed, allocated, written, copied = self._place_all(frame, planned, args, out, taken)
        self.log(frame, planned, taken, masks, placed, allocated, copied, written, self.ledger.live)

    def log(
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
        """Count the readings of a completed op, free what is dead, and append its row."""
        frame.done[planned.position] = 1
        vals, uses, stores = frame.vals, frame.uses, frame.stores
        freed: list[int] = []
        for slot, count in planned.consumes:
            left = uses[slot] - count
            uses[slot] = left
            if left == 0 and (storage := stores[slot]) is not None:
                vals[slot] = stores[slot] = None
                if storage.holders > 1:
                    storage.holders -= 1
                else:
                    self.ledger.release(storage, freed)
        for slot in planned.outputs:
            if uses[slot] == 0 and slot and (storage := stores[slot]) is not None:
                vals[slot] = stores[slot] = None
                self.ledger.release(storage, freed)
        recorder = self.recorder
        recorder.written += written
        recorder.copied += copied
        recorder.allocated += allocated
        if recorder.on:
            recorder.rows.append(
                (frame.id, planned, taken, masks, placed, tuple(freed), allocated, copied, written, live)
            )

    def _viewed(self, frame: Frame, planned: PlannedNode, args: list, out: np.ndarray) -> Storage | None:
        """The storage of an op's first input, if its output lies there."""
        storage = frame.stores[planned.inputs[planned.views[0]]]
        if out is args[planned.views[0]]:
            return storage
        base = out.base
        if base is None:
            return None
        root = storage.root
        while base is not root:
            if not isinstance(base, np.ndarray):
                return None
            base = base.base
        return storage

    def _place_all(
        self, frame: Frame, planned: PlannedNode, args: list, out: Any, taken: tuple[int, ...]
    ) -> tuple[tuple, int, int, int]:
        """Find the storage of each output (in place, a view, new), and count bytes."""
        outs = out if isinstance(out, tuple) else (out,)
        stores, ledger = frame.stores, self.ledger
        if taken or planned.views:
            sources = taken + planned.views
        else:
            sources = tuple(range(len(args))) if planned.foreign or planned.spec is None else ()
        among = [stores[slot] for i in sources if i < len(args) and (slot := planned.inputs[i])]
        placed: list[tuple | None] = []
        allocated = written = 0
        for slot, value in zip(planned.outputs, outs):
            if not slot:
                placed.append(None)
                continue
            if value is not None and not isinstance(value, (np.ndarray, list, tuple, dict)):
                value = np.asarray(value)
            storage, shared, more = ledger.place(value, among)
            allocated += more
            offset, strides, code = 0, None, NEW
            if shared is None:
                written += getattr(value, "nbytes", 0)
            else:
                code, grew = self._how_shared(planned, args, value, shared, taken)
                written += grew
                strides = value.strides
                if shared.root is not None and value.size:
                    offset = address(value) - address(shared.root)
                if code != VIEW:
                    storage.generation += 1
            frame.vals[slot] = value
            stores[slot] = storage
            storage.holders += 1
            placed.append(
                (storage.id, storage.generation, code, getattr(value, "shape", None), dtype_of(value), offset, strides)
            )
        copied = 0
        if planned.cost is not None:
            written, copied = planned.cost(args, outs, bool(taken), planned.attributes)
        elif planned.moves:
            copied = written
        return tuple(placed), allocated, written, copied

    def _how_shared(
        self, planned: PlannedNode, args: list, value: np.ndarray, shared: Storage, taken: tuple[int, ...]
    ) -> tuple[int, int]:
        """How an output came to lie in an input's storage, and the bytes that were written there."""
        for position in taken:
            past = args[position]
            elsewhere = shared.root is None or not np.may_share_memory(past, value)
            if elsewhere and past.size:
                continue
            if value.shape == past.shape:
                return IN_PLACE, value.nbytes
            if shared.room is not None:
                shared.room.filled = value.shape[shared.room.axis]
            return APPEND, value.nbytes - past.nbytes
        return VIEW, 0

    def after_failure(self, planned: PlannedNode, args: list, error: Exception) -> Any:
        """Fall back to the reference evaluator's kernel where ours declines; otherwise say what failed."""
        node = planned.node
        if isinstance(error, Decline) and foreign.foreign_available(node.domain, node.op_type, node.opset):
            planned.call = foreign.foreign_kernel(node, len(node.outputs))
            planned.foreign, planned.plain, planned.watches, planned.lone_view = True, False, False, False
            planned.spec, planned.cost, planned.moves = None, None, False
            planned.views, planned.candidates, planned.grows = (), (), ()
            try:
                return planned.call(*args)
            except Exception as again:
                error = again
        if isinstance(error, MemoryError):
            raise LimitError(
                f"node {node.name!r} ({node.qualified_op}) needs more memory than there is: {error}"
            ) from error
        if isinstance(error, LimitError):
            raise LimitError(f"node {node.name!r} ({node.qualified_op}): {error}") from error
        inputs = ", ".join(f"{name} {_brief(value)}" for name, value in zip(node.inputs, args) if name)
        reason = str(error) if isinstance(error, KvvizError) else f"{type(error).__name__}: {error}"
        raise OpError(f"node {node.name!r} ({node.qualified_op}) failed: {reason} (inputs: {inputs})") from error

    # -- frames -----------------------------------------------------------------------------------------------------

    def open_frame(
        self, plan: Plan, parent: Frame | None, caller: PlannedNode | None, attribute: str, iteration: int | None
    ) -> Frame:
        """A new activation of a plan, with its weights bound."""
        recorder = self.recorder
        frame = Frame(len(recorder.frames), plan, parent, caller)
        outer, opened = parent.id if parent else None, len(recorder.rows)
        recorder.frames.append(FrameRow(plan, outer, caller, attribute, iteration, self.run_index, opened))
        self.weights.bind(frame)
        return frame

    def note_bindings(self, frame: Frame, how: Sequence[tuple[str, int, str]]) -> None:
        """Record which values a frame starts with: (name, slot, how), its weights apart."""
        if self.recorder.on:
            noted = [describe(name, frame.vals[slot], frame.stores[slot], manner) for name, slot, manner in how]
            weights = self.weights.described(frame.plan)
            self.recorder.frames[frame.id].bindings = (*weights, *noted)


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__
