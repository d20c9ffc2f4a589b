"""Running graphs to their end: what ``kvviz.ggml.run`` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kvviz.errors import KvvizError
from kvviz.ggml.compute_graph import ComputeGraph
from kvviz.ggml.executor import Executor
from kvviz.ggml.graph_recipe import recipe_of
from kvviz.ggml.memory_plan import MemoryPlan
from kvviz.trace.recording import Trace


def run(
    graphs: ComputeGraph | Sequence[ComputeGraph],
    title: str = "",
    *,
    labels: Iterable[str] = (),
    values: int | str = "1 MB",
    upto: int | None = None,
    plans: Mapping[ComputeGraph, MemoryPlan] | None = None,
) -> Trace:
    """Run a graph, or several one after the other, and give the recording.

    Parameters
    ----------
    graphs : ComputeGraph or sequence of ComputeGraph
    labels : iterable of str
        Of each run.
    values : int or str
        Bytes for summaries of values, as in `Trace.summarise`.
    upto : int, optional
        How many nodes of the last graph are run; all by default.
    plans : mapping of ComputeGraph to MemoryPlan, optional
        Run a graph in the memory that `plan_memory` gives its tensors: what takes over a source overwrites it.

    Raises
    ------
    KvvizError
        If a node cannot be run: no kernel for its op or type, a source that was not computed, a view beyond its root.

    Notes
    -----
    What nodes write stays written: `saved_state` and `restore_state` go back. ``trace.outputs`` has what no node of the
    last graph uses.

    Examples
    --------
    >>> from kvviz.ggml.context import Context
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
