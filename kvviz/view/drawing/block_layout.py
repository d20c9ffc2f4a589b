"""Turn sketches into drawings, with Graphviz if it is installed and with the built-in layout otherwise.

Invariant: every sketch gets a drawing, within the deadline; layout never raises because of an engine. Nothing that an
engine writes to stderr reaches a notebook.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import graphviz
from graphviz.backend import DOT_BINARY

from kvviz.view.drawing.layered import layered
from kvviz.view.drawing.sketch import Sketch

_LOG = logging.getLogger(__name__)

MARGIN = 14
# Larger blocks use the built-in layout: Graphviz would take seconds, and no reader sees a shape in them.
LARGEST_FOR_DOT = 400
DEADLINE = 10.0
STUB_REACH, STUB_STEP = 9, 9


@dataclass(frozen=True, slots=True)
class Drawing:
    """A laid out block, in px, origin left top.

    ``w, h``: size of the whole.
    ``boxes``: left, top, width, height of each box in the order of the sketch.
    ``pills``: as in the sketch.
    ``edges``: ``points`` is a flat poly-line ``(x0, y0, x1, y1, …)``.
    ``stubs``: far end of a stub; it starts at the box's top left (``"in"``) or bottom right (``"out"``).
    ``engine``: ``"dot"``, ``"pygraphviz"`` or ``"layered"``.
    """

    w: int
    h: int
    boxes: tuple[tuple[float, float, float, float], ...]
    edges: tuple[tuple[int, int, tuple[float, ...]], ...]
    stubs: tuple[tuple[int, str, float, float, int], ...]
    engine: str
    pills: tuple[tuple[int, int], ...] = ()


_CACHE: OrderedDict[Sketch, Drawing] = OrderedDict()
# Engines that produced nothing in time. They are not tried again.
_BROKEN: set[tuple[str, ...]] = set()
_CACHE_SIZE = 512


def layout(sketches: Iterable[Sketch], deadline: float = DEADLINE) -> list[Drawing]:
    """Lay out blocks, with one child process for all that are not cached; equal sketches share one drawing.
    ``deadline``: seconds for Graphviz altogether; blocks not done by then get the built-in layout."""
    wanted = list(sketches)
    fresh = [s for s in dict.fromkeys(wanted) if s not in _CACHE]
    known = {s: _CACHE[s] for s in wanted if s in _CACHE}
    known.update(_with_graphviz([s for s in fresh if 1 < len(s.sizes) <= LARGEST_FOR_DOT], deadline))
    for sketch in fresh:
        if sketch not in known:
            known[sketch] = _with_layers(sketch)
        _CACHE[sketch] = known[sketch]
    for sketch in known:
        _CACHE.move_to_end(sketch)
    while len(_CACHE) > _CACHE_SIZE:
        _CACHE.popitem(last=False)
    return [known[s] for s in wanted]


def forget() -> None:
    """Clear the cache of drawings, for tests and after ``KVVIZ_DOT`` has changed."""
    _CACHE.clear()
    _BROKEN.clear()


def _with_graphviz(sketches: Sequence[Sketch], deadline: float) -> dict[Sketch, Drawing]:
    found: dict[Sketch, Drawing] = {}
    end = time.monotonic() + deadline
    for engine in engines() if sketches else ():
        if engine.command in _BROKEN:
            continue
        left = [s for s in sketches if s not in found]
        seconds = end - time.monotonic()
        if not left or seconds <= 0:
            break
        plains = run_engine(engine, [dot_source(s) for s in left], seconds)
        if not plains:
            _LOG.info("the layout engine %s produced nothing in time and is not used again", engine.name)
            _BROKEN.add(engine.command)
        for sketch, plain in zip(left, plains):
            if plain.centres.keys() == set(range(len(sketch.sizes))):
                centred = [(*plain.centres[i], width, height) for i, (width, height) in enumerate(sketch.sizes)]
                corners = [(x - width / 2, y - height / 2) for x, y, width, height in centred]
                lines = [plain.lines.get(link, []) for link in sketch.links]
                found[sketch] = _drawing(sketch, corners, lines, engine.name)
    return found


def _with_layers(sketch: Sketch) -> Drawing:
    return _drawing(sketch, *layered(sketch), "layered")


def _drawing(
    sketch: Sketch, corners: Sequence[tuple[float, float]], lines: Sequence[Sequence[tuple[float, float]]], engine: str
) -> Drawing:
    boxes = [(round(x, 1), round(y, 1), float(w), float(h)) for (x, y), (w, h) in zip(corners, sketch.sizes)]
    stubs = _stub_ends(sketch, boxes)
    edges = [
        (source, target, _trimmed(line or _straight(boxes[source], boxes[target])))
        for (source, target), line in zip(sketch.links, lines)
    ]
    xs = [x for x, *_ in boxes] + [x + w for x, _, w, _ in boxes] + [x for *_, x, _, _ in stubs]
    ys = [y for _, y, *_ in boxes] + [y + h for _, y, _, h in boxes] + [y for *_, y, _ in stubs]
    for *_, points in edges:
        xs += points[0::2]
        ys += points[1::2]
    left, top = min(xs, default=0) - MARGIN, min(ys, default=0) - MARGIN
    return Drawing(
        w=round(max(xs, default=0) - left + MARGIN),
        h=round(max(ys, default=0) - top + MARGIN),
        boxes=tuple((round(x - left, 1), round(y - top, 1), w, h) for x, y, w, h in boxes),
        edges=tuple(
            (source, target, tuple(round(p - (top if i % 2 else left), 1) for i, p in enumerate(points)))
            for source, target, points in edges
        ),
        stubs=tuple((b, side, round(x - left, 1), round(y - top, 1), slot) for b, side, x, y, slot in stubs),
        engine=engine,
        pills=sketch.pills,
    )


def _stub_ends(
    sketch: Sketch, boxes: Sequence[tuple[float, float, float, float]]
) -> list[tuple[int, str, float, float, int]]:
    """The far ends of stubs: inputs above the top left corner of a box, outputs below its bottom right corner."""
    ends = []
    seen: dict[tuple[int, str], int] = {}
    for box, side, slot in sketch.stubs:
        place = seen[box, side] = seen.get((box, side), -1) + 1
        x, y, w, h = boxes[box]
        step = min(STUB_STEP, (w - 16) / 10)
        if side == "in":
            ends.append((box, side, x + 8 + place * step, y - STUB_REACH, slot))
        else:
            ends.append((box, side, x + w - 8 - place * step, y + h + STUB_REACH, slot))
    return ends


def _straight(source: tuple[float, ...], target: tuple[float, ...]) -> list[tuple[float, float]]:
    return [(source[0] + source[2] / 2, source[1] + source[3]), (target[0] + target[2] / 2, target[1])]


def _trimmed(line: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """The poly-line without points that repeat or lie on the straight line between their neighbours."""
    kept: list[tuple[float, float]] = []
    for point in line:
        if kept and abs(point[0] - kept[-1][0]) + abs(point[1] - kept[-1][1]) < 0.5:
            continue
        if len(kept) > 1:
            (ax, ay), (bx, by) = kept[-2], kept[-1]
            if abs((bx - ax) * (point[1] - ay) - (by - ay) * (point[0] - ax)) < 0.5 * (
                abs(point[0] - ax) + abs(point[1] - ay)
            ):
                kept.pop()
        kept.append(point)
    return tuple(coordinate for point in kept for coordinate in point)


# A block as DOT text, for Graphviz.
#
# Invariant: the text holds only ``n0``, ``n1`` … and numbers; no name of a model ever reaches the DOT parser. Splines
# are poly-lines: ``ortho`` aborts and ``curved`` takes minutes on graphs of a few hundred nodes.


INCH = 72.0
NODE_GAP, RANK_GAP = 14, 24


def dot_source(sketch: Sketch) -> str:
    block = graphviz.Digraph("block")
    gaps = {"nodesep": _inches(NODE_GAP), "ranksep": _inches(RANK_GAP)}
    block.attr("graph", nslimit="1", rankdir="TB", splines="polyline", **gaps)
    block.attr("node", fixedsize="true", label="", shape="box")
    block.attr("edge", arrowhead="none")
    for i, (width, height) in enumerate(sketch.sizes):
        block.node(f"n{i}", height=_inches(height), width=_inches(width))
    for source, target in sketch.links:
        block.edge(f"n{source}", f"n{target}")
    return str(block.source)


def _inches(px: float) -> str:
    return f"{px / INCH:.4f}"


Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Engine:
    """How to start a layout engine. ``name``: as the page shows it. ``command``: reads DOT graphs (``dot``), or a JSON
    list of them (pygraphviz, ``json_input``), and writes Graphviz's plain format."""

    name: str
    command: tuple[str, ...]
    json_input: bool = False


