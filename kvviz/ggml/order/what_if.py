"""What if the nodes of a graph ran in another order: which hazards break, and where the results first differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.graph_trace import to_trace
from kvviz.ggml.graph.memory_plan import lives
from kvviz.ggml.graph.op_effects import effects, is_noop
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.order.graph_session import Executor, restore_state, saved_state
from kvviz.ggml.order.reorder_rules import RULES, Order, new_order
from kvviz.trace.index.hazards import Hazard, explaining, find_hazards, sentence
from kvviz.trace.recording import Trace
from kvviz.trace.schema.declared import Access
from kvviz.trace.schema.element_types import unit
from kvviz.trace.schema.regions import Level, Region

Written = dict[Tensor, np.ndarray]
"""The bytes that each node wrote, right after it ran."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the results of two orders first differ.

    Attributes
    ----------
    node : Tensor
        The first node of the new order that writes other bytes; if all write the same, a leaf that holds other bytes
        after the run.
    step, step_before : int or None
        The step of the node in the trace of the new order, and in that of the graph's own; None for a leaf.
    bytes, of : int
        How many of the bytes that it writes differ, and how many it writes.
    first_byte : int
        The first of them that differs.
    pair : Hazard or None
        What explains it.
    """

    node: Tensor
    step: int | None
    step_before: int | None
    bytes: int
    of: int
    first_byte: int
    pair: Hazard | None

    @property
    def sentence(self) -> str:
        what = f"{self.node.op} {self.node.name}" if self.step is not None else f"the final content of {self.node.name}"
        text = f"{what} is the first that differs, in {self.bytes:,} of {self.of:,} bytes"
        return f"{text}: {self.pair.sentence}" if self.pair is not None else text


def _run(graph: ComputeGraph, title: str, values: int | str) -> tuple[Trace, Written]:
    executor = Executor(title, values=values)
    executor.begin(graph)
    written: Written = {}
    node = executor.step()
    while node is not None:
        parts = [_held(effect.region, effect.tensor.root) for effect in effects(node) if effect.writes]
        if parts:
            written[node] = np.concatenate(parts)
        node = executor.step()
    return executor.finish(), written


def _first_difference(
    graphs: tuple[ComputeGraph, ComputeGraph],
    written: tuple[Written, Written],
    left: tuple[Mapping[Tensor, np.ndarray], Mapping[Tensor, np.ndarray]],
    after: Trace,
    broken: Sequence[Hazard],
) -> Difference | None:
    """Compare what each node wrote in both orders. ``left``: contents of leafs after both. ``after``: the trace of the
    new order."""
    for node, now in written[1].items():
        differ = np.flatnonzero(now != written[0][node])
        if len(differ):
            step_before, step = (graph.executed.index(node) for graph in graphs)
            reads = {access.storage for access in after.log.declared.accesses.get(step, ()) if not access.writes}
            pair = explaining(broken, step, reads)
            return Difference(node, step, step_before, len(differ), len(now), int(differ[0]), pair)
    for leaf, data in left[1].items():
        differ = np.flatnonzero(data != left[0][leaf])
        if len(differ):
            kept = next((pair for pair in broken if pair.root == leaf.name and pair.kind == "WAW"), None)
            return Difference(leaf, None, None, len(differ), len(data), int(differ[0]), kept)
    return None


def _broken(trace: Trace, level: Level) -> tuple[Hazard, ...]:
    return tuple(hazard for hazard in find_hazards(trace, level) if hazard.broken)


def _broken_addresses(graph: ComputeGraph, other: ComputeGraph, trace: Trace) -> tuple[Hazard, ...]:
    """Hazards that another order (of ``trace``) breaks at the addresses of a graph: two results occupied the same bytes
    one after the other, and a node that needs the earlier one now runs after the node that makes the later one."""
    nodes, steps = graph.nodes, {node: step for step, node in enumerate(other.executed)}
    made, found = lives(graph), list[Hazard]()
    for number, late in enumerate(made):
        for early in made[:number] if late.born >= 0 else ():
            if early.last > late.born or not early.meets(late):
                continue
            size, writer = min(early.high, late.high) - max(early.low, late.low), nodes[late.born]
            for user in (nodes[place] for place in early.users if place < late.born):
                if is_noop(user) or steps[user] < steps[writer]:
                    continue
                kind = "WAW" if user is early.root else "WAR"
                later = _access(trace, steps[writer], writer, writer, True)
                earlier = _access(trace, steps[user], user, early.root, kind == "WAW")
                first, second = (trace.log[steps[node]].op.node for node in (writer, user))
                says = sentence(kind, first, second, earlier.value, False, True)
                where = (kind, steps[writer], steps[user], earlier.storage, early.root.name, earlier.value, size)
                found.append(Hazard(*where, False, True, says, later, earlier, size, size, size))
    return tuple(sorted(found, key=lambda pair: (pair.second, pair.first)))


def _access(trace: Trace, step: int, node: Tensor, root: Tensor, writes: bool) -> Access:
    declared = zip(effects(node), trace.log.declared.accesses[step])
    return next(access for effect, access in declared if effect.tensor.root is root and effect.writes is writes)


def _held(region: Region, root: Tensor) -> np.ndarray:
    assert root.data is not None
    shape, item = unit(region.shape, region.dtype)
    starts = region.rows if region.rows is not None else (0,)
    parts = [
        np.ndarray(shape, f"V{item}", root.data, region.offset + start, region.strides).tobytes() for start in starts
    ]
    return np.frombuffer(b"".join(parts), np.uint8)


_LISTED = 12  # the maximum number of pairs in the text


@dataclass(frozen=True, slots=True)
class Reordered:
    """A graph in another order, beside its own.

    Attributes
    ----------
    original, graph : ComputeGraph
        The graph, and the same tensors in the new order.
    rule, about : str
        The rule's name and what keeps two nodes apart in it; ``"own order"`` for an order that the caller gave.
    moved : int
        How many nodes have another place than before.
    broken : tuple of Hazard
        Hazards that the graph's own order respects and the new one does not, if memory is allocated after the order is
        made, as ggml's back ends do: tensors of different roots share no bytes then. Steps are those of ``trace``.
    at_addresses : tuple of Hazard
        What the new order breaks besides if the tensors stay at their recorded addresses, where different roots share
        bytes one after the other.
    before, trace : Trace
        Both orders: runs if ``ran``, else the lists alone, without values.
    ran : bool
    why_not : str
        Why it was not run; empty if it was.
    difference : Difference or None
        Where the results first differ; None if they are the same, or were not computed.
    """

    original: ComputeGraph
    graph: ComputeGraph
    rule: str
    about: str
    moved: int
    broken: tuple[Hazard, ...]
    at_addresses: tuple[Hazard, ...]
    before: Trace = field(repr=False)
    trace: Trace = field(repr=False)
    ran: bool
    why_not: str
    difference: Difference | None

    def __str__(self) -> str:
        lines = [f"{self.original.title}, {self.rule}: {self.moved} of {len(self.graph.nodes)} nodes moved"]
        claims = {"before allocation": self.broken}
        if any(tensor.address is not None for tensor in self.graph.nodes):
            claims["besides, at the recorded addresses"] = self.at_addresses
        for claim, broken in claims.items():
            lines.append(f"  {claim}: {len(broken) or 'no'} hazard{'s' * (len(broken) != 1)} broken")
            lines += [f"    {pair!r}" for pair in broken[:_LISTED]]
        if self.difference is not None:
            lines.append(f"  {self.difference.sentence}")
        else:
            lines.append("  the results are the same, byte for byte" if self.ran else f"  not run: {self.why_not}")
        return "\n".join(lines)


def reorder(
    graph: ComputeGraph,
    order: Order,
    *,
    run: bool | None = None,
    level: Level = "exact",
    values: int | str = "1 MB",
) -> Reordered:
    """Give the nodes of a graph another order, find which hazards that breaks, and compare the results.

    Parameters
    ----------
    graph : ComputeGraph
        It is not changed, and its leafs hold the same values afterwards.
    order : str, or sequence of Tensor or int
        A rule of `kvviz.ggml.RULES`, or all nodes, or their positions, in the new order.
    run : bool, optional
        Run both orders; by default if that is possible.
    level : {"exact", "range", "root"}
        What counts as the same bytes for ``broken``.
    values : int or str
        Bytes for summaries of values in the two traces, as in `Trace.summarise`.

    Raises
    ------
    KvvizError
        If there is no such rule, if the declared edges do not allow the order, or if ``run`` is set and the graph
        cannot be run.

    Examples
    --------
    >>> from kvviz.ggml.graph.context import Context
    >>> ctx = Context()
    >>> k = ctx.new_tensor("f32", 4, 8, name="k", data=0)
    >>> row, q = (ctx.new_tensor("f32", 4, 1, name=name, data=1) for name in ("row", "q"))
    >>> seen, cur = ctx.view_2d(k, 4, 8, 16, 0), ctx.scale(ctx.sqr(row), 3.0)
    >>> graph = ctx.new_graph("view first").expand(seen)
    >>> graph = graph.expand(ctx.cpy(cur, ctx.view_2d(k, 4, 1, 16, 48))).expand(ctx.mul_mat(seen, q))
    >>> [(pair.kind, pair.bytes) for pair in reorder(graph, "vulkan").broken]
    [('RAW', 16)]
    >>> reorder(graph, "vulkan fixed").difference is None
    True
    """
    nodes = new_order(graph, order)
    other = graph.reordered(nodes)
    other.meant = graph.nodes
    name, about = (order, RULES[order].about) if isinstance(order, str) else ("own order", "an order that was given")
    moved = sum(one is not two for one, two in zip(graph.nodes, nodes))
    why_not = graph.cannot_run if run is not False else "it was not asked for"
    if run and why_not:
        raise KvvizError(f"{graph.title!r} cannot be run: {why_not}")
    titles = (f"{graph.title}: as listed", f"{graph.title}: {name}")
    wrote: Written | None = None
    if why_not:
        # The recorded addresses belong to the recorded order alone, so neither trace has them.
        both = graph.reordered(graph.nodes), other
        before, after = (to_trace([one], title) for one, title in zip(both, titles))
    else:
        state = saved_state([graph])
        before, wrote = _run(graph, titles[0], values)
        left = saved_state([graph])
        restore_state(state)
        after, writes = _run(other, titles[1], values)
    broken, at = _broken(after, level), _broken_addresses(graph, other, after)
    difference = None
    if wrote is not None:
        exact = broken if level == "exact" else _broken(after, "exact")
        difference = _first_difference((graph, other), (wrote, writes), (left, saved_state([graph])), after, exact)
        restore_state(state)
    return Reordered(graph, other, name, about, moved, broken, at, before, after, not why_not, why_not, difference)
