"""Planning and running a graph of twice as many nodes takes about twice the work, under every policy.

Work is counted in lines of Python that are run, so that a busy machine does not matter. It is counted in a run that
plans (the first one of a graph) as in one that only runs.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
import pytest

import kvviz
from kvviz import policies
from kvviz.runtimes.schedules import depth_first, least_live
from tests.engine.graphs import graph_of
from tests.engine.test_schedules import with_schedule
from tests.graph.build import model, node
from tests.work import lines_of

MOST = 2.3
X = {"x": np.ones((8, 8), np.float32)}


def made(nodes: list[onnx.NodeProto], *outputs: str, x: str = "8 8") -> onnx.ModelProto:
    return model(nodes, [f"x float {x}"], list(outputs))


def wide(n: int) -> onnx.ModelProto:
    nodes = [node("Neg", "x", f"a{i}") for i in range(n)] + [node("Relu", f"a{i}", f"y{i}") for i in range(n)]
    return made(nodes, *(f"y{i}" for i in range(n)))


def chain(n: int) -> onnx.ModelProto:
    ops = ("Neg", "Relu", "Transpose")
    return made([node(ops[i % 3], f"v{i}" if i else "x", f"v{i + 1}") for i in range(n)], f"v{n}")


def many_readers(n: int) -> onnx.ModelProto:
    names = [f"y{i}" for i in range(n)]
    readers = [node("Relu" if i % 2 else "Transpose", "a", name) for i, name in enumerate(names)]
    return made([node("Neg", "x", "a"), *readers], *names)


def many_dead(n: int) -> onnx.ModelProto:
    """Buffers that die together before many others are made."""
    nodes = [node("Transpose", "x", f"a{i}") for i in range(n)]
    nodes.append(node("Sum", " ".join(f"a{i}" for i in range(n)), "s"))
    nodes += [node("Transpose", "s", f"b{i}") for i in range(n)]
    return made([*nodes, node("Sum", " ".join(f"b{i}" for i in range(n)), "y")], "y")


def unnamed(n: int) -> onnx.ModelProto:
    """Buffers of a size that no plan knows."""
    dying = [node("Exp", f"e{i - 1}" if i else "x", f"e{i}") for i in range(n)]
    others = [node("Exp", "x", f"d{i}") for i in range(n)]
    return made([*dying, *others], f"e{n - 1}", *(f"d{i}" for i in range(n)), x="? 8")


def many_views(n: int) -> onnx.ModelProto:
    """Views of views, each of which something else reads that could run in place."""
    nodes = [node("Neg", "x", "v0")]
    for i in range(n):
        nodes += [node("Identity", f"v{i}", f"v{i + 1}"), node("Relu", f"v{i}", f"y{i}")]
    return made(nodes, *(f"y{i}" for i in range(n)), f"v{n}")


def tree(n: int) -> onnx.ModelProto:
    names = [f"l{i}" for i in range(n)]
    nodes = [node("Neg", "x", name) for name in names]
    while len(names) > 1:
        pairs = list(zip(names[::2], names[1::2]))
        names = [f"{one}_" for one, _ in pairs] + names[2 * len(pairs) :]
        nodes += [node("Add", f"{one} {other}", f"{one}_") for one, other in pairs]
    return made(nodes, names[0])


POLICIES: dict[str, str | kvviz.Policy] = {
    "ideal": "ideal",
    "rten": "rten",
    "rten without quirks": policies.rten(quirks=()),
    "onnxruntime": "onnxruntime",
    "depth first": with_schedule(depth_first),
    "least live": with_schedule(least_live()),
}


@pytest.mark.parametrize("make", [wide, chain, many_readers, many_dead, unnamed, many_views, tree])
@pytest.mark.parametrize("policy", POLICIES)
def test_twice_the_nodes_are_about_twice_the_work(make: Callable[[int], onnx.ModelProto], policy: str) -> None:
    kvviz.run(kvviz.load(make(4)), X, policy=POLICIES[policy])  # what is worked out once for all graphs
    work = []
    for n in (150, 300):
        run = partial(kvviz.run, kvviz.load(make(n)), X, policy=POLICIES[policy])
        work.append((lines_of(run), lines_of(run)))
    (first, again), (first_of_two, again_of_two) = work
    assert first_of_two / first < MOST and again_of_two / again < MOST


def split_into(outputs: int) -> kvviz.Trace:
    names = [f"o{place}" for place in range(outputs)]
    declared = ", ".join(f"float[1] {name}" for name in names)
    text = f"g (float[{outputs}] x) => ({declared}) {{ {', '.join(names)} = Split <num_outputs = {outputs}> (x) }}"
    return kvviz.run(graph_of(text, 18), {"x": np.arange(outputs, dtype=np.float32)})


def test_a_split_into_a_hundred_thousand_parts_is_run_and_its_work_grows_with_its_parts() -> None:
    many = 100_000
    trace = split_into(many)
    assert len(trace.steps[0].outs) == many and trace.outputs[f"o{many - 1}"].tolist() == [many - 1]
    assert lines_of(lambda: split_into(2_000)) < 5 * lines_of(lambda: split_into(500))
