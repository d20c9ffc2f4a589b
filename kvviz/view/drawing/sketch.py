"""What a layout engine needs to draw a block: boxes, links inside it, and stubs of values from elsewhere.

Invariant: a sketch holds only numbers, so equal layers have equal sketches and no name can break a layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from kvviz.graph.model import Graph, Node

BOX_HEIGHT = 36
MIN_WIDTH, MAX_WIDTH = 84, 180
PILL = (124, BOX_HEIGHT)
OP_PITCH, SHAPE_PITCH = 7.4, 6.4
# Room beside the operator for the mark of its state and for a short distinguishing name such as "#12".
PADDING, MARKER = 18, 34
GRID = 4

# A value with more readers than this gets a stub instead of an edge to a reader this many places further on.
HUB_READERS, HUB_SPAN = 2, 12
MAX_STUBS = 10
# An op that reads more caches than this, such as an If around a whole model, gets stubs for them.
MAX_PILLS = 4


@dataclass(frozen=True, slots=True)
class Sketch:
    """One block, ready for a layout engine.

    ``sizes``: width and height of each box in px: first the pills, then the block's nodes in their order.
    ``links``: (from box, to box), each pair once, always forward in the order of the boxes.
    ``stubs``: box, ``"in"`` or ``"out"``, and position among the node's inputs (then captures) or outputs.
    ``pills``: values from elsewhere with a box of their own: a box that reads each, and the position among its inputs.
    """

    sizes: tuple[tuple[int, int], ...]
    links: tuple[tuple[int, int], ...]
    stubs: tuple[tuple[int, str, int], ...]
    pills: tuple[tuple[int, int], ...] = ()


def box_size(op_type: str, shape: str = "") -> tuple[int, int]:
    """Width and height in px of a box that shows an operator and, below it, a short shape. Every number in the shape
    counts as at least two digits, so that a cache growing from 9 to 10 rows moves nothing."""
    spare = sum(len(part) == 1 for part in shape.strip("[]").split(",")) if shape else 0
    text = max(len(op_type) * OP_PITCH + MARKER, (len(shape) + spare) * SHAPE_PITCH)
    width = min(max(MIN_WIDTH, PADDING + text), MAX_WIDTH)
    return math.ceil(width / GRID) * GRID, BOX_HEIGHT


def sketch(
    graph: Graph,
    nodes: Sequence[Node],
    shape: Callable[[Node], str] = lambda node: "",
    order: Container[int] | None = None,
    pills: Container[str] = (),
) -> Sketch:
    """Reduce a block, nodes of ``graph`` in running order, to numbers. ``shape(node)`` returns the second line of its
    box. ``order``: indices of the nodes that run; a value whose only other readers never run gets no stub. ``pills``:
    names of values that get a box of their own if they come from elsewhere."""
    inside = {name for node in nodes for name in node.outputs}
    asked = [[name for name in _reads(node) if name in pills and name not in inside] for node in nodes]
    pill = {
        name: i for i, name in enumerate(dict.fromkeys(n for names in asked if len(names) <= MAX_PILLS for n in names))
    }
    read_at: dict[str, tuple[int, int]] = {}
    box = {id(node): i for i, node in enumerate(nodes, len(pill))}
    maker = {name: box[id(node)] for node in nodes for name in node.outputs if name}
    results = {value.name for value in graph.outputs}
    readers: dict[str, list[int]] = {}
    for i, node in enumerate(nodes, len(pill)):
        for name in dict.fromkeys(_reads(node)):
            if name in maker:
                readers.setdefault(name, []).append(i)

    links: dict[tuple[int, int], None] = {}
    stubs: list[tuple[int, str, int]] = []
    cut: set[str] = set()
    for i, node in enumerate(nodes, len(pill)):
        into = []
        for slot, name in enumerate(_reads(node)):
            if not name or name in graph.weights:
                continue
            source = maker.get(name)
            if name in pill:
                links[pill[name], i] = None
                read_at.setdefault(name, (i, slot))
            elif source is None or source >= i:
                into.append((i, "in", slot))
            elif len(readers[name]) > HUB_READERS and i - source > HUB_SPAN:
                into.append((i, "in", slot))
                cut.add(name)
            else:
                links[source, i] = None
        stubs += into[:MAX_STUBS]
    for i, node in enumerate(nodes, len(pill)):
        out = []
        for slot, name in enumerate(node.outputs):
            outside = (n for n in graph.consumers.get(name, ()) if id(n) not in box)
            leaves = name in results or any(order is None or n.index in order for n in outside)
            if name and (name in cut or leaves):
                out.append((i, "out", slot))
        stubs += out[:MAX_STUBS]
    sizes = (PILL,) * len(pill) + tuple(box_size(node.op_type, shape(node)) for node in nodes)
    return Sketch(sizes, tuple(links), tuple(stubs), tuple(read_at[name] for name in pill))


def _reads(node: Node) -> tuple[str, ...]:
    return (*node.inputs, *(name for name in node.captures if name not in node.inputs))
