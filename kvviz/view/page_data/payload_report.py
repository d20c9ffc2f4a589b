"""The findings of a trace as plain values for the page, with their steps, what they sum, and their cures.

Invariant: the order, the words and the numbers are those of `kvviz.findings`. Steps are places among those in the
payload.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvviz.fixes.fix import Fix
from kvviz.report.diagnosis import Diagnosis
from kvviz.report.finding import Finding, Part
from kvviz.trace.recording import Trace
from kvviz.view.page_data.payload_graphs import GraphTable


def report_header(
    report: Diagnosis, trace: Trace, tables: Mapping[int, GraphTable], kept: Sequence[int], cures: bool = True
) -> dict[str, Any]:
    """The findings as the page reads them.

    ``tables``: by ``id(graph)``: the numbers of nodes.
    ``kept``: the steps in the payload, ascending. Lists of steps hold their places in it; a single step keeps its own
      number, since it may not be in the payload.
    ``cures``: include the changes that help, which take time to find.
    """
    return {
        **({} if cures else {"cures": False}),
        "steps": len(kept),
        "findings": [_finding(one, trace, tables, kept, cures) | _run_of(one, report) for one in report.findings],
    }


def _finding(
    one: Finding, trace: Trace, tables: Mapping[int, GraphTable], kept: Sequence[int], cures: bool
) -> dict[str, Any]:
    """``at``: left out where the steps are those of the parts, the widest first."""
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
    """The run of the peak where its step was not kept."""
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
    """A part; of a kind of op also the fix of the step that spent most, and which reason it removes."""
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
    """Places of those steps that are in the payload, in their order."""
    found = ((step, bisect_left(kept, step)) for step in steps)
    return [place for step, place in found if place < len(kept) and kept[place] == step]


def spans(numbers: Sequence[int]) -> list[int]:
    """Numbers as arithmetic series, flat: the first number, the difference, and how many there are, of each."""
    found: list[int] = []
    for number in numbers:
        if found and found[-1] == 1:
            found[-2:] = [number - found[-3], 2]
        elif found and number == found[-3] + found[-2] * found[-1]:
            found[-1] += 1
        else:
            found += [number, 0, 1]
    return found
