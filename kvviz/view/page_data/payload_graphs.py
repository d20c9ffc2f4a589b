"""Graphs of a trace as tables of numbers, and the drawings of their blocks.

Invariant: a node's number is its place in its graph's ``nodes``; a value's number its place in that graph's ``values``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from kvviz.graph.blocks import Block, blocks
from kvviz.graph.layers import Place, inside, places
from kvviz.graph.model import Graph, Node
from kvviz.trace.units import short
from kvviz.view.drawing.block_layout import Drawing, layout
from kvviz.view.drawing.sketch import Sketch, sketch


class GraphTable:
    """Numbers for the nodes and values of one graph. ``index``: the graph's own number. ``node_at``: by ``id(node)``.
    ``order``: nodes that run, in plan order."""

    def __init__(
        self,
        graph: Graph,
        index: int,
        kind: str,
        parent: tuple[int, int] | None,
        within: GraphTable | None = None,
    ) -> None:
        self.graph = graph
        self.index = index
        self.kind = kind
        self.parent = parent
        self.places = places(graph) if within is None else _places_within(within, parent, kind, graph)
        self.node_at = {id(node): i for i, node in enumerate(graph.nodes)}
        self.value_at: dict[str, int] = {}
        self.order: dict[int, Node] = {}
        self.blocks: tuple[Block, ...] = ()
        self._cut = -1  # how many nodes had run when the blocks were last cut and encoded
        self._still: dict[str, Any] = {}
        for value in (*graph.inputs, *graph.outputs):
            self.value(value.name)
        for node in graph.nodes:
            for name in (*node.inputs, *node.outputs, *node.captures):
                self.value(name)

    def value(self, name: str) -> int:
        """Number of a value, -1 for an absent one."""
        return self.value_at.setdefault(name, len(self.value_at)) if name else -1

    def ordered(self, nodes: Sequence[Node]) -> None:
        """Note which nodes run. The first order is kept; later ones only add to it."""
        for node in nodes:
            self.order.setdefault(id(node), node)

    def cut(self) -> None:
        if self._cut != len(self.order):
            self.blocks = tuple(blocks(self.graph, tuple(self.order.values())))
            self._still = self._without_blocks()
            self._cut = len(self.order)

    def header(self, drawing: Mapping[int, int], alike: Sequence[int]) -> dict[str, Any]:
        parts = [
            {
                "title": block.title,
                "path": "/".join(block.path),
                "nodes": [self.node_at[id(node)] for node in block.nodes],
                "drawing": drawing[i],
                "alike": alike[drawing[i]],
                "stack": [block.stack.name, block.stack.number] if block.stack else None,
            }
            for i, block in enumerate(self.blocks)
        ]
        return {**self._still, "blocks": parts}

    def _without_blocks(self) -> dict[str, Any]:
        graph, value = self.graph, self.value
        nodes = [
            [
                node.name,
                node.qualified_op,
                "/".join(node.scope),
                [value(name) for name in node.inputs],
                [value(name) for name in node.outputs],
                [value(name) for name in node.captures],
            ]
            for node in graph.nodes
        ]
        return {
            "name": graph.name,
            "kind": self.kind,
            "parent": list(self.parent) if self.parent else None,
            "nodes": nodes,
            "values": list(self.value_at),
            "weights": [i for name, i in self.value_at.items() if name in graph.weights],
            "inputs": [value(v.name) for v in graph.inputs],
            "outputs": [value(v.name) for v in graph.outputs],
            "attributes": {i: text for i, node in enumerate(graph.nodes) if (text := attribute_text(node))},
            "order": [self.node_at[key] for key in self.order],
            **self._names(),
        }

    def _names(self) -> dict[str, Any]:
        places = [self.places[node.index] for node in self.graph.nodes]
        roles = {role: i for i, role in enumerate(dict.fromkeys(place.role for place in places))}
        names = node_names(self.blocks)
        return {
            "roles": list(roles),
            "role": [roles[place.role] for place in places],
            "layer": [-1 if place.layer is None else place.layer for place in places],
            "names": [names.get(id(node), "") for node in self.graph.nodes],
            "called": value_names(self.graph, self.value_at),
        }


def _places_within(outer: GraphTable, parent: tuple[int, int] | None, attribute: str, graph: Graph) -> dict[int, Place]:
    assert parent is not None
    caller = outer.places[outer.graph.nodes[parent[1]].index]
    return {index: inside(caller, outer.graph, attribute, own) for index, own in places(graph).items()}


def add_tables(tables: dict[int, GraphTable], frames: Sequence[Any], start: int = 0) -> None:
    """Add a table for every graph entered since frame ``start``, by ``id(graph)``, outermost first."""
    for frame in frames[start:]:
        table = tables.get(id(frame.graph))
        if table is None:
            parent = None
            if frame.parent is not None:
                outer = tables[id(frames[frame.parent].graph)]
                parent = (outer.index, outer.node_at[id(frame.node)])
            within = None if frame.parent is None else outer
            table = GraphTable(frame.graph, len(tables), frame.attribute or "main", parent, within)
            tables[id(frame.graph)] = table
            table.ordered(frame.order)
        elif len(frame.order) != len(table.order):
            table.ordered(frame.order)


class Drawings:
    """Drawings of all blocks, updated only when a graph or a shape was added. ``tables`` may grow between calls."""

    def __init__(self, tables: Mapping[int, GraphTable]) -> None:
        self._tables = tables
        self._drawn: tuple[Any, list[dict[int, int]], list[int], list[dict[str, Any]]] | None = None
        self._sketched: dict[tuple[int, int], tuple[Any, Sketch]] = {}  # by graph and block: its key, and the sketch

    def headers(
        self, shapes: Mapping[int, str], pills: Collection[str] = ()
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Headers of all graphs, and the drawings that their blocks share. ``shapes``: by ``id(node)``, the shape that
        its box shows. ``pills``: names of values that are drawn where they are read, such as the pasts of caches."""
        tables = list(self._tables.values())
        state = ([len(table.order) for table in tables], dict(shapes), tuple(pills))
        if self._drawn is None or self._drawn[0] != state:
            self._drawn = (state, *_draw(tables, shapes, frozenset(pills), self._sketched))
        _, chosen, alike, drawings = self._drawn
        return [table.header(mine, alike) for table, mine in zip(tables, chosen)], drawings


