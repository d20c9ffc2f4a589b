"""Something that is running and can be run on: one run of a graph, or a decode loop of many runs.

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
from kvviz.engine.binding import check_inputs, end_run
from kvviz.engine.execution import Execution
from kvviz.engine.plan import Counts, PlannedNode
from kvviz.engine.planning import main_plan
from kvviz.engine.policy import Policy, ideal
from kvviz.engine.preview import preview
from kvviz.engine.recipe import given_inputs
from kvviz.engine.recorder import Recorder
from kvviz.engine.replay import Carried, Replayer, enter_frame, repeat
from kvviz.engine.weights import Weights
from kvviz.errors import KvvizError, ReplayError
from kvviz.graph.model import Graph, Node
from kvviz.interrupts import WAITING, changed_nothing, deliver, held_back
from kvviz.trace.policy_facts import PolicyFacts
from kvviz.trace.recording import Trace
from kvviz.trace.records import Live, Run
from kvviz.trace.run_options import RunOptions

_LOG = logging.getLogger(__name__)
# Ops that are left as they were written down, which is fast, before they are packed, which is small.
_UNSETTLED = 1 << 14


class Session:
    """One run of a graph that can be advanced; a decode loop overrides `next_run`.

    ``outputs``: values to compute; the graph's outputs by default.
    ``record``: whether to write the steps down.
    ``poison``: overwrite freed storages with a pattern, to catch a use after free.
    ``dry``: decide over layouts and compute no numbers, with what is stated of data; see `kvviz.dry`.
    """

    def __init__(
        self,
        graph: Graph,
        outputs: Sequence[str] | None = None,
        policy: Policy = ideal,
        record: bool = True,
        poison: bool = False,
        dry: Counts | None = None,
    ) -> None:
        self.policy = policy
        self.plan = main_plan(graph, None if outputs is None else tuple(outputs), self.policy, dry)
        self.graph = graph = self.plan.graph  # as the policy has it
        self.recorder = Recorder(record, poison)
        self.weights = Weights(graph, self.recorder.ledger, dry is not None)
        self.log = self.recorder.log
        told = (policy.name, policy.about, policy.version, policy.rules, policy.places_outputs)
        self.trace = Trace(graph, PolicyFacts(*told), self.log)
        self.trace.options = RunOptions(dry=dry is not None)
        self.trace.replayer = Replayer(self.plan, self.policy)
        self.trace.types_of = policy.types_of
        self.execution: Execution | None = None
        self.previews = False  # whether `look_ahead` also tells what each op would allocate and free
        self.on_run_end: Callable[[], Any] | None = None
        self._settled = 0  # ops that lie in the columns of the log
        self._torn = ""  # why the session cannot go on

    def begin(self, feeds: Mapping[str, Any], donate: Sequence[str], carried: Carried | None = None) -> None:
        """Start a run. ``carried`` tells which inputs are outputs of earlier runs."""
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
        self.recorder.untold = None
        self.recorder.ledger.peak_here = self.recorder.ledger.live
        self.trace.runs.append(Run(run, len(self.log), len(self.log)))
        self._before = self._totals()
        self.log.peak = self.recorder.ledger.peak

    def advance(self, choice: Node | None = None) -> bool:
        """Complete one more op, starting the next run where one is due; False when there is nothing left.

        ``choice``: an op of the frontier to run next, instead of the first one.

        Raises `KvvizError`: if that op is not in the frontier.
        """
        with held_back(), self._mended():
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
        """Run everything that is left. Stopping it from the keyboard leaves a valid trace of what ran, to be run on."""
        trace = self.trace
        trace.interrupted = False
        with held_back():
            try:
                while True:
                    deliver()
                    with self._mended():
                        if self.execution is None and not self.next_run():
                            break
                    self.finish_run()
            except KeyboardInterrupt:
                trace.interrupted = True
                if self.execution is not None:
                    self.note_run()
            trace.live = None
            if len(trace.runs) > 1:
                with self._mended():
                    self.log.settle()
            return note_interrupt(trace)

    def finish_run(self) -> None:
        """Run the present run to its end."""
        with held_back(), unwatched():
            while (execution := self.execution) is not None:
                with self._mended():
                    with np.errstate(all="ignore"):
                        while execution.step():
                            if WAITING:
                                break
                    self.note_run()
                    if execution.finished:
                        self._end_run()
                deliver()

    def look_ahead(self) -> Live | None:
        """Find out what may run next (entering bodies and starting the next run where that is what comes next)."""
        with held_back(), self._mended():
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
        """Run the steps before ``upto`` of a recording, in its order; nothing has run before."""
        follow(self, trace, upto)

    def take(self, trace: Trace, frame: int, node: Node) -> None:
        """Run an op that was ready in a recording that was followed up to here, in one of its frames."""
        self.look_ahead()
        assert self.execution is not None
        if self.execution.stack[-1].id < frame:
            enter_frame(self.execution, trace, frame)
        ready = self.execution.frame.frontier()
        self.advance(next(planned.node for planned in ready if planned.node.index == node.index))

    @property
    def run_is_over(self) -> bool:
        """Whether the present run has nothing left to do, so that the next step would belong to another one."""
        execution = self.execution
        return execution is None or (execution.frame is execution.main and execution.main.following() is None)

    # -- for subclasses ---------------------------------------------------------------------------------------------

    def next_run(self) -> bool:
        """Begin the next run of a loop of runs; False when there is none."""
        return False

    def ended(self, outputs: dict[str, Any]) -> None:
        """Take a finished run's outputs."""

    # -- what an exception from outside tore ------------------------------------------------------------------------

    @contextmanager
    def _mended(self) -> Iterator[None]:
        """Where something other than an error stops a step half-way, put things as they were before that step.

        `held_back` keeps signals away. A debugger or a tracing function may raise all the same.
        """
        if self._torn:
            raise KvvizError(self._torn)
        try:
            yield
        except Exception:
            raise
        except BaseException as error:
            if changed_nothing(error):
                if self.execution is not None:
                    self.note_run()
                raise
            self._torn = "the run was stopped inside an op, and its inputs were not kept; start it again"
            with suppress(ReplayError):
                self._mend()
            raise

    def _mend(self) -> None:
        """Run the whole steps again in a new session, and go on with what that has made."""
        trace, bell, previews = self.trace, self.on_run_end, self.previews
        again: Session = trace.recipe.session()
        follow(again, trace, len(trace.log))
        new = again.trace
        vars(self).update(vars(again), trace=trace, on_run_end=bell, previews=previews)
        vars(trace).update({**vars(new), "branch": trace.branch})

    # -- inside -----------------------------------------------------------------------------------------------------

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
        """Bring the totals of the present run up to date."""
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
    """Note on a trace that is done an interrupt that came too late to stop it, so that the trace is not lost."""
    try:
        deliver()
    except KeyboardInterrupt:
        trace.interrupted = True
    return trace


def whole(trace: Trace) -> Trace:
    """A trace that its caller needs all of. Raises `KeyboardInterrupt`: if somebody stopped it."""
    if trace.interrupted:
        raise KeyboardInterrupt
    return trace


# -- following --------------------------------------------------------------------------------------------------------
# Running the steps of a recording again in a session, in the recorded order, up to one of them.


def follow(session: Any, trace: Trace, upto: int) -> None:
    """Run the steps before ``upto`` of a recording, in a `Session` in which nothing has run; a session mends itself so.

    A run whose steps were dropped runs in the order of the plan.

    Raises `KvvizError`: if the session does not run one of these ops.
    """
    rows, runs = trace.log, trace.runs
    target = rows.frames[rows[upto].frame].run if upto < len(rows) else len(runs) - 1
    with held_back():
        for k in range(target + 1):
            if session.execution is None and not session.next_run():
                break
            execution = session.execution
            assert execution is not None
            stop = upto if k == target else runs[k + 1].first
            with np.errstate(all="ignore"):
                for row in rows[runs[k].first : stop]:
                    repeat(execution, trace, row)
                    deliver()
            session.note_run()
            if k < target:
                session.finish_run()
