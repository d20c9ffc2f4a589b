"""The public calls that open the debugger or the `Planner` on a graph, and ``%load_ext kvviz`` with ``%%kvviz``, which
opens the debugger on what a cell ran.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import traitlets

from kvviz.decode.run_sessions import SingleRun
from kvviz.decode.token_loop import DecodeSession
from kvviz.engine.policy import Policy, Schedule
from kvviz.engine.sessions.session import Session
from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.graph.model import Graph
from kvviz.other_names import with_other_names
from kvviz.runtimes.named_policies import find_policy, label, planning_events
from kvviz.trace.guided_tour import Tour
from kvviz.trace.model_or_trace import as_graph, opened
from kvviz.trace.recording import Trace
from kvviz.trace.schema.run_options import RunOptions, refuse_for_one_run
from kvviz.view.export import plan_to_html
from kvviz.view.page_data.payload_plan import plan_payload
from kvviz.view.page_data.payload_tour import keep_tour
from kvviz.view.page_modules import bundled
from kvviz.widget.debugger_widget import Debugger
from kvviz.widget.page_widget import Page, still_plan


class Planner(Page):
    """Step through the planning of a graph, a main graph or a body; the parameters are those of `kvviz.plan`.
    ``cursor``: number of the event that is shown; -1 before the first. Synced. ``selection``: ``{"kind": "node", "id":
    …, "graph": 0}``. Synced."""

    _esm = bundled("planner.js").decode()

    selection = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)

    def __init__(
        self,
        graph: Graph,
        outputs: Sequence[str] | None = None,
        policy: str | Policy | Schedule = "rten",
        height: int = 720,
        **options: Any,
    ) -> None:
        self.graph = graph
        self.events = planning_events(graph, outputs, policy)
        self.policy = _about(policy)
        payload = plan_payload(graph, self.events, self.policy)
        super().__init__(payload=payload, height=height, **options)

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the ops in the order in which they will run."""
        return tuple(event.node.name for event in self.events if event.action == "pick" and event.node is not None)

    def goto(self, event: int) -> None:
        """Show an event by its number; -1 is before the first. Raises `KvvizError` if there is no such event."""
        if not -1 <= event < len(self.events):
            raise KvvizError(f"event {event} does not exist; there are {len(self.events)}, numbered from 0")
        self.cursor = event

    def to_html(self, path: Any = None) -> str:
        """The planner in one file that needs neither a kernel nor a network."""
        return plan_to_html(self.graph, self.events, self.policy, path, event=self.cursor)

    def _still(self) -> dict[str, Any]:
        return still_plan(repr(self), self.events)

    def __repr__(self) -> str:
        return f"<Planner at event {self.cursor} of {len(self.events)}: {len(self.order)} ops, {self.policy['name']}>"


def _about(policy: str | Policy | Schedule) -> dict[str, str]:
    if isinstance(policy, str):
        try:
            policy = find_policy(policy)
        except KvvizError:  # the name of a schedule
            return {"name": str(policy), "about": ""}
    if isinstance(policy, Policy):
        return {"name": policy.name, "about": policy.about}
    return {"name": label(policy), "about": ""}


