"""The step program: what a plan did twice with the same decisions runs as straight-line code from then on.

`Execution.step` finds out for every op whether it may run in place, where its output lives, what dies with it, and what
the log says of it. In a loop all of this is as it was a moment ago. So two runs of a plan, or of a body, are watched
(`Watch`), op by op. What they did alike becomes a `Segment`: Python source with one kernel call an op, its inputs and
outputs in the slots of the frame, and the values that die set to None. What ran differently stays an ordinary step
between two segments, as do control nodes, ops that write rows inside a value, values that are no arrays, and kernels of
the caller's own.

A decision hangs on the layouts of inputs, on who holds them, and on what is read later. The last is the plan's. The
first two are compared when a segment begins (`Segment.look`), and after each op its output is compared with what was
watched. An output whose size grew from one watched run to the next (`loose`) may have another size each time: its
layout is written down as it comes, and ops that read it ask again what an input in place hangs on. An op that appends
to an input of the graph asks each time whether there is room.

Where anything differs, or Ctrl-C waits, the code stops, and the ordinary step goes on there: `Segment.run` first brings
frame, ledger and log to where they would be after the ops that have run. Nothing else is done per op: numbers of
storages, bytes and rows of the log follow from the template (`Done`), whose rows are made when the log is read, and
from what loose ops note in flat lists (`Facts`). A view with the same arguments of an input that lies where it lay is
made without its kernel (`_same_view`); its layout need not be compared.

A main graph all of whose ops did twice the same, also in the branches that it took, has a `PreparedCall`, which does
less still.

Runs on ghosts, with poison, with a pool or homes of a policy, or under a rule of the caller's own have no program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvviz.engine import decide
from kvviz.engine.frame import Frame
from kvviz.engine.ledger import Ledger
from kvviz.engine.plan import Plan
from kvviz.engine.policy import Policy
from kvviz.engine.program.prepared_call import PreparedCall, prepared
from kvviz.engine.program.segment import Segment
from kvviz.engine.program.watched_run import Seen, Watch
from kvviz.interrupts import interruptible

# Fewer ops in a row are not worth a segment, which costs as much as some steps: more where frames open all the time.
_SHORTEST, _SHORTEST_INNER = 4, 6
_PATIENCE = 8  # how often two watched runs of a plan are compared, and for how many ways to donate


class StepProgram:
    """The segments of a plan, in the order of running, and how often it ran otherwise. ``segments``: those without code
    are only looked at. ``call``: if it ``may_call``, of the main graph, and all its ops did twice the same."""

    def __init__(self, may_call: bool) -> None:
        self._may_call = may_call
        self.segments: tuple[Segment, ...] = ()
        self.call: PreparedCall | None = None
        self._last: Watch | None = None
        self._learned = 0
        self._missed = 0
        self._failed = 0
        self._turned = False  # an If took another branch in the last watched run than before

    @property
    def watches(self) -> bool:
        """Whether the next run is to be watched."""
        ready = self.call or (self.segments and all(segment.code for segment in self.segments))
        return self._learned < _PATIENCE and (not ready or self._turned or self._missed > 2)

    def watch(self, frame: Frame, attribute: str) -> Watch | None:
        """What takes down a frame of the plan; those of the branches that it takes are taken down, too."""
        outer: Watch | None = frame.parent.watch if frame.parent is not None else None
        branch = outer is not None and frame.caller is not None and frame.caller.control == "If"
        if not branch and not self.watches:
            return None
        watch = Watch()
        if outer is not None and frame.caller is not None and branch:
            outer.bodies[frame.caller.position] = attribute, frame.plan, watch
        return watch

    def by_position(self) -> dict[int, Segment]:
        """The segments by the position of their first op."""
        return {segment.first: segment for segment in self.segments}

    def ran(self, segment: Segment, begun: bool, whole: bool) -> None:
        """A segment was tried. If two in a row stop half-way, or the first begins no longer, watch the plan again."""
        if whole:
            self._missed = 0
        else:
            self._missed += 2 if begun else segment is self.segments[0]

    def called(self, whole: bool) -> None:
        """The call was tried. If three in a row did not come to their end, watch the plan again."""
        self._failed = 0 if whole else self._failed + 1
        if self._failed > 2:
            self.call, self._failed, self._missed = None, 0, 3

    def learn(self, plan: Plan, watch: Watch) -> None:
        """Compare a watched run with the one before. Ctrl-C is heard at once, as nothing has changed by then."""
        if self._last is not None:
            with interruptible():
                watch.compare(plan, self._last, self._missed > 0)
                segments = _segments(plan, watch)
                ready = self._may_call and all(segment.code for segment in segments)
                call = prepared(plan, watch, segments) if ready else None
            self._learned += 1
            self._missed, self.segments, self.call = 0, segments, call
            self._turned = self._may_call and watch.repeated.keys() < watch.bodies.keys()
        self._last = watch


def _segments(plan: Plan, watch: Watch) -> tuple[Segment, ...]:
    segments = []
    least = _SHORTEST_INNER if plan.graph.path else _SHORTEST
    for first, stop in _stretches(len(plan.order), watch.alike, least):
        segment = Segment(plan, first, stop)
        slots, start, uses = watch.starts.get(first, ((), None, []))
        if start is not None and slots == segment.slots:
            segment.start, segment.uses = start, uses
            segment.build([watch.alike[position] for position in range(first, stop)], watch.loose)
        segments.append(segment)
    return tuple(segments)


def _stretches(count: int, alike: Mapping[int, Seen], least: int) -> Iterator[tuple[int, int]]:
    first = 0
    for position in range(count + 1):
        if position not in alike:
            if position - first >= least:
                yield first, position
            first = position + 1


def program_of(plan: Plan, ledger: Ledger, policy: Policy, donate: frozenset[str]) -> StepProgram | None:
    """The program of a plan with inputs that may be overwritten, made step by step; None if its runs have none."""
    rules = policy.in_place in (decide.ideal, decide.never)
    if plan.dry is not None or ledger.poisoned or policy.homes is not None or ledger.pool is not None or not rules:
        return None
    programs: dict[frozenset[str], StepProgram] = plan.programs
    if donate not in programs and len(programs) < _PATIENCE:
        programs[donate] = StepProgram(not donate and not plan.graph.path)
    return programs.get(donate)
