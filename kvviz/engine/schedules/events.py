"""Planning, told step by step: what the planner looked at, what it took, and why.

Invariant: the events come from the code that plans, so the order in them is the schedule's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvviz.engine.plan import check_outputs, needed
from kvviz.graph.model import Graph, Node

if TYPE_CHECKING:
    from kvviz.engine.policy import Policy, Schedule


@dataclass(frozen=True, slots=True)
class PlanningEvent:
    """One thing that a planner did.

    Attributes
    ----------
    phase : str
        ``"walk"``: backward from the outputs; ``"pick"``: forward, an op from the frontier; ``"buffer"``: where an
        output will live.
    node : Node or None
        The op that it is about: visited, appended or picked; for a skipped value the op that reads it, None where it
        is an output of the graph.
    value : str
        The value that led here, or for an op that is appended or picked, the first one that it makes.
    action : str
        Of the walk ``"visit"``, ``"skip"`` or ``"append"``; of the picks ``"pick"``.
    reason : str
        One sentence.
    frontier : tuple of Node
        Before a pick: the ops that could run, oldest first.
    planned : int
        Ops in the walk's list, or in the plan, once this is done.
    depth : int
        Of the walk: how many ops lie between here and the output.
    ready : tuple of Node
        Ops that can run from now on because of this pick.
    """

    phase: str
    node: Node | None
    value: str
    action: str
    reason: str
    frontier: tuple[Node, ...] = ()
    planned: int = 0
    depth: int = 0
    ready: tuple[Node, ...] = ()


Log = Callable[[PlanningEvent], None]


def planning_events(
    graph: Graph, outputs: Sequence[str] | None = None, policy: str | Policy | Schedule = "rten"
) -> tuple[PlanningEvent, ...]:
    """Plan a graph and tell every step of it.

    Parameters
    ----------
    graph : Graph
        Also a body: its captures are there already.
    outputs : sequence of str, optional
        What is wanted; the graph's outputs by default. Their order may change the plan.
    policy : str, Policy or schedule
        Whose planner: a policy, the name of one, a schedule, or the name of one.

    Raises
    ------
    GraphError
        For an output that the graph does not have.
    KvvizError
        For a name that no policy or schedule has.

    Examples
    --------
    >>> [event.node.name for event in planning_events(graph) if event.action == "pick"]     # doctest: +SKIP
    ['Shape_0', 'Add_1']
    """
    from kvviz.engine.schedules.frontier import follow
    from kvviz.engine.schedules.named import find_rewrite, find_schedule, label

    names = tuple(value.name for value in graph.outputs) if outputs is None else tuple(outputs)
    check_outputs(graph, names)
    schedule = find_schedule(policy)
    rewrite = find_rewrite(policy)
    graph = rewrite(graph, names) if rewrite else graph
    nodes = needed(graph, names)
    events: list[PlanningEvent] = []
    telling = {"log": events.append} if takes_log(schedule) else {}
    order = schedule(graph, nodes, names, **telling)
    if any(event.phase == "pick" for event in events):
        return tuple(events)
    # A planner that has its order from the walk alone, or tells nothing: what runs is shown all the same.
    picks: list[PlanningEvent] = []
    follow([(node, f"{node.op_type} is next in {label(schedule)}") for node in order], nodes, picks.append)
    walked = [event for event in events if event.phase == "walk"]
    return (*walked, *picks, *(event for event in events if event.phase != "walk"))


def takes_log(schedule: Schedule) -> bool:
    """Whether a schedule can tell what it does, by a keyword ``log``."""
    return "log" in inspect.signature(schedule).parameters
