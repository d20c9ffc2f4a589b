"""Methods by which data uses higher layers: those of a `Trace` that explain, draw and export it.

Each function here is a method of the class of its first argument: `kvviz.trace.recording.Trace` includes its own, and
so do records, graphs and hazards for their display in notebooks. This is the only file that imports from above. It does
so when a function is called, so that data can be read without the code that draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import os

    from kvviz.caches.stored_rows import CacheAt
    from kvviz.fixes.fix import Fix
    from kvviz.ggml.graph.compute_graph import ComputeGraph
    from kvviz.ggml.kv_cache import KVCache
    from kvviz.ggml.order.graph_session import GraphSession
    from kvviz.graph.model import Graph
    from kvviz.query.found_steps import Found
    from kvviz.report.explain import Report
    from kvviz.report.faces.hazard_table import Hazards
    from kvviz.report.faces.steps_table import Table
    from kvviz.trace.blockers import Blocker
    from kvviz.trace.guided_tour import Tour
    from kvviz.trace.index.hazards import Hazard
    from kvviz.trace.recording import Steps, Trace
    from kvviz.trace.records import Cache, Step
    from kvviz.trace.schema.regions import Level
    from kvviz.trace.trace_data import TraceData
    from kvviz.trace.values_view import Values
    from kvviz.view.drawing.graphviz_drawing import GraphDrawing

    Path = str | os.PathLike[str]


def summarise(trace: Trace, budget: int | str = "2 MB") -> Values | None:
    """Store summaries of the values in the recording: numbers, histograms, pictures, and attention weights.

    The runs are repeated for this. Saved files and the page include the summaries.

    Parameters
    ----------
    budget : int or str
        Maximum size of the summaries in bytes; 0 removes them. Numbers of all values come first, then histograms,
        attention, and pictures; caches and logits first, then the largest values.

    Raises
    ------
    ReplayError
        If the trace was loaded from a file, or has no values (`kvviz.dry`). The summaries that it has are kept.
    """
    from kvviz.engine.sessions.value_pass import summarise

    return summarise(trace, budget)


def explain(trace: Trace) -> Report:
    """The report on the trace; see `kvviz.explain`."""
    from kvviz.report.explain import explain

    return explain(trace)


def to_markdown(trace: Trace, step: int | None = None) -> str:
    """A step in Markdown, ready for a GitHub thread; see `Report.to_markdown`.

    Parameters
    ----------
    step : int, optional
        Its number; by default the report on the whole trace.
    """
    return trace.explain().to_markdown(step)


def table(trace: Trace, steps: Sequence[int] | None = None) -> Table:
    """The steps as a table, which prints as text, has a display in notebooks, and has ``rows``."""
    from kvviz.report.faces.steps_table import steps_table

    return steps_table(trace, steps)


def find(trace: Trace, query: str) -> Found:
    """The steps that a query finds, as a sequence of `Step` that displays as a table.

    Words find names, decisions, reasons, decoded words and buffers; a field is compared with a value. All parts of
    a query must hold. ``or`` joins alternatives, and ``-`` negates the part after it. `kvviz.query.grammar` lists
    all fields. The same query finds the same steps in the page.

    Examples
    --------
    >>> trace.find("op:Concat layer:3 copied>0 sort:-copied")  # doctest: +SKIP
    >>> trace.find("missed -op:Reshape live>=1.5MB or why:NO_CAPACITY")  # doctest: +SKIP

    Raises
    ------
    KvvizError
        If the query cannot be read; it says which word is not understood, and what may stand there.
    """
    from kvviz.query.found_steps import find

    return find(trace, query)


def to_pandas(trace: Trace, table: str = "steps") -> Any:
    """A table of the trace as a ``pandas.DataFrame``, bytes as numbers.

    Parameters
    ----------
    table : str
        ``"steps"``: the columns of `table` without the sentences, from the log's own columns. ``"storages"``: one
        row a storage, see `kvviz.trace.records.StorageRecord`. ``"findings"``: those of `kvviz.findings`, in their
        order, without their fixes, which take long to find.

    Raises
    ------
    KvvizError
        If pandas is not installed, or there is no such table.
    """
    from kvviz.report.faces.steps_table import data_frame

    return data_frame(*_columns(trace, table))


def to_arrow(trace: Trace, table: str = "steps") -> Any:
    """A table of the trace as a ``pyarrow.Table``; see `to_pandas`.

    Raises
    ------
    KvvizError
        If pyarrow is not installed, or there is no such table.
    """
    from kvviz.report.faces.steps_table import arrow_table

    return arrow_table(*_columns(trace, table))


def _columns(trace: Trace, table: str) -> tuple[dict[str, Any], set[str]]:
    from kvviz.errors import InputError
    from kvviz.report.faces import steps_table
    from kvviz.report.finding import finding_columns

    if table == "findings":
        return finding_columns(trace.explain().findings), {"step"}
    if table == "storages":
        return steps_table.storage_columns(trace), {"freed", "address", "taken"}
    if table == "steps":
        return steps_table.step_columns(trace), set()
    raise InputError(f"a trace has no table {table!r}; its tables are 'steps', 'storages' and 'findings'")


def caches_at(trace: Trace, step: int) -> list[CacheAt]:
    """The caches after a step, in the order of ``caches``.

    ``written`` are the rows that the run has stored up to this step, ``pending`` those that later ops of the run
    store, and ``steps`` the steps that store them. They are derived from what the ops touched, so they are empty
    for runs whose steps were not kept.

    >>> [cache.name for cache in trace.caches_at(1300) if cache.pending]  # doctest: +SKIP
    ['1.key', '1.value', '2.key', '2.value']
    """
    from kvviz.caches.stored_rows import caches_at

    return list(caches_at(trace, step))


def to_html(
    trace: Trace,
    path: Path | None = None,
    *,
    open_at: str = "",
    values: int | str | None = None,
    hazards: bool = False,
    tour: Tour | None = None,
) -> str:
    """Write the debugger to one file, without a kernel or a network; see `kvviz.view.export.to_html`."""
    from kvviz.view.export import to_html

    return to_html(trace, path, open_at=open_at, values=values, hazards=hazards, tour=tour)


def to_graphviz(trace: Trace, step: int | None = None, *, fold: bool = True, hidden: bool = True) -> GraphDrawing:
    """The graph around a step as a ``graphviz.Digraph``, which renders in a notebook where ``dot`` is installed.

    Fill, border and letter say how every op ended as of that step, as in the page's legend. Dashed red edges are
    hidden pairs: steps on the same bytes that only the schedule keeps in order; see `kvviz.hazards`.

    Parameters
    ----------
    step : int, optional
        The last one by default. Its frame is drawn: the main graph, or the body that it ran in.
    fold : bool
        Draw layers that are alike once, as they are in the layer of the step; False draws all of them.
    hidden : bool
        False leaves hidden pairs out.

    Raises
    ------
    InputError
        If there is no such step.
    """
    from kvviz.view.drawing.graphviz_drawing import trace_drawing

    return trace_drawing(trace, step, fold, hidden)


def to_perfetto(trace: Trace, path: Path) -> None:
    """Write the trace for Perfetto or chrome://tracing: slices by op, counters for memory and caches."""
    from kvviz.view.perfetto import export_perfetto

    export_perfetto(trace, path)


