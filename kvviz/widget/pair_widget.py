"""Two traces as lanes of one debugger, which can switch between them at the same op of the same run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.report.naming import pair_labels
from kvviz.trace.model_or_trace import as_trace
from kvviz.trace.recording import Trace
from kvviz.widget.debugger_widget import Debugger
from kvviz.widget.still_image import still_pair


class Pair(Debugger):
    """Two traces of the same inputs, compared step by step.

    Parameters
    ----------
    first, second : Trace
    labels : pair of str, optional
        What to call them; by default what differs between them.
    height : int
        Height in px.

    Attributes
    ----------
    first, second : Trace
    labels : pair of str
    lane : int
        Which of them is shown, 0 or 1. Synced: set it, and ``cursor`` goes to the step at which the same op of the same
        run and frame ran, or to the nearest earlier one that has such a partner.

    Examples
    --------
    >>> Pair(kvviz.run(graph, inputs), kvviz.run(graph, inputs, policy="rten"))        # doctest: +SKIP
    """

    def __init__(
        self, first: Trace, second: Trace, labels: Sequence[str] | None = None, height: int = 720, **options: Any
    ) -> None:
        first, second = as_trace(first, "kvviz.Pair"), as_trace(second, "kvviz.Pair")
        self.first, self.second = first, second
        names = pair_labels(first, second) if labels is None else labels
        self.labels = (str(names[0]), str(names[1]))
        super().__init__(first, height, **options)
        self._lanes.rename(0, self.labels[0])
        self._lanes.add(second, 0, self.labels[1])
        self._send_lanes(0)

    def _still(self) -> dict[str, Any]:
        shown = self.lane if self.lane in (0, 1) else 0
        steps = [self._lanes.partner(shown, lane, self.cursor) for lane in (0, 1)]
        return still_pair((self.first, self.second), self.labels, steps)

    def __repr__(self) -> str:
        return f"<Pair of {self.first!r} and {self.second!r}>"
