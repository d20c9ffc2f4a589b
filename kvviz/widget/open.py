"""Open the debugger, or the planner, on a graph: what people call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.decode.loop import DecodeSession
from kvviz.decode.single import SingleRun
from kvviz.engine.policy import Policy, Schedule
from kvviz.engine.session import Session
from kvviz.engine.trace import Trace
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph
from kvviz.widget.debugger import Debugger
from kvviz.widget.planner import Planner


def debug(
    graph: Graph | Trace | Session,
    inputs: Mapping[str, Any] | None = None,
    *,
    prompt: Any = None,
    outputs: Sequence[str] | None = None,
    donate: Sequence[str] = (),
    policy: str | Policy = "ideal",
    max_new_tokens: int = 16,
    kv_capacity: int | None = None,
    tokenizer: Any = None,
    stop_tokens: Sequence[int] = (),
    recorded: int | None = None,
    height: int = 720,
) -> Debugger:
    """Open the debugger; as a cell's last line it shows itself.

    Parameters
    ----------
    graph : Graph, Trace or Session
        A graph is run with ``inputs`` (one run) or ``prompt`` (a decode); a trace is looked at as it is.
    inputs : mapping, optional
        For one run: all inputs. For a decode: those beside the prompt and the caches.
    prompt : str or sequence, optional
        As in `kvviz.decode`.
    outputs, donate, policy, max_new_tokens, kv_capacity, tokenizer, stop_tokens
        As in `kvviz.run` and `kvviz.decode`.
    recorded : int, optional
        Runs to record before the debugger opens. What is left runs live, as you step into it. By default a single run
        is left to be
        stepped from its first op, and a decode is recorded but for its last token.
    height : int
        Height in px.

    Returns
    -------
    Debugger

    Examples
    --------
    >>> kvviz.debug(graph, prompt="once upon a time", tokenizer=words, max_new_tokens=8)
    """
    if isinstance(graph, (Trace, Session)):
        return Debugger(graph, height)
    session: Session
    if prompt is None:
        if inputs is None:
            raise KvvizError("debug needs inputs={name: array} for one run, or prompt= for a decode")
        session = SingleRun(graph, inputs, outputs, donate, policy)
        runs = recorded or 0
    else:
        session = DecodeSession(graph, prompt, max_new_tokens, inputs, policy, kv_capacity, tokenizer, stop_tokens)
        runs = max(max_new_tokens - 1, 1) if recorded is None else recorded
    for _ in range(runs):
        if session.execution is None and not session.next_run():
            break
        session.finish_run()
    return Debugger(session, height)


def plan(
    graph: Graph, outputs: Sequence[str] | None = None, policy: str | Policy | Schedule = "rten", height: int = 720
) -> Planner:
    """Watch how a runtime comes to its order of ops; as a cell's last line it shows itself.

    Parameters
    ----------
    graph : Graph
        Also a body.
    outputs : sequence of str, optional
        What is wanted; the graph's outputs by default.
    policy : str, Policy or schedule
        Whose planner; see `kvviz.engine.schedules.named` for the names.
    height : int
        Height in px.

    Examples
    --------
    >>> kvviz.plan(graph, policy="rten")                                   # doctest: +SKIP
    """
    return Planner(graph, outputs, policy, height)
