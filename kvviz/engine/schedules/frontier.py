"""The frontier while planning: ops whose inputs are all made, of which a rule picks one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kvviz.engine.schedules.events import Log, PlanningEvent
from kvviz.graph.model import Node

Rule = Callable[[Sequence[Node]], tuple[int, str]]


class Circle(Exception):
    """Nodes that need each other; its arguments are the nodes along the circle."""


def reads(node: Node) -> tuple[str, ...]:
    """Values that a node needs, as inputs or captured by its bodies, each once."""
    return tuple(dict.fromkeys(name for name in (*node.inputs, *node.captures) if name))


def first_output(node: Node) -> str:
    """The first value that a node makes."""
    return next((name for name in node.outputs if name), "")


def makers(nodes: Sequence[Node]) -> dict[str, Node]:
    """Value name to the node among these that makes it."""
    return {name: node for node in nodes for name in node.outputs if name}


def forward(nodes: Sequence[Node], rule: Rule, log: Log | None = None) -> list[Node]:
    """Plan by picking from the frontier until nothing is left.

    Ops enter the frontier at its end: first those that can run at once, in the order given; then, after each pick, the
    readers of what it made, output by output, in the order given.

    Parameters
    ----------
    nodes : sequence of Node
        All nodes to plan.
    rule : callable
        ``rule(frontier)`` gives the position of the op to run next, and a sentence that says why that one.
    log : callable, optional
        Is told every pick.
    """
    made = makers(nodes)
    readers: dict[str, list[Node]] = {}
    missing: dict[int, int] = {}
    for node in nodes:
        awaited = [name for name in reads(node) if name in made]
        missing[node.index] = len(awaited)
        for name in awaited:
            readers.setdefault(name, []).append(node)
    frontier = [node for node in nodes if not missing[node.index]]
    order: list[Node] = []
    while frontier:
        position, why = rule(frontier)
        before = tuple(frontier) if log else ()
        node = frontier.pop(position)
        order.append(node)
        outputs = [name for name in node.outputs if name]
        for name in outputs:
            for reader in readers.get(name, ()):
                missing[reader.index] -= 1
        ready = {r.index: r for name in outputs for r in readers.get(name, ()) if not missing[r.index]}
        frontier += ready.values()
        if log:
            entered = tuple(ready.values())
            log(PlanningEvent("pick", node, first_output(node), "pick", why, before, len(order), 0, entered))
    return order


def follow(order: Sequence[tuple[Node, str]], nodes: Sequence[Node], log: Log | None = None) -> list[Node]:
    """Run through an order that is decided already, and tell it as picks from the frontier.

    Parameters
    ----------
    order : sequence of (Node, str)
        Every node once, in an order in which they can run, with the reason for its place.
    nodes : sequence of Node
        The same nodes in the model's order.
    log : callable, optional
    """
    if log is None:
        return [node for node, _ in order]
    left = iter(order)

    def rule(frontier: Sequence[Node]) -> tuple[int, str]:
        node, why = next(left)
        return frontier.index(node), why

    return forward(nodes, rule, log)


def pull(order: Sequence[Node], needs: Mapping[int, Sequence[Node]]) -> Iterator[tuple[Node, Node]]:
    """Follow an order, but run before each node whatever it needs that has not run yet.

    Parameters
    ----------
    order : sequence of Node
    needs : mapping of int to sequence of Node
        Node index to the nodes that must run before it, in the order in which they are pulled.

    Yields
    ------
    node, goal : Node
        The next node, and the one of ``order`` for whose sake it runs now (often itself).

    Raises
    ------
    Circle
        If nodes need each other.
    """
    done: set[int] = set()
    for goal in order:
        if goal.index in done:
            continue
        path = {goal.index: (goal, iter(needs[goal.index]))}
        while path:
            node, rest = path[next(reversed(path))]
            need = next((n for n in rest if n.index not in done), None)
            if need is None:
                done.add(node.index)
                del path[node.index]
                yield node, goal
            elif need.index in path:
                circle = [entry[0] for entry in path.values()]
                raise Circle(*circle[circle.index(need) :])
            else:
                path[need.index] = (need, iter(needs[need.index]))