def _draw(
    tables: Sequence[GraphTable],
    shapes: Mapping[int, str],
    pills: Collection[str],
    known: dict[tuple[int, int], tuple[Any, Sketch]],
) -> tuple[list[dict[int, int]], list[int], list[dict[str, Any]]]:
    """For each graph the drawing of each block; how many blocks share each drawing; the drawings."""
    kinds: dict[Any, int] = {}
    sketches: list[Sketch] = []
    alike: list[int] = []
    chosen: list[dict[int, int]] = []
    for table in tables:
        table.cut()
        running = {node.index for node in table.order.values()}
        mine: dict[int, int] = {}
        for i, block in enumerate(table.blocks):
            of = (len(running), pills, [shapes.get(id(node), "") for node in block.nodes])
            if known.get((table.index, i), (None,))[0] != of:
                made = sketch(table.graph, block.nodes, lambda node: shapes.get(id(node), ""), running, pills)
                known[table.index, i] = of, made
            made = known[table.index, i][1]
            # Blocks of one kind share a drawing even if a shape is longer in one of them: the widest box counts.
            kind = (tuple(node.op_type for node in block.nodes), made.links, made.stubs, made.pills)
            at = kinds.setdefault(kind, len(sketches))
            if at == len(sketches):
                sketches.append(made)
                alike.append(0)
            elif made.sizes != sketches[at].sizes:
                widest = tuple((max(a[0], b[0]), a[1]) for a, b in zip(made.sizes, sketches[at].sizes))
                sketches[at] = Sketch(widest, made.links, made.stubs, made.pills)
            alike[at] += 1
            mine[i] = at
        chosen.append(mine)
    return chosen, alike, [drawing_header(d) for d in layout(sketches)]


def drawing_header(drawing: Drawing) -> dict[str, Any]:
    """A drawing as in the payload's header; whole numbers are written as integers."""
    return {
        "w": drawing.w,
        "h": drawing.h,
        "boxes": [[_short(n) for n in box] for box in drawing.boxes],
        "edges": [[a, b, [_short(n) for n in points]] for a, b, points in drawing.edges],
        "stubs": [[box, side, _short(x), _short(y), slot] for box, side, x, y, slot in drawing.stubs],
        "pills": [list(pill) for pill in drawing.pills],
        "engine": drawing.engine,
    }


