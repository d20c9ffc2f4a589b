"""Missed in-place ops as SARIF 2.1.0, the input format of code scanning.

Each kind of missed op is one result: the same role in all layers. Its rule is the blocking reason. An ONNX file has no
lines, so a result refers to the model file and names its nodes as logical locations.
"""

from __future__ import annotations

import hashlib
from typing import Any

from kvviz.report.diagnosis import Diagnosis
from kvviz.report.missed_groups import MissedGroup
from kvviz.trace.blockers import BlockerCode
from kvviz.trace.units import count, size
from kvviz.version import VERSION

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_MOST_NODES = 100


def sarif(report: Diagnosis, uri: str) -> dict[str, Any]:
    """The missed ops of a report as a SARIF log.

    Parameters
    ----------
    report : Diagnosis
    uri : str
        The model's path, from the root of the repository where it is in one.
    """
    rules = [
        {"id": code.value, "shortDescription": {"text": code.value.replace("_", " ").lower()}} for code in BlockerCode
    ]
    driver = {"name": "kvviz", "version": VERSION, "semanticVersion": VERSION, "rules": rules}
    results = [_result(group, uri) for group in report.groups]
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(group: MissedGroup, uri: str) -> dict[str, Any]:
    worst, fix = group.worst, group.fix
    why = worst.blockers[0].message if worst.blockers else f"{group.op_type} did not run in place"
    where = f" ({group.often})" if group.often else ""
    text = f"{why}. {group.op_type} {group.role}{where} spent {size(group.bytes)} in {count(group.times, 'step')}."
    if fix is not None:
        text += f" Fix: {fix.sentence}"
    nodes = [
        {"name": entry.node, "fullyQualifiedName": "/".join((*entry.frame, entry.node)), "kind": "member"}
        for entry in group.entries[:_MOST_NODES]
    ]
    key = "\n".join((group.role, group.op_type, *group.reasons))
    return {
        "ruleId": group.reasons[0] if group.reasons else BlockerCode.OP_CANNOT.value,
        "level": "note" if fix is None else "warning",
        "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}}, "logicalLocations": nodes}],
        "partialFingerprints": {"missedOp/v1": hashlib.sha256(key.encode()).hexdigest()},
        "properties": {
            "bytes": group.bytes,
            "allocated": group.allocated,
            "copied": group.copied,
            "times": group.times,
            "layers": list(group.layers),
            "reasons": list(group.reasons),
        },
    }
