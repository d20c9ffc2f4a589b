"""A still picture of the graph around one step, for readers without a kernel.

Invariant: every text is escaped and shortened to its box, so a name affects only its label. The picture stays under 200
kB.
"""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from kvviz.debugger.state import node_states
from kvviz.explain.sentences import sentence
from kvviz.graph.model import Node
from kvviz.query.step_facts import Scene
from kvviz.report.palette import LIGHT, STATES, Look, mix
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from kvviz.trace.units import dims, run_label, short
from kvviz.view.drawing.block_layout import Drawing, layout
from kvviz.view.drawing.sketch import OP_PITCH, SHAPE_PITCH, sketch

# Of a larger block, only the nodes near the step are drawn: more would be too small to read or print.
LARGEST_BLOCK, WINDOW = 24, 16
HEAD, FOOT_LINE, LEGEND_LINE, LEGEND_PITCH = 46, 18, 18, 5.6
SMALLEST_WIDTH = 460
FONT = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG document that a notebook displays, trusted or not."""

    svg: str

    @property
    def data_uri(self) -> str:
        """The picture as a data URI for ``<img src=…>``, which untrusted notebooks show too."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()

    def _repr_html_(self) -> str:
        return f'<img alt="graph around this step" style="max-width:100%" src="{self.data_uri}">'

    def __str__(self) -> str:
        return self.svg


def picture(trace: Trace, step: int = -1) -> Picture:
    """Draw the block around a step (the last one by default), with the state of every node as of that step."""
    if not len(trace.steps):
        return Picture(_document(SMALLEST_WIDTH, 60, [_text(16, 34, "nothing has run yet", LIGHT.soft)]))
    now = trace.steps[step]
    frame = trace.frames[now.frame_id]
    title, nodes = _around(trace, now)
    shapes = _shapes(trace, frame.id, nodes)
    running = {node.index for node in frame.order}
    drawing = layout([sketch(frame.graph, nodes, lambda node: shapes.get(id(node), ""), running)])[0]
    states = {id(node): state for node, state in zip(frame.graph.nodes, node_states(trace, now.index))}

    width = max(drawing.w, SMALLEST_WIDTH)
    lines = wrap(sentence(now, trace), int((width - 32) / 6.8))
    foot = HEAD + drawing.h + 12
    legend = _legend([states[id(node)] for node in nodes], width)
    below = foot + FOOT_LINE * len(lines) + 18
    height = below + LEGEND_LINE * len(legend)
    where = " › ".join(["main", *(short(part, 40) for part in now.frame)])
    heading = f"step {now.index:,} of {len(trace.steps):,} · {run_label(trace, now.run)} · {where}"
    parts = [
        _text(16, 20, heading, LIGHT.soft, size=11),
        _text(16, 38, short(title, int(width / 8)), LIGHT.ink, weight=600),
        f'<g transform="translate({(width - drawing.w) // 2} {HEAD})">',
        *_edges(drawing),
        *(_box(node, box, states[id(node)], shapes.get(id(node), "")) for node, box in zip(nodes, drawing.boxes)),
        "</g>",
        *(_text(16, foot + 14 + FOOT_LINE * i, line, LIGHT.ink) for i, line in enumerate(lines)),
        *(part for i, row in enumerate(legend) for part in _legend_row(below + LEGEND_LINE * i, row)),
    ]
    return Picture(_document(width, height, parts))


def wrap(text: str, limit: int) -> list[str]:
    """Text as lines of at most ``limit`` characters, broken at spaces; a longer word is shortened."""
    words = " ".join(short(word, limit) for word in text.split(" "))
    return textwrap.wrap(words, limit, break_on_hyphens=False) or [""]


