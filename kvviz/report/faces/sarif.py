"""Findings as SARIF 2.1.0, the input format of code scanning.

Each finding that asks for action is one result. Its rule is the first blocking reason of missed ops, and the kind of
any other finding. An ONNX file has no lines, so a result refers to the model file and names its nodes as logical
locations.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from kvviz.report.diagnosis import Diagnosis
from kvviz.report.finding import KINDS, Finding
from kvviz.trace.blockers import BlockerCode
from kvviz.trace.recording import Trace
from kvviz.version import VERSION

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_MOST_NODES = 100


def sarif(report: Diagnosis, uri: str) -> dict[str, Any]:
    """The findings of a report as a SARIF log.

    Parameters
    ----------
    report : Diagnosis
    uri : str
        The model's path, from the root of the repository where it is in one.
    """
    return sarif_log(_result(report.trace, one, uri) for one in report.findings if not one.calm and one.kind != "peak")


def sarif_log(results: Iterable[Any]) -> dict[str, Any]:
    """A SARIF log of these results, with all rules."""
    ids = [*KINDS, *(code.value for code in BlockerCode)]
    rules = [{"id": id, "shortDescription": {"text": id.replace("_", " ").lower()}} for id in ids]
    driver = {"name": "kvviz", "version": VERSION, "semanticVersion": VERSION, "rules": rules}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": list(results)}]}


def finding_key(one: Finding) -> str:
    """Digest by which a finding is recognised in another version of the model, where its numbers may differ."""
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
