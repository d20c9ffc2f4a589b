"""The state at a position of a trace: frames, frontier, and where values live. Pure functions of the recording."""

from __future__ import annotations

from kvviz.graph.model import Node
from kvviz.graph.topological_order import frontier, needs_between
from kvviz.trace.outcome import outcome
from kvviz.trace.recording import Trace


def depth_of(trace: Trace, index: int) -> int:
    return len(trace.frames[trace.log[index].frame].path)


def frame_id_after(trace: Trace, position: int) -> int | None:
    """The frame of the op that runs next; None at the end. Before a control node completes, this is its last body, with
    an empty frontier."""
    rows = trace.log
    if position + 1 >= len(rows):
        return trace.live.frame if trace.live else None
    row = rows[position + 1]
    if row.op.control and position >= 0:
        # The control node completes next: the position is still inside its last body, if it had one.
        inner: int | None = rows[position].frame
        while inner is not None and inner != row.frame:
            if trace.frames[inner].parent == row.frame and trace.frames[inner].node is row.op.node:
                return inner
            inner = trace.frames[inner].parent
    return row.frame


def frame_after(trace: Trace, position: int) -> tuple[str, ...]:
    frame = frame_id_after(trace, position)
    return () if frame is None else trace.frames[frame].path


def frontier_after(trace: Trace, position: int) -> tuple[Node, ...]:
    """Nodes of the current frame that have not run and whose inputs are all ready, in plan order."""
    frame = frame_id_after(trace, position)
    if frame is None:
        return ()
    if position + 1 >= len(trace.log) and trace.live is not None:
        return trace.live.frontier
    order = trace.frames[frame].order
    done = [(step := trace.step_of(frame, node.index)) is not None and step <= position for node in order]
    return tuple(order[at] for at in frontier(needs_between(order), done))


def node_states(trace: Trace, position: int) -> list[str]:
    """The state of every node of a step's graph as of that step, in the order of the graph.

    ``"running"``: the step's own op; ``"frontier"``: ready to run; ``"waiting"``: not ready. Other nodes have run, and
    show their outcome (see `kvviz.trace.outcome`), or ``"done"`` for a new buffer.
    """
    frame = trace.log[position].frame
    ready = frontier_after(trace, position) if frame_id_after(trace, position) == frame else ()
    states = []
    for node in trace.frames[frame].graph.nodes:
        step = trace.step_of(frame, node.index)
        if step is None or step > position:
            states.append("frontier" if node in ready else "waiting")
        else:
            end = outcome(trace, trace.log[step])
            states.append("running" if step == position else "done" if end == "new" else end)
    return states
