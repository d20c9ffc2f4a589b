"""A graph, or a frame of a trace at a step, as a ``graphviz.Digraph``.

Repeated layers are drawn once: nodes with the same role in their layers are one box. The fill, border and letter of a
box follow the page's legend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import graphviz

from kvviz.debugger.state import node_states
from kvviz.errors import InputError
from kvviz.graph.layers import places
from kvviz.graph.model import Graph, Node
from kvviz.report.palette import LIGHT, OWNERS, STATES, Look, mix
from kvviz.trace.index.hazards import find_hazards
from kvviz.trace.recording import Trace
from kvviz.trace.units import count, dims, short, size

_NAME, _LONGEST = 28, 400
_PLAIN = ("waiting", "done")  # states without a mark of their own
_BORDERS: dict[str, dict[str, str]] = {
    "none": {"style": "filled,rounded", "penwidth": "0"},
    "thin": {"style": "filled,rounded", "penwidth": "0.8"},
    "solid": {"style": "filled,rounded", "penwidth": "1.8"},
    "dashed": {"style": "filled,rounded,dashed", "penwidth": "1.4"},
    "dotted": {"style": "filled,rounded,dotted", "penwidth": "1.4"},
    "double": {"style": "filled,rounded", "penwidth": "1.2", "peripheries": "2"},
}


class GraphDrawing(graphviz.Digraph):
    """A Digraph that shows its text where no ``dot`` program is installed."""

    def _repr_mimebundle_(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super()._repr_mimebundle_(*arguments, **options)
        except graphviz.ExecutableNotFound:
            hint = "install Graphviz, so that its dot program is on the PATH, to see this as a picture"
            return {"text/plain": f"{hint}\n\n{self.source}"}


def graph_drawing(graph: Graph, fold: bool = True) -> GraphDrawing:
    shapes = {name: dims(value.shape) for name, value in graph.value_info.items() if value.shape is not None}
    drawing = _Drawing(graph, graph.nodes, fold, shapes)
    drawing.boxes(dict.fromkeys((node.index for node in graph.nodes), "done"), None)
    drawing.links()
    return drawing.made


def trace_drawing(trace: Trace, step: int | None = None, fold: bool = True, hidden: bool = True) -> GraphDrawing:
    steps = len(trace.steps)
    index = steps - 1 if step is None else step + steps if step < 0 else step
    if not 0 <= index < steps:
        raise InputError(f"step {step} does not exist; the trace has {count(steps, 'step')}")
    now = trace.steps[index]
    frame = trace.frames[now.frame_id]
    shapes = {}
    for node in frame.order:
        ran = trace.step_of(frame.id, node.index)
        outs = trace.steps[ran].outs if ran is not None else ()
        shapes.update({out.name: dims(out.shape) for out in outs if out.shape is not None})
    drawing = _Drawing(frame.graph, frame.order, fold, shapes)
    states = {node.index: state for node, state in zip(frame.graph.nodes, node_states(trace, index))}
    drawing.boxes(states, now.graph_node)
    drawing.links()
    if hidden:
        rows = trace.log
        pairs = [p for p in find_hazards(trace, run=now.run) if rows[p.first].frame == rows[p.second].frame == frame.id]
        drawing.pairs([(rows[p.first].op.node, rows[p.second].op.node, p) for p in pairs])
    drawing.legend(set(states.values()))
    where = " › ".join(["main", *now.frame])
    drawing.made.attr(label=_text(f"step {index:,} of {steps:,}: {now.op_type} {short(now.node)} in {short(where)}"))
    return drawing.made


class _Drawing:
    """A Digraph under construction. ``nodes``: those that are drawn, in running order. ``shapes``: known shapes as
    text, by value name."""

    def __init__(self, graph: Graph, nodes: Sequence[Node], fold: bool, shapes: Mapping[str, str]) -> None:
        self.graph = graph
        self.nodes = nodes
        self.shapes = shapes
        known = places(graph) if fold else {}
        self.layer = {index: place.layer for index, place in known.items()}
        self.box: dict[int, Hashable] = {}  # node to its box: its role in its layer, or the node alone
        for node in nodes:
            place = known.get(node.index)
            self.box[node.index] = node.index if place is None or place.layer is None else place.role
        self.groups: dict[Hashable, list[Node]] = {}
        for node in nodes:
            self.groups.setdefault(self.box[node.index], []).append(node)
        self.id = {box: f"n{i}" for i, box in enumerate(self.groups)}
        self.made = GraphDrawing(comment=f"kvviz: {len(nodes)} nodes as {len(self.groups)} boxes")
        self.made.attr("graph", rankdir="TB", nodesep="0.2", ranksep="0.3", fontname="sans-serif", fontsize="11")
        self.made.attr("node", shape="box", fontname="sans-serif", fontsize="10", margin="0.09,0.05")
        self.made.attr("edge", arrowsize="0.6", color=LIGHT.soft, fontname="sans-serif", fontsize="9")

    def boxes(self, states: Mapping[int, str], shown: Node | None) -> None:
        """Draw the boxes. A folded box shows the state of its node in the layer of ``shown``."""
        layer = None if shown is None else self.layer.get(shown.index)
        for box, nodes in self.groups.items():
            node = next((one for one in nodes if self.layer.get(one.index) == layer), nodes[0])
            node = shown if shown is not None and shown in nodes else node
            look = STATES[states[node.index]]
            lines = [f"{look.letter} {node.op_type}".strip(), short(node.name, _NAME)]
            shape = next((self.shapes[name] for name in node.outputs if name in self.shapes), "")
            lines += [shape] if shape else []
            if len(nodes) > 1:
                lines.append(f"× {count(len(nodes), 'layer')}")
                often = Counter(states[one.index] for one in nodes)
                if len(often) > 1:
                    counts = [
                        f"{STATES[state].letter or STATES[state].about} {times}" for state, times in often.items()
                    ]
                    lines.append(", ".join(counts))
            tip = _text(f"{node.name}: {look.about}" if shown is not None else node.name)
            self.made.node(self.id[box], _text(*lines), tooltip=tip, **_dress(look))

    def links(self) -> None:
        solid: dict[tuple[Hashable, Hashable], str] = {}
        onward: dict[tuple[Hashable, Hashable], None] = {}
        maker = {name: node for node in self.nodes for name in node.outputs if name}
        into: dict[str, list[Hashable]] = {}
        for node in self.nodes:
            for name in dict.fromkeys((*node.inputs, *node.captures)):
                source = maker.get(name)
                if source is not None and self._passes_on(source, node):
                    onward[self.box[source.index], self.box[node.index]] = None
                elif source is not None:
                    solid.setdefault((self.box[source.index], self.box[node.index]), name)
                elif name and name not in self.graph.weights:
                    into.setdefault(name, []).append(self.box[node.index])
        for (tail, head), name in solid.items():
            self.made.edge(self.id[tail], self.id[head], tooltip=_text(name))
        onward_looks = {"style": "dashed", "constraint": "false", "tooltip": "to the next layer"}
        for tail, head in onward:
            self.made.edge(self.id[tail], self.id[head], **onward_looks)
        outs = {value.name: [self.box[maker[value.name].index]] for value in self.graph.outputs if value.name in maker}
        for i, (boxes, names) in enumerate(_alike(into)):
            self._end(f"i{i}", names, OWNERS["caller"])
            for box in boxes:
                self.made.edge(f"i{i}", self.id[box])
        for i, (boxes, names) in enumerate(_alike(outs)):
            self._end(f"o{i}", names, OWNERS["run"])
            for box in boxes:
                self.made.edge(self.id[box], f"o{i}")

    def pairs(self, found: Iterable[tuple[Node, Node, Any]]) -> None:
        alike: dict[tuple[Hashable, Hashable, str, bool], list[Any]] = {}
        for first, second, pair in found:
            boxes = self.box[first.index], self.box[second.index]
            alike.setdefault((*boxes, pair.kind, pair.broken), []).append(pair)
        look = STATES["missed"]
        for (source, target, kind, broken), pairs in alike.items():
            times = f" × {len(pairs)}" if len(pairs) > 1 else ""
            label = _text(f"{kind}{' broken' if broken else ''} {size(pairs[0].bytes)}{times}")
            style = {"style": "bold" if broken else "dashed", "color": look.light, "fontcolor": look.light}
            tip = _text(pairs[0].sentence)
            self.made.edge(self.id[source], self.id[target], label=label, tooltip=tip, constraint="false", **style)

    def legend(self, states: set[str]) -> None:
        used = [look for look in STATES.values() if look.name in states and look.name not in _PLAIN]
        with self.made.subgraph(name="cluster_legend") as part:
            part.attr(label="", color=LIGHT.line)
            for look in used:
                part.node(f"legend_{look.name}", _text(f"{look.letter} {look.about}".strip()), **_dress(look))

    def _passes_on(self, source: Node, target: Node) -> bool:
        """Whether a value goes from one layer to another that is drawn with the same boxes."""
        layers = self.layer.get(source.index), self.layer.get(target.index)
        return None not in layers and layers[0] != layers[1]

    def _end(self, name: str, values: Sequence[str], look: Look) -> None:
        label = [short(values[0], _NAME), *([f"and {len(values) - 1} more"] if len(values) > 1 else [])]
        dress = {"style": "filled", "fillcolor": mix(look.light, LIGHT.pane, 0.12), "color": look.light}
        self.made.node(name, _text(*label), shape="ellipse", tooltip=_text(", ".join(values[:20])), **dress)


def _alike(ends: Mapping[str, Sequence[Hashable]]) -> list[tuple[tuple[Hashable, ...], list[str]]]:
    """Inputs or outputs of a graph, grouped by the boxes that they connect to, so that folded layers share one."""
    found: dict[tuple[Hashable, ...], list[str]] = {}
    for name, boxes in ends.items():
        found.setdefault(tuple(dict.fromkeys(boxes)), []).append(name)
    return list(found.items())


def _dress(look: Look) -> dict[str, str]:
    fill = look.light if look.name in _PLAIN else mix(look.light, LIGHT.pane, 0.35)
    return {"fillcolor": fill, "color": LIGHT.line if look.border == "thin" else look.light, **_BORDERS[look.border]}


def _text(*lines: str) -> str:
    r"""Lines as an escaped label: no ``\N``, no HTML."""
    return graphviz.nohtml(r"\n".join(graphviz.escape(short(line, _LONGEST)) for line in lines))
