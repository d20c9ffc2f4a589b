"""A session: one run of a graph, or a decode loop of many runs, that can be stopped between ops and continued.

A debugger, the widget and `run` all drive a session; it appends to one trace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from kvviz.collector import unwatched
from kvviz.engine.binding import Weights, check_inputs, end_run
from kvviz.engine.execution import Execution, preview
from kvviz.engine.plan import Counts, Plan, PlannedNode
from kvviz.engine.planning import main_plan
from kvviz.engine.policy import Policy, ideal
from kvviz.engine.run_state import Recorder
from kvviz.engine.sessions.recipe import given_inputs
from kvviz.engine.sessions.replay import Carried, Replayer, enter_frame, repeat
from kvviz.errors import KvvizError, ReplayError
from kvviz.graph.model import Graph, Node
from kvviz.interrupts import changed_nothing, deliver, held_back
from kvviz.trace.recording import Trace
from kvviz.trace.records import Live, Run
from kvviz.trace.schema.run_options import RunOptions
from kvviz.trace.trace_data import PolicyFacts

_LOG = logging.getLogger(__name__)
# After this many ops, appended as rows, which is fast, they are packed into columns, which is small.
_UNSETTLED = 1 << 14


class Session:
    """One run of a graph that can be advanced; a decode loop overrides `next_run`.

    ``outputs``: values to compute; the graph's outputs by default.
    ``record``: whether to log the steps.
    ``poison``: overwrite freed storages with a pattern, to catch a use after free.
    ``dry``: if given, the run decides over layouts and computes no numbers, and these are the counts that depend on
      data; see `kvviz.dry`.
    ``plan``: that of the graph and these options, if it is at hand.
    """

    def __init__(
        self,
        graph: Graph,
        outputs: Sequence[str] | None = None,
        policy: Policy = ideal,
        record: bool = True,
        poison: bool = False,
        dry: Counts | None = None,
        plan: Plan | None = None,
    ) -> None:
        self.policy = policy
        self.plan = plan or main_plan(graph, None if outputs is None else tuple(outputs), self.policy, dry)
        self.graph = graph = self.plan.graph  # as the policy rewrites it
        self.recorder = Recorder(record, poison)
        self.weights = Weights(graph, self.recorder.ledger, dry is not None)
        self.log = self.recorder.log
        facts = PolicyFacts(policy.name, policy.about, policy.version, policy.rules, policy.places_outputs)
        self.trace = Trace(graph, facts, self.log)
        if dry is not None:
            self.trace.options = RunOptions(dry=True)
        self.trace.replayer = Replayer(self.plan, self.policy)
        self.trace.types_of = policy.types_of
        self.execution: Execution | None = None
        self.previews = False  # whether `look_ahead` also finds what each op would allocate and free
        self.on_run_end: Callable[[], Any] | None = None
        self._settled = 0  # ops that lie in the columns of the log
        self._broken = ""  # why the session cannot continue

    def begin(self, feeds: Mapping[str, Any], donate: Sequence[str], carried: Carried | None = None) -> None:
        """Start a run. ``carried``: the inputs that are outputs of earlier runs."""
        checked = check_inputs(self.graph, feeds, donate)
        run = len(self.trace.runs)
        self.trace.replayer.note(checked, frozenset(donate), carried or {})
        if not run and self.trace.options.kind != "stream":
            kept = self.trace.replayer.runs[0]
            given = given_inputs(checked) if kept is None else kept.kept.given
            self.trace.options = replace(self.trace.options, given=given)
        with np.errstate(all="ignore"):
            self.execution = Execution(
                self.plan, checked, frozenset(donate), self.policy, self.recorder, self.weights, run
            )
        self.recorder.unlogged = None
        self.recorder.ledger.peak_here = self.recorder.ledger.live
        self.trace.runs.append(Run(run, len(self.log), len(self.log)))
        self._before = self._totals()
        self.log.peak = self.recorder.ledger.peak

    def advance(self, choice: Node | None = None) -> bool:
        """Complete one more op, and start the next run if one is due; False when nothing is left to run. ``choice``: an
        op of the frontier to run next, instead of the first one. Raises `KvvizError`: if that op is not in the
        frontier."""
        with held_back(), self._repaired():
            while True:
                if self.execution is None and not self.next_run():
                    self.trace.live = None
                    return False
                execution = self.execution
                assert execution is not None
                with np.errstate(all="ignore"):
                    moved = execution.step(self._pick(choice))
                self.note_run()
                if moved:
                    return True
                self._end_run()

    def run_to_end(self) -> Trace:
        """Run everything that is left. After Ctrl-C the trace is valid, and the session can be continued."""
        trace = self.trace
        trace.interrupted = False
        with held_back():
            try:
                while True:
                    deliver()
                    with self._repaired():
                        if self.execution is None and not self.next_run():
                            break
                    self.finish_run()
            except KeyboardInterrupt:
                trace.interrupted = True
                if self.execution is not None:
                    self.note_run()
            trace.live = None
            if len(trace.runs) > 1:
                with self._repaired():
                    self.log.settle()
            return note_interrupt(trace)

    def finish_run(self) -> None:
        with held_back(), unwatched():
            while (execution := self.execution) is not None:
                with self._repaired():
                    with np.errstate(all="ignore"):
                        execution.run()
                    self.note_run()
                    if execution.finished:
                        self._end_run()
                deliver()

    def look_ahead(self) -> Live | None:
        """What may run next. Bodies are entered, and the next run is started, if nothing else can come next."""
        with held_back(), self._repaired():
            while True:
                if self.execution is None and not self.next_run():
                    self.trace.live = None
                    break
                execution = self.execution
                assert execution is not None
                execution.settle()
                self.log.peak = self.recorder.ledger.peak
                if not execution.finished:
                    frame = execution.frame
                    ready = frame.frontier()
                    costs = tuple(preview(execution, frame, p) for p in ready) if self.previews else ()
                    self.trace.live = Live(frame.id, tuple(p.node for p in ready), costs)
                    break
                self._end_run()
            return self.trace.live

    def follow(self, trace: Trace, upto: int) -> None:
        """Run the steps before ``upto`` of a recording in its order, in a session in which nothing has run yet. A run
        whose steps were dropped runs in the order of the plan. Raises `KvvizError`: if the session does not run one of
        these ops."""
        rows, runs = trace.log, trace.runs
        target = rows.frames[rows[upto].frame].run if upto < len(rows) else len(runs) - 1
        with held_back():
            for k in range(target + 1):
                if self.execution is None and not self.next_run():
                    break
                execution = self.execution
                assert execution is not None
                stop = upto if k == target else runs[k + 1].first
                with np.errstate(all="ignore"):
                    for row in rows[runs[k].first : stop]:
                        repeat(execution, trace, row)
                        deliver()
                self.note_run()
                if k < target:
                    self.finish_run()

    def take(self, trace: Trace, frame: int, node: Node) -> None:
        """Run an op that was ready, in one of its frames, in the recording that was followed up to here."""
        self.look_ahead()
        assert self.execution is not None
        if self.execution.stack[-1].id < frame:
            enter_frame(self.execution, trace, frame)
        ready = self.execution.frame.frontier()
        self.advance(next(planned.node for planned in ready if planned.node.index == node.index))

    @property
    def run_is_over(self) -> bool:
        """Whether the current run has no ops left, so that the next step would belong to another run."""
        execution = self.execution
        return execution is None or (execution.frame is execution.main and execution.main.following() is None)

    def next_run(self) -> bool:
        return False

    def ended(self, outputs: dict[str, Any]) -> None:
        """Receive the outputs of a finished run."""

    @contextmanager
    def _repaired(self) -> Iterator[None]:
        """If something other than an error stops a step half-way, restore the state before that step. `held_back`
        defers Ctrl-C, but other signal handlers and tracing functions can still raise."""
        if self._broken:
            raise KvvizError(self._broken)
        try:
            yield
        except Exception:
            raise
        except BaseException as error:
            if changed_nothing(error):
                if self.execution is not None:
                    self.note_run()
                raise
            self._broken = "the run was stopped inside an op, and its inputs were not kept; start it again"
            with suppress(ReplayError):
                self._repair()
            raise

    def _repair(self) -> None:
        """Repeat the completed steps in a new session, and continue with its state."""
        trace, on_run_end, previews = self.trace, self.on_run_end, self.previews
        again: Session = trace.recipe.session()
        again.follow(trace, len(trace.log))
        new = again.trace
        vars(self).update(vars(again), trace=trace, on_run_end=on_run_end, previews=previews)
        vars(trace).update({**vars(new), "branch": trace.branch})

    def _pick(self, choice: Node | None) -> PlannedNode | None:
        if choice is None:
            return None
        assert self.execution is not None
        self.execution.settle()
        frontier = self.execution.frame.frontier()
        for planned in frontier:
            if planned.node is choice:
                return planned
        names = ", ".join(planned.node.name for planned in frontier[:8])
        raise KvvizError(f"node {choice.name!r} cannot run next; the frontier is {names}")

    def _totals(self) -> tuple[int, int, int]:
        return self.log.copied, self.log.written, self.log.allocated

    def note_run(self) -> None:
        run, before = self.trace.runs[-1], self._before
        run.last = len(self.log)
        copied, written, allocated = self._totals()
        run.bytes_copied, run.bytes_written, run.bytes_allocated = (
            copied - before[0],
            written - before[1],
            allocated - before[2],
        )
        run.peak_bytes = self.recorder.ledger.peak_here
        self.log.peak = self.recorder.ledger.peak

    def _end_run(self) -> None:
        assert self.execution is not None
        outputs = self.execution.outputs()
        self.trace.outputs = outputs
        run = self.trace.runs[-1]
        _LOG.debug("run %d of %s: %d ops, peak %d B", run.index, self.trace.title, run.last - run.first, run.peak_bytes)
        end_run(self.execution)
        if len(self.log) - self._settled > _UNSETTLED:
            self.log.settle()
            self._settled = len(self.log)
        self.execution = None
        self.ended(outputs)
        if self.on_run_end is not None:
            self.on_run_end()


def note_interrupt(trace: Trace) -> Trace:
    """Mark a finished trace as interrupted if Ctrl-C came too late to stop it: the trace is returned, not lost."""
    try:
        deliver()
    except KeyboardInterrupt:
        trace.interrupted = True
    return trace


def whole(trace: Trace) -> Trace:
    """A trace that has to be complete; raises `KeyboardInterrupt` if it was interrupted."""
    if trace.interrupted:
        raise KeyboardInterrupt
    return trace
