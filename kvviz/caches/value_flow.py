"""The frames of one run, how values pass between them (into branches, through loops, out of functions), and the way
of a cache through them.

Frames are numbered within their run, so that runs which opened the same frames can share what was found out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from kvviz.graph.model import Graph, Node
from kvviz.trace.recording import Trace

Spot = tuple[int, str]
"""A value: the number of its frame within the run, and its name."""


class RunFrames:
    """The frames that a run opened: the main frame, then the others in the order in which they were opened."""

    def __init__(self, trace: Trace, run: int) -> None:
        frames = trace.log.frames
        first, stop = (side(frames, run, key=lambda row: row.run) for side in (bisect_left, bisect_right))
        self.run = run
        self.first = first  # number of the main frame in the trace
        self.rows = frames[first:stop]
        self.signature = tuple(
            (id(row.program), None if row.parent is None else row.parent - first, row.iteration) for row in self.rows
        )  # equal for two runs in which the same graphs were entered in the same order
        self._bodies: dict[tuple[int, int], list[int]] = {}
        for number, row in enumerate(self.rows):
            if row.parent is not None and row.caller is not None:
                self._bodies.setdefault((row.parent - first, id(row.caller.node)), []).append(number)

    def graph(self, frame: int) -> Graph:
        graph: Graph = self.rows[frame].program.graph
        return graph

    def bodies(self, frame: int, node: Node) -> list[int]:
        """The frames that a node opened, in order; empty for a plain op and for a loop that did not turn."""
        return self._bodies.get((frame, id(node)), [])

    def inside(self, frame: int, node: Node, position: int) -> Spot | None:
        """The value in a body that an output of its node is; None for what a loop collected."""
        bodies = self.bodies(frame, node)
        if node.op_type == "Loop" and not node.domain:
            carried = position < len(node.inputs) - 2
            if not carried:
                return None
            return self._output(bodies[-1], position + 1) if bodies else (frame, node.inputs[position + 2])
        if node.op_type == "Scan" and not node.domain and position >= _states(node):
            return None
        return self._output(bodies[-1], position) if bodies else None

    def outside(self, frame: int, name: str) -> Spot | None:
        """Where a value that no node of a frame makes comes from; None for inputs of the main graph and weights, and
        for what a loop counts or cuts from a scan input."""
        row = self.rows[frame]
        if row.parent is None or row.caller is None:
            return None
        graph, node, parent = self.graph(frame), row.caller.node, row.parent - self.first
        place = next((i for i, value in enumerate(graph.inputs) if value.name == name), None)
        if place is None:
            return None if name in graph.weights else (parent, name)
        if node.op_type in ("Loop", "Scan") and not node.domain:
            start = 2 if node.op_type == "Loop" else 0
            if place < start or (node.op_type == "Scan" and place >= _states(node)):
                return None
            bodies = self.bodies(parent, node)
            turn = bodies.index(frame)
            if turn:
                return self._output(bodies[turn - 1], place - (node.op_type == "Loop"))
        given = node.inputs[place] if place < len(node.inputs) else ""
        return (parent, given) if given else None

    def entered(self, frame: int, node: Node, name: str) -> list[Spot]:
        """The values inside the bodies of a node that an input or capture of it is."""
        found: list[Spot] = []
        for body in self.bodies(frame, node):
            graph = self.graph(body)
            if name in graph.captures:
                found.append((body, name))
            if node.op_type == "If" and not node.domain:
                continue
            for place, value in enumerate(graph.inputs):
                if place < len(node.inputs) and node.inputs[place] == name:
                    found.append((body, value.name))
        return found

    def _output(self, frame: int, position: int) -> Spot | None:
        outputs = self.graph(frame).outputs
        return (frame, outputs[position].name) if position < len(outputs) else None


def _states(node: Node) -> int:
    """How many inputs of a Scan are carried from turn to turn; 0 where a saved trace does not tell."""
    scanned = node.attributes.get("num_scan_inputs")
    return 0 if scanned is None else len(node.inputs) - int(scanned)


MS = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Link:
    """One op on the way of a cache. Its kind is ``"write"`` (adds or overwrites rows), ``"move"`` (a view, or the same
    rows in another order or place), ``"join"`` (puts parts together that were written apart) or ``"make"``."""

    frame: int  # number of its frame within the run
    node: Node
    output: int  # position of the output that carries the cache on
    past: int  # position of the input that it carries on; -1 where it makes the rows from nothing
    kind: str


@dataclass(frozen=True, slots=True)
class Reader:
    """An attention that reads a cache: an operator with attention inside, a Softmax, or a product without one. Its kind
    is ``"past"`` (the operator keeps the cache itself), ``"keys"`` (it is given keys or values), ``"softmax"``, or
    ``"product"``."""

    frame: int
    node: Node
    kind: str
    # what happened to the cache between the value that is read and the cache's output, last op first
    after: tuple[Link, ...]
    # Slices and Concats between that value and the attention: frame, node, which of its inputs it comes from
    cuts: tuple[tuple[int, Node, str], ...]


@dataclass(frozen=True, slots=True)
class Way:
    """How a cache went through a run."""

    links: tuple[Link, ...]  # without an order; each runs at a step of its own
    spine: tuple[Link, ...]  # in order from the input on, one way only where parts are written apart and joined again
    reached: bool  # whether the output goes back to the input at all
    readers: tuple[Reader, ...]
