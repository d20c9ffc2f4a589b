"""How values pass between frames: into branches, through loops, out of functions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from kvviz.graph.model import Graph, Node
from kvviz.trace.schema.events import FrameEvent
from kvviz.trace.trace_data import TraceData

Spot = tuple[int, str]
"""A value: the number of its frame, and its name."""


class FrameValues:
    """Frames of a log, and where each of their values comes from and goes to. ``first``: number of the first of them in
    the log; all other numbers count from it. ``opened``: by frame and index of a control node, the frames that it
    opened, in order. ``before``: the frame of the preceding iteration of the same control node, if any."""

    def __init__(self, rows: Sequence[FrameEvent], first: int = 0) -> None:
        self.rows, self.first = rows, first
        self.opened: dict[tuple[int, int], list[int]] = {}
        self.before: dict[int, int] = {}
        self._inputs: dict[int, dict[str, int]] = {}
        for number, row in enumerate(rows):
            if row.parent is not None:
                siblings = self.opened.setdefault((row.parent - first, row.control_node.index), [])
                if siblings:
                    self.before[number] = siblings[-1]
                siblings.append(number)

    def bodies(self, frame: int, node: Node) -> list[int]:
        return self.opened.get((frame, node.index), [])

    def outputs(self, frame: int) -> tuple[str, ...]:
        """Names of a frame's outputs; for a main frame those that the caller asked for."""
        return self.rows[frame].program.outputs

    def scanned(self, frame: int) -> tuple[str, ...]:
        row = self.rows[frame]
        if row.iteration is None or row.caller is None:
            return ()
        head, carried = head_and_carried(row.control_node)
        return self.outputs(frame)[head // 2 + carried :]

    def outer(self, frame: int, name: str) -> Spot | None:
        """The value of another frame that a body started with under this name; None for weights, iteration numbers,
        slices of scan inputs and the inputs of the main graph."""
        row = self.rows[frame]
        if row.parent is None:
            return None
        parent, position = row.parent - self.first, self._position(row.program.graph, name)
        if position is None:
            return None if name in row.program.graph.weights else (parent, name)
        node = row.control_node
        if row.iteration is None:
            given = node.inputs[position] if position < len(node.inputs) else ""
            return (parent, given) if given else None
        head, carried = head_and_carried(node)
        carry = position - head
        if not 0 <= carry < carried or (node.op_type == "Scan" and node.opset < 9):
            return None
        if row.iteration:
            before = self.before[frame]
            return before, self.outputs(before)[head // 2 + carry]
        return parent, node.inputs[carry + head]

    def inner(self, frame: int, node: Node, position: int) -> Spot | None:
        """The value of a body that a control node returns, or the initial value of a loop without iterations; None for
        what a loop collects, and for outputs of other nodes."""
        bodies, loop = self.bodies(frame, node), node.op_type in ("Loop", "Scan") and not node.domain
        head, carried = head_and_carried(node) if loop else (0, len(node.outputs))
        if position >= carried or (not bodies and not loop):
            return None
        if not bodies:
            return frame, node.inputs[position + (2 if node.op_type == "Loop" else int(node.opset < 9))]
        names = self.outputs(bodies[-1])[head // 2 :]
        return (bodies[-1], names[position]) if position < len(names) else None

    def entered(self, frame: int, node: Node, name: str) -> list[Spot]:
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

    def graph(self, frame: int) -> Graph:
        return self.rows[frame].program.graph

    def _position(self, graph: Graph, name: str) -> int | None:
        known = self._inputs.get(id(graph))
        if known is None:
            names = [value.name for value in graph.inputs]
            known = self._inputs[id(graph)] = {name: i for i, name in reversed(list(enumerate(names)))}
        return known.get(name)


class RunFrames(FrameValues):
    """The frames of one run, the main frame first, in the order in which they were opened, numbered within the run.
    ``signature`` is equal for two runs in which the same graphs were entered in the same order, so that they can share
    results."""

    def __init__(self, trace: TraceData, run: int) -> None:
        frames = trace.log.frames
        first, stop = (side(frames, run, key=lambda row: row.run) for side in (bisect_left, bisect_right))
        super().__init__(frames[first:stop], first)
        self.run = run
        self.signature = tuple(
            (id(row.program), None if row.parent is None else row.parent - first, row.iteration) for row in self.rows
        )


def head_and_carried(node: Node) -> tuple[int, int]:
    """Of a Loop or Scan: the number of body inputs before the carried values, and the number of carried values."""
    if node.op_type == "Loop":
        return 2, len(node.inputs) - 2
    scanned = node.attributes.get("num_scan_inputs", len(node.inputs))
    return 0, max(len(node.inputs) - scanned - (node.opset < 9), 0)
