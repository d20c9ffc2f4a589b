"""Forks: traces over the same inputs that leave a recorded trace at a step, by one change."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.debugger.state import find_choice
from kvviz.engine.policy import Policy
from kvviz.engine.sessions.session import Session
from kvviz.errors import KvvizError
from kvviz.fixes.changes import Capacity, Change, Donate, Reserve, arguments
from kvviz.fixes.fix import Fix
from kvviz.fixes.fix_wording import label_of
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Node
from kvviz.other_names import with_other_names
from kvviz.runtimes.named_policies import NAMED, find_policy
from kvviz.trace.model_or_trace import as_trace
from kvviz.trace.recording import Trace
from kvviz.trace.records import Branch
from kvviz.trace.schema.run_options import names_in

Rows = Mapping[str, int | tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Departure:
    run: str | Node | None = None
    donate: str | Sequence[str] = ()
    reserve: Rows | None = None
    kv_capacity: int | None = None
    policy: str | Policy | None = None
    fix: Fix | None = None
    order: Any = None


@with_other_names
def fork(
    trace: Trace,
    step: int = 0,
    *,
    run: str | Node | None = None,
    donate: str | Sequence[str] = (),
    reserve: Rows | None = None,
    kv_capacity: int | None = None,
    policy: str | Policy | None = None,
    fix: Fix | None = None,
    order: Any = None,
) -> Trace:
    """Run again from the same inputs with a change, in the recorded order up to a step.

    Parameters
    ----------
    trace : Trace
        A trace that was run or decoded in this session.
    step : int
        The steps before it run in the recorded order, the others in the policy's order. With 0, all steps run in the
        policy's order. Only ``run`` leaves the steps before ``step`` as they were: a policy, donations and reserved
        room hold for the whole run, also before ``step``; see `what_holds`.
    run : str or Node, optional
        An op that runs as step ``step``, instead of the recorded one.
    donate : str or sequence of str
        Further inputs that the run may overwrite, from its beginning.
    reserve : mapping of str to int or (int, int), optional
        Rows to reserve for inputs of a single run, or (axis, rows). For a cache the axis is known.
    kv_capacity : int, optional
        Rows to reserve in the growing caches of a decode.
    policy : str or Policy, optional
        The policy of the whole run.
    fix : Fix, optional
        A fix of ``kvviz.explain(trace)``. It has its own order, so ``step`` is only the step to show.
    order : str, or sequence of Tensor or int, optional
        For ggml graphs: a rule of ``kvviz.ggml.RULES``, or, for one graph, all its nodes or their positions in the new
        order, from the beginning; see `kvviz.ggml.reorder`.

    Returns
    -------
    Trace
        Trace of the whole run or decode. Its ``label`` says what differs; its ``branch`` also says where.

    Raises
    ------
    KvvizError
        If no change is given, the op could not run there, or the trace was loaded from a file.
    ReplayError
        If the inputs were not kept.

    Examples
    --------
    >>> other = kvviz.fork(trace, 12, run="/model/layers.0/Shape_4")        # doctest: +SKIP
    >>> other.label
    'Shape #4 at step 12'
    >>> kvviz.fork(trace, policy="rten").bytes_copied - trace.bytes_copied  # doctest: +SKIP
    """
    asked = Departure(run, donate, reserve, kv_capacity, policy, fix, order)
    made: Trace = fork_session(as_trace(trace, "kvviz.fork"), step, asked).run_to_end()
    return made


def fork_session(trace: Trace, step: int, asked: Departure) -> Session:
    """A fork that has stopped where it leaves the recorded order, and can continue; see `fork`."""
    if trace.recipe is None:
        raise KvvizError(
            "this trace has no model to run again, for example because it was loaded from a file; record it again with "
            "kvviz.run, kvviz.decode or kvviz.ggml.run, and fork that trace"
        )
    if trace.recipe.orders or asked.order is not None:
        return _in_order(trace, step, asked)
    changes = _changes(trace, asked)
    given = sum((asked.run is not None, bool(changes), asked.policy is not None, asked.fix is not None))
    if not given:
        raise KvvizError("no change is given; give run, donate, reserve, kv_capacity, policy or fix")
    own = trace.recipe.options["policy"]
    if asked.fix is not None:
        if given > 1:
            raise KvvizError("a fix cannot be combined with other changes; give it alone")
        return _forked(trace, 0, asked.fix.label, **arguments(trace, asked.fix.changes, asked.fix.picked, own))
    parts, options = [], arguments(trace, changes, False, own)
    if asked.policy is not None:
        options["policy"] = find_policy(asked.policy)
        if trace.options.kind == "decode" and trace.options.growth == own.growth:
            options["growth"] = None  # each policy treats growing caches in its own way
        parts.append(options["policy"].name)
    if changes:
        parts.append(label_of(trace.graph, changes))
    choice = None
    if asked.run is not None:
        choice = find_choice(trace, step, asked.run)
        parts.append(f"{_called(choice[1])} at step {step:,}")
    return _forked(trace, step, " and ".join(parts), choice, **options)


def _in_order(trace: Trace, step: int, asked: Departure) -> Session:
    """A fork of a list of nodes: another op of the frontier, or another order of all nodes."""
    run, order = asked.run, asked.order
    if not trace.recipe.orders:
        raise KvvizError("order is for ggml graphs; other models run in the order of their policy")
    others = asked.donate or asked.reserve or asked.policy or asked.fix or asked.kv_capacity is not None
    if others or (run is None) == (order is None):
        raise KvvizError("for ggml graphs only the order can change; give run (an op of the frontier at step) or order")
    if run is None:
        return _forked(trace, 0, order if isinstance(order, str) else "own order", order=order)
    choice = find_choice(trace, step, run)
    return _forked(trace, step, f"{_called(choice[1])} at step {step:,}", choice)


def _forked(trace: Trace, step: int, label: str, choice: tuple[int, Node] | None = None, **changes: Any) -> Session:
    """A session from the same inputs that has run the steps before ``step`` in the recorded order.

    ``choice``: frame and node of the op that runs as this step; see `find_choice`. ``**changes``: options that differ
    from the beginning; see `kvviz.engine.sessions.recipe.Recipe.session`.

    Raises `KvvizError`: if these changes do not allow its order. Raises `ReplayError`: if its inputs were not kept.
    """
    if not 0 <= step <= len(trace.log):
        raise KvvizError(f"step {step:,} does not exist; the trace has {len(trace.log):,} steps")
    session: Session = trace.recipe.session(**changes)
    session.trace.branch = Branch(label, step)
    if step:
        session.follow(trace, step)
    if choice is not None:
        session.take(trace, *choice)
    return session


def _called(node: Node) -> str:
    """A short label of a node: its operator, and its number or the end of its name."""
    last = node.name.rsplit("/", 1)[-1]
    numbered = re.fullmatch(rf"(?:node_)?{re.escape(node.op_type)}(?:_(\d+))?", last, re.IGNORECASE)
    if numbered is None:
        return f"{node.op_type} {last[-32:]}" if last else node.op_type
    return f"{node.op_type} #{numbered[1]}" if numbered[1] else node.op_type


def what_holds(trace: Trace, other: Trace) -> str:
    """Which part of a run the change of a fork affects, in a sentence; empty if the trace is no fork of ``other``."""
    if trace.branch is None or not trace.branch.step:
        return ""
    step = f"{trace.branch.step:,}"
    if not holds_throughout(trace, other):
        return f"Everything before step {step} is as it was."
    if trace.policy != other.policy:
        return (
            f"The rules of {trace.policy.name} hold for the whole run; before step {step} only the order is as it was."
        )
    return f"The change holds for the whole run; before step {step} only the order is as it was."


def holds_throughout(trace: Trace, other: Trace) -> bool:
    """Whether the change of a fork also holds before the step at which it left the other trace."""
    return trace.policy != other.policy or trace.options != other.options


def offers(trace: Trace) -> dict[str, Any]:
    """Possible changes of a whole run: other policies by name, inputs to donate, rows to reserve. ``kv_capacity``: the
    final number of rows of the caches of a decode; None without growing caches, or if they have enough room.
    ``orders``: rules by which a list of nodes could be reordered."""
    orders = trace.recipe.orders if trace.recipe is not None else ()
    if orders or trace.log.declared.accesses:
        return {"policies": [], "donate": [], "kv_capacity": None, "orders": list(orders)}
    options = trace.options
    growing = [pair for pair in cache_pairs(trace.graph) if pair.protocol == "growing"]
    rows = options.rows if options.kind == "decode" and growing else 0
    donated = set(options.donate) | options.lent
    caches = {pair.input for pair in cache_pairs(trace.graph)} if options.kind != "run" else set()
    return {
        "policies": [name for name in NAMED if name != trace.policy.name],
        "donate": [value.name for value in trace.graph.inputs if value.name not in donated | caches],
        "kv_capacity": rows if rows and (options.kv_capacity or 0) < rows else None,
        "orders": [],
    }


def _changes(trace: Trace, asked: Departure) -> tuple[Change, ...]:
    """The requested changes, after checking that they fit this run."""
    reserve, kv_capacity = asked.reserve, asked.kv_capacity
    names = names_in(asked.donate)
    inputs = {value.name for value in trace.graph.inputs}
    wrong = next((name for name in (*(reserve or ()), *names) if name not in inputs), None)
    if wrong is not None:
        raise KvvizError(f"{trace.graph.name} has no input {wrong!r}; it has {', '.join(sorted(inputs)[:8])}")
    if reserve and trace.options.kind != "run":
        raise KvvizError("reserve is for a single run; for a decode give kv_capacity, the rows of its caches")
    if kv_capacity is not None and trace.options.kind != "decode":
        raise KvvizError("kv_capacity is for a decode; for a single run use reserve")
    axes = {pair.input: pair.axis for pair in cache_pairs(trace.graph)}
    changes: list[Change] = []
    for name, rows in (reserve or {}).items():
        axis, count = rows if isinstance(rows, tuple) else (axes.get(name), rows)
        if axis is None:
            raise KvvizError(f"{name!r} is not a cache, so give its axis too: reserve={{{name!r}: (axis, rows)}}")
        changes.append(Reserve(name, axis, count))
    changes += [Donate(name) for name in names]
    if kv_capacity is not None:
        changes.append(Capacity(kv_capacity))
    return tuple(changes)