def _around(trace: Trace, now: Step) -> tuple[str, Sequence[Node]]:
    block = Scene(trace).block(now.frame_id, now.graph_node)
    if block is None or len(block.nodes) <= LARGEST_BLOCK:
        return (block.title, block.nodes) if block else (trace.frames[now.frame_id].graph.name, (now.graph_node,))
    at = next(i for i, node in enumerate(block.nodes) if node is now.graph_node)
    start = max(0, min(at - WINDOW // 2, len(block.nodes) - WINDOW))
    stop = start + WINDOW
    return f"{block.title}, ops {start + 1}–{stop} of {len(block.nodes)}", block.nodes[start:stop]


def _shapes(trace: Trace, frame: int, nodes: Sequence[Node]) -> dict[int, str]:
    found = {}
    for node in nodes:
        index = trace.step_of(frame, node.index)
        if index is not None and (outs := trace.steps[index].outs):
            found[id(node)] = dims(outs[0].shape)
    return found


def _document(width: int, height: int, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    # An image cannot ask for the page's theme: a light background of its own keeps it readable on a dark page.
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="{FONT}" font-size="12">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{LIGHT.ground}"/>\n{body}\n</svg>'
    )


def _text(x: float, y: float, text: str, fill: str, size: int = 12, weight: int = 400, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{fill}" font-size="{size}" font-weight="{weight}"{anchor}>'
        f"{escape(short(text, 400))}</text>"
    )


def _edges(drawing: Drawing) -> list[str]:
    style = f'fill="none" stroke="{mix(LIGHT.soft, LIGHT.ground, 0.55)}"'
    lines = []
    for _, _, points in drawing.edges:
        pairs = " ".join(f"{x:g},{y:g}" for x, y in zip(points[0::2], points[1::2]))
        lines.append(f'<polyline {style} points="{pairs}"/>')
    for box, side, x, y, _ in drawing.stubs:
        _, top, _, height = drawing.boxes[box]
        start = top if side == "in" else top + height
        lines.append(f'<path {style} stroke-dasharray="2 2" d="M{x:g} {y:g}V{start:g}"/>')
    return lines


def _box(node: Node, box: tuple[float, float, float, float], state: str, shape: str) -> str:
    x, y, w, h = box
    look = STATES[state]
    share = {"waiting": 1.0, "frontier": 0.55, "running": 1.0, "done": 1.0}.get(state, 0.2)
    stroke = {"waiting": LIGHT.line, "frontier": LIGHT.ink, "running": LIGHT.ink}.get(state, look.light)
    dash = {"dashed": ' stroke-dasharray="5 3"', "dotted": ' stroke-dasharray="2 2"'}.get(look.border, "")
    thick = {"none": 0.0, "thin": 1.0, "double": 2.5}.get(look.border, 1.5)
    ink = "#ffffff" if state == "running" else LIGHT.soft if state == "waiting" else LIGHT.ink
    soft = "#dce6f7" if state == "running" else LIGHT.soft
    room = int((w - 30) / OP_PITCH)
    parts = [
        f"<g><title>{escape(short(node.name, 120))}: {look.about}</title>",
        f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5" '
        f'fill="{mix(look.light, LIGHT.pane, share)}" stroke={quoteattr(stroke)} stroke-width="{thick:g}"{dash}/>',
        _text(x + 9, y + 15, short(node.op_type, max(room, 8)), ink, weight=600),
    ]
    if shape:
        parts.append(_text(x + 9, y + 29, short(shape, int((w - 14) / SHAPE_PITCH) + 2), soft, size=10))
    if look.letter:
        mark = {"running": "#ffffff", "frontier": LIGHT.ink}.get(state, look.light)
        parts.append(_text(x + w - 8, y + 16, look.letter, mark, size=12, weight=700, end=True))
    return "".join(parts) + "</g>"


def _legend(states: Sequence[str], width: float) -> list[list[tuple[float, Look]]]:
    """The states in the picture, in the palette's order, as rows of (position, look) that fit the width."""
    rows: list[list[tuple[float, Look]]] = []
    x = width
    for name, look in STATES.items():
        if name in states:
            room = 28 + len(f"{look.letter} {look.about}") * LEGEND_PITCH
            if x + room > width - 8:
                rows.append([])
                x = 16.0
            rows[-1].append((x, look))
            x += room
    return rows


def _legend_row(y: float, row: Sequence[tuple[float, Look]]) -> list[str]:
    parts = []
    for x, look in row:
        edge = mix(LIGHT.soft, LIGHT.ground, 0.6)
        parts.append(
            f'<rect x="{x:g}" y="{y - 9:g}" width="11" height="11" rx="2" fill="{look.light}" '
            f'stroke="{edge}" stroke-width="0.8"/>'
        )
        parts.append(_text(x + 16, y, f"{look.letter} {look.about}".strip(), LIGHT.soft, size=10))
    return parts
