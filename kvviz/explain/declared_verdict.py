"""What a producer declared, in a few words: what it warned of, and the bytes that went between host and device."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvviz.trace.declared import HOST
from kvviz.trace.units import count, size

# Codes that are named.
_NAMED = 3
_WARNING = "warning "

Told = tuple[str, tuple[tuple[str, str], ...], int, int | None]
"""Kind, parts of the sentence, bytes, and the step that it leads to; see `kvviz.explain.verdict.Verdict`."""


def declared_verdict(trace: Any) -> list[Told]:
    """Warnings first, then transfers; nothing where a producer declares no marks, and all lies in one memory."""
    declared, last = trace.log.declared, len(trace.log) - 1
    told: list[Told] = []
    warned = [mark for mark in declared.marks if mark.kind.startswith(_WARNING)]
    if warned and last >= 0:
        codes = Counter(mark.kind.removeprefix(_WARNING).lower().replace("_", " ") for mark in warned)
        kinds = [f"{code} × {n}" if n > 1 else code for code, n in codes.most_common(_NAMED)]
        more = f" and {count(len(codes) - _NAMED, 'other kind')}" if len(codes) > _NAMED else ""
        step = min(max(0, warned[0].after), last)
        parts = ((count(len(warned), "warning"), "step"), (f": {', '.join(kinds)}{more}", ""))
        told.append(("warning", parts, sum(mark.nbytes for mark in warned), step))
    if any(place.space != HOST.space for place in declared.places.values()):
        moved = _moved(trace)
        total = sum(nbytes for _, nbytes in moved)
        most = max(moved, key=lambda one: one[1], default=(None, 0))[0]
        runs = f" for {count(len(trace.runs), 'submit')}" if len(trace.runs) > 1 else ""
        link = f"{size(total)} over the host link" if moved else "nothing went over the host link"
        words = f" in {count(len(moved), 'transfer')}{runs}" if moved else ""
        told.append(("transfer", ((link, "step" if moved else ""), (words, "")), total, most))
    return told


def _moved(trace: Any) -> list[tuple[int, int]]:
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
