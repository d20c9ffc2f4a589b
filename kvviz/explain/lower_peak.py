"""Another order of the main graph whose peak is much lower: found from the sizes that values had, without running it.

Invariant: the peak that is promised is not exceeded. Every value is counted as if it had memory of its own, from the op
that makes it to its last reader; what runs in place or is appended needs less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvviz.engine.plan import needed
from kvviz.engine.policy import Schedule, model_order
from kvviz.explain.changes import Reorder, asked
from kvviz.explain.fix_wording import KINDS, code_of, label_of
from kvviz.explain.fixes import Fix, is_repeatable
from kvviz.explain.kept_runs import keeps_all
from kvviz.explain.live_curve import live_curve
from kvviz.explain.units import size
from kvviz.graph.model import Node
from kvviz.runtimes.schedules import LeastLive, Picks, depth_first, least_live
from kvviz.runtimes.schedules.frontier import reads
from kvviz.trace.value_index import Index

# Of what is alive beside the weights at most this part must be left, and of the whole peak at least this part saved.
_MUCH, _WORTH = 2 / 3, 1 / 20


@dataclass(frozen=True, slots=True)
class OtherOrder:
    """An order that needs much less memory than the one that ran; ``str()`` of it is a sentence.

    ``name``: ``"least-live order"``, for example.
    ``bytes``: its peak is at most so high.
    """

    name: str
    bytes: int
    fix: Fix

    def __str__(self) -> str:
        return self.fix.sentence


def lower_peak(index: Index) -> OtherOrder | None:
    """The order with the lowest peak of those that are known by name, if that is much lower than the one of the trace.

    Only where memory safety alone decides (``ideal``, ``never``): elsewhere the order changes the rules' decisions.
    """
    trace = index.trace
    if trace.policy.base not in ("ideal", "never"):
        return None
    if not index.rows or not keeps_all(trace) or not is_repeatable(index, len(index.rows) - 1):
        return None
    weights = sum(s.capacity for s in trace.log.storages if s.origin == "weights")
    graph, outputs = index.frames[0].program.graph, asked(trace)
    nodes = needed(graph, outputs)
    measured = least_live(trace)
    books = _Books(index, measured, nodes, outputs)
    orders: list[tuple[str, str, Schedule]] = [
        ("least-live order", "schedules.least_live(trace)", measured),
        ("depth-first order", "schedules.depth_first", depth_first),
        ("the model's order", "schedules.model_order", model_order),
    ]
    best: tuple[int, str, str, Sequence[Node]] | None = None
    for name, code, schedule in orders:
        order = schedule(graph, nodes, outputs)
        peak = books.peak(order)
        if best is None or peak < best[0]:
            best = peak, name, code, order
    assert best is not None
    peak, name, code, order = best
    if peak - weights > _MUCH * (trace.peak_bytes - weights) or trace.peak_bytes - peak < _WORTH * trace.peak_bytes:
        return None
    return OtherOrder(name, peak, _fix(trace, peak, name, code, order))


def _fix(trace: Any, peak: int, name: str, code: str, order: Sequence[Node]) -> Fix:
    recorded = Picks.of(trace)
    # Bodies stay as they ran.
    picks = (*(((), node.index) for node in order), *(pick for pick in recorded.picks if pick[0] != ()))
    changes = (Reorder(name, code, Picks(picks, recorded.model)),)
    text = f"Run the main graph in {name}: then the peak is at most {size(peak)} instead of {size(trace.peak_bytes)}."
    label, told = label_of(trace.graph, changes), code_of(trace, changes, False)
    return Fix(KINDS[Reorder], label, text, told, changes, trace, saves=trace.peak_bytes - peak)


class _Books:
    """What is alive while the main graph runs in some order, from the sizes that its values had."""

    def __init__(self, index: Index, measured: LeastLive, nodes: Sequence[Node], outputs: Sequence[str]) -> None:
        values = dict(measured.sizes).get(index.frames[0].program.graph.path, ())
        self.home = {name: home for name, home, _ in values}
        self.size: dict[str, int] = {}
        for _, home, nbytes in values:
            self.size[home] = max(nbytes, self.size.get(home, 0))
        homes = ((node.index, (self.home.get(name, "") for name in reads(node))) for node in nodes)
        self.reads = {index: {where for where in found if where} for index, found in homes}
        self.kept = {self.home.get(name, name) for name in outputs}
        self.inside = _inside(index)
        self.start = self._start(index)

    def peak(self, order: Sequence[Node]) -> int:
        """The largest number of bytes alive."""
        left: dict[str, int] = {}
        for node in order:
            for home in self.reads[node.index]:
                left[home] = left.get(home, 0) + 1
        live = top = self.start
        for node in order:
            made = [name for name in node.outputs if name and self.home.get(name) == name]
            new = sum(self.size[name] for name in made)
            top = max(top, live + new + self.inside.get(node.index, 0))
            live += new - sum(self.size[name] for name in made if name not in left and name not in self.kept)
            for home in self.reads[node.index]:
                left[home] -= 1
                if not left[home] and home not in self.kept:
                    live -= self.size[home]
        return top

    def _start(self, index: Index) -> int:
        """Bytes alive before the first op, of all runs the most."""
        live = live_curve(index)
        given = {name for name, home in self.home.items() if home == name}
        most = 0
        for run, main in index.mains.items():
            bound = {b.storage: b.name for b in reversed(index.frames[main].bindings) if b.name in given}
            storages = index.trace.log.storages
            own = sum(storages[number].capacity for number in bound)
            most = max(most, int(live[index.binding(run)]) - own + sum(self.size[name] for name in bound.values()))
        return most


def _inside(index: Index) -> dict[int, int]:
    """Bytes that the bodies of each control node of the main graph had alive at most, by node."""
    curve = np.zeros(index.moments + 1, np.int64)
    for life in index.lives:
        if 0 <= life.born < len(index.rows) and index.frames[index.rows[life.born].frame].parent is not None:
            curve[life.first] += life.bytes
            curve[life.last + 1] -= life.bytes
    alive = np.cumsum(curve)
    found: dict[int, int] = {}
    for (frame, node), bodies in index.bodies.items():
        step = index.step_of.get((frame, node))
        if index.frames[frame].parent is None and step is not None:
            opened = min(index.frames[bodies[0]].opened, step)
            top = int(alive[index.moment(opened) : index.moment(step) + 1].max())
            found[node] = max(found.get(node, 0), top)
    return found
