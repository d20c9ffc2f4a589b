"""Plans, made once for (graph, outputs, policy) and kept as long as the graph lives."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from kvviz.engine.kernels.ghost_kernels import use_ghosts
from kvviz.engine.kernels.recorded_answers import Answers
from kvviz.engine.plans.extensions import checked_kernel, checked_order
from kvviz.engine.plans.plan import Counts, Plan, check_outputs, needed, unsupported
from kvviz.engine.plans.policy import Policy
from kvviz.errors import ExtensionError, UnsupportedOpsError
from kvviz.graph.model import Graph, Node
from kvviz.ops import registry

_LOG = logging.getLogger(__name__)
_PLANS: WeakKeyDictionary[Graph, dict[tuple, Plan]] = WeakKeyDictionary()
_CHECKED: WeakKeyDictionary[Graph, bool] = WeakKeyDictionary()
_registered = registry.version()


def plan_for(graph: Graph, outputs: tuple[str, ...], policy: Policy, dry: Counts | None = None) -> Plan:
    """The plan that computes ``outputs`` under a policy; the same object on every call.

    ``dry``: if given, the plan computes layouts only, and these are the counts that depend on data.
    """
    _drop_plans_of_old_kernels()
    recorded = dry if isinstance(dry, Answers) else None
    plans = (_PLANS if recorded is None else recorded.plans).setdefault(graph, {})
    key = (outputs, policy, None if dry is None else tuple(sorted(dry.items())))
    plan = plans.get(key)
    if plan is None:
        nodes = _last_order(plans, outputs, policy) if policy.one_plan else None
        if nodes is None:
            nodes = checked_order(policy.schedule, graph, needed(graph, outputs), outputs)
        plan = Plan(graph, outputs, nodes, dry)
        declared = {value.name: value.dtype for value in (*graph.value_info.values(), *graph.outputs)}
        for planned in plan.order:
            planned.call = checked_kernel(planned, declared)
            if dry is not None:
                use_ghosts(graph, planned, dry)
        if policy.prepare is not None:
            policy.prepare(plan)
            for planned in plan.order:
                if note := getattr(planned.notes, "summary", ""):
                    planned.note_record(note)
        plans[key] = plan
        _LOG.debug("planned %s under %s: %d of %d nodes", graph.name, policy.name, len(plan.order), len(graph.nodes))
    return plan


def drop_plans(policy: Policy) -> None:
    """Drop the plans under a policy that does not run again, such as one that a fix was tried with."""
    for plans in list(_PLANS.values()):
        for key in [key for key in plans if key[1] is policy]:
            del plans[key]


def _drop_plans_of_old_kernels() -> None:
    """Drop all plans once other kernels are registered: a plan holds those that were registered when it was made."""
    global _registered
    if _registered != registry.version():
        _PLANS.clear()
        _CHECKED.clear()
        _registered = registry.version()


def _last_order(plans: dict[tuple, Plan], outputs: tuple[str, ...], policy: Policy) -> Sequence[Node] | None:
    """The order of the plan that a policy has for the same set of outputs; its plans for other sets are dropped."""
    kept = [key for key in plans if key[1] == policy]
    for key in kept:
        if set(key[0]) == set(outputs):
            return [planned.node for planned in plans[key].order]
    for key in kept:
        del plans[key]
    return None


def main_plan(graph: Graph, outputs: tuple[str, ...] | None, policy: Policy, dry: Counts | None = None) -> Plan:
    """The plan of a whole model, after checking that every operator has a kernel and every output exists.

    Raises `UnsupportedOpsError`: with all operators that have no kernel, at any depth.
    Raises `GraphError`: for an output that the graph does not have.
    """
    _drop_plans_of_old_kernels()
    if graph not in _CHECKED and not isinstance(dry, Answers):
        missing = unsupported(graph)
        if missing:
            raise UnsupportedOpsError(f"{graph.source or graph.name}: no kernel for {', '.join(missing)}")
        _CHECKED[graph] = True
    names = tuple(value.name for value in graph.outputs) if outputs is None else outputs
    check_outputs(graph, names)
    changed = policy.rewrite(graph, names) if policy.rewrite else graph
    if not isinstance(changed, Graph):
        raise ExtensionError(f"policy {policy.name!r}: rewrite returned a {type(changed).__name__}, not a Graph")
    return plan_for(changed, names, policy, dry)
