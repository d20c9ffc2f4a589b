"""Rows of an audit: one model each, as data."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from io import BytesIO
from typing import Any

from kvviz.audit.budget import Limit, over
from kvviz.explain.difference import first_difference
from kvviz.report.faces.steps_table import Table
from kvviz.trace.recording import Trace
from kvviz.trace.units import size


@dataclass(frozen=True)
class AuditRow:
    """The audit of one model.

    Attributes
    ----------
    name : str
        Path of the model from the folder that all models are in.
    path : str
    state : str
        ``"done"``, ``"failed"``, ``"time limit"`` or ``"killed"``: its worker died.
    error : str
        Why it is not done.
    kvviz, onnx : str
        Versions that ran it.
    seconds : float
        Time of the worker.
    kind, fingerprint, nodes
        Kind of model, digest of its graph, nodes of the main graph.
    need : int or None
        Bytes that a run needs, weights included, as a dry run states before any weight is read.
    dry : str
        Why no weight was read; empty for a real run.
    policies : dict
        For each policy ``figures`` by name, a ``curve`` of live bytes, and ``findings``.
    traces, page
        The traces as files in base64, and the debugger as HTML if it was requested.
    cached : bool
        The row was taken from the cache.
    """

    name: str
    path: str
    state: str
    error: str = ""
    kvviz: str = ""
    onnx: str = ""
    seconds: float = 0.0
    kind: str = ""
    fingerprint: str = ""
    nodes: int = 0
    need: int | None = None
    dry: str = ""
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    traces: dict[str, str] = field(default_factory=dict, repr=False)
    page: str = field(default="", repr=False)
    cached: bool = field(default=False, compare=False)

    @property
    def done(self) -> bool:
        return self.state == "done"

    @property
    def note(self) -> str:
        """Remarks besides the figures."""
        return f"{self.state}: {self.error}" if not self.done else f"dry: {self.dry}" if self.dry else ""

    def trace(self, policy: str) -> Trace | None:
        """The trace under a policy; None if the row has none."""
        if policy not in self.traces:
            return None
        return Trace.load(BytesIO(base64.b64decode(self.traces[policy])))


def row_from(name: str, data: Mapping[str, Any], cached: bool = False) -> AuditRow:
    known = {one.name for one in fields(AuditRow)} - {"name", "cached"}
    return AuditRow(name=name, cached=cached, **{key: value for key, value in data.items() if key in known})


_COLUMNS = (
    ("model", "model", False, 60),
    ("policy", "policy", False, 14),
    ("peak", "peak", True, 12),
    ("allocated", "allocated", True, 12),
    ("copied", "copied", True, 12),
    ("missed_bytes", "missed", True, 12),
    ("steps", "steps", True, 8),
    ("findings", "findings", True, 8),
    ("seconds", "seconds", True, 8),
    ("note", "", False, 80),
)


def rows_table(rows: tuple[AuditRow, ...], title: str) -> Table:
    """One line for each model and policy; one for a model that is not done."""
    lines = []
    for row in rows:
        line: dict[str, Any] = dict.fromkeys(key for key, *_ in _COLUMNS)
        line |= {"model": row.name, "seconds": row.seconds, "note": row.note}
        lines += [] if row.done else [line]
        for policy, found in row.policies.items():
            figures = found["figures"]
            shown = {key: figures[key] for key in ("peak", "allocated", "copied", "steps")}
            shown |= {"policy": policy, "missed_bytes": figures["missed"], "findings": len(found["findings"])}
            lines.append({**line, **shown})
    return Table(lines, _COLUMNS, title)


@dataclass(frozen=True)
class ModelChange:
    """What changed in one model under one policy.

    Attributes
    ----------
    name, policy : str
    state : str
        ``"new"``, ``"gone"``, ``"not done"``, ``"changed"`` or ``"same"``.
    before, after : dict
        Figures by name; empty if there are none.
    appeared, vanished : tuple of dict
        Findings that only the later, or only the earlier, audit has.
    larger : tuple of (dict, int)
        Findings that cost more, with the bytes that they cost before.
    """

    name: str
    policy: str
    state: str
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    appeared: tuple[dict[str, Any], ...] = ()
    vanished: tuple[dict[str, Any], ...] = ()
    larger: tuple[tuple[dict[str, Any], int], ...] = ()
    rows: tuple[AuditRow | None, AuditRow | None] = field(default=(None, None), repr=False, compare=False)

    @cached_property
    def first_op(self) -> str:
        """The first op that runs at another step or in another way; empty if every op runs as before.

        It reads both traces on first use.
        """
        old, new = self.rows
        if old is None or new is None or (a := new.trace(self.policy)) is None or (b := old.trace(self.policy)) is None:
            return ""
        found = first_difference(a, b, ("this version", "the baseline"))
        return found.sentence if found is not None else ""

    def grown(self, figure: str) -> str:
        """``"120 kB → 240 kB (+100.0%)"``."""
        old, new = self.before[figure], self.after[figure]
        share = f" ({100 * (new - old) / old:+.1f}%)" if old and new != old else ""
        return f"{size(old)} → {size(new)}{share}" if new != old else size(new)


def changes_of(rows: tuple[AuditRow, ...], earlier: tuple[AuditRow, ...]) -> tuple[ModelChange, ...]:
    """Every model and policy of two audits; models correspond by name."""
    old, new = ({row.name: row for row in each} for each in (earlier, rows))
    changes = []
    for name in dict.fromkeys((*new, *old)):
        a, b = old.get(name), new.get(name)
        if a is None or b is None or not a.done or not b.done:
            state = "gone" if b is None else "new" if b.done else "not done"
            changes.append(ModelChange(name, "", state, rows=(a, b)))
            continue
        changes += [_change(a, b, policy) for policy in b.policies if policy in a.policies]
    return tuple(changes)


def _change(a: AuditRow, b: AuditRow, policy: str) -> ModelChange:
    before, after = a.policies[policy], b.policies[policy]
    old, new = ({one["key"]: one for one in each["findings"]} for each in (before, after))
    appeared = tuple(one for key, one in new.items() if key not in old)
    vanished = tuple(one for key, one in old.items() if key not in new)
    both = [(new[key], old[key]["bytes"]) for key in new if key in old]
    larger = tuple((one, bytes_before) for one, bytes_before in both if one["bytes"] > bytes_before)
    same = before["figures"] == after["figures"] and a.fingerprint == b.fingerprint and not (appeared or vanished)
    state = "same" if same else "changed"
    figures = before["figures"], after["figures"]
    return ModelChange(b.name, policy, state, *figures, appeared, vanished, larger, rows=(a, b))


def exceeded(rows: tuple[AuditRow, ...], earlier: tuple[AuditRow, ...], limits: list[Limit]) -> list[tuple[str, str]]:
    """Name and sentence of every exceeded limit; a model that is not done keeps no limit."""
    old, passed = {row.name: row for row in earlier}, []
    for row in rows:
        if not row.done and limits:
            passed.append((row.name, f"{row.state}, so no limit can be checked: {row.error}"))
        before = old[row.name].policies if row.name in old else {}
        for policy, found in row.policies.items():
            figures = before[policy]["figures"] if policy in before else None
            sentences = (over(limit, found["figures"], figures) for limit in limits)
            passed += [(row.name, f"under {policy}, {sentence}") for sentence in sentences if sentence is not None]
    return passed
