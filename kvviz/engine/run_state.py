"""Recording while the engine runs: the log, the ledger of its storages, and which runs keep their steps.

A long decode keeps the totals of all runs, and the steps of the requested ones. The rest is a valid trace. Storages of
dropped runs are removed, unless they outlive their run; those are renumbered, so that a number is still an index into
the ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from kvviz.engine.frame import Frame
from kvviz.engine.ledger import Ledger
from kvviz.engine.plan import Counts, Plan, PlannedNode
from kvviz.engine.policy import Policy
from kvviz.errors import ExtensionError, InputError, KvvizError, LimitError, OpError, UnknownValueError
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import APPEND, IN_PLACE, Program
from kvviz.trace.schema.log import Log


class Recorder:
    """The writer of a log. ``on``: whether steps are logged (byte totals are counted either way). ``unlogged``: while a
    run begins after one whose steps were dropped, the first storage that no step refers to."""

    __slots__ = ("_programs", "ledger", "log", "on", "unlogged")

    def __init__(self, on: bool = True, poisoned: bool = False) -> None:
        self.on = on
        self.log = Log()
        self.ledger = Ledger(self.log.storages, poisoned)
        self.unlogged: int | None = None
        self._programs: dict[Plan, Program] = {}

    def program(self, plan: Plan) -> Program:
        found = self._programs.get(plan)
        if found is None:
            found = self._programs[plan] = Program(plan.graph, *plan.facts())
        return found

    def note_growth(self) -> None:
        """Log which storages the next logged op made larger."""
        grown = self.ledger.grown
        if self.on:
            self.log.grew += [(len(self.log), storage.id, more) for storage, more in grown]
        grown.clear()

    def note_written(
        self, planned: PlannedNode, args: Sequence[Any], outs: Sequence[Any], placed: Sequence[Any]
    ) -> None:
        """Log which rows the next logged op overwrote in the storages of its inputs."""
        if self.on and planned.written is not None:
            parts = planned.written(args, outs, planned.attributes)
            kept = tuple([part for part in parts if placed[part[0]][2] in (IN_PLACE, APPEND)])
            if kept:
                self.log.declared.written[len(self.log)] = kept

    def note_freed(self, freed: list[int]) -> None:
        if self.unlogged is not None:
            for storage in (storage for storage in freed if storage >= self.unlogged):
                # No step made it, so it must not appear to be alive.
                self.log.storages.resize(storage, 0)
            freed = [storage for storage in freed if storage < self.unlogged]
        if freed and len(self.log):
            self.log.free(freed)


class Detail:
    def __init__(self) -> None:
        # Number of the first storage that no kept step refers to; None after a run that was kept.
        self._since: int | None = None

    def begin(self, trace: Trace) -> None:
        if self._since is None:
            self._since = len(trace.log.storages)

    def keep(self) -> None:
        self._since = None

    def forget(self, trace: Trace, recorder: Recorder) -> None:
        """Drop the steps of the run that has ended; its totals stay."""
        log, since = trace.log, self._since
        assert since is not None
        run = trace.runs[-1]
        first = bisect_left(log.frames, run.index, key=lambda frame: frame.run)
        gone = log[run.first :]
        log.cut(run.first, first)
        run.last = run.first
        trace.forget(first)
        # Storages of kept steps that this run released died after the last kept step.
        died = [storage for op in gone for storage in op.freed if storage < since]
        recorder.note_freed(died)
        log.later.update(died)
        recorder.unlogged = since
        log.grew = [grown for grown in log.grew if grown[1] < since]
        recorder.ledger.renumber(since)
        for cache in trace.caches:
            cache.unplace(since)


class RunState(Protocol):
    """The state of one run of a graph, as `kvviz.engine.execution.Execution` has it. ``captures``: the policy's rule
    for captured values. ``placed``: whether the policy decides where each output lives. ``stack``: the open frames,
    innermost last."""

    policy: Policy
    dry: Counts | None
    recorder: Recorder
    ledger: Ledger
    captures: Callable[..., Any]
    placed: bool
    main: Frame
    stack: list[Frame]

    def execute(self, frame: Frame, planned: PlannedNode, ran: tuple[Any, Any, Any, Any] | None = None) -> None: ...

    def open_frame(
        self, plan: Plan, parent: Frame | None, caller: PlannedNode | None, attribute: str, iteration: int | None
    ) -> Frame: ...

    def note_bindings(self, frame: Frame, how: Sequence[tuple[str, int, str]]) -> None: ...

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
    ) -> None: ...


def raise_failure(planned: PlannedNode, args: Sequence[Any], error: Exception) -> NoReturn:
    node = planned.node
    if isinstance(error, (ExtensionError, InputError, UnknownValueError)):
        raise error
    if isinstance(error, MemoryError):
        raise LimitError(
            f"node {node.name!r} ({node.qualified_op}) needs more memory than there is: {error}"
        ) from error
    if isinstance(error, LimitError):
        raise LimitError(f"node {node.name!r} ({node.qualified_op}): {error}") from error
    inputs = ", ".join(f"{name} {_brief(value)}" for name, value in zip(node.inputs, args) if name)
    reason = str(error) if isinstance(error, KvvizError) else f"{type(error).__name__}: {error}"
    raise OpError(f"node {node.name!r} ({node.qualified_op}) failed: {reason} (inputs: {inputs})") from error


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__