def trace_card(trace: Trace) -> str:
    from kvviz.view.cards import trace_card

    return trace_card(trace)


def fix_of(trace: TraceData, step: int, blocker: Blocker) -> Fix | None:
    from kvviz.fixes.fix import fixer

    return fixer(cast("Trace", trace), step, blocker)


def hazard_html(hazard: Hazard) -> str:
    from kvviz.report.faces.hazard_table import Hazards

    return Hazards((hazard,))._repr_html_()


def step_text(step: Step) -> str:
    from kvviz.view.cards import step_text

    return step_text(step)


def step_html(step: Step) -> str:
    from kvviz.view.cards import step_table

    return step_table(step).html()


def cache_text(cache: Cache) -> str:
    from kvviz.view.cards import cache_text

    return cache_text(cache)


def cache_html(cache: Cache) -> str:
    from kvviz.view.cards import cache_table

    return cache_table(cache).html()


def caches_text(caches: Sequence[Cache]) -> str:
    from kvviz.view.cards import caches_table

    return repr(caches_table(caches)) if caches else "[]"


def caches_html(caches: Sequence[Cache]) -> str:
    from kvviz.view.cards import caches_table

    return caches_table(caches).html()


def steps_text(steps: Steps) -> str:
    return repr(cast("Trace", steps.trace).table())


def steps_html(steps: Steps) -> str:
    return cast("Trace", steps.trace).table()._repr_html_()


def graph_drawing(graph: Graph, *, fold: bool = True) -> GraphDrawing:
    """The graph as a ``graphviz.Digraph``, which renders in a notebook where the program ``dot`` is installed.

    Parameters
    ----------
    fold : bool
        Draw layers that are alike once; False draws every node.
    """
    from kvviz.view.drawing.graphviz_drawing import graph_drawing

    return graph_drawing(graph, fold)


def graph_card(graph: Graph) -> str:
    from kvviz.view.cards import graph_card

    return graph_card(graph)


def graph_session(graph: ComputeGraph, values: int | str = "1 MB") -> GraphSession:
    """A session that runs the graph node by node, in memory of its own: what ``kvviz.debug(graph)`` drives.

    Raises
    ------
    KvvizError
        If it cannot be run: no kernel for an op, a leaf without data.
    """
    from kvviz.ggml.order.graph_recipe import session_of

    return session_of(graph, values)


def listed_trace(graph: ComputeGraph) -> Trace:
    """The graph as a recording of its list, whether it has been run or not: what is touched, without values."""
    from kvviz.ggml.order.graph_recipe import listed

    return listed([graph], graph.title)


def hidden_pairs(graph: ComputeGraph, level: Level = "exact") -> Hazards:
    """Pairs that only the order of the list keeps in order: `kvviz.hazards` of the graph."""
    from kvviz.report.faces.hazard_table import hazards

    return hazards(graph.trace, level)


def cells_html(cache: KVCache) -> str:
    from kvviz.view.charts.cell_plot import picture

    return picture(cache)