@with_other_names
def debug(
    graph: Graph | str | os.PathLike[str] | Trace | Session | ComputeGraph,
    inputs: Mapping[str, Any] | None = None,
    *,
    prompt: Any = None,
    outputs: Sequence[str] | None = None,
    donate: Sequence[str] = (),
    policy: str | Policy = "ideal",
    max_new_tokens: int = 16,
    kv_capacity: int | None = None,
    tokenizer: Any = None,
    stop_tokens: Collection[int] | None = None,
    growth: str | None = None,
    cache: str = "growing",
    detail: Collection[int] | None = None,
    recorded: int | None = None,
    values: int | str = 0,
    height: int = 800,
    step: int | None = None,
    tour: Tour | None = None,
) -> Debugger:
    """Open the debugger; make it the last line of a cell to display it.

    Parameters
    ----------
    graph : Graph, Trace, Session, ggml.ComputeGraph or path
        A graph is run with ``inputs`` (one run) or ``prompt`` (a decode); a trace is shown as it is. A ggml graph is
        stepped through in its own memory; a recorded one has no data, so its whole recording is shown.
    inputs : mapping, optional
        For one run: all inputs. For a decode: all except the prompt and the caches.
    prompt : str or sequence, optional
        As in `kvviz.decode`.
    outputs, policy
        As in `kvviz.run`; a decode computes all outputs.
    donate
        As in `kvviz.run` and `kvviz.decode`.
    max_new_tokens, kv_capacity, tokenizer, stop_tokens, growth, cache, detail
        As in `kvviz.decode`; for a decode only. The steps of runs that you step through live are always kept.
    recorded : int, optional
        Runs to record before the debugger opens. The others run live, as you step through them. By default a single run
        is live from its first op, and a decode is recorded except for its last token.
    values : int or str
        Maximum bytes for summaries of the recorded values; see `Trace.summarise`. They can also be added later, from
        the page.
    height : int
        Height in px.
    step : int, optional
        Step to show, counted from the end if negative; ops before it that have not run are run. By default a recording
        opens before its first step.
    tour : Tour, optional
        A guided tour, which the trace keeps from then on; see `kvviz.lessons.Tour`.

    Returns
    -------
    Debugger

    Raises
    ------
    KvvizError
        If an option does not belong to the kind of run, or if there is nothing to run.

    Examples
    --------
    >>> kvviz.debug(graph, prompt="once upon a time", tokenizer=words, max_new_tokens=8)
    >>> kvviz.debug(graph, prompt=[5, 17, 33], growth="after", kv_capacity=8)   # doctest: +SKIP
    """
    graph = opened(graph)
    if isinstance(graph, ComputeGraph):
        # A list of nodes is run, or only shown if it has no data.
        source: Any = graph.trace if graph.cannot_run else graph.session(values or "1 MB")
        return _opened(source, tour, height, step)
    if isinstance(graph, (Trace, Session)):
        if values:
            (graph if isinstance(graph, Trace) else graph.trace).summarise(values)
        return _opened(graph, tour, height, step)
    graph = as_graph(graph, "kvviz.debug")
    options = RunOptions(
        *("decode", donate, max_new_tokens, kv_capacity, growth, cache, tokenizer),
        stop_tokens=stop_tokens,
        detail=detail,
    )
    session: Session
    if prompt is None:
        if inputs is None:
            raise KvvizError("debug needs inputs={name: array} for one run, or prompt= for a decode")
        refuse_for_one_run(options, "prompt")
        session = SingleRun(graph, inputs, outputs, donate, policy)
        runs = recorded or 0
    else:
        if outputs is not None:
            raise KvvizError("outputs= is for one run; a decode computes all outputs")
        runs = max(max_new_tokens - 1, 1) if recorded is None else recorded
        # The steps of a run are needed to step through it.
        kept = None if detail is None else {*detail, *range(runs, max_new_tokens)}
        session = DecodeSession(graph, prompt, options, inputs, policy, detail=kept)
    for _ in range(runs):
        if session.execution is None and not session.next_run():
            break
        session.finish_run()
    if values and len(session.trace.log):
        session.trace.summarise(values)
    return _opened(session, tour, height, step)


def _opened(source: Any, tour: Tour | None, height: int, step: int | None) -> Debugger:
    if tour is not None:
        runs_on = not isinstance(source, Trace)
        keep_tour(source.trace if runs_on else source, tour, runs_on)
    debugger = Debugger(source, height)
    if step is not None:
        debugger.goto(step if step >= 0 else len(debugger.trace.steps) + step)
    return debugger


@with_other_names
def plan(
    graph: Graph | str | os.PathLike[str],
    outputs: Sequence[str] | None = None,
    policy: str | Policy | Schedule = "rten",
    height: int = 720,
) -> Planner:
    """Step through how a runtime plans its order of ops; make it the last line of a cell to display it.

    Parameters
    ----------
    graph : Graph or path
        The main graph or a subgraph.
    outputs : sequence of str, optional
        Values to compute; the graph's outputs by default.
    policy : str, Policy or schedule
        Whose planner; see `kvviz.runtimes.named_policies` for the names.
    height : int
        Height in px.

    Examples
    --------
    >>> kvviz.plan(graph, policy="rten")                                   # doctest: +SKIP
    """
    return Planner(as_graph(graph, "kvviz.plan"), outputs, policy, height)


_RESULT = "_kvviz_result"


def load_ipython_extension(shell: Any) -> None:
    def kvviz(line: str, cell: str) -> Any:
        """Run the cell and open the debugger on its trace: the value of its last line, or the last trace it named."""
        return debug(trace_made(shell, cell))

    shell.register_magic_function(kvviz, "cell", "kvviz")


def trace_made(shell: Any, cell: str) -> Trace:
    """The trace that a cell makes in a shell: the value of its last line, or the last trace that it assigned; raises
    `KvvizError` if there is none."""
    tree = ast.parse(shell.transform_cell(cell), "<%%kvviz>")
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body[-1]
        named = ast.Assign([ast.Name(_RESULT, ast.Store())], last.value)
        tree.body[-1] = ast.fix_missing_locations(ast.copy_location(named, last))
    names = shell.user_ns
    before = {name: id(value) for name, value in names.items() if isinstance(value, Trace)}
    names.pop(_RESULT, None)
    exec(compile(tree, "<%%kvviz>", "exec"), names)
    result = names.pop(_RESULT, None)
    if isinstance(result, Trace):
        return result
    made = [value for name, value in names.items() if isinstance(value, Trace) and before.get(name) != id(value)]
    if not made:
        raise KvvizError("the cell made no trace; call kvviz.run or kvviz.decode in it")
    return made[-1]
