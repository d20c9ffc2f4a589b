"""Two traces side by side with one cursor: where one goes, the other follows to the same op of the same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets

from kvviz.explain.compare import align
from kvviz.trace.recording import Trace
from kvviz.view.export import pair_to_html
from kvviz.view.page_modules import page_modules
from kvviz.view.payload import Payloads
from kvviz.view.payload_pair import pair_payload, partner
from kvviz.widget.page_widget import Page
from kvviz.widget.peek import peek
from kvviz.widget.still_image import still_pair

NOTHING: np.ndarray = np.empty(0, np.int64)


class Paired(Page):
    """A page that can show a second trace beside its own.

    ``partner``: step of the second trace that is shown beside ``cursor``. Synced: set either, the other follows.
    """

    # Parts of the page that it loads when they are first looked at.
    modules = traitlets.Bytes().tag(sync=True)
    other = traitlets.Bytes().tag(sync=True)
    match = traitlets.Bytes().tag(sync=True)
    partner = traitlets.Int(-1).tag(sync=True)

    # Steps of each trace by those of the other one.
    _ways = (NOTHING, NOTHING)
    _following = False

    @traitlets.default("modules")
    def _packed(self) -> bytes:
        return page_modules()

    def _put_beside(self, first: Payloads, after: Trace, labels: Sequence[str], step: int, back: bool) -> None:
        """Show both, at a step of the first; of long ones the steps of the same runs."""
        before, second = first.trace, Payloads(after, first.runs())
        self._ways = align(before, after)
        with self.hold_sync():
            self.other = second.tell(lazy=True)
            self.match = pair_payload(before, after, labels, back, (first.kept, second.kept))
            self._follow(cursor=step, partner=partner(self._ways[0], step))
            self.mode = "pair"

    def set_state(self, sync_data: Any) -> None:
        """What the page says is not followed: it has moved both already."""
        before, self._following = self._following, True
        try:
            super().set_state(sync_data)
        finally:
            self._following = before

    def _follow(self, **traits: int) -> None:
        before, self._following = self._following, True
        try:
            for name, value in traits.items():
                self.set_trait(name, value)
        finally:
            self._following = before

    @traitlets.observe("cursor", "partner")
    def _moved_in_pair(self, change: Any) -> None:
        if self.mode != "pair" or self._following:
            return
        side = int(change["name"] == "partner")
        follower = ("partner", "cursor")[side]
        self._follow(**{follower: partner(self._ways[side], change["new"])})


class Pair(Paired):
    """Two traces side by side, for a look at what a change did.

    Parameters
    ----------
    before, after : Trace
    labels : pair of str
        What to call them.
    height : int
        Height of each side in px.

    Attributes
    ----------
    cursor, partner : int
        Step that is shown of ``before`` and of ``after``; -1 before the first. Synced: set either, the other follows
        to the step at which the same op of the same run and frame ran, or to the nearest earlier one that has such a
        partner.
    before, after : Trace

    Examples
    --------
    >>> Pair(kvviz.run(graph, inputs, policy="never"), kvviz.run(graph, inputs))        # doctest: +SKIP
    """

    def __init__(
        self,
        before: Trace,
        after: Trace,
        labels: Sequence[str] = ("before", "after"),
        height: int = 800,
        **options: Any,
    ) -> None:
        self.before, self.after = before, after
        self.labels = (str(labels[0]), str(labels[1]))
        first = Payloads(before)
        super().__init__(payload=first.tell(lazy=True), height=height, **options)
        self._put_beside(first, after, self.labels, self.cursor, back=False)

    def to_html(self, path: Any = None) -> str:
        """Both in one file that needs neither a kernel nor a network."""
        return pair_to_html(self.before, self.after, self.labels, path, step=self.cursor)

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        if message.get("do") != "value":
            return super()._answer(message)
        trace = self.after if message.get("side") else self.before
        return peek(trace, str(message.get("value")), int(message.get("step", -1)))

    def _still(self) -> dict[str, Any]:
        return still_pair(self.before, self.after, self.labels, self.cursor)

    def __repr__(self) -> str:
        return f"<Pair at step {self.cursor} of {self.before!r} and {self.partner} of {self.after!r}>"
