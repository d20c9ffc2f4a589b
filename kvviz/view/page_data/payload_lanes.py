"""Traces of the same inputs as lanes of one page: each compared with the lane that it left, and all payloads.

Layout of the payloads that are not the page's own: uint32 (little endian) size of a JSON object, name to (offset,
length) after it | that object | the payloads, each compressed separately.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kvviz.explain.difference import OrderChange, first_difference, order_change, value_change
from kvviz.explain.figures import alike
from kvviz.fixes.forking import holds_throughout, what_holds
from kvviz.trace.recording import Trace

MOST_BROKEN = 60
"""The maximum number of broken hazards sent. The total is always sent."""


def lane_header(number: int, label: str, trace: Trace, left: tuple[int, str, Any] | None) -> dict[str, Any]:
    """The page's data on a lane.

    ``left``: number, label and trace of the lane that it left; None for the first one. ``figures`` are those of both,
    of the runs that both have finished; ``note`` names these runs if they are not all. ``first`` is the first step that
    differs; ``order`` says what moved if both ran the same ops in another order, and ``value`` the first step that made
    other numbers. ``holds`` says which part of the change holds from where.
    """
    about = {
        "id": number,
        "label": label,
        "step": 0 if trace.branch is None else trace.branch.step,
        "live": trace.live is not None,
    }
    if left is None:
        compared = dict.fromkeys(("of", "figures", "runs", "first", "order", "value"))
        return {**about, **compared, "note": "", "holds": "", "throughout": False}
    of, name, other = left
    shared = alike(other, trace)
    first = first_difference(other, trace, (name, label))
    if first is not None and shared.runs is not None and first.step >= other.runs[shared.runs - 1].last:
        # It ends there only because it has not run any further.
        first = None
    moved = order_change(other, trace)
    value = value_change(other, trace, () if moved is None else moved.broken)
    return {
        **about,
        "of": of,
        "figures": list(shared.figures),
        "note": shared.note,
        "runs": shared.runs,
        "first": None if first is None else {"step": first.step, "other": first.other, "sentence": first.sentence},
        "order": None if moved is None else _order(moved, trace),
        "value": None if value is None else asdict(value),
        "holds": what_holds(trace, other),
        "throughout": holds_throughout(trace, other),
    }


def _order(change: OrderChange, trace: Trace) -> dict[str, Any]:
    broken = change.broken[:MOST_BROKEN]
    return {
        # At the addresses that an allocator chose for another order, tensors of different roots share bytes.
        "claim": "before allocation, " if trace.log.declared.accesses else "",
        "moved": change.moved,
        "total": len(change.broken),
        "broken": [[one.kind, one.first, one.second, one.bytes, one.root, one.sentence] for one in broken],
    }


def pack_lanes(payloads: Mapping[str, bytes]) -> bytes:
    table, at = {}, 0
    for name, raw in payloads.items():
        table[name] = (at, len(raw))
        at += len(raw)
    header = json.dumps(table, separators=(",", ":")).encode()
    return b"".join([struct.pack("<I", len(header)), header, *payloads.values()])


def unpack_lanes(raw: bytes) -> dict[str, bytes]:
    (size,) = struct.unpack_from("<I", raw)
    body = 4 + size
    return {name: raw[body + at : body + at + length] for name, (at, length) in json.loads(raw[4:body]).items()}
