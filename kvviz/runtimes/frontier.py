"""The frontier while planning: ops with all inputs made, of which the one of the lowest rank goes next.

A planner can log its events: what it examined, what it chose, and why.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from kvviz.graph.model import Node

if TYPE_CHECKING:
    from kvviz.engine.policy import Schedule


@dataclass(frozen=True, slots=True)
class PlanningEvent:
    """One event of a planner.

    ``phase``: ``"walk"`` (backward from the outputs), ``"pick"`` (forward, an op from the frontier) or ``"buffer"``
      (where an output will live).
    ``node``: the op that was visited, appended or picked; for a skipped value its reader, None for an output of the
      graph.
    ``value``: the value that led here, or the first output of an appended or picked op.
    ``action``: ``"visit"``, ``"skip"`` or ``"append"`` in the walk, else ``"pick"``.
    ``reason``: one sentence.
    ``frontier``: before a pick, the ops that could run, oldest first.
    ``planned``: ops in the walk's list, or in the plan, afterwards.
    ``depth``: in the walk, the ops between here and the output.
    ``ready``: ops that can run from now on because of this pick.
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


def takes_log(schedule: Schedule) -> bool:
    return "log" in inspect.signature(schedule).parameters


Rank = Callable[[Node], Any]
Why = Callable[[Sequence[Node], int], str]
Changed = Callable[[Node], Iterable[Node]]


class Circle(Exception):
    """A cycle of nodes, which are its arguments."""


def reads(node: Node) -> tuple[str, ...]:
    """Values that a node needs, as inputs or captures, each once."""
    return tuple(dict.fromkeys(name for name in (*node.inputs, *node.captures) if name))


def first_output(node: Node) -> str:
    return next((name for name in node.outputs if name), "")


def makers(nodes: Sequence[Node]) -> dict[str, Node]:
    return {name: node for node in nodes for name in node.outputs if name}


def needs_of(nodes: Sequence[Node]) -> dict[int, list[Node]]:
    """By node index, the nodes among these that make its inputs."""
    made = makers(nodes)
    return {node.index: [made[name] for name in reads(node) if name in made] for node in nodes}


def forward(
    nodes: Sequence[Node],
    rank: Rank,
    why: Why,
    log: Log | None = None,
    changed: Changed | None = None,
) -> list[Node]:
    """Plan by picking from the frontier until nothing is left.

    Ops enter the frontier at its end: first those that can run at once, in the given order; then, after each pick, the
    readers of its outputs, output by output, in the given order. The op of the lowest rank goes next, the oldest on
    ties. The time is about proportional to nodes and edges, however wide the frontier is.

    ``rank(node)`` is called when an op enters the frontier. ``why(frontier, position)`` returns one sentence on why
    that op is picked, for a log only. ``log`` is called with every pick. ``changed(node)`` is called after every pick,
    and returns the ops whose rank it has changed.
    """
    made = makers(nodes)
    readers: dict[str, list[Node]] = {}
    missing: dict[int, int] = {}
    for node in nodes:
        names = [name for name in reads(node) if name in made]
        missing[node.index] = len(names)
        for name in names:
            readers.setdefault(name, []).append(node)
    waiting: dict[int, Node] = {}  # the frontier, oldest first
    entries: dict[int, tuple[Any, int, int]] = {}  # (rank, arrival, node index), as it is valid
    heap: list[tuple[Any, int, int]] = []

    def push(node: Node, arrival: int) -> None:
        entries[node.index] = rank(node), arrival, node.index
        heappush(heap, entries[node.index])

    def enter(node: Node) -> None:
        waiting[node.index] = node
        push(node, len(entries))

    for node in nodes:
        if not missing[node.index]:
            enter(node)
    order: list[Node] = []
    while waiting:
        entry = heappop(heap)
        index = entry[2]
        if index not in waiting or entries[index] != entry:
            continue  # its rank is an old one
        before = tuple(waiting.values()) if log else ()
        reason = why(before, list(waiting).index(index)) if log else ""
        node = waiting.pop(index)
        order.append(node)
        for other in changed(node) if changed else ():
            if other.index in waiting:
                push(other, entries[other.index][1])
        reading = [reader for name in node.outputs for reader in readers.get(name, ())]
        for reader in reading:
            missing[reader.index] -= 1
        entered = {reader.index: reader for reader in reading if not missing[reader.index]}
        for reader in entered.values():
            enter(reader)
        if log:
            ready = tuple(entered.values())
            log(PlanningEvent("pick", node, first_output(node), "pick", reason, before, len(order), 0, ready))
    return order


def follow(order: Sequence[tuple[Node, str]], nodes: Sequence[Node], log: Log | None = None) -> list[Node]:
    """Go through a given order, and log it as picks from the frontier. ``order``: every node once, in an order in which
    they can run, with the reason for its place. ``nodes``: the same nodes in the model's order."""
    if log is None:
        return [node for node, _ in order]
    places = {node.index: place for place, (node, _) in enumerate(order)}

    def why(frontier: Sequence[Node], position: int) -> str:
        return order[places[frontier[position].index]][1]

    return forward(nodes, lambda node: places[node.index], why, log)


def pull(order: Sequence[Node], needs: Mapping[int, Sequence[Node]]) -> Iterator[tuple[Node, Node]]:
    """Follow an order, but before each node run everything that it needs and that has not run. ``needs``: by node
    index, the nodes that must run before it, in the order in which they are pulled. Yields the next node, and the one
    of ``order`` that it runs for (often itself). Raises `Circle`: if nodes need each other."""
    done: set[int] = set()
    for goal in order:
        if goal.index in done:
            continue
        for node, _ in descend(goal, lambda node, _: (need for need in needs[node.index] if need.index not in done)):
            done.add(node.index)
            yield node, goal


def descend(goal: Node, below: Callable[[Node, int], Iterator[Node]]) -> Iterator[tuple[Node, int]]:
    """Walk down from a node, depth first: each node after those below it, with its depth; the first has 0.

    ``below``: ``below(node, depth)`` gives the nodes to visit from a node, one after the other: when one is asked for,
      those before it have been given already. ``depth`` is theirs.

    Raises `Circle`: if a node is below itself.
    """
    path = {goal.index: (goal, below(goal, 1))}
    while path:
        node, rest = path[next(reversed(path))]
        inner = next(rest, None)
        if inner is None:
            del path[node.index]
            yield node, len(path)
        elif inner.index in path:
            circle = [entry[0] for entry in path.values()]
            raise Circle(*circle[circle.index(inner) :])
        else:
            path[inner.index] = (inner, below(inner, len(path) + 1))
