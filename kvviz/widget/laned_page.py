"""A page that shows one of several lanes: a recording, and others that left it by a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import traitlets

from kvviz.debugger.state import frame_id_after
from kvviz.errors import KvvizError
from kvviz.fixes.forking import Departure, fork_session, offers
from kvviz.trace.recording import Trace
from kvviz.view.page_modules import page_modules
from kvviz.widget.lanes import Lane, Lanes, catch_up
from kvviz.widget.page_widget import Page, whole_number


class NoLaneError(KvvizError, traitlets.TraitError):
    """A lane that does not exist was requested. As a `TraitError`, it makes traitlets keep the old value."""


class LanedPage(Page):
    """The part of a debugger that manages its lanes.

    ``lane``: number of the lane that is shown. Synced: set it to show another lane at the same op.
    ``lanes``: the page's data on each lane. Synced.
    ``main``: number of the lane of ``payload``; the payloads of other lanes are in ``branches``. Synced.
    ``offers``: what could be changed for the whole run of the shown lane. Synced.
    """

    # Parts of the page that are loaded on demand.
    modules = traitlets.Bytes().tag(sync=True)
    lanes: Any = traitlets.List().tag(sync=True)
    branches = traitlets.Bytes().tag(sync=True)
    lane = traitlets.Int(0).tag(sync=True)
    main = traitlets.Int(0).tag(sync=True)
    offers: Any = traitlets.Dict().tag(sync=True)
    # The lane of the data outside payloads: rows of caches, summaries of values.
    data_of = traitlets.Int(0).tag(sync=True)

    fixed: Trace | None = None
    _following = False
    _lanes: Lanes
    _shown = 0  # the lane of the cursor

    @traitlets.default("modules")
    def _packed(self) -> bytes:
        return page_modules()

    @property
    def _here(self) -> Lane:
        return self._lanes[self.lane]

    @property
    def trace(self) -> Trace:
        """The trace that is shown."""
        return self._here.trace

    @property
    def traces(self) -> dict[str, Trace]:
        """The traces of all lanes, by their labels."""
        return {header["label"]: self._lanes[header["id"]].trace for header in self.lanes}

    def fork(self, step: int | None = None, **change: Any) -> Trace:
        """Run again with a change, and show the result as a new lane.

        Parameters
        ----------
        step : int, optional
            Where to leave the recorded order; see `kvviz.fork`. By default the next step if ``run`` is given, else the
            beginning.
        **change
            ``run``, ``donate``, ``reserve``, ``kv_capacity``, ``policy``, ``fix`` or ``order``, as in `kvviz.fork`.

        Returns
        -------
        Trace
            If the present trace is unfinished, so is this one; it has run equally far.
        """
        left, at = self._here, self.cursor
        if step is None:
            step = at + 1 if change.get("run") is not None else 0
        session = fork_session(left.trace, step, Departure(**change))
        reached = len(session.trace.steps) - 1
        catch_up(session, step, left.trace)
        session.previews = True
        session.look_ahead()
        lane = self._lanes.add(session, left.number)
        self._show(lane.number, reached if change.get("run") is not None else None)
        return lane.trace

    def fix(self, step: int, blocker: int = 0) -> Trace:
        """Run again with the change that lets a missed op run in place, and show the result as a lane.

        Parameters
        ----------
        step : int
            A step at which the op was missed.
        blocker : int
            Which of its reasons to remove, by its place in ``report.missed[…].blockers``.

        Returns
        -------
        Trace
            The new run.

        Raises
        ------
        KvvizError
            If the step was not missed, or nothing can be changed about this reason.
        """
        missed = next((m for m in self._here.payloads.diagnosis().missed if step in m.steps), None)
        reasons = missed.blockers if missed is not None else ()
        change = reasons[blocker].fix if 0 <= blocker < len(reasons) else None
        if change is None:
            raise KvvizError(f"there is no fix for reason {blocker} of step {step}: see kvviz.explain(trace).missed")
        return self.apply(change, step)

    def apply(self, fix: Any, step: int | None = None) -> Trace:
        """Run again with a fix of the report, and show the result as a lane.

        Parameters
        ----------
        fix : Fix
            Of a blocker, or of a finding about a cache.
        step : int, optional
            The step to look at; the present one by default.

        Returns
        -------
        Trace
            The new run.
        """
        if step is not None:
            self.cursor = step
        self.fixed = after = self.fork(fix=fix)
        return after

    def close_lane(self, lane: int | None = None) -> None:
        """Undo a fork: remove its lane.

        Parameters
        ----------
        lane : int, optional
            The shown lane by default. Then the lane that it left is shown, at the same op.
        """
        number = self.lane if lane is None else lane
        of = self._lanes[number].of
        if of is None or self.lane != number:
            self._lanes.remove(number)
            return self._send_lanes(self.lane)
        at = self._lanes.partner(number, of, self.cursor)
        self._lanes.remove(number)
        self._show(of, at)
        return None

    def _show(self, number: int, at: int | None = None) -> None:
        """Show a lane at a step, or at the same op as now."""
        if at is None:
            at = self._lanes.partner(self.lane, number, self.cursor)
        self._send_lanes(number, at)

    def _send_lanes(self, main: int, at: int | None = None) -> None:
        """Send the payloads of all lanes, with lane ``main`` as the page's own."""
        with self._led(), self.hold_sync():
            self._send_payload(main)
            self.branches = self._lanes.pack(main)
            self.lanes = self._lanes.headers()
            self.main = self._shown = self.lane = main
            if at is not None:
                self.cursor = at
            self._send_aside()

    @contextmanager
    def _led(self) -> Iterator[None]:
        """Changes of the cursor and the lane in this block have no consequences."""
        before, self._following = self._following, True
        try:
            yield
        finally:
            self._following = before

    def _send_payload(self, main: int) -> None:
        raise NotImplementedError

    def _send_aside(self) -> None:
        self.offers = offers(self.trace)
        self.data_of = self.lane

    def set_state(self, sync_data: Any) -> None:
        """Apply the page's state without following its moves, which the page has made already."""
        with self._led():
            super().set_state(sync_data)

    @traitlets.validate("lane")
    def _known(self, proposal: Any) -> Any:
        if hasattr(self, "_lanes") and proposal["value"] not in self._lanes:
            raise NoLaneError(self._lanes.missing(proposal["value"]))
        return proposal["value"]

    @traitlets.observe("lane")
    def _changed(self, change: Any) -> None:
        if not hasattr(self, "_lanes") or change["new"] == self._shown:
            return
        old, self._shown = self._shown, change["new"]
        if not self._following and old in self._lanes:
            with self._led():
                self.cursor = self._lanes.partner(old, change["new"], self.cursor)
        self._send_aside()

    def _stand_where(self, message: Mapping[str, Any]) -> None:
        """Move to the lane and step of a message, which may arrive before the traits that set them."""
        shown, at = message.get("shown", self.lane), message.get("at", self.cursor)
        if shown not in self._lanes or (shown, at) == (self.lane, self.cursor):
            return
        with self._led():
            self.lane = shown
            self.cursor = max(-1, min(whole_number({"at": at}, "at"), len(self.trace.steps) - 1))

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        do = message.get("do")
        if do == "fix":
            self._apply(message)
        elif do == "fork" and "fix" in (message.get("change") or {}):
            self._apply(message["change"]["fix"])
        elif do == "fork":
            self.fork(**self._asked(message))
        elif do == "close_lane":
            self.close_lane(whole_number(message, "lane"))
        else:
            return super()._answer(message)
        return None

    def _apply(self, request: Mapping[str, Any]) -> None:
        if "finding" in request:
            findings, number = self._here.payloads.diagnosis().findings, whole_number(request, "finding")
            if not 0 <= number < len(findings) or findings[number].fix is None:
                raise KvvizError(f"finding {number + 1} of {len(findings)} has no fix: see kvviz.findings(trace)")
            here = findings[number].step if self.cursor not in findings[number].at else None
            self.apply(findings[number].fix, here)
        else:
            self.fix(whole_number(request, "step"), whole_number(request, "blocker"))

    def _asked(self, message: Mapping[str, Any]) -> dict[str, Any]:
        change = dict(message.get("change") or {})
        known = {"run", "donate", "reserve", "kv_capacity", "policy", "order"}
        if not change or not change.keys() <= known:
            raise KvvizError(
                f"the page asked for a fork with {', '.join(change) or 'nothing'}, which is not known here"
            )
        if isinstance(change.get("run"), Mapping):
            frame = frame_id_after(self.trace, whole_number(message, "step") - 1)
            if frame is None:
                raise KvvizError(f"nothing is left to run at step {message['step']}")
            nodes, number = self.trace.frames[frame].graph.nodes, whole_number(change["run"], "node")
            if not 0 <= number < len(nodes):
                raise KvvizError(f"there is no node {number} in the graph that runs at step {message['step']}")
            change["run"] = nodes[number]
        return {"step": whole_number(message, "step"), **change}
