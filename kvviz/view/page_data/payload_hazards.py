"""Hidden pairs as columns: steps, bytes at each precision, and the texts and shapes that the page shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvviz.report.faces.hazard_table import doubts, folded
from kvviz.trace.index.hazards import Hazard, find_hazards, hidden_pairs, path_between
from kvviz.trace.recording import Trace
from kvviz.view.drawing.hazard_picture import (
    BAR_WIDTH,
    FONT,
    HEAD,
    HEIGHT,
    PAIR_PATHS,
    PAIR_STYLES,
    PAIR_TEXTS,
    SHAPES,
    WIDTH,
    capacity_of,
    pair_paths,
    pair_state,
    pair_texts,
    view_text,
)
from kvviz.view.page_data.packed_columns import Columns, Strings

MOST_PAIRS = 2_000
"""The maximum number of pairs sent. The total is always sent."""
MOST_ORDERED = 2_000
"""The maximum number of pairs sent that the graph keeps in order."""
PAIR_STATES = ("hidden", "broken", "false")
PAIR_PICTURE = {
    "texts": PAIR_TEXTS,
    "paths": PAIR_PATHS,
    "states": PAIR_STATES,
    "shapes": SHAPES,
    "styles": PAIR_STYLES,
    "size": (WIDTH, HEIGHT),
    "bar": BAR_WIDTH,
    "head": HEAD,
    "font": FONT,
}
"""What the page draws a pair with; see `kvviz.view.drawing.hazard_picture`."""


class HazardColumns:
    """The hidden pairs of the runs that are sent, found once for each finished run.

    They are always sent if a producer declared what its ops touch: there tensors are memory, and finding the pairs is
    cheap. The pairs that the graph keeps in order are sent too, each with its path. For other traces, finding pairs
    would take a quarter of the time of packing, so they are sent when ``wanted``.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.wanted = False
        self._ordered_of: dict[int, list[Hazard]] = {}
        self._latest = 0  # ordered pairs of the run examined last
        self._paths: dict[tuple[Any, ...], tuple[str, ...]] = {}

    def write(self, runs: Iterable[int], kept: Sequence[int], strings: Strings, columns: Columns) -> dict[str, Any]:
        """Add the columns, if there is a pair, and return the header's entry.

        ``runs``: those whose steps are sent. ``kept``: numbers of these steps, ascending.
        """
        trace = self.trace
        if trace.live is not None or not (self.wanted or trace.log.declared.accesses):
            return {}
        runs = list(runs)
        found = [pair for run in runs for pair in hidden_pairs(trace, run)]
        # Real pairs come before those that only a coarser level reports.
        found.sort(key=lambda pair: (not pair.exact, not pair.broken, not pair.range))
        groups, titles = folded(trace, found)
        place = {step: at for at, step in enumerate(kept)}
        rows, texts = [], []
        for pair, group in list(zip(found, groups))[:MOST_PAIRS]:
            texts += [(strings(text),) for text in self._texts_and_paths(pair)]
            where = place[pair.first], place[pair.second], pair.storage, PAIR_STATES.index(pair_state(pair)), group
            said = strings(pair.kind), strings(pair.root), strings(pair.sentence)
            rows.append((*where, *said, pair.exact, pair.range, pair.whole))
        fields = "first i, second i, storage i, state i, group i, kind i, root i, sentence i, exact d, range d, whole d"
        columns.rows("pair", fields, rows)
        columns.rows("pairtext", "of i", texts)
        counts = [sum(getattr(pair, level) > 0 for pair in found) for level in ("exact", "range", "whole")]
        says = _says(found, counts)
        header = {"picture": PAIR_PICTURE, "groups": titles, "total": len(found), "counts": counts, "says": says}
        return {"hazards": {**header, "ordered": self._ordered(runs, place, strings, columns)}}

    def _ordered(
        self, runs: Sequence[int], place: Mapping[int, int], strings: Strings, columns: Columns
    ) -> dict[str, Any]:
        """Add the columns of pairs that a path of the graph keeps in order, run by run up to the maximum, and return
        the header's entry."""
        trace, looked = self.trace, 0
        found: list[Hazard] = []
        for run in runs:
            if looked and len(found) + self._latest > MOST_ORDERED:
                break
            if run not in self._ordered_of:
                both = find_hazards(trace, ordered=True, run=run)
                self._ordered_of[run] = [pair for pair in both if pair.ordered]
            pairs = self._ordered_of[run]
            found, looked, self._latest = [*found, *pairs], looked + 1, len(pairs)
        groups, titles = folded(trace, found)
        rows, ends, steps = [], [0], []
        for pair, group in list(zip(found, groups))[:MOST_ORDERED]:
            views = strings(view_text(pair.early)), strings(view_text(pair.late))
            what = strings(pair.kind), strings(pair.root)
            rows.append((place[pair.first], place[pair.second], pair.storage, group, *what, pair.bytes, *views))
            path = path_between(trace, pair.first, pair.second)
            steps += [place[step] for step in path if step in place]
            ends.append(len(steps))
        fields = "first i, second i, storage i, group i, kind i, root i, bytes d, view1 i, view2 i"
        columns.rows("ordered", fields, rows)
        columns.ints("ordered.path", ends)
        columns.ints("path.step", steps)
        return {"groups": titles, "total": len(found), "runs": looked, "of": len(runs)}

    def _texts_and_paths(self, pair: Hazard) -> Iterator[str]:
        texts, capacity = pair_texts(self.trace, pair), capacity_of(self.trace, pair)
        key = pair.early.region, pair.late.region, capacity, pair.exact > 0
        if key not in self._paths:
            # Repeated layers touch the same bytes of their roots.
            self._paths[key] = pair_paths(pair, capacity)
        yield from (texts[name] for name in PAIR_TEXTS)
        yield from self._paths[key]


def _says(found: Sequence[Hazard], counts: Sequence[int]) -> str:
    """How many pairs there are at each precision, as far as known."""
    exact, ranges, roots = counts
    vague = [pair for pair in found if pair.known != "exact"]
    if not vague:
        return f"{exact:,} in exact bytes; ranges would say {ranges:,}, whole roots {roots:,}"
    known = f"{exact - len(vague):,} in exact bytes, " if exact > len(vague) else ""
    return f"{known}{len(vague):,} of which the exact bytes are not known{doubts(vague)}; whole roots say {roots:,}"
