"""The state at a position of a trace: frames, frontier, and what could have run. Pure functions of the recording."""

from __future__ import annotations

from kvviz.errors import KvvizError
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


def find_choice(trace: Trace, step: int, wanted: Node | str) -> tuple[int, Node]:
    """Frame and node of an op, given as a node or by name, that could have run as a step; raises `KvvizError` that
    names the inputs it waits for if it could not."""
    name = wanted if isinstance(wanted, str) else wanted.name
    at = f"at step {step:,}"
    frame = frame_id_after(trace, step - 1)
    if frame is None or not 0 <= step <= len(trace.log):
        raise KvvizError(f"nothing is left to run {at}")
    ready = frontier_after(trace, step - 1)
    if not ready:
        raise KvvizError(f"no other op can run {at}: {trace.log[step].op.node.name!r} completes there")
    chosen = next((node for node in ready if wanted in (node, node.name)), None)
    if chosen is not None:
        return frame, chosen
    here = trace.frames[frame]
    node = next((node for node in here.order if wanted in (node, node.name)), None)
    if node is None:
        raise KvvizError(f"{name!r} is not an op of the graph that runs {at}; ready are {_names(ready)}")
    ran = trace.step_of(frame, node.index)
    if ran is not None and ran < step:
        raise KvvizError(f"{name!r} cannot run {at}: it ran as step {ran:,}")
    missing = _missing(trace, frame, step, node)
    raise KvvizError(
        f"{name!r} cannot run {at}: it waits for {', '.join(map(repr, missing))}; ready are {_names(ready)}"
    )


def _missing(trace: Trace, frame: int, step: int, node: Node) -> list[str]:
    made_by = {name: other for other in trace.frames[frame].order for name in other.outputs if name}

    def is_missing(name: str) -> bool:
        maker = made_by.get(name)
        if maker is None:
            return False
        ran = trace.step_of(frame, maker.index)
        return ran is None or ran >= step

    return [name for name in dict.fromkeys((*node.inputs, *node.captures)) if name and is_missing(name)]


def _names(ready: tuple[Node, ...]) -> str:
    shown = ", ".join(repr(node.name) for node in ready[:8])
    return shown + (f" and {len(ready) - 8} more" if len(ready) > 8 else "")


def node_states(trace: Trace, position: int) -> list[str]:
    """The state of every node of a step's graph as of that step, in the order of the graph. ``"running"``: the step's
    own op; ``"frontier"``: ready to run; ``"waiting"``: not ready. Other nodes have run, and show their outcome (see
    `kvviz.trace.outcome`), or ``"done"`` for a new buffer."""
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
