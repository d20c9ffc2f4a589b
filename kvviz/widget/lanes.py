"""Lanes of a debugger: traces over the same inputs, each with its own cursor. Independent of Jupyter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvviz.debugger import Cursor
from kvviz.engine.sessions.session import Session
from kvviz.errors import KvvizError
from kvviz.explain.difference import align, partner
from kvviz.explain.figures import finished
from kvviz.trace.recording import Trace
from kvviz.trace.units import unused
from kvviz.view.page_data.payload import Payloads
from kvviz.view.page_data.payload_lanes import lane_header, pack_lanes

MOST = 8


@dataclass(slots=True, eq=False)
class Lane:
    """One lane. ``of``: number of the lane that it left; None for the first one."""

    number: int
    label: str
    of: int | None
    cursor: Cursor
    payloads: Payloads

    @property
    def trace(self) -> Trace:
        return self.cursor.trace


class Lanes:
    """All lanes of a debugger, by number; the first one is 0 and stays."""

    def __init__(self, source: Session | Trace) -> None:
        cursor = Cursor(source)
        self._by_number = {0: Lane(0, cursor.trace.label, None, cursor, Payloads(cursor.trace))}
        self._next = 1
        self._headers: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._packed: dict[int, tuple[Any, bytes]] = {}

    def __getitem__(self, number: int) -> Lane:
        lane = self._by_number.get(number)
        if lane is None:
            raise KvvizError(self.missing(number))
        return lane

    def missing(self, number: Any) -> str:
        return f"there is no lane {number}; there are {', '.join(map(str, self._by_number))}"

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def __len__(self) -> int:
        return len(self._by_number)

    def add(self, source: Session | Trace, of: int, label: str | None = None) -> Lane:
        """Add a lane. For a long recording, it sends the steps of the same runs as the lane that it left. Raises
        `KvvizError` if there are too many."""
        if len(self) >= MOST:
            raise KvvizError(f"there are {MOST} lanes already: close one of them first")
        cursor = Cursor(source)
        taken = {lane.label for lane in self._by_number.values()}
        name = unused(label or cursor.trace.label, taken)
        lane = Lane(self._next, name, of, cursor, Payloads(cursor.trace, self[of].payloads.runs()))
        self._by_number[lane.number] = lane
        self._next += 1
        return lane

    def rename(self, number: int, label: str) -> None:
        self[number].label = label
        self._headers.clear()

    def remove(self, number: int) -> int:
        """Remove a lane; raises `KvvizError` for the first one. Its forks become forks of the lane that it left, whose
        number is returned."""
        of = self[number].of
        if of is None:
            raise KvvizError("the first lane cannot be closed: the others were forked from it")
        del self._by_number[number]
        for lane in self._by_number.values():
            if lane.of == number:
                lane.of = of
        self._headers.clear()
        return of

    def headers(self) -> list[dict[str, Any]]:
        """The page's data on each lane, updated if a run has ended since."""
        return [self._header(lane) for lane in self._by_number.values()]

    def _header(self, lane: Lane) -> dict[str, Any]:
        left = None if lane.of is None else self[lane.of]
        traces = [lane.trace] if left is None else [lane.trace, left.trace]
        key = [(finished(trace), trace.live is None) for trace in traces]
        known = self._headers.get(lane.number)
        if known is None or known[0] != key:
            beside = None if left is None else (left.number, left.label, left.trace)
            known = self._headers[lane.number] = key, lane_header(lane.number, lane.label, lane.trace, beside)
        return known[1]

    def pack(self, without: int) -> bytes:
        """Payloads of all lanes but one; empty if there is no other."""
        others = [lane for lane in self._by_number.values() if lane.number != without]
        return pack_lanes({str(lane.number): self._payload(lane) for lane in others}) if others else b""

    def _payload(self, lane: Lane) -> bytes:
        key = (len(lane.trace.log), lane.trace.live is None, lane.payloads.runs())
        known = self._packed.get(lane.number)
        if known is None or known[0] != key:
            known = self._packed[lane.number] = key, lane.payloads.encode(lazy=True)
        return known[1]

    def partner(self, lane: int, other: int, step: int) -> int:
        """The step of another lane at which the same op ran, or the nearest earlier one with a partner."""
        if lane == other:
            return step
        return partner(align(self[lane].trace, self[other].trace)[0], step)


def catch_up(session: Session, step: int, trace: Trace) -> None:
    """Run a forked session as far as the trace that it left: to the end of the runs that the trace has finished. If
    ``step``, at which it left, is in the unfinished run, the session stays there."""
    if trace.live is None and not trace.interrupted:
        session.run_to_end()
        return
    done = finished(trace)
    if step < len(trace.log) and trace.log.frames[trace.log[step].frame].run >= done:
        return
    while len(session.trace.runs) < done or (session.execution is not None and len(session.trace.runs) == done):
        if session.execution is None and not session.next_run():
            break
        session.finish_run()