@dataclass(frozen=True, slots=True)
class Plain:
    """One laid out graph, y downwards, in px."""

    width: float
    height: float
    centres: dict[int, Point]
    lines: dict[tuple[int, int], list[Point]]


# The child renders graph after graph and flushes, so that a deadline loses only the graphs not yet done.
_CHILD = """
import json, sys, warnings
warnings.simplefilter("ignore")
import pygraphviz
for source in json.load(sys.stdin):
    graph = pygraphviz.AGraph(string=source)
    sys.stdout.write(graph.draw(path=None, prog="dot", format="plain").decode())
    sys.stdout.flush()
"""


def engines() -> list[Engine]:
    """Graphviz engines on this machine, the preferred one first. ``KVVIZ_DOT`` names a program to use instead of
    ``dot``; ``KVVIZ_DOT=layered`` disables Graphviz."""
    wish = os.environ.get("KVVIZ_DOT", "")
    if wish == "layered":
        return []
    found = []
    if wish and wish != "pygraphviz":
        found.append(Engine("dot", (wish, "-Kdot", "-Tplain")))
    path = shutil.which(DOT_BINARY)
    if path and wish != "pygraphviz":
        found.append(Engine("dot", (path, "-Kdot", "-Tplain")))
    if sys.executable and importlib.util.find_spec("pygraphviz") is not None:
        found.append(Engine("pygraphviz", (sys.executable, "-c", _CHILD), json_input=True))
    return found


