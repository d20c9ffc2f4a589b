"""What if the nodes of a graph ran in another order: which pairs break, and where the results first part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.executor import Executor, restore_state, saved_state
from kvviz.ggml.graph.graph_trace import to_trace
from kvviz.ggml.graph.op_effects import effects
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.order.broken_pairs import BrokenPair, broken_addresses, broken_pairs
from kvviz.ggml.order.reorder_rules import RULES, Order, new_order
from kvviz.trace.element_types import unit
from kvviz.trace.recording import Trace
from kvviz.trace.regions import Level, Region

Written = dict[Tensor, np.ndarray]
"""The bytes that each node wrote, as they were when it had run."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the results of two orders part.

    Attributes
    ----------
    node : Tensor
        The first node of the new order that writes other bytes; where all write the same, a leaf that is left with
        other bytes.
    step, step_before : int or None
        The step of the node in the trace of the new order, and in that of the graph's own; None for a leaf.
    bytes, of : int
        How many of the bytes that it writes differ, and how many it writes.
    first_byte : int
        Which of them is the first that differs.
    pair : BrokenPair or None
        What explains it.
    """

    node: Tensor
    step: int | None
    step_before: int | None
    bytes: int
    of: int
    first_byte: int
    pair: BrokenPair | None

    @property
    def sentence(self) -> str:
        """What differs, and why."""
        what = f"{self.node.op} {self.node.name}" if self.step is not None else f"what is left in {self.node.name}"
        text = f"{what} is the first that differs, in {self.bytes:,} of {self.of:,} bytes"
        return f"{text}: {self.pair.sentence}" if self.pair is not None else text


def run_noting(graph: ComputeGraph, title: str, values: int | str) -> tuple[Trace, Written]:
    """Run a graph, and keep what each node wrote."""
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


def first_difference(
    before: Written,
    after: Written,
    steps: tuple[Sequence[Tensor], Sequence[Tensor]],
    left: tuple[Mapping[Tensor, np.ndarray], Mapping[Tensor, np.ndarray]],
    broken: Sequence[BrokenPair],
) -> Difference | None:
    """Compare what each node wrote in the graph's own order and in the new one.

    ``steps``: the nodes of both runs, in the order in which they ran. ``left``: what leafs hold after both.
    """
    places = [{node: i for i, node in enumerate(part)} for part in steps]
    for node, now in after.items():
        differ = np.flatnonzero(now != before[node])
        if len(differ):
            pair = _because(node, broken, after)
            step, step_before = places[1][node], places[0][node]
            return Difference(node, step, step_before, len(differ), len(now), int(differ[0]), pair)
    for leaf, data in left[1].items():
        differ = np.flatnonzero(data != left[0][leaf])
        if len(differ):
            kept = next((pair for pair in broken if pair.root is leaf and pair.kind == "WAW"), None)
            return Difference(leaf, None, None, len(differ), len(data), int(differ[0]), kept)
    return None


def _because(node: Tensor, broken: Iterable[BrokenPair], order: Mapping[Tensor, object]) -> BrokenPair | None:
    """The pair that let a node read other bytes: it came before a write that it needs, or after one that it must not.

    Of several writes that it came after, the last one is what it saw; a swap of two writes into what it reads is the
    next best.
    """
    place = {one: i for i, one in enumerate(order)}
    reads = {effect.tensor.root for effect in effects(node) if not effect.writes}
    late = [pair for pair in broken if pair.kind == "WAR" and pair.first is node]
    early = [pair for pair in broken if pair.kind == "RAW" and pair.second is node]
    swapped = [pair for pair in broken if pair.kind == "WAW" and pair.root in reads and place[pair.first] < place[node]]
    chosen = early or sorted(late, key=lambda pair: -place[pair.second]) or swapped
    return chosen[0] if chosen else None


def _held(region: Region, root: Tensor) -> np.ndarray:
    """The bytes of a region, one after the other."""
    assert root.data is not None
    shape, item = unit(region.shape, region.dtype)
    starts = region.rows if region.rows is not None else (0,)
    parts = [
        np.ndarray(shape, f"V{item}", root.data, region.offset + start, region.strides).tobytes() for start in starts
    ]
    return np.frombuffer(b"".join(parts), np.uint8)


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
    """Give the nodes of a graph another order, find which hazards that breaks, and compare the results.

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
    name, about = (order, RULES[order].about) if isinstance(order, str) else ("own order", "an order that was given")
    broken = broken_pairs(graph.nodes, nodes, level)
    at = broken_addresses(graph, nodes)
    moved = sum(one is not two for one, two in zip(graph.nodes, nodes))
    why_not = graph.cannot_run if run is not False else "it was not asked for"
    if run and why_not:
        raise KvvizError(f"{graph.title!r} cannot be run: {why_not}")
    titles = (f"{graph.title}: as listed", f"{graph.title}: {name}")
    if why_not:
        # The recorded addresses belong to the recorded order alone, so neither trace has them.
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
