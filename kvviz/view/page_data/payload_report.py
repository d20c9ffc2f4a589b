"""The findings of a trace for the page, with their steps, parts and cures; hidden pairs as columns.

Invariant: the order, the words and the numbers are those of `kvviz.findings`. Steps are places among those in the
payload.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvviz.fixes.fix import Fix
from kvviz.report.diagnosis import Diagnosis
from kvviz.report.faces.hazard_table import doubts, folded
from kvviz.report.finding import Finding, Part
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
from kvviz.view.page_data.payload_graphs import GraphTable


def report_header(
    report: Diagnosis, trace: Trace, tables: Mapping[int, GraphTable], kept: Sequence[int], cures: bool = True
) -> dict[str, Any]:
    """The findings as the page reads them. ``tables``: numbers of nodes, by ``id(graph)``. ``kept``: the steps in the
    payload, ascending. Lists of steps hold their places in it; a single step keeps its own number, since it may not be
    in the payload. ``cures``: include the changes that help, which take time to find."""
    return {
        **({} if cures else {"cures": False}),
        "steps": len(kept),
        "findings": [_finding(one, trace, tables, kept, cures) | _run_of(one, report) for one in report.findings],
    }


def _finding(
    one: Finding, trace: Trace, tables: Mapping[int, GraphTable], kept: Sequence[int], cures: bool
) -> dict[str, Any]:
    """``at``: left out if the steps are those of the parts, the widest first."""
    selection = _selection(one, trace, tables)
    names = ("kind", "title", "bytes", "where", "scope", "calm", "example", "step")
    parts = [_part(part, kept, cures) for part in one.parts]
    known = sorted(step for part in one.parts for step in part.at) == sorted(one.at)
    return {
        **{name: getattr(one, name) for name in names},
        "reasons": list(one.reasons),
        "times": one.steps,
        **({} if known and one.at else {"at": spans(places(one.at, kept))}),
        **({"selection": selection} if selection else {}),
        **({"parts": parts} if parts else {}),
        **({"cure": _cure(one)} if cures and one.cure is not None else {}),
    }


def _run_of(one: Finding, report: Diagnosis) -> dict[str, Any]:
    return {"run": report.peak.run} if one.kind == "peak" and one.step is None and report.peak.run is not None else {}


def _selection(one: Finding, trace: Trace, tables: Mapping[int, GraphTable]) -> dict[str, Any] | None:
    if one.selection is None or one.step is None:
        return None
    kind, name = one.selection
    if kind == "cache":
        return {"kind": kind, "id": [cache.input for cache in trace.caches].index(name), "step": one.step}
    if kind == "storage":
        return {"kind": kind, "id": int(name), "step": one.step}
    row = trace.log[one.step]
    table = tables[id(trace.frames[row.frame].graph)]
    return {"kind": kind, "id": table.node_at[id(row.op.node)], "graph": table.index, "step": one.step}


def _part(part: Part, kept: Sequence[int], cures: bool) -> dict[str, Any]:
    """A part; of a kind of op also the fix of the step that spent most, and the reason it removes."""
    found: dict[str, Any] = {"name": part.name, "bytes": part.bytes, "where": part.where}
    if part.group is None:
        return found
    worst = part.group.worst
    found |= {"op": part.group.op_type, "step": worst.step, "times": len(part.at), "at": spans(places(part.at, kept))}
    fix = part.fix if cures else None
    if fix is not None:
        blocker = next(i for i, reason in enumerate(worst.blockers) if reason.fix == fix)
        found |= {"fix": _fix(fix), "blocker": blocker}
    return found


def _cure(one: Finding) -> dict[str, Any]:
    cure = one.cure
    assert cure is not None
    return {**_fix(cure.fix), "change": one.change, "peak": one.peak, "about": cure.about}


def _fix(fix: Fix) -> dict[str, Any]:
    return {"label": fix.label, "sentence": fix.sentence, "code": fix.code, "saves": fix.saves}


def places(steps: Iterable[int], kept: Sequence[int]) -> list[int]:
    found = ((step, bisect_left(kept, step)) for step in steps)
    return [place for step, place in found if place < len(kept) and kept[place] == step]


def spans(numbers: Sequence[int]) -> list[int]:
    """Numbers as arithmetic series, flat: first number, difference and count of each."""
    found: list[int] = []
    for number in numbers:
        if found and found[-1] == 1:
            found[-2:] = [number - found[-3], 2]
        elif found and number == found[-3] + found[-2] * found[-1]:
            found[-1] += 1
        else:
            found += [number, 0, 1]
    return found


MOST_PAIRS = 2_000
"""The maximum number of pairs sent. The total is always sent."""
MOST_ORDERED = 2_000
"""The maximum number of sent pairs that the graph orders."""
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


class HazardColumns:
    """The hidden pairs of the runs that are sent, found once for each finished run.

    They are always sent if a producer declared what its ops touch: there tensors are memory, and finding the pairs is
    cheap. The pairs that the graph orders are sent too, each with its path. For other traces, finding pairs would take
    a quarter of the time of packing, so they are sent when ``wanted``.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.wanted = False
        self._ordered_of: dict[int, list[Hazard]] = {}
        self._latest = 0  # ordered pairs of the run examined last
        self._paths: dict[tuple[Any, ...], tuple[str, ...]] = {}

    def write(self, runs: Iterable[int], kept: Sequence[int], strings: Strings, columns: Columns) -> dict[str, Any]:
        """Add the columns, if there is a pair, and return the header's entry. ``runs``: those whose steps are sent.
        ``kept``: numbers of these steps, ascending."""
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
        """Add the columns of pairs that a path of the graph orders, run by run up to the maximum, and return the
        header's entry."""
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
    exact, ranges, roots = counts
    vague = [pair for pair in found if pair.known != "exact"]
    if not vague:
        return f"{exact:,} in exact bytes; ranges would say {ranges:,}, whole roots {roots:,}"
    known = f"{exact - len(vague):,} in exact bytes, " if exact > len(vague) else ""
    return f"{known}{len(vague):,} of which the exact bytes are not known{doubts(vague)}; whole roots say {roots:,}"
