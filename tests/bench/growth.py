"""How the time of running, explaining and looking for hazards grows with the number of ops: time(2n) / time(n)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx

import kvviz
from kvviz.report.faces.report_text import report_text
from tests.bench.measure import seconds
from tests.bench.tell import hold, row
from tests.graph.build import graph, model, node

LIMIT = 3.0
SIZES = {"chain": 20_000, "wide": 5_000, "loop": 2_500}
_TRIES = 3
Made = tuple[onnx.ModelProto, dict[str, np.ndarray]]


def growth_table() -> int:
    """Measure and print; figures over their limit are counted."""
    print("\nseconds at two sizes, the best of three: ops of a chain, readers of one value, iterations of a loop")
    row("", ["n", "time(n)", "time(2n)"])
    over = 0
    for name, size in SIZES.items():
        for policy in ("ideal", "rten"):
            over += _line(f"{name}: run under {policy}", size, partial(_running, name, policy))
        over += _line(f"{name}: explain", size, partial(_looking, name, told))
        over += _line(f"{name}: hazards", size, partial(_looking, name, kvviz.hazards))
    return over


def made(name: str, size: int) -> Made:
    """A graph of one of the shapes, of about so many ops or with so many iterations, and inputs for it."""
    return {"chain": _chain, "wide": _wide, "loop": _loop}[name](size)


def _line(name: str, size: int, measured: Callable[[int], Callable[[], Any]]) -> bool:
    short, long = _best(measured(size)), _best(measured(2 * size))
    row(name, [f"{size:,}", f"{short:.2f}", f"{long:.2f}"])
    return hold(f"{name}: time(2n) / time(n)", long / short, LIMIT)


def _running(name: str, policy: str, size: int) -> Callable[[], Any]:
    proto, inputs = made(name, size)
    loaded = kvviz.load(proto)
    return lambda: kvviz.run(loaded, inputs, policy=policy)


def _looking(name: str, look: Callable[[Any], Any], size: int) -> Callable[[], Any]:
    trace = _running(name, "ideal", size)()

    def anew() -> Any:
        trace.notes.clear()
        return look(trace)

    return anew


def told(trace: Any) -> str:
    return report_text(kvviz.explain(trace))


def _best(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(_TRIES):
        gc.collect()
        times.append(seconds(call))
    return max(min(times), 1e-9)


def _chain(size: int) -> Made:
    names = ["x", *(f"v{i}" for i in range(size))]
    return _model([node("Neg", names[i], names[i + 1]) for i in range(size)], ["x"], names[-1])


def _wide(size: int) -> Made:
    """One value that all read, and one op that reads what each made of it."""
    nodes = [node("Relu", "x", f"a{i}") for i in range(size)]
    nodes += [node("Neg", f"a{i}", f"b{i}") for i in range(size)]
    return _model([*nodes, node("Sum", " ".join(f"b{i}" for i in range(size)), "y")], ["x"], "y")


def _loop(size: int) -> Made:
    inside = [node("Identity", "go", "go_on"), node("Add", "v k", "w"), node("Neg", "w", "next")]
    inside.append(node("ReduceSum", "next", "sum", keepdims=0))
    given, made = ["i int64 -", "go bool -", "v float 8"], ["go_on bool -", "next float", "sum float"]
    times = node("Constant", "", "times", value_int=size)
    loop = node("Loop", "times - x", "y sums", body=graph(inside, given, made))
    return _model([times, loop], ["x", "k"], "y")


def _model(nodes: list[onnx.NodeProto], inputs: list[str], output: str) -> Made:
    made = model(nodes, [f"{name} float 8" for name in inputs], [f"{output} float"], opset=21)
    return made, {name: np.ones(8, np.float32) for name in inputs}
