"""What if the nodes of a graph ran in another order: which pairs break, and where the results first part."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvviz.errors import KvvizError
from kvviz.ggml.address_lives import broken_addresses
from kvviz.ggml.broken_pairs import BrokenPair, broken_pairs
from kvviz.ggml.compute_graph import ComputeGraph
from kvviz.ggml.executor import cannot_run, restore_state, saved_state
from kvviz.ggml.first_difference import Difference, first_difference, run_noting
from kvviz.ggml.graph_trace import to_trace
from kvviz.ggml.reorder_rules import RULES, Order, new_order
from kvviz.trace.recording import Trace
from kvviz.trace.regions import Level

_LISTED = 12  # pairs that are written out


@dataclass(frozen=True, slots=True)
class Reordered:
    """A graph in another order, beside its own.

    Attributes
    ----------
    original, graph : ComputeGraph
        The graph, and the same tensors in the new order.
    rule, about : str
        The rule's name and what keeps two nodes apart in it; ``"own order"`` for one that was given.
    moved : int
        How many nodes have another place than before.
    broken : tuple of BrokenPair
        Hazards that the graph's own order respects and the new one does not, if memory is given out after the order is
        made, as ggml's back ends do: tensors of different roots share no bytes then.
    at_addresses : tuple of BrokenPair
        What it breaks besides if the tensors stay at the addresses that the graph was recorded with, where different
        roots share bytes one after the other.
    before, trace : Trace
        Both orders: of runs where ``ran``, else of the lists alone, without values.
    ran : bool
    why_not : str
        What kept it from being run; empty where it was.
    difference : Difference or None
        Where the results first part; None if they are the same, or were not computed.
    """

    original: ComputeGraph
    graph: ComputeGraph
    rule: str
    about: str
    moved: int
    broken: tuple[BrokenPair, ...]
    at_addresses: tuple[BrokenPair, ...]
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
            lines += [f"    {pair.kind}: {pair.sentence}" for pair in broken[:_LISTED]]
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
    """Give the nodes of a graph another order, tell which hazards that breaks, and compare the results.

    Parameters
    ----------
    graph : ComputeGraph
        It stays as it is, and its leafs hold afterwards what they held before.
    order : str, or sequence of Tensor or int
        A rule of `kvviz.ggml.RULES`, or all nodes, or their positions, in the order in which they shall run.
    run : bool, optional
        Run both orders; by default where that is possible.
    level : {"exact", "range", "root"}
        What counts as the same bytes for ``broken``.
    values : int or str
        Bytes for summaries of values in the two traces, as in `Trace.summarise`.

    Raises
    ------
    KvvizError
        If there is no such rule, if the declared edges do not allow the order, or if it shall be run and cannot.

    Examples
    --------
    >>> from kvviz.ggml.context import Context
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
    name, about = (order, RULES[order].about) if isinstance(order, str) else ("own order", "an order that was given")
    broken = broken_pairs(graph.nodes, nodes, level)
    at = broken_addresses(graph, nodes)
    moved = sum(one is not two for one, two in zip(graph.nodes, nodes))
    why_not = cannot_run(graph) if run is not False else "it was not asked for"
    if run and why_not:
        raise KvvizError(f"{graph.title!r} cannot be run: {why_not}")
    titles = (f"{graph.title}: as listed", f"{graph.title}: {name}")
    if why_not:
        # The recorded addresses are of the recorded order alone: what is told of one is told of both.
        both = graph.reordered(graph.nodes), other
        before, after = (to_trace([one], title) for one, title in zip(both, titles))
        return Reordered(graph, other, name, about, moved, broken, at, before, after, False, why_not, None)
    state = saved_state([graph])
    before, wrote = run_noting(graph, titles[0], values)
    left = saved_state([graph])
    restore_state(state)
    after, writes = run_noting(other, titles[1], values)
    exact = broken if level == "exact" else broken_pairs(graph.nodes, nodes)
    steps = graph.executed, other.executed
    difference = first_difference(wrote, writes, steps, (left, saved_state([graph])), exact)
    restore_state(state)
    return Reordered(graph, other, name, about, moved, broken, at, before, after, True, "", difference)
