"""Running graphs to their end, and recipes of their traces, so that they can run again, also in another order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.graph_trace import to_trace
from kvviz.ggml.graph.memory_plan import MemoryPlan
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.order.graph_session import Executor, GraphSession, held_by
from kvviz.ggml.order.reorder_rules import RULES, Order, new_order
from kvviz.trace.recording import Trace
from kvviz.trace.value_numbers import as_bytes

LISTED = "the order of the node list"
MOST_KEPT = 256 << 20
"""Bytes of leafs that are kept besides weights, which nobody writes."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphRecipe:
    """The graphs, and what their leafs held before the first of them ran: an array for each, or None if there is no
    data, and nodes are only listed in their order."""

    graphs: tuple[ComputeGraph, ...]
    title: str
    labels: tuple[str, ...]
    about: str = ""
    values: int | str = 0
    held: Mapping[Tensor, np.ndarray] | None = field(default=None, repr=False)

    @property
    def options(self) -> dict[str, Any]:
        return {}

    @property
    def orders(self) -> tuple[str, ...]:
        return tuple(name for name in RULES if name != "as listed")

    def session(self, order: Order | None = None) -> GraphSession:
        """A session that has run nothing; ``order`` is as in `kvviz.ggml.reorder`, that of the list by default."""
        if order is not None and not isinstance(order, str) and len(self.graphs) > 1:
            raise KvvizError(f"{self.title!r} has {len(self.graphs)} graphs: give a rule's name, not the nodes of one")
        ordered = [graph.nodes if order is None else new_order(graph, order) for graph in self.graphs]
        runs = list(zip(self.graphs, self.labels, map(_executed, self.graphs, ordered)))
        session = GraphSession(runs, self.title, self.held, self.about, self.values)
        self.put_into(session.trace)
        return session

    def again(self, **changes: Any) -> Trace:
        return self.session(**changes).run_to_end()

    def put_into(self, trace: Trace) -> None:
        """Let a trace of these graphs be run again."""
        trace.recipe = self
        if self.held is not None:
            trace.replayer = self

    @property
    def runs(self) -> tuple[None, ...]:
        """No inputs are kept per run: `held` has the leafs' contents before the first run."""
        return (None,) * len(self.graphs)

    def value(self, trace: Trace, name: str, step: int, stored: bool = False) -> Any:
        """What a value held right after a step; see `Trace.value`. ``stored``: its bytes."""
        session = self.session()
        session.follow(trace, step + 1)
        return session.value(name, stored)

    def stored(self, trace: Trace, name: str, step: int) -> bytes:
        """The bytes of a value right after a step, as they are stored."""
        found: bytes = self.value(trace, name, step, True)
        return found

    def summarise(self, trace: Trace, budget: int | str) -> Any:
        if not as_bytes(budget):
            trace.value_summaries = None
            return None
        again = replace(self, values=budget).session()
        again.follow(trace, len(trace.log))
        again.look()
        trace.value_summaries = again.trace.value_summaries
        return trace.values


def recipe_of(
    graphs: Sequence[ComputeGraph], title: str, labels: Sequence[str], values: int | str
) -> GraphRecipe | None:
    """The recipe of graphs that are about to run; None where their leafs hold too much to be kept."""
    leafs = held_by(graphs)
    if sum(leaf.nbytes for leaf in leafs if leaf.role != "weight") > MOST_KEPT:
        return None
    held = {leaf: data if leaf.role == "weight" else data.copy() for leaf, data in leafs.items()}
    return GraphRecipe(tuple(graphs), title, tuple(labels), values=values, held=held)


def listed(graphs: Sequence[ComputeGraph], title: str, about: str = LISTED, labels: Sequence[str] = ()) -> Trace:
    """A trace of the lists of graphs, whether they have been run or not, that can be reordered."""
    trace = to_trace(graphs, title, about=about, labels=labels)
    if all(graph.meant is None for graph in graphs):
        texts = tuple([*labels, *[""] * len(graphs)][: len(graphs)])
        GraphRecipe(tuple(graphs), title, texts, about).put_into(trace)
    return trace


def session_of(graph: ComputeGraph, values: int | str = "1 MB") -> GraphSession:
    why_not = graph.cannot_run
    if why_not:
        raise KvvizError(f"{graph.title!r} cannot be run: {why_not}")
    if graph.meant is not None:
        graph, order = graph.reordered(graph.meant), graph.nodes
        graph.meant = None
    else:
        order = graph.nodes
    recipe = recipe_of([graph], graph.title, [""], values)
    if recipe is None:
        raise KvvizError(f"{graph.title!r} has leafs of more than {MOST_KEPT:,} bytes: mark weights with role='weight'")
    return recipe.session(order)


def _executed(graph: ComputeGraph, order: Sequence[Tensor]) -> list[Tensor]:
    executed = set(graph.executed)
    return [node for node in order if node in executed]


def run(
    graphs: ComputeGraph | Sequence[ComputeGraph],
    title: str = "",
    *,
    labels: Iterable[str] = (),
    values: int | str = "1 MB",
    upto: int | None = None,
    plans: Mapping[ComputeGraph, MemoryPlan] | None = None,
) -> Trace:
    """Run a graph, or several one after the other, and return the recording.

    Parameters
    ----------
    graphs : ComputeGraph or sequence of ComputeGraph
    labels : iterable of str
        The label of each run.
    values : int or str
        Bytes for summaries of values, as in `Trace.summarise`.
    upto : int, optional
        How many nodes of the last graph to run; all by default.
    plans : mapping of ComputeGraph to MemoryPlan, optional
        Run a graph in the memory that `plan_memory` plans for its tensors: a node that takes over a source overwrites
        it.

    Raises
    ------
    KvvizError
        If a node cannot be run: no kernel for its op or type, a source that was not computed, a view beyond its root.

    Notes
    -----
    Nodes change their tensors: `saved_state` and `restore_state` undo that. ``trace.outputs`` has results that no node
    of the last graph uses.

    Examples
    --------
    >>> from kvviz.ggml.graph.context import Context
    >>> ctx = Context()
    >>> x = ctx.new_tensor("f32", 3, name="x", data=[1, 2, 3])
    >>> run(ctx.new_graph("squares").expand(ctx.set_name(ctx.sqr(x), "y"))).outputs["y"]
    array([1., 4., 9.], dtype=float32)
    """
    several = [graphs] if isinstance(graphs, ComputeGraph) else list(graphs)
    if not several:
        raise KvvizError("there is no graph to run")
    executor = Executor(title or several[0].title, values=values, plans=plans)
    texts = [*labels, *[""] * len(several)]
    repeatable = plans is None and upto is None and all(graph.meant is None for graph in several)
    recipe = recipe_of(several, executor.title, texts, values) if repeatable else None
    for graph, text in zip(several, texts):
        executor.run(graph, text, upto if graph is several[-1] else None)
    trace = executor.finish()
    if recipe is not None:
        recipe.put_into(trace)
    return trace
