"""Findings that a recording declares or shows by itself: unordered pairs of accesses, warnings, transfers."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

from kvviz.report.faces.hazard_table import doubts, folded
from kvviz.report.finding import Finding
from kvviz.trace.index.hazards import Hazard, hidden_pairs
from kvviz.trace.recording import Trace
from kvviz.trace.schema.declared import HOST
from kvviz.trace.units import count, size

# The maximum numbers of a producer's codes, and of kinds of hidden pairs, that are named.
_CODES, _KINDS = 3, 2
_WARNING = "warning "
# Hidden pairs are searched for in runs up to this many steps in total.
_MOST_PAIRED = 40_000
NONE_HIDDEN = "no hidden dependencies: the graph itself keeps all in order that share bytes"
NONE_SHOWN = "no hidden dependencies that the file shows; it does not say which ops write into memory of another tensor"


def pair_findings(trace: Trace) -> list[Finding]:
    """Broken pairs first, then hidden ones, or a sentence that there are none. Empty if ops did not declare what they
    touch: finding the pairs would take longer than everything else."""
    if not trace.log.declared.accesses or trace.live is not None:
        return []
    runs = [run for run in trace.runs if run.last > run.first]
    looked = [run for run in runs if run is runs[0] or run.last - runs[0].first <= _MOST_PAIRED]
    where = f" in the first {count(len(looked), 'run')} of {len(runs):,}" if len(looked) < len(runs) else ""
    found = [pair for run in looked for pair in hidden_pairs(trace, run.index) if pair.exact]
    broken = [pair for pair in found if pair.broken]
    hidden = [pair for pair in found if not pair.broken]
    findings = []
    if broken:
        title = f"{count(len(broken), 'pair')} in the wrong order{where}: {broken[0].sentence}"
        findings.append(_of_pairs(trace, "broken", title, "", broken))
    if hidden:
        keeps = f"nothing but the order of the list keeps {'them' if len(hidden) > 1 else 'it'}"
        title = f"{count(len(hidden), 'hidden pair')}{doubts(hidden)}{where}; {keeps}"
        kinds = "" if trace.policy.decides else _kinds(trace, hidden)
        findings.append(_of_pairs(trace, "hidden", title, kinds, hidden))
    none = NONE_SHOWN if any(_id(trace, run.first) for run in looked) else NONE_HIDDEN
    return findings or [Finding("unhidden", f"{none}{where}", calm=True)]


def _of_pairs(trace: Trace, kind: str, title: str, where: str, pairs: list[Hazard]) -> Finding:
    widest = sorted(pairs, key=lambda pair: -pair.exact)
    at = tuple(dict.fromkeys(step for pair in widest for step in (pair.second, pair.first)))
    nbytes = sum(pair.exact for pair in pairs)
    return Finding(kind, title, nbytes, at, pairs[0].second, where=f"{where}{_ids(trace, pairs[0])}".strip())


def _ids(trace: Trace, pair: Hazard) -> str:
    """The names of the first pair's nodes in a DOT file."""
    ids = [_id(trace, step) for step in (pair.first, pair.second)]
    return f" (the first: {ids[0]} → {ids[1]})" if all(ids) else ""


def _id(trace: Trace, step: int) -> Any:
    """The name of a node in the DOT file that the graph was read from; None for other graphs."""
    return trace.steps[step].graph_node.attributes.get("id")


def _kinds(trace: Trace, pairs: list[Hazard]) -> str:
    titles = folded(trace, pairs)[1]
    more = f" and {count(len(titles) - _KINDS, 'other kind')}" if len(titles) > _KINDS else ""
    return "; ".join(islice(titles, _KINDS)) + more


def declared_findings(trace: Trace) -> list[Finding]:
    """Warnings first, then transfers; empty if the producer declares no marks and everything is in one memory."""
    declared, last = trace.log.declared, len(trace.log) - 1
    findings = []
    warned = [mark for mark in declared.marks if mark.kind.startswith(_WARNING)]
    if warned and last >= 0:
        codes = Counter(mark.kind.removeprefix(_WARNING).lower().replace("_", " ") for mark in warned)
        kinds = [f"{code} × {n}" if n > 1 else code for code, n in codes.most_common(_CODES)]
        more = f" and {count(len(codes) - _CODES, 'other kind')}" if len(codes) > _CODES else ""
        at = tuple(dict.fromkeys(min(max(0, mark.after), last) for mark in warned))
        title = f"{count(len(warned), 'warning')}: {', '.join(kinds)}{more}"
        findings.append(Finding("warning", title, sum(mark.nbytes for mark in warned), at, at[0]))
    if any(place.space != HOST.space for place in declared.places.values()):
        moved = sorted(_transfers(trace), key=lambda one: -one[1])
        total = sum(nbytes for _, nbytes in moved)
        at = tuple(step for step, _ in moved)
        runs = f" for {count(len(trace.runs), 'submit')}" if len(trace.runs) > 1 else ""
        link = f"{size(total)} over the host link" if moved else "nothing went over the host link"
        words = f" in {count(len(moved), 'transfer')}{runs}" if moved else ""
        findings.append(Finding("transfer", link + words, total, at, at[0] if at else None, calm=not moved))
    return findings


def _transfers(trace: Trace) -> list[tuple[int, int]]:
    """(step, bytes) of every op that copied from the host's memory into another one, or back."""
    declared, found = trace.log.declared, []
    for step, accesses in declared.accesses.items():
        copied = trace.log[step].copied
        spaces = [
            {declared.places.get(a.storage, HOST).space for a in accesses if a.writes is w} for w in (False, True)
        ]
        if copied and HOST.space in spaces[0] ^ spaces[1]:
            found.append((step, copied))
    return found
