"""Plans, made once for (graph, outputs, policy) and kept with the graph; and checks of results of extensions.

Kernels, rules of policies and schedules of the caller are checked, kvviz's own are not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kvviz.engine.frame import Frame
from kvviz.engine.ghost_kernels import use_ghosts
from kvviz.engine.plan import Counts, Plan, PlannedNode, check_outputs, needed, unsupported
from kvviz.engine.policy import Policy
from kvviz.engine.recorded_answers import Answers
from kvviz.errors import ExtensionError, KvvizError, UnsupportedOpsError
from kvviz.graph.model import Graph, Node
from kvviz.memory.storage import Pool
from kvviz.ops import registry
from kvviz.ops.registry import is_extension
from kvviz.trace.blockers import rules

_VERDICT = (
    "it has to return (taken, refused, how): the input positions that the op takes over, pairs of a position and a "
    'reason, and {"out": array} or {"grown": (array,)} for the kernel'
)
_CAPTURES = "it has to return a set of slots, as policies.ideal.captures does"
_DOUBLE = np.dtype(np.float64)
_ORDER = "it has to return every node that it was given once, each after the nodes whose outputs it reads"


def checked_rule(policy: Policy) -> Callable[..., Any]:
    """A policy's rule for one dispatch; verdicts of a caller's rule are checked."""
    if not is_extension(policy.in_place):
        return policy.in_place
    inner = _called(policy, "in_place")

    def decide(frame: Frame, planned: PlannedNode, args: Sequence[Any]) -> Any:
        verdict = inner(planned, frame, planned, args)
        if wrong := _wrong(verdict, policy, planned, len(args)):
            raise ExtensionError(f"{_at(policy, 'in_place', planned.node)} {wrong}; {_VERDICT}")
        return verdict

    return decide


def checked_captures(policy: Policy) -> Callable[..., Any]:
    """A policy's rule for captured values; results of a caller's rule are checked."""
    if not is_extension(policy.captures):
        return policy.captures
    inner = _called(policy, "captures")

    def captures(frame: Frame, planned: PlannedNode) -> Any:
        slots = inner(planned, frame, planned)
        if not isinstance(slots, Collection) or not all(_is_int(slot) for slot in slots):
            raise ExtensionError(f"{_at(policy, 'captures', planned.node)} returned {_brief(slots)}; {_CAPTURES}")
        return slots

    return captures


def checked_pool(policy: Policy) -> Pool | None:
    pool = None if policy.pool is None else policy.pool()
    if pool is not None and not callable(getattr(pool, "take", None)):
        raise ExtensionError(f"policy {policy.name!r}: pool returned {_brief(pool)}; it has to return a Pool")
    return pool


def checked_order(
    schedule: Callable[..., Any], graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]
) -> Sequence[Node]:
    """Nodes in the order of a schedule; raises `ExtensionError` if a caller's schedule returns an order in which they
    cannot run."""
    if not is_extension(schedule):
        return schedule(graph, nodes, outputs)
    who = f"the schedule {getattr(schedule, '__name__', type(schedule).__name__)}"
    try:
        order = schedule(graph, nodes, outputs)
        order = order if isinstance(order, (list, tuple)) or order is None else list(order)
    except KvvizError:
        raise
    except Exception as error:
        raise ExtensionError(f"{who} failed: {type(error).__name__}: {error}") from error
    if order is None or not all(isinstance(node, Node) for node in order):
        raise ExtensionError(f"{who} returned {_brief(order)}; {_ORDER}")
    if len(order) != len(nodes) or {id(node) for node in order} != {id(node) for node in nodes}:
        missing = [node.name for node in nodes if not any(node is one for one in order)]
        what = f"without {missing[0]!r}" if missing else "with a node twice or one that it was not given"
        raise ExtensionError(f"{who} returned {len(order)} nodes for {len(nodes)}, {what}; {_ORDER}")
    to_come = {name: node for node in nodes for name in node.outputs if name}
    for node in order:
        for name in (*node.inputs, *node.captures):
            if name in to_come:
                raise ExtensionError(
                    f"{who} put {node.name!r} before {to_come[name].name!r}, which makes {name!r} for it; {_ORDER}"
                )
        for name in node.outputs:
            to_come.pop(name, None)
    return order


def checked_kernel(planned: PlannedNode, declared: Mapping[str, Any]) -> Callable[..., Any]:
    """The call of a planned node; results of a caller's kernel are checked. ``declared``: dtypes that the model
    declares, by value name."""
    spec, node, call = planned.spec, planned.node, planned.call
    if spec is None or spec.kernel is None or not is_extension(spec.kernel):
        return call
    kernel = getattr(spec.kernel, "__name__", type(spec.kernel).__name__)
    who = f"the kernel {kernel} of {node.qualified_op} (node {node.name!r})"
    # Without ``fits``, overwriting is elementwise, so that the type is that of the input.
    like = spec.overwrites[0] if spec.overwrites and spec.fits is None else None

    def checked(*args: Any, **how: Any) -> Any:
        out = call(*args, **how)
        outs = out if type(out) is tuple else (out,)
        if not isinstance(out, (np.ndarray, np.generic, tuple)):
            what = "nothing" if out is None else f"a {type(out).__name__}"
            raise ExtensionError(
                f"{who} returned {what}; it has to return an ndarray, or a tuple with one entry an output (in which a "
                "list is a sequence)"
            )
        if any(node.outputs[len(outs) :]):
            raise ExtensionError(f"{who} returned {len(outs)} of the {len(node.outputs)} outputs that the node names")
        if len(outs) > len(node.outputs):
            raise ExtensionError(
                f"{who} returned {len(outs)} outputs, and the node names {len(node.outputs)}; with n_outputs=1 among "
                "its keywords the kernel is passed how many are wanted"
            )
        for position, (name, value) in enumerate(zip(node.outputs, outs)):
            if not name:
                continue
            if not isinstance(value, (np.ndarray, np.generic, list)):
                raise ExtensionError(f"{who} returned a {type(value).__name__} for {name!r}; it has to be an ndarray")
            wanted, why = declared.get(name), "the model declares"
            if wanted is None and position == 0 and like is not None and like < len(args) and args[like] is not None:
                wanted, why = args[like].dtype, f"overwrites=({like},) promises: the type of {node.inputs[like]!r} is"
            if isinstance(value, list):
                continue
            if wanted is not None and _differ(value.dtype, wanted):
                raise ExtensionError(f"{who} returned {value.dtype} for {name!r}, for which {why} {wanted}")
            if wanted is None and value.dtype == _DOUBLE and not any(_is_double(arg) for arg in args):
                raise ExtensionError(
                    f"{who} returned float64 for {name!r}, and none of its inputs is float64: a scalar or an array in "
                    "the kernel is; if it is meant, declare the type of the value in the model"
                )
        return out

    return checked


def _wrong(verdict: Any, policy: Policy, planned: PlannedNode, inputs: int) -> str:
    if not isinstance(verdict, tuple) or len(verdict) != 3:
        return f"returned {_brief(verdict)}"
    taken, refused, how = verdict
    may = {position for position, _ in planned.candidates} | {grow.input for grow in planned.grows}
    if policy.homes is not None:
        may = set(range(inputs))
    if not isinstance(taken, tuple) or not isinstance(refused, tuple) or not isinstance(how, dict):
        return f"returned {_brief(verdict)}"
    for position in taken:
        if not _is_int(position) or position not in may:
            able = f"only {', '.join(map(str, sorted(may)))}" if may else "none"
            return f"took over input {_brief(position)}, of which the op can overwrite {able}"
    if taken and policy.homes is None and not how.keys() & {"out", "grown"}:
        return f"took over input {taken[0]} and passed the kernel no out= and no grown="
    for entry in refused:
        if not isinstance(entry, tuple) or len(entry) != 2 or not all(map(_is_int, entry)) or entry[1] <= 0:
            return f"refused {_brief(entry)}, which is no pair of a position and a reason such as rule(0)"
        if unknown := [number for number in rules(entry[1]) if number >= len(policy.rules)]:
            return f"refused for rule({unknown[0]}), and the policy has {len(policy.rules)} sentences in rules="
    return ""


def _called(policy: Policy, name: str) -> Callable[..., Any]:
    """A rule of a policy; its exceptions are reported as errors of the extension, not of the op."""
    rule = getattr(policy, name)

    def call(planned: PlannedNode, *arguments: Any) -> Any:
        try:
            return rule(*arguments)
        except KvvizError:
            raise
        except Exception as error:
            raise ExtensionError(
                f"{_at(policy, name, planned.node)} failed: {type(error).__name__}: {error}"
            ) from error

    return call


def _at(policy: Policy, name: str, node: Node) -> str:
    return f"policy {policy.name!r}: {name} at node {node.name!r} ({node.qualified_op})"


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def _is_double(value: Any) -> bool:
    return bool(getattr(value, "dtype", None) == _DOUBLE)


def _differ(found: Any, wanted: Any) -> bool:
    """Whether two dtypes differ; all dtypes of text count as one."""
    return found != wanted and not (found.kind in "OSUT" and wanted.kind in "OSUT")


_LOG = logging.getLogger(__name__)
_PLANS: WeakKeyDictionary[Graph, dict[tuple, Plan]] = WeakKeyDictionary()
_CHECKED: WeakKeyDictionary[Graph, bool] = WeakKeyDictionary()
_registered = registry.version()


def plan_for(graph: Graph, outputs: tuple[str, ...], policy: Policy, dry: Counts | None = None) -> Plan:
    """The plan that computes ``outputs`` under a policy; the same object on every call. ``dry``: if given, the plan
    computes layouts only, and these are the counts that depend on data."""
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
    """Drop the plans under a policy that will not run again, such as one that a fix was tried with."""
    for plans in list(_PLANS.values()):
        for key in [key for key in plans if key[1] is policy]:
            del plans[key]


def _drop_plans_of_old_kernels() -> None:
    """Drop all plans when kernels are registered: a plan holds the kernels of its time."""
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
    """The plan of a whole model, after checking that every operator has a kernel and every output exists. Raises
    `UnsupportedOpsError`: with all operators that have no kernel, at any depth. Raises `GraphError`: for an output that
    the graph does not have."""
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
