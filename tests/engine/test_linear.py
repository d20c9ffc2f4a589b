"""Planning and running a graph of twice as many nodes takes about twice the work, under every policy.

Work is counted in lines of Python that are run, so that a busy machine does not matter. It is counted in a run that
plans (the first one of a graph) as in one that only runs.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import kvviz
from kvviz import policies
from kvviz.runtimes.schedules import depth_first, least_live
from tests.engine.graphs import graph_of
from tests.engine.test_schedules import with_schedule
from tests.work import lines_of

MOST = 2.3
X = {"x": np.ones((8, 8), np.float32)}


def listed(text: str, n: int, between: str = " ") -> str:
    """A text for each number below ``n``."""
    return between.join(text.replace("$+", str(i + 1)).replace("$", str(i)) for i in range(n))


def outputs(n: int, *more: str) -> str:
    return ", ".join([*(f"float[8, 8] y{i}" for i in range(n)), *(f"float[8, 8] {name}" for name in more)])


def wide(n: int) -> str:
    return f"(float[8, 8] x) => ({outputs(n)}) {{ {listed('a$ = Neg(x)', n)} {listed('y$ = Relu(a$)', n)} }}"


def chain(n: int) -> str:
    ops = " ".join(f"v{i + 1} = {('Neg', 'Relu', 'Transpose')[i % 3]}(v{i})" for i in range(n))
    return f"(float[8, 8] x) => (float[8, 8] v{n}) {{ v0 = Abs(x) {ops} }}"


def many_readers(n: int) -> str:
    readers = " ".join(f"y{i} = {'Relu' if i % 2 else 'Transpose'}(a)" for i in range(n))
    return f"(float[8, 8] x) => ({outputs(n)}) {{ a = Neg(x) {readers} }}"


def many_dead(n: int) -> str:
    """Buffers that die together before many others are made."""
    return f"""(float[8, 8] x) => (float[8, 8] y) {{ {listed("a$ = Transpose(x)", n)} s = Sum({listed("a$", n, ", ")})
        {listed("b$ = Transpose(s)", n)} y = Sum({listed("b$", n, ", ")}) }}"""


def unnamed(n: int) -> str:
    """Buffers of a size that no plan knows."""
    return f"""(float[?, 8] x) => ({outputs(n, f"e{n}")}) {{
        e0 = Abs(x) {listed("e$+ = Exp(e$)", n)} {listed("y$ = Exp(x)", n)} }}"""


def many_views(n: int) -> str:
    """Views of views, each of which something else reads that could run in place."""
    views = listed("v$+ = Identity(v$) y$ = Relu(v$)", n)
    return f"(float[8, 8] x) => ({outputs(n, f'v{n}')}) {{ v0 = Neg(x) {views} }}"


def tree(n: int) -> str:
    sums = " ".join(f"l{i} = Add(l{2 * i + 1}, l{2 * i + 2})" for i in reversed(range(n - 1)))
    leaves = " ".join(f"l{i} = Neg(x)" for i in range(n - 1, 2 * n - 1))
    return f"(float[8, 8] x) => (float[8, 8] l0) {{ {leaves} {sums} }}"


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
def test_twice_the_nodes_are_about_twice_the_work(make: Callable[[int], str], policy: str) -> None:
    kvviz.run(graph_of(f"g {make(4)}"), X, policy=POLICIES[policy])  # what is worked out once for all graphs
    work = []
    for n in (150, 300):
        run = partial(kvviz.run, graph_of(f"g {make(n)}"), X, policy=POLICIES[policy])
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
