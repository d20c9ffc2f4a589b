"""A guided tour of a recording: captions in an order, each with the step and the part of the page that it speaks of.

It is part of the trace. `kvviz.view.page_data.payload_tour` lists what a stop may name, and where that is.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, SupportsIndex

from kvviz.errors import KvvizError


@dataclass(frozen=True, slots=True)
class TourStop:
    """One stop of a tour.

    Attributes
    ----------
    caption : str
        The text of the stop; words between backticks are set as code.
    step : int or None
        Number of the step that the cursor goes to, counted from the end if negative. None: the cursor stays.
    query : str
        Finds the step instead, see `Trace.find`: the first one of its order.
    pane : str
        The part of the page that is highlighted, e.g. ``"graph"``, ``"inspector"`` or ``"caches"``; empty: none. A
        list opens in the drawer; the page opens with that of the first stop. All names are in
        `kvviz.view.page_data.payload_tour.PANES`.
    """

    caption: str
    step: int | None = None
    query: str = ""
    pane: str = ""

    def __post_init__(self) -> None:
        _expect_texts(caption=self.caption, query=self.query, pane=self.pane)
        if self.step is not None:
            object.__setattr__(self, "step", _whole(self.step))
        if not self.caption.strip():
            raise KvvizError("a stop of a tour needs a caption")
        if self.step is not None and self.query:
            raise KvvizError(f"a stop goes to step= or to what query= finds, not to both: {self.caption[:60]!r}")


@dataclass(frozen=True, slots=True)
class Tour:
    """A guided tour: ``Tour("Prefill and decode").stop("…", step=0, pane="graph").stop("…", query="op:Concat")``.

    Attributes
    ----------
    title : str
    stops : tuple of TourStop
        Also given as mappings of the same fields.
    """

    title: str
    stops: tuple[TourStop, ...] = ()

    def __init__(self, title: str, stops: Iterable[TourStop | Mapping[str, Any]] = ()) -> None:
        _expect_texts(title=title)
        object.__setattr__(self, "title", title)
        object.__setattr__(self, "stops", tuple(s if isinstance(s, TourStop) else TourStop(**s) for s in stops))

    def stop(self, caption: str, *, step: int | None = None, query: str = "", pane: str = "") -> Tour:
        """The tour with one more stop at its end."""
        return replace(self, stops=(*self.stops, TourStop(caption, step, query, pane)))

    def to_plain(self) -> dict[str, Any]:
        """The tour as plain JSON data."""
        return {"title": self.title, "stops": [asdict(stop) for stop in self.stops]}


def _expect_texts(**given: Any) -> None:
    for name, text in given.items():
        if not isinstance(text, str):
            raise KvvizError(f"{name}= of a tour is a text, not {text!r}")


def _whole(step: SupportsIndex) -> int:
    """A step's number as a plain int, also from NumPy's."""
    try:
        if not isinstance(step, bool):
            return operator.index(step)
    except TypeError:
        pass
    raise KvvizError(f"step= of a stop is the number of a step, not {step!r}")
