"""The report on a trace for programs: as plain values, and as SARIF 2.1.0, the input format of code scanning.

Invariant of the plain values: nothing is shortened, and everything survives JSON unchanged.

In SARIF, each finding that asks for action is one result. Its rule is the first blocking reason of missed ops, and the
kind of any other finding. An ONNX file has no lines, so a result refers to the model file and names its nodes as
logical locations.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from kvviz.report.diagnosis import Diagnosis
from kvviz.report.faces.report_schema import NAME, VERSION, encoded
from kvviz.report.finding import KINDS, Finding
from kvviz.trace.blockers import BlockerCode
from kvviz.trace.recording import Trace
from kvviz.trace.units import kept_runs, run_label
from kvviz.version import VERSION as KVVIZ_VERSION


def report_data(found: Diagnosis) -> dict[str, Any]:
    """The report as plain values that JSON can hold."""
    trace = found.trace
    kept = frozenset(kept_runs(trace))
    facts = {
        "schema": {"name": NAME, "version": VERSION},
        "model": model_facts(trace),
        "policy": trace.policy.name,
        "dry": trace.dry,
        "interrupted": trace.interrupted,
        "steps": len(trace.steps),
        "runs_kept": len(kept),
        "totals": {**totals(trace), "bytes_moved_outside": moved_outside(trace)},
        "in_place": found.counts,
        "runs": [
            {**asdict(run), "label": run_label(trace, i), "steps": run.last - run.first, "kept": i in kept}
            for i, run in enumerate(trace.runs)
        ],
        "prompt": trace.prompt,
        "tokens": trace.known("tokens"),
        "cache_findings": found.caches,
        "caches": trace.caches,
    }
    shared = ("findings", "groups", "missed", "peak", "other_order", "held_too_long", "cache_warnings")
    data: dict[str, Any] = encoded({**{name: getattr(found, name) for name in shared}, **facts})
    return data


def model_facts(trace: Trace) -> dict[str, Any]:
    graph = trace.graph
    weights = [capacity for _, capacity, origin in trace.log.storages if origin == "weights"]
    return {
        "title": trace.title,
        "nodes": len(graph.nodes),
        "nodes_with_bodies": sum(1 for _ in graph.walk()),
        "weights": len(weights),
        "weight_bytes": sum(weights),
        "opsets": {domain or "ai.onnx": version for domain, version in graph.opsets.items()},
    }


def totals(trace: Trace) -> dict[str, int]:
    return {
        "peak_bytes": trace.peak_bytes,
        "bytes_allocated": trace.bytes_allocated,
        "bytes_written": trace.bytes_written,
        "bytes_copied": trace.bytes_copied,
    }


def moved_outside(trace: Trace) -> int:
    return sum(run.bytes_moved_outside for run in trace.runs)


def before_or_in(trace: Trace, run: int) -> str:
    """The moment of a run's peak if its step was not kept: before its first op, or at a step that was not kept."""
    label = run_label(trace, run)
    if run in kept_runs(trace):
        return f"before the first op of {label}"
    return f"in {label}, whose steps were not kept"


_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_MOST_NODES = 100


def sarif(report: Diagnosis, uri: str) -> dict[str, Any]:
    """The findings of a report as a SARIF log. ``uri``: the model's path, from the root of its repository if there is
    one."""
    return sarif_log(_result(report.trace, one, uri) for one in report.findings if not one.calm and one.kind != "peak")


def sarif_log(results: Iterable[Any]) -> dict[str, Any]:
    ids = [*KINDS, *(code.value for code in BlockerCode)]
    rules = [{"id": id, "shortDescription": {"text": id.replace("_", " ").lower()}} for id in ids]
    driver = {"name": "kvviz", "version": KVVIZ_VERSION, "semanticVersion": KVVIZ_VERSION, "rules": rules}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": list(results)}]}


def finding_key(one: Finding) -> str:
    """Digest that identifies a finding in another version of the model, where its numbers may differ."""
    key = "\n".join((one.kind, *one.reasons, re.sub(r"[\d,.]+ ?[kMG]?B?", "", one.title)))
    return hashlib.sha256(key.encode()).hexdigest()


def _result(trace: Trace, one: Finding, uri: str) -> dict[str, Any]:
    where = f" ({one.where})" if one.where else ""
    text = f"{one.line}{where}. {one.example}".strip() + (f" Fix: {one.fix.sentence}" if one.fix is not None else "")
    seen = dict.fromkeys((trace.steps[step].frame, trace.steps[step].node) for step in one.at[:_MOST_NODES])
    nodes = [{"name": node, "fullyQualifiedName": "/".join((*frame, node)), "kind": "member"} for frame, node in seen]
    return {
        "ruleId": one.reasons[0] if one.reasons else one.kind,
        "level": "note" if one.fix is None else "warning",
        "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}}, "logicalLocations": nodes}],
        "partialFingerprints": {"finding/v1": finding_key(one)},
        "properties": {"bytes": one.bytes, "steps": one.steps, "scope": one.scope, "reasons": list(one.reasons)},
    }
