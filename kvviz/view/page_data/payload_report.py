"""The diagnosis of a trace as plain values for the page: missed ops with their fixes, and storages held too long.

Invariant: the order and the numbers are the report's own. Only its largest entries are sent, and more on demand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.explain.peak import PeakPart
from kvviz.report.missed_groups import hidden_below
from kvviz.report.retention_groups import HeldGroup, held_groups
from kvviz.trace.recording import Trace
from kvviz.view.page_data.payload_graphs import GraphTable

MOST = 200
_MOST_NAMES, _MOST_HELD = 12, 40


def report_header(
    report: Any, trace: Trace, tables: Mapping[int, GraphTable], kept: Sequence[int], start: int = 0, cures: bool = True
) -> dict[str, Any]:
    """A report as the page reads it.

    ``report``: what `kvviz.explain` found about the trace.
    ``tables``: by ``id(graph)``: the numbers of nodes.
    ``kept``: the steps in the payload, ascending. Lists of steps hold their places in it; a single step keeps its own
      number, since it may not be in the payload.
    ``start``: first entry of the missed list to send; `MOST` entries are sent.
    ``cures``: include fixes, and the verdict that names them, which take time to find.
    """
    peak = report.peak
    held, rest = held_groups(trace, report.held_too_long)
    kinds = {id(entry): str(group) for group in report.groups for entry in group.entries}

    def encoded(entry: Any) -> dict[str, Any]:
        return _missed(entry, trace, tables, kept, kinds.get(id(entry), ""), cures)

    return {
        **({} if cures else {"cures": False}),
        "verdict": [_verdict(one, i, trace, tables) for i, one in enumerate(report.verdict)] if cures else [],
        "steps": len(kept),
        "missed": [encoded(m) for m in report.missed[start : start + MOST]],
        # The page lists kinds of missed ops and needs the fix of each.
        "worst": [] if start else [encoded(m) for m in _worst(report)],
        "total": len(report.missed),
        "small": hidden_below(report.groups),
        "held": [_held(group) for group in held[:_MOST_HELD]],
        "held_rest": "" if rest is None else str(rest),
        "caches": [
            {"text": one.sentence, "fix": _fix(one.fix) if cures and one.fix else None} for one in report.caches
        ],
        "peak": {"bytes": peak.bytes, "step": peak.step, "groups": _groups(peak.parts)},
    }


def _verdict(one: Any, number: int, trace: Trace, tables: Mapping[int, GraphTable]) -> dict[str, Any]:
    """A sentence of the verdict, and what it leads to. ``ask``: the request to the kernel that applies its fix."""
    selection: dict[str, Any] | None = None
    if one.selection is not None and one.selection[0] == "cache":
        inputs = [cache.input for cache in trace.caches]
        selection = {"kind": "cache", "id": inputs.index(one.selection[1]), "step": one.step}
    elif one.selection is not None:
        table, node = _place_of(trace, one.step, tables)
        selection = {"kind": "node", "id": node, "graph": table.index, "step": one.step}
    fix = one.fix and {**_fix(one.fix), "change": one.change, "left": one.cure.left, "ask": {"verdict": number}}
    return {"kind": one.kind, "text": one.line, "step": one.step, "selection": selection, "fix": fix}


def _place_of(trace: Trace, step: int, tables: Mapping[int, GraphTable]) -> tuple[GraphTable, int]:
    """The graph of a step, and the number of its node."""
    row = trace.log[step]
    table = tables[id(trace.frames[row.frame].graph)]
    return table, table.node_at[id(row.op.node)]


def _worst(report: Any) -> list[Any]:
    """The worst entry of each group that is not among the first of the missed list."""
    first = {id(entry) for entry in report.missed[:MOST]}
    return [group.worst for group in report.groups[:MOST] if id(group.worst) not in first]


def _places(steps: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Places of those steps that are sent."""
    places = ((step, bisect_left(kept, step)) for step in steps)
    return [place for step, place in places if place < len(kept) and kept[place] == step]


def _missed(
    entry: Any, trace: Trace, tables: Mapping[int, GraphTable], kept: Sequence[int], often: str, cures: bool
) -> dict[str, Any]:
    table, node = _place_of(trace, entry.step, tables)
    fixes: list[Any] = []
    reasons = []
    for blocker in entry.blockers:
        fix = blocker.fix if cures else None
        # The reasons against one input share one fix.
        known = next((i for i, other in enumerate(fixes) if other is fix or other == fix), -1)
        if fix is not None and known < 0:
            known = len(fixes)
            fixes.append(fix)
        reasons.append(
            {
                "code": str(blocker.code),
                "value": blocker.input,
                "culprit": blocker.culprit,
                "message": blocker.message,
                "fix": known,
            }
        )
    return {
        "graph": table.index,
        "node": node,
        "frame": " › ".join(entry.frame),
        "step": entry.step,
        "steps": _places(entry.steps, kept),
        "times": len(entry.steps),
        "bytes": entry.bytes,
        "repeated": often,
        "reasons": reasons,
        "fixes": [_fix(fix) for fix in fixes],
    }


def _fix(fix: Any) -> dict[str, Any]:
    return {"label": fix.label, "sentence": fix.sentence, "code": fix.code, "saves": fix.saves}


def _held(group: HeldGroup) -> dict[str, Any]:
    entry = group.worst
    return {
        "times": group.times,
        "storage": entry.storage,
        "name": entry.name,
        "bytes": entry.bytes,
        "layers": group.layers,
        "all": group.bytes,
        "last": entry.last_use,
        "freed": -1 if entry.freed is None else entry.freed,
        "reason": entry.reason,
    }


def _groups(parts: Sequence[PeakPart]) -> list[dict[str, Any]]:
    """Parts of the peak by group, the largest group first, with the names of its largest storages."""
    found = []
    for group in dict.fromkeys(part.group for part in parts):
        members = sorted((part for part in parts if part.group == group), key=lambda part: -part.bytes)
        names = [part.name for part in members[:_MOST_NAMES]]
        found.append({"group": group, "bytes": sum(p.bytes for p in members), "count": len(members), "names": names})
    return sorted(found, key=lambda group: -group["bytes"])
