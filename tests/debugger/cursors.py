"""Sessions to step through: a decode, and graphs with bodies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

import kvviz
from kvviz.debugger.cursor import Cursor
from kvviz.decode.run_sessions import SingleRun
from kvviz.decode.token_loop import DecodeSession
from kvviz.engine.sessions.session import Session
from kvviz.graph.model import Graph, Node
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from tests.engine.graphs import graph_of, numbers
from tests.graph.build import MODELS

BODIES = """g (float[2] x, int64 n, bool c) => (float[2] y, float[2] z) {
    a = Exp(x) b = Neg(x)
    [pick] p = If (c) <then_branch = t () => (float[2] u) { [deep] h = Sqrt(a) u = Add(h, b) },
                       else_branch = e () => (float[2] v) { v = Neg(a) }>
    [loop] y = Loop (n, "", p) <body = l (int64 i, bool go, float[2] s) => (bool on, float[2] w) {
        on = Identity(go) [spin] r = Sin(s) w = Mul(r, a) }>
    [call] q = local.f(y) z = Add(q, a) }
    <domain: "local", opset_import: ["" : 21]> f (m) => (o) { [one] k = Relu(m) [two] o = Neg(k) }"""
# The order of steps: (node, depth).
ORDER = [("a", 0), ("b", 0), ("deep", 1), ("u", 1), ("pick", 0)]
ORDER += [(name, 1) for _ in range(2) for name in ("on", "spin", "w")] + [("loop", 0)]
ORDER += [("one", 1), ("two", 1), ("call", 0), ("z", 0)]
FLAT = "g (float[4] x) => (float[4] y) { a = Exp(x) b = Neg(x) c = Sin(a) d = Abs(b) y = Add(c, d) }"


@cache
def graph(name: str) -> Graph:
    if name == "bodies":
        return graph_of(BODIES)
    return graph_of(FLAT) if name == "flat" else kvviz.load(MODELS / "storyteller" / name / "model.onnx")


def session(name: str) -> Session:
    if name == "bodies":
        return SingleRun(graph(name), {"x": numbers(2), "n": np.array(2), "c": np.array(True)}, poison=True)
    if name == "flat":
        return SingleRun(graph(name), {"x": numbers(4)}, poison=True)
    return DecodeSession(graph(name), [1, 2, 3], max_new_tokens=3, poison=True)


def live(name: str) -> Cursor:
    """A cursor before anything ran; it runs the graph as it goes."""
    return Cursor(session(name))


@cache
def recording(name: str) -> Trace:
    return session(name).run_to_end()


def recorded(name: str) -> Cursor:
    return Cursor(recording(name))


def ready(trace: Trace, steps: Sequence[Step], frame: int) -> tuple[Node, ...]:
    """What could run next in a frame after these steps, from nothing but which values exist then."""
    record = trace.frames[frame]
    here = [step for step in steps if step.frame_id == frame]
    done = {step.node_index for step in here}
    missing = {out for node in record.order for out in node.outputs} - {out for step in here for out in step.outputs}
    return tuple(
        node for node in record.order if node.index not in done and not missing & {*node.inputs, *node.captures}
    )