def run_engine(engine: Engine, sources: Sequence[str], deadline: float) -> list[Plain]:
    """Lay out graphs, DOT texts with nodes ``n0`` …, in one child process, which is killed after ``deadline`` seconds.
    Returns the graphs that were laid out, in the order of ``sources``; fewer than requested if the engine failed or was
    killed."""
    # The package's own ``pipe`` has no deadline. Files instead of pipes: children of a killed engine cannot block us.
    text = json.dumps(list(sources)) if engine.json_input else "\n".join(sources)
    with tempfile.TemporaryFile() as inlet, tempfile.TemporaryFile() as outlet:
        inlet.write(text.encode())
        inlet.seek(0)
        try:
            child = subprocess.Popen(
                engine.command,
                stdin=inlet,
                stdout=outlet,
                stderr=subprocess.DEVNULL,
                start_new_session=os.name == "posix",
            )
        except OSError:
            return []
        try:
            child.wait(deadline)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Also on Ctrl-C: no engine is left running.
            if child.poll() is None:
                _kill(child)
        outlet.seek(0)
        return parse_plain(outlet.read().decode(errors="replace"))


def parse_plain(text: str) -> list[Plain]:
    """Read Graphviz's plain format, any number of graphs; an incomplete last one is left out."""
    done: list[Plain] = []
    graph: Plain | None = None
    try:
        for line in text.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "graph":
                scale, width, height = (float(part) for part in rest.split()[:3])
                unit = 72.0 * scale
                graph = Plain(width * unit, height * unit, {}, {})
            elif graph is None:
                continue
            elif kind == "node":
                name, x, y = rest.split()[:3]
                graph.centres[int(name[1:])] = (float(x) * unit, graph.height - float(y) * unit)
            elif kind == "edge":
                tail, head, amount, *numbers = rest.split()
                flat = [float(number) * unit for number in numbers[: 2 * int(amount)]]
                # Control points of straight Bézier pieces: every third one is a corner.
                corners = [(flat[i], graph.height - flat[i + 1]) for i in range(0, len(flat), 6)]
                graph.lines[int(tail[1:]), int(head[1:])] = corners
            elif kind == "stop":
                done.append(graph)
                graph = None
    except (ValueError, IndexError):
        # Not the expected format: keep what was read before.
        return done
    return done


def _kill(child: subprocess.Popen) -> None:
    try:
        if os.name == "posix":
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
        child.wait(5)
    except (OSError, subprocess.TimeoutExpired):
        return
