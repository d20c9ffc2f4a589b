"""The plans that a trace was run by, made again from the order that the log tells: fixes ask its policy."""

from __future__ import annotations

from kvviz.engine.plan import Plan, PlannedNode
from kvviz.runtimes.policy_data import policy_of
from kvviz.trace.events import Op
from kvviz.trace.value_index import Index


def plan_of(index: Index, frame: int) -> Plan:
    """The plan of a frame, as the policy of its trace, which is known, prepares it."""
    program = index.frames[frame].program
    plans: dict[int, Plan] = index.notes.setdefault("plans", {})
    if id(program) not in plans:
        plan = plans[id(program)] = Plan(program.graph, program.outputs, [op.node for op in program.order])
        policy = policy_of(index.trace)
        if policy is not None and policy.prepare is not None:
            policy.prepare(plan)
    return plans[id(program)]


def planned_of(index: Index, op: Op) -> PlannedNode:
    """The planned node of an op that ran."""
    return plan_of(index, op.frame).order[op.op.position]