def _short(number: float) -> float:
    whole = int(number)
    return whole if whole == number else number


# Short names of nodes and values, just long enough to distinguish the names in one list.
#
# Invariant: operators with the short names of a block's nodes are distinct, and so are short names of a graph's inputs,
# and of its outputs.


_PARTS = re.compile(r"[/:]+")


def node_names(parts: Iterable[Block]) -> dict[int, str]:
    """The distinguishing part of the names of all nodes of some blocks, by ``id(node)``. This is the last part of the
    name. If that only repeats the operator, it is the enclosing module, unless that is the block's own. A name that is
    then not unique in its block gets the exporter's number (``Concat_5`` gives ``#5``), or else more of its path."""
    found: dict[int, str] = {}
    for block in parts:
        home = block.path[-1] if block.path else ""
        named = [(node, *_short_part(node, home)) for node in block.nodes]
        often = Counter((node.op_type, name) for node, name, _ in named)
        names = [
            f"{name} {number}".strip() if not name or often[node.op_type, name] > 1 else name
            for node, name, number in named
        ]
        often = Counter((node.op_type, name) for node, name in zip(block.nodes, names))
        alike = [node.name for node, name in zip(block.nodes, names) if often[node.op_type, name] > 1]
        longer = distinct(alike)
        for node, name in zip(block.nodes, names):
            found[id(node)] = longer.get(node.name, name)
    return found


def _short_part(node: Node, home: str) -> tuple[str, str]:
    parts = [part for part in _PARTS.split(node.name) if part]
    last = parts.pop() if parts else ""
    match = re.fullmatch(rf"(?:node_)?{re.escape(node.op_type)}(?:_node)?(?:_(\d+))?", last, re.IGNORECASE)
    number = f"#{match[1]}" if match and match[1] else ""
    if not match:
        return last, number
    around = parts[-1] if parts else ""
    return (around if around != home and around in node.scope else ""), number


def value_names(graph: Graph, names: Iterable[str]) -> list[str]:
    """Short names of values: the last two parts of a path, and as many more as inputs, or outputs, need to differ."""
    lists = ([value.name for value in graph.inputs], [value.name for value in graph.outputs])
    known: dict[str, str] = {}
    for own in lists:
        known |= distinct(own)
    return [known.get(name) or _last(name, 2) for name in names]


def distinct(names: Sequence[str]) -> dict[str, str]:
    """The last parts of each name: at least two, and as many as needed to make them unique."""
    found: dict[str, str] = {}
    left = list(dict.fromkeys(names))
    for length in range(2, 2 + max((len(_split(name)[1]) for name in left), default=0)):
        cut = {name: _last(name, length) for name in left}
        often = Counter([*cut.values(), *found.values()])
        found |= {name: text for name, text in cut.items() if often[text] == 1}
        left = [name for name in left if name not in found]
    return found | {name: name for name in left}


def _last(name: str, length: int) -> str:
    mark, parts = _split(name)
    return mark.join(parts[-length:]) if len(parts) > length else name


def _split(name: str) -> tuple[str, list[str]]:
    mark = "/" if "/" in name else "."
    return mark, [part for part in name.split(mark) if part]


# Attributes of an op as one short line, for people.


_MOST = 60  # letters of one value


class _Name(str):
    """A name that is not quoted."""


_TYPED = frozenset({"to", "dtype", "output_dtype", "stash_type"})
_TYPES = {number: _Name(name.lower()) for name, number in onnx.TensorProto.DataType.items()}


def attribute_text(node: Node) -> str:
    """``axis = 2, mode = "reflect"``; bodies by their number of ops. Arrays are left out: a saved trace has none."""
    plain = [
        f"{name} = {_value(_TYPES.get(value, value) if name in _TYPED else value)}"
        for name, value in node.attributes.items()
        if not isinstance(value, np.ndarray)
    ]
    bodies = [f"{name}: a graph of {len(graph.nodes)} ops" for name, graph in node.subgraphs.items()]
    return ", ".join(plain + bodies)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, _Name):
        return value
    if isinstance(value, str):
        return f'"{short(value, _MOST)}"'
    return short(str(list(value) if isinstance(value, tuple) else value), _MOST)
