"""Running Graphviz with a deadline: the ``dot`` program of the package graphviz, or pygraphviz in a child process.

The package makes the DOT text and knows the program. Its own ``pipe`` has no deadline and starts a process for every
graph, so the process is started here.

Invariant: no error is raised for a bad engine, and no call exceeds its deadline; graphs laid out by then are kept.
Output goes to a file instead of a pipe, so that children of a killed engine cannot block the caller. Nothing that an
engine writes to stderr reaches a notebook.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from graphviz.backend import DOT_BINARY

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
