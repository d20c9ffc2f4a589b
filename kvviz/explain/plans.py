"""The plans that a trace was run by, made again from what the log tells of them: fixes ask its policy."""

from __future__ import annotations

from kvviz.engine.plan import Plan, PlannedNode
from kvviz.engine.planning import plan_for
from kvviz.explain.policy_of import rules_of
from kvviz.trace.events import Op
from kvviz.trace.value_index import Index


def plan_of(index: Index, frame: int) -> Plan:
    """The plan of a frame; the very object that ran, while its graph lives."""
    program = index.frames[frame].program
    return plan_for(program.graph, program.outputs, rules_of(index.trace))


def planned_of(index: Index, op: Op) -> PlannedNode:
    """The planned node of an op that ran."""
    return plan_of(index, op.frame).order[op.op.position]
