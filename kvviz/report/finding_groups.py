"""Missed ops and storages held too long, in groups: the same op or value in all layers and runs is one group.

Invariant: every entry of the missed list is in one group, and the bytes of a group are those of its entries.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from kvviz.explain.retention import Held
from kvviz.explain.summary import Missed
from kvviz.fixes.changes import Change
from kvviz.fixes.fix import Fix
from kvviz.trace.blockers import BlockerCode, codes, rules
from kvviz.trace.recording import Trace
from kvviz.trace.units import count, decodes, place_of, size, weight_bytes


@dataclass(frozen=True, slots=True)
class MissedGroup:
    """One kind of missed op: the same role, in one or many layers, refused for the same reasons.

    Attributes
    ----------
    role : str
        Its place inside its layer by name, ``"self_attn/k_cache/Concat"``; in a body, after the role of the caller.
    op_type : str
    reasons : tuple of str
        Codes of the blockers at the step that spent most.
    layers : tuple of int
        Numbers of its layers, ascending; empty for an op that is in no layer.
    runs : tuple of int
        Runs in which it was missed, ascending.
    entries : tuple of Missed
        Its members, the one that spent most first.
    times : int
        Steps at which it was missed.
    bytes, allocated, copied : int
        Sums over its entries.
    time : float
        Time of all these steps, if the trace has times; in the unit of its clock.
    """

    role: str
    op_type: str
    reasons: tuple[str, ...]
    layers: tuple[int, ...]
    runs: tuple[int, ...]
    entries: tuple[Missed, ...]
    times: int
    bytes: int
    allocated: int
    copied: int
    time: float = 0.0

    @property
    def worst(self) -> Missed:
        """The entry that spent most."""
        return self.entries[0]

    @property
    def nodes(self) -> tuple[Missed, ...]:
        """The entries, under the name that reports use."""
        return self.entries

    @property
    def fix(self) -> Fix | None:
        """The fix of its worst entry, if there is one."""
        return self.worst.fix

    @property
    def changes(self) -> tuple[Change, ...]:
        """What its fixes change, in all layers."""
        fixes = [entry.fix for entry in self.entries]
        return tuple(dict.fromkeys(change for fix in fixes if fix is not None for change in fix.changes))

    @property
    def peak_effect(self) -> int | None:
        """Bytes by which that fix lowers the peak of what it was tried on; None without a fix."""
        return self.worst.peak_effect

    @property
    def label(self) -> str:
        """Its label: the role, with the layer if there is only one; for a node in no layer, the name of the node."""
        if len(self.entries) == 1 and not self.layers:
            return " › ".join([*self.worst.frame, self.worst.node])
        return f"layer {self.layers[0]} › {self.role}" if len(self.layers) == 1 else self.role

    @property
    def often(self) -> str:
        """``"× 30 layers × 7 tokens"``; empty if it was missed once."""
        unit = "token" if decodes(self.worst.trace) else "run"
        parts = [count(len(self.layers), "layer")] if len(self.layers) > 1 else []
        parts += [count(len(self.runs), unit)] if len(self.runs) > 1 else []
        expected = max(1, len(self.layers)) * len(self.runs)
        if self.times % expected == 0 and self.times > expected:
            parts.append(count(self.times // expected, "iteration"))
        elif self.times != expected:
            # It was not missed in every layer and run.
            parts = [count(self.times, "step")]
        return "".join(f" × {part}" for part in parts)[1:]

    def __str__(self) -> str:
        often = f" {self.often}" if self.often else ""
        return f"{self.op_type}{often}: {size(self.bytes)}"


def missed_groups(trace: Trace, entries: Sequence[Missed]) -> tuple[MissedGroup, ...]:
    """The entries of a missed list by role and reasons: in order of time if the trace has times, else of bytes
    spent."""
    found: dict[tuple[str, str, tuple[str, ...]], list[tuple[Missed, int | None]]] = {}
    for entry in entries:
        place = place_of(trace, trace.log[entry.step])
        key = place.role, entry.op_type, reason_codes(trace, entry)
        found.setdefault(key, []).append((entry, place.layer))
    groups = [_group(trace, *key, members) for key, members in found.items()]
    return tuple(sorted(groups, key=lambda group: (-group.time, -group.bytes, group.worst.step)))


def by_time(groups: Sequence[MissedGroup]) -> str:
    return ", by time" if any(group.time for group in groups) else ""


def reason_codes(trace: Trace, entry: Missed) -> tuple[str, ...]:
    """Codes of the blockers of an entry at its worst step, each once, in the order of `BlockerCode`."""
    masks = trace.log[entry.step].masks
    if entry.clones or not masks:
        return tuple(dict.fromkeys(str(blocker.code) for blocker in entry.blockers))
    found = {code for _, mask in masks for code in codes(mask)}
    found |= {BlockerCode.POLICY for _, mask in masks if rules(mask)}
    return tuple(str(code) for code in BlockerCode if code in found)


def _group(
    trace: Trace, role: str, op_type: str, reasons: tuple[str, ...], members: Sequence[tuple[Missed, int | None]]
) -> MissedGroup:
    # A long log creates its ops on demand; only the runs of these steps are needed.
    starts = [run.first for run in trace.runs]
    runs = {bisect_right(starts, step) - 1 for entry, _ in members for step in entry.steps}
    timings = (trace.log.declared.times.get(step) for entry, _ in members for step in entry.steps)
    return MissedGroup(
        role,
        op_type,
        reasons,
        tuple(sorted({layer for _, layer in members if layer is not None})),
        tuple(sorted(runs)),
        tuple(entry for entry, _ in members),
        sum(len(entry.steps) for entry, _ in members),
        sum(entry.bytes for entry, _ in members),
        sum(entry.allocated for entry, _ in members),
        sum(entry.copied for entry, _ in members),
        sum(timing.end - timing.start for timing in timings if timing is not None),
    )


# Share of the peak besides the weights below which a group is negligible.
_WORTH = 1 / 200
# A part of a path that is only a number, as exporters write layers: `present.3.key`, `/model/layers.3/mlp/Mul`; in
# llama.cpp `cache_k_l3`.
_LAYER = re.compile(r"(?<=[./])\d+(?=[./])|(?<=_l)\d+\b")


def held_groups(trace: Trace, held: Sequence[Held]) -> tuple[tuple[Held, ...], ...]:
    """The storages (see `kvviz.explain.retention.held_too_long`) grouped by value and reason across layers, without
    negligible ones; the first of a group has the most byte-steps."""
    least = (trace.peak_bytes - weight_bytes(trace)) * _WORTH
    found: dict[tuple[str, str], list[Held]] = {}
    for one in held:
        if one.bytes >= least:
            found.setdefault((_LAYER.sub("#", one.name), _LAYER.sub("#", one.reason)), []).append(one)
    return tuple(map(tuple, found.values()))
