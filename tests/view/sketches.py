"""Sketches for the tests of layout, and what must hold of every drawing."""

import sys
from pathlib import Path

from hypothesis import strategies as st

import kvviz
from kvviz.graph.blocks import blocks
from kvviz.view.drawing.block_layout import Drawing
from kvviz.view.drawing.sketch import Sketch, sketch

# A stand-in for the `dot` program: real Graphviz behind the same command line, one graph after the other.
FAKE_DOT = """#!{python}
import re, sys, warnings
warnings.simplefilter("ignore")
import pygraphviz
form = next(word[2:] for word in sys.argv if word.startswith("-T"))
for source in re.split(r"(?=^digraph )", sys.stdin.read(), flags=re.M):
    if source.startswith("digraph "):
        sys.stdout.buffer.write(pygraphviz.AGraph(string=source).draw(path=None, prog="dot", format=form))
"""


def program(folder: Path, text: str, name: str = "dot") -> Path:
    path = folder / name
    path.write_text(text.format(python=sys.executable), "utf-8")
    path.chmod(0o755)
    return path


def sketches_of(trace: kvviz.Trace) -> list[Sketch]:
    graphs = {id(frame.graph): frame for frame in trace.frames}.values()
    return [sketch(f.graph, block.nodes) for f in graphs for block in blocks(f.graph, f.order)]


DIAMOND = Sketch(
    sizes=((100, 36), (80, 36), (120, 36), (100, 36), (76, 36)),
    links=((0, 1), (0, 2), (1, 3), (2, 3), (0, 4), (3, 4)),
    stubs=((0, "in", 0), (0, "in", 1), (4, "out", 0)),
)


@st.composite
def any_sketch(draw: st.DrawFn) -> Sketch:
    """Any block that a graph could have: boxes of any width, links forward."""
    n = draw(st.integers(1, 24))
    widths = draw(st.lists(st.integers(76, 180), min_size=n, max_size=n))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] < p[1])
    links = draw(st.lists(pairs, max_size=3 * n, unique=True)) if n > 1 else []
    stubs = draw(
        st.lists(st.tuples(st.integers(0, n - 1), st.sampled_from(["in", "out"]), st.integers(0, 4)), max_size=n)
    )
    return Sketch(tuple((w, 36) for w in widths), tuple(links), tuple(stubs))


def check(sketch: Sketch, drawing: Drawing) -> None:
    """Every box is placed inside the drawing, none overlaps another, edges run downward from box to box."""
    assert [(w, h) for _, _, w, h in drawing.boxes] == [(float(w), float(h)) for w, h in sketch.sizes]
    for x, y, w, h in drawing.boxes:
        assert x >= 0 and y >= 0 and x + w <= drawing.w and y + h <= drawing.h
    for i, (x, y, w, h) in enumerate(drawing.boxes):
        for x2, y2, w2, h2 in drawing.boxes[:i]:
            assert x + w <= x2 + 0.2 or x2 + w2 <= x + 0.2 or y + h <= y2 + 0.2 or y2 + h2 <= y + 0.2, "boxes overlap"
    assert [(a, b) for a, b, _ in drawing.edges] == list(sketch.links)
    for a, b, points in drawing.edges:
        assert len(points) >= 4 and len(points) % 2 == 0
        xs, ys = points[0::2], points[1::2]
        assert all(0 <= x <= drawing.w for x in xs) and all(0 <= y <= drawing.h for y in ys)
        assert ys[0] < ys[-1], "an edge points up"
        for (x, y, w, h), px, py in ((drawing.boxes[a], xs[0], ys[0]), (drawing.boxes[b], xs[-1], ys[-1])):
            assert x - 2 <= px <= x + w + 2 and y - 2 <= py <= y + h + 2, "an edge ends away from its box"
    assert [(box, side, slot) for box, side, _, _, slot in drawing.stubs] == list(sketch.stubs)
    for box, side, x, y, _ in drawing.stubs:
        left, top, w, h = drawing.boxes[box]
        assert left <= x <= left + w
        assert y < top if side == "in" else y > top + h
