"""The `Debugger` widget: traits and messages around a headless cursor. It draws nothing and decides nothing.

The page moves through recorded steps without asking the kernel. It asks the kernel at the live edge, to continue, to
run another op of the frontier, or to test a condition, and for a value, a diagnosis, or a fix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import traitlets

from kvviz.debugger import Breakpoint, Cursor, Stop
from kvviz.debugger.breakpoints import from_page
from kvviz.debugger.state import find_choice
from kvviz.engine.sessions.session import Session
from kvviz.fixes.forking import offers
from kvviz.trace.recording import Trace
from kvviz.view.export import lanes_to_html, to_html
from kvviz.view.page_data.payload import Payloads
from kvviz.view.page_data.payload_cache_rows import cache_payload
from kvviz.view.page_data.payload_values import attention, peek, values_payload
from kvviz.widget.laned_page import LanedPage
from kvviz.widget.lanes import Lanes
from kvviz.widget.page_widget import still_bundle, whole_number


class Debugger(LanedPage):
    """Step through a trace, and continue the run where the trace ends.

    Parameters
    ----------
    source : Session or Trace
        A session can run on; a trace can only be viewed.
    height : int
        Height of the widget in px.

    Attributes
    ----------
    cursor : int
        Number of the last completed step; -1 before the first. Synced: set it, observe it, or link two debuggers by it.
    decode_step : int
        Number of the run that the cursor is in. Synced.
    selection : dict or None
        ``{"kind": "node" | "storage" | "value" | "cache", "id": …, "graph": …}``. Synced.
    breakpoints : list of dict
        ``{"kind", "value", "enabled"}``; see `kvviz.debugger.Breakpoint`. A breakpoint that cannot be used gets an
        ``"error"`` that says why, and is skipped. Synced.
    lane : int
        Number of the lane that is shown: 0 is ``source``, others are forks of it. Synced: set it to show another lane
        at the same op.
    trace : Trace
        Of that lane.
    traces : dict of str to Trace
        Of all lanes, by their labels.
    fixed : Trace or None
        The run with the fix that was applied last.
    """

    # The payload's changes: since it was sent, and since the last change.
    edge = traitlets.Bytes().tag(sync=True)
    latest = traitlets.Bytes().tag(sync=True)
    cache_data = traitlets.Bytes().tag(sync=True)
    value_data = traitlets.Bytes().tag(sync=True)
    decode_step = traitlets.Int(0).tag(sync=True)
    selection = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    # The framed finding and the open table.
    place = traitlets.Dict().tag(sync=True)
    breakpoints: Any = traitlets.List().tag(sync=True)

    def __init__(self, source: Session | Trace, height: int = 800, **options: Any) -> None:
        self._lanes = Lanes(source)
        if self._cursor.session is not None:
            self._cursor.session.previews = True
            self._cursor.session.look_ahead()
        super().__init__(
            payload=self._payloads.encode(lazy=True),
            cache_data=cache_payload(self._cursor.trace),
            value_data=values_payload(self._cursor.trace),
            height=height,
            lanes=self._lanes.headers(),
            offers=offers(self._cursor.trace),
            **options,
        )

    @property
    def _cursor(self) -> Cursor:
        return self._here.cursor

    @property
    def _payloads(self) -> Payloads:
        return self._here.payloads

    def next(self) -> Stop:
        """Complete the next op of this frame, bodies included."""
        return self._do(self._cursor.next)

    def into(self) -> Stop:
        """Complete one more op, wherever it is; if a body comes next, its first op."""
        return self._do(self._cursor.into)

    over = next

    def out(self) -> Stop:
        """Run until the control node of this frame is complete; in the main graph, to the end of the next block."""
        return self._do(self._cursor.out)

    def back(self) -> Stop:
        """Go back to the previous op in this frame."""
        return self._do(self._cursor.back)

    def resume(self, until: str = "") -> Stop:
        """Go on to the next breakpoint, or to the end.

        Parameters
        ----------
        until : str
            A query, see `Trace.find`: the first step that it finds is a place to stop at, too.
        """
        wanted = Breakpoint("query", until) if until else None
        return self._do(lambda: self._cursor.resume(wanted))

    def reverse(self) -> Stop:
        """Go back to the last breakpoint, or to the start."""
        return self._do(self._cursor.reverse)

    def next_decode_step(self) -> Stop:
        """Go to the same op in the next run."""
        return self._do(self._cursor.next_decode_step)

    def goto(self, position: int) -> Stop:
        """Go to a step by its number, running on if it has not run yet."""
        return self._do(lambda: self._cursor.goto(position))

    def choose(self, node: Any) -> Stop:
        """Run an op of the frontier next. If another op has already run at this step, run it in a new lane."""
        cursor, at = self._cursor, self.cursor
        if at + 1 == len(self.trace.steps):
            return self._do(lambda: cursor.choose(node))
        frame, chosen = find_choice(self.trace, at + 1, node)
        row = self.trace.log[at + 1]
        if (row.frame, row.op.node) == (frame, chosen):
            return self.goto(at + 1)
        self.fork(at + 1, run=chosen)
        return Stop("step", self.cursor)

    def frontier(self) -> tuple[str, ...]:
        """Names of the ops that may run next."""
        self._cursor.position = self.cursor
        return tuple(node.name for node in self._cursor.frontier())

    def detail(self, run: int) -> None:
        """Load the steps of a run into the page.

        For a long recording, the page has the totals of all runs, but the steps of only some of them. It loads the
        steps of other runs when the cursor goes there, and keeps the last few that it loaded.

        Parameters
        ----------
        run : int

        Raises
        ------
        KvvizError
            If there is no such run, or its steps were not recorded.
        """
        if self._payloads.show(run):
            self._send_lanes(self.lane)

    def summarise(self, budget: int | str = "2 MB") -> Any:
        """Store summaries of the values in the recording and show them in the page; see `Trace.summarise`."""
        values = self.trace.summarise(budget)
        self.value_data = values_payload(self.trace)
        return values

    def to_html(self, path: Any = None) -> str:
        """The debugger, with all its lanes, in one file that needs neither a kernel nor a network."""
        if len(self.lanes) > 1:
            shown = list(self.traces).index(self._here.label)
            return lanes_to_html(self.traces, path, step=self.cursor, shown=shown, lanes=self.lanes)
        return to_html(self.trace, path, step=self.cursor, selection=self.selection, place=self.place)

    def _do(self, command: Any) -> Stop:
        before, runs = len(self.trace.steps), self._metered_runs()
        self._cursor.position = min(self.cursor, before - 1)
        self._cursor.breakpoints, _ = from_page(self.breakpoints)
        interrupted = False
        try:
            stop: Stop = command()
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            # Steps before an error or an interrupt are shown too.
            if len(self.trace.steps) != before:
                if self._cursor.session is not None:
                    self._cursor.session.look_ahead()
                self._send_edge(cures=not (interrupted or self.trace.interrupted))
                if self._metered_runs() != runs:
                    self.cache_data = cache_payload(self.trace, level=1)
            self.cursor = self._cursor.position
            self.decode_step = self._cursor.decode_step
        return stop

    def _send_edge(self, cures: bool = True) -> None:
        """Send what changed. The payload and its changes are all that the page, or a saved notebook, needs."""
        if self.main != self.lane:
            return self._send_lanes(self.lane)
        change = self._payloads.change(lazy=True, cures=cures)
        with self.hold_sync():
            if change is None:
                self.payload, change = self._payloads.encode(level=1, lazy=True, cures=cures), (b"", b"")
            edge, self.latest = change
            if edge is not None:
                self.edge = edge
            self.lanes = self._lanes.headers()
        return None

    def _send_payload(self, main: int) -> None:
        self.payload, self.edge, self.latest = self._lanes[main].payloads.encode(lazy=True), b"", b""

    def _send_aside(self) -> None:
        with self.hold_sync():
            self.value_data = values_payload(self.trace)
            self.cache_data = cache_payload(self.trace, level=1)
            super()._send_aside()

    def _metered_runs(self) -> int:
        return max((len(cache.runs) for cache in self.trace.caches), default=0)

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        do, number = str(message.get("do")), partial(whole_number, message)
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "value": lambda: peek(self.trace, str(message.get("value")), number("step", self.cursor)),
            "report": lambda: {"report": self._payloads.report(message.get("cures") is not False)},
            "attention": lambda: {"attention": attention(self.trace, *map(number, ("cache", "run", "query")))},
            "html": lambda: {"buffers": [self.to_html().encode()]},
        }
        commands: dict[str, Callable[[], object]] = {
            "summarise": self.summarise,
            "detail": lambda: self.detail(number("run")),
            "hazards": self._look_for_hazards,
            "choose": lambda: self.choose(self.trace.frames[number("frame")].graph.nodes[number("node")]),
            "next": self.next,
            "over": self.next,
            "into": self.into,
            "out": self.out,
            "continue": lambda: self.resume(message.get("until", "")),
            "next_decode": self.next_decode_step,
        }
        if do in answers:
            return answers[do]()
        if do not in commands:
            return super()._answer(message)
        commands[do]()
        return None

    def _look_for_hazards(self) -> None:
        if self._payloads.look_for_hazards():
            self._send_lanes(self.lane)

    @traitlets.validate("breakpoints")
    def _checked(self, proposal: Any) -> Any:
        """Add an error to each breakpoint that cannot be used; the page shows it too."""
        return from_page(proposal["value"])[1]

    @traitlets.observe("cursor")
    def _moved(self, change: Any) -> None:
        """Update the decode step after a cursor change from outside, and run on if the cursor is past the end."""
        if not hasattr(self, "_lanes"):
            return
        size = len(self.trace.steps)
        if change["new"] >= size:
            self.set_trait("cursor", size - 1)
            self.goto(change["new"])
        elif change["new"] >= 0:
            run = self.trace.frames[self.trace.log[change["new"]][0]].run
            # The page asks for steps itself when it stays at a run for a moment.
            if not self._following:
                self.detail(run)
            # For a run whose steps were not recorded, the cursor is at the last step before it.
            here = self.trace.runs[self.decode_step : self.decode_step + 1]
            if not any(bare.first == bare.last == change["new"] + 1 for bare in here):
                self.decode_step = run

    def __repr__(self) -> str:
        return f"<Debugger at step {self.cursor} of {self.trace!r}>"

    def _still(self) -> dict[str, Any]:
        return still_bundle(self.trace, self.cursor, self.selection)
