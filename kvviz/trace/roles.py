"""Layer and role of a step: where its node stands among the repeated layers of the model."""

from __future__ import annotations

from typing import Any

from kvviz.graph.layers import Place, inside, places
from kvviz.trace.recording import Trace


def place_of(trace: Trace, row: Any) -> Place:
    """Layer and role of a step, of one in a body with the role of the node that has the body."""
    return place_in(trace.log.frames, row.frame, row.op.node.index)


def place_in(frames: Any, number: int, node: int) -> Place:
    """The same of a node, by its index in the graph of a frame."""
    frame = frames[number]
    own = places(frame.program.graph)[node]
    if frame.parent is None:
        return own
    outer = place_in(frames, frame.parent, frame.control_node.index)
    return inside(outer, frames[frame.parent].program.graph, frame.attribute, own)
