"""The step program against the ordinary step: the same log, bit for bit, and the same results."""

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given as given_that
from hypothesis import settings
from hypothesis import strategies as st

import kvviz
from kvviz.decode.run_sessions import SingleRun
from kvviz.decode.token_loop import DecodeSession
from kvviz.engine import execution
from kvviz.engine.plan import Plan
from kvviz.engine.planning import plan_for
from kvviz.engine.program import prepared_call
from kvviz.engine.program.segment import Segment
from kvviz.engine.program.segment_code import Facts
from kvviz.engine.sessions.session import Session
from kvviz.graph.model import Graph
from tests.engine.graphs import graph_of
from tests.engine.random_graphs import Example, examples
from tests.engine.untouchable import POLICIES
from tests.test_models import DECODERS, ROOT, reference


@contextmanager
def counted(programs: bool = True) -> Iterator[list[int]]:
    """The ops that step programs run, segment by segment; without programs none."""
    found: list[int] = []
    account = Segment._account

    def noted(segment: Segment, run: Any, frame: Any, count: int, facts: Facts) -> None:
        found.append(count)
        account(segment, run, frame, count, facts)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Segment, "_account", noted)
        if not programs:
            patched.setattr(execution, "program_of", lambda *_: None)
        yield found


def logged(trace: kvviz.Trace) -> tuple:
    log = trace.log
    rows = [(op.frame, op.op.node.name, op.op.position, *op[2:]) for op in log]
    runs = [(r.first, r.last, r.bytes_allocated, r.bytes_copied, r.bytes_written, r.peak_bytes) for r in trace.runs]
    storages = list(log.storages.capacities), list(log.storages.origins), log.grew, list(log.frees)
    frames = [frame.bindings for frame in log.frames]
    return rows, runs, storages, frames, (log.allocated, log.copied, log.written, log.peak)


def bits(values: Any) -> list[tuple]:
    return [(np.shape(value), np.asarray(value).tobytes()) for value in values]


def finished(session: Session) -> tuple:
    """All that a session says once it has run."""
    outputs, ledger = bits(session.run_to_end().outputs.values()), session.recorder.ledger
    return logged(session.trace), ledger.live, ledger.peak, outputs


def alike(run: Callable[[], Iterable[Any]]) -> list[int]:
    """The ops that step programs run, segment by segment; without them all that a series of runs says is the same."""
    with counted() as ops:
        found = list(run())
    with counted(programs=False):
        assert found == list(run())
    return ops


def series(graph: Graph, given: Callable[[], Iterable[tuple[dict, Sequence[str]]]], policy: str = "ideal") -> list[int]:
    """The same for runs of a graph that are given inputs, of which some are donated."""
    return alike(lambda: (finished(SingleRun(graph, feeds, None, donate, policy)) for feeds, donate in given()))


@pytest.mark.parametrize("capacity", [None, 40])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", [*DECODERS, "o09_dynamo_qwen2_nocache"])
@pytest.mark.filterwarnings("ignore:kv_capacity")
def test_a_decode_is_logged_alike(name: str, policy: str, capacity: int | None) -> None:
    prompt, graph = reference(name)["prompt"].tolist(), kvviz.load(ROOT / name / "model.onnx")
    wanted = {value.name for value in graph.inputs} & {"encoder_hidden_states"}
    inputs = {n: np.zeros((1, 8, 32), np.float32) for n in wanted}
    options: dict[str, Any] = {"inputs": inputs, "policy": policy, "kv_capacity": capacity}

    def decoded() -> Iterator[tuple]:
        session = DecodeSession(graph, prompt, max_new_tokens=8, **options)
        yield finished(session), bits(session.trace.logits)

    ops = alike(decoded)
    if policy in ("ideal", "never") and name in ("o01_optimum_llama", "storyteller/concat"):
        size = len(plan_of(graph).order)
        assert sum(ops) > 3 * size and (policy == "never" or size in ops)


def laid_out(example: Example, way: int) -> dict[str, np.ndarray]:
    """The inputs of an example: as they are, transposed in memory, or with other bytes behind a part of a block."""
    made = {}
    for name, array in example.inputs.items():
        array = array * (1 + way)
        if name in example.grow:
            array = kvviz.reserve(array, 0, array.shape[0] + way % 2 * 4)
        elif way % 3 == 1:
            array = np.asfortranarray(array)
        elif way % 3 == 2:
            array = np.concatenate([array, array], -1)[..., : array.shape[-1]]
        made[name] = array
    return made


@settings(max_examples=60, deadline=None)
@given_that(examples(), st.lists(st.integers(0, 5), min_size=3, max_size=5), st.sampled_from(["ideal", "never"]))
def test_random_graphs_are_logged_alike_however_their_inputs_lie(
    example: Example, ways: list[int], policy: str
) -> None:
    order, graph = (0, 0, 0, 0, *ways, 0), kvviz.load(example.model)
    series(graph, lambda: [(laid_out(example, way), example.donate) for way in order], policy)
    for feeds in [laid_out(example, way) for way in order]:
        called = kvviz.run(graph, feeds, policy=policy).outputs.values()
        stepped = SingleRun(graph, feeds, None, (), policy).run_to_end().outputs.values()
        assert bits(called) == bits(stepped)
        assert [one.flags.writeable for one in called] == [one.flags.writeable for one in stepped]
        for output in called:
            if output.flags.writeable:
                output[...] = 7


def counting() -> Graph:
    """Ops whose shapes, and where a view begins, hang on numbers that are given: ``n`` rows from ``start``."""
    return graph_of("""counting (float[8, 3] x, int64[n] start, int64[n] stop, int64[n] axis, int64[m] rows)
        => (float y) {
        a = Neg (x) b = Exp (a) c = Slice (b, start, stop, axis) d = Neg (c) e = Reshape (d, rows) f = Tanh (e)
        y = Add (f, f) }""")


def numbers(start: int, stop: int) -> dict[str, np.ndarray]:
    x = np.arange(24, dtype=np.float32).reshape(8, 3) / 24
    rows = {"start": [start], "stop": [stop], "axis": [0], "rows": [-1, stop - start]}
    return {"x": x, **{name: np.array(value) for name, value in rows.items()}}


def test_a_shape_that_follows_from_numbers_stops_the_program_there() -> None:
    plan = [(2, 4)] * 4 + [(3, 5), (2, 5), (2, 4), (0, 4), (0, 3), (1, 7), (1, 7), (2, 4)]
    ops = series(counting(), lambda: [(numbers(*rows), ()) for rows in plan])
    assert 7 in ops and any(0 < count < 7 for count in ops)


@pytest.fixture
def reads_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_call, "_PAUSE", 0)


@pytest.mark.usefixtures("reads_cost_nothing")
def test_the_trace_of_a_call_that_repeats_is_made_when_read_and_is_the_same() -> None:
    graph = counting()
    plan = [(2, 4)] * 4 + [(3, 5), (2, 5), (2, 4), (2, 4), (0, 4), (1, 7), (2, 4), (2, 4), (2, 4)]
    found: list[list] = [[], []]
    for programs in (True, False):
        with counted(programs) as ops:
            for at, (start, stop) in enumerate(plan):
                given = numbers(start, stop)
                if at == 11:
                    given["x"] = np.asfortranarray(given["x"])
                trace = kvviz.run(graph, given) if programs else SingleRun(graph, given).run_to_end()
                results = bits(trace.outputs.values())
                assert ("log" not in vars(trace)) == (programs and at in (3, 4, 6, 7, 12)), at
                given["x"][:] = 7
                assert bits([trace.value("b", 1)]) == bits([np.exp(-numbers(0, 1)["x"])])
                found[programs].append((results, logged(trace), trace.options))
        assert not programs or {0 < count < 7 for count in ops} == {True, False}
    assert found[0] == found[1]


def test_calls_whose_traces_are_read_run_step_by_step_more_and_more_often() -> None:
    graph = counting()
    calls = [kvviz.run(graph, numbers(2, 4)) for _ in range(16)]
    assert all("log" not in vars(trace) for trace in calls[4:])
    made = []
    for _ in range(24):
        trace = kvviz.run(graph, numbers(2, 4))
        made.append("log" in vars(trace))
        assert len(trace.steps) == 7
    assert [at for at, whole in enumerate(made) if not whole] == [0, 2, 6, 14]


def choosing() -> Graph:
    """What an If gives is new or the caller's, and is overwritten in place where it may be."""
    return graph_of("""choosing (bool flag, bool deep, float[3] x, float[3] y) => (float[3] z, float[3] w) {
        s = Add (x, x)
        c = If (flag) <then_branch = then () => (float[3] r) {
            a = Neg (y) r = If (deep) <then_branch = sine () => (float[3] b) { b = Sin (a) },
                                       else_branch = same () => (float[3] d) { d = Identity (y) }> },
                       else_branch = other () => (float[3] k) { k = Identity (x) }>
        z = Tanh (c) w = If (deep) <then_branch = one () => (float[3] v) { v = Abs (s) },
                                    else_branch = two () => (float[3] u) { u = Identity (s) }> }""")


@pytest.mark.usefixtures("reads_cost_nothing")
@settings(max_examples=60, deadline=None)
@given_that(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()), max_size=6))
def test_a_call_that_repeats_takes_the_branch_that_it_is_told(ways: list[tuple[bool, bool, bool, bool]]) -> None:
    graph, deferred = choosing(), 0
    for flag, deep, donated, read in [(True, True, False, False)] * 4 + ways:
        x, y = np.array([0.5, -1, 2], np.float32), np.array([3, -2, 1], np.float32)
        feeds = {"flag": np.array(flag), "deep": np.array(deep), "x": x, "y": y}
        trace = kvviz.run(graph, feeds, donate=["x", "y"] * donated)
        deferred += "log" not in vars(trace)
        first = np.tanh((np.sin(-y) if deep else y) if flag else x) if not donated else None
        if first is not None:
            assert np.allclose(trace.outputs["z"], first, atol=1e-6)
            assert np.allclose(trace.outputs["w"], [1, 2, 4] if deep else [1, -2, 4])
            assert x.tolist() == [0.5, -1, 2] and y.tolist() == [3, -2, 1]
        if read:
            with counted(programs=False):
                again = SingleRun(choosing(), feeds).run_to_end() if not donated else trace
            assert logged(trace) == logged(again)
    assert deferred


def test_what_follows_from_weights_and_shapes_is_not_computed_again_and_never_handed_out() -> None:
    graph = graph_of("""known (bool flag, float[n, 3] x)
        => (float[n, 3] y, float[3] w, float[k] v, float[n, 3] z, float[3] u)
        <float[3] weight = {1, 2, 3}, int64[1] flat = {-1}> {
        a = Neg (weight) b = Exp (a) m = Mul (x, b) h = Tan (weight) y = Add (m, h)
        w = Abs (b) c = Sin (w) v = Reshape (c, flat)
        s = Shape (x) o = ConstantOfShape (s) z = Add (o, x) d = Cos (a)
        u = If (flag) <then_branch = then () => (float[3] e) { f = Tan (weight) e = Add (f, d) },
                       else_branch = other () => (float[3] g) { g = Identity (d) }> }""")  # fmt: skip
    numbers, calls = np.array([1, 2, 3], np.float32), []
    for size, way in [(2, True)] * 8 + [(4, True), (2, True), (2, False), (2, True)] + [(3, False)] * 8:
        x = np.full((size, 3), 0.5, np.float32)
        trace = kvviz.run(graph, {"flag": np.array(way), "x": x})
        known = np.exp(-numbers)
        other = np.cos(-numbers) + np.tan(numbers) * way
        for name, wanted in zip("ywvzu", [x * known + np.tan(numbers), known, np.sin(known), x, other], strict=True):
            assert np.allclose(trace.outputs[name], wanted, atol=1e-6), name
            trace.outputs[name][...] = 7
        calls.append(next(iter(plan_of(graph).programs.values())).call)
    # But Tan and Shape.
    sizes = [call and sum(getattr(part, "size", 0) for part in call._body.parts) for call in calls]
    assert sizes[:8] == [None, None] + [10] * 6


def plan_of(graph: Graph) -> Plan:
    return plan_for(graph, tuple(value.name for value in graph.outputs), kvviz.policies.ideal)


def test_a_graph_that_draws_numbers_runs_once() -> None:
    graph = graph_of("drawing (float[3] x) => (float[3] y) { a = RandomNormalLike (x) y = Add (a, x) }")
    for _ in range(6):
        trace = kvviz.run(graph, {"x": np.zeros(3, np.float32)})
        assert "log" in vars(trace)


# Ops with several outputs, new ones and views, one of them absent, and scalars; sizes follow from the input.
SEVERAL = """several (float[a, b] x, float[c, d, e, f] images, int64[1] one) => (
    float[g, h] y, bool[g, h] kept, int64[k, l] places, float[p, q, r, s] difference, int64[t, u, v, w] from, float z) {
    a = Neg (x) left, right = Split <axis = 1, num_outputs = 2> (a)
    top, at = TopK <axis = 0> (left, one) "", other = TopK <axis = 0> (right, one)
    pooled, from = MaxPool <kernel_shape = [2, 2]> (images) places = Concat <axis = 1> (at, other)
    p, q = Split <axis = 1, num_outputs = 2> (pooled) difference = Sub (p, q) sum = Add (top, right)
    y, kept = Dropout (sum) most = ReduceMax <keepdims = 0> (a) double = Add (most, most) z = Neg (double) }"""


@pytest.mark.parametrize("sizes", [[3] * 6, [3, 4, 5, 6, 7, 5, 4], [3, 3, 3, 3, 5, 3, 5, 6]])
def test_ops_with_several_outputs_are_logged_alike(sizes: list[int]) -> None:
    graph, block = graph_of(SEVERAL), np.random.default_rng(0).standard_normal((1, 4, 8, 16), np.float32)

    def given() -> Iterator[tuple]:
        for size in sizes:
            feeds = {"x": block[0, 0, :size, :6], "images": block[:, :, :size], "one": np.array([1])}
            yield feeds, ["x"] * (size == 5)

    assert len(graph.nodes) in series(graph, given)


@pytest.mark.parametrize("rows", [[1, 1, 1, 1, 0, 1, 2], [1, 3, 2, 3, 0, 3, 20], [0, 0, 0, 1]])
def test_what_is_appended_to_is_logged_alike_whatever_comes(rows: list[int]) -> None:
    graph = graph_of("""appending (float[n, 3] x, float[p, 3] past) => (float[q, 3] all, float[q, 3] y) {
        a = Neg (x) b = Exp (a) c = Tanh (b) all = Concat <axis = 0> (past, c) y = Neg (all) }""", 18)  # fmt: skip

    def given() -> Iterator[tuple]:
        for at, count in enumerate(rows):
            past = kvviz.reserve(np.zeros((2 + at % 2, 3), np.float32), 0, 8)
            yield {"x": np.ones((count, 3), np.float32), "past": past}, ["past"]

    series(graph, given)


# A loop, in whose body an If has bodies of its own; one carried value grows, one does not.
BRANCH = "(float[a, b] r{0}) {{ c = Add (b, x) d = Neg (c) e = Exp (d) f = Tanh (e) g = Neg (f) r{0} = {0} (g, b) }}"
BRANCHING = f"""branching (int64 trips, float[n, 4] x, float[m, 2] start)
    => (float[n, 4] y, float[k, 2] joined, float[t, n, 2] stacked) <int64 two = {{2}}> {{
    y, joined, stacked = Loop (trips, "", x, start) <body = body (
        int64 i, bool going, float[n, 4] a, float[m, 2] all)
        => (bool on, float[n, 4] new, float[k, 2] more, float[n, 2] right) {{
        on = Identity (going) s = Sin (a) t = Cos (s) w = Neg (t) z = Tanh (w) u = Abs (z) b = Sqrt (u)
        odd = Mod (i, two) flag = Cast <to = 9> (odd)
        new = If (flag) <then_branch = then () => {BRANCH.format("Add")},
                         else_branch = else () => {BRANCH.format("Mul")}>
        left, right = Split <axis = 1, num_outputs = 2> (new) more = Concat <axis = 0> (all, left) }}> }}"""


@pytest.mark.parametrize("policy", ["ideal", "never"])
def test_bodies_are_logged_alike(policy: str) -> None:
    def given() -> Iterator[tuple]:
        for trips, rows in ((9, 3), (2, 3), (6, 2), (0, 2), (7, 3)):
            x = np.linspace(0, 1, rows * 4, dtype=np.float32).reshape(rows, 4)
            yield {"trips": np.array(trips), "x": x, "start": kvviz.reserve(x[:1, :2], 0, 16)}, ["start"]

    assert sum(series(graph_of(BRANCHING), given, policy)) > 100


def ready(graph: Graph) -> tuple[SingleRun, dict[str, Any]]:
    """A session whose run has a program, and the names in its code."""
    for _ in range(4):
        SingleRun(graph, numbers(2, 4)).run_to_end()
    session = SingleRun(graph, numbers(2, 4))
    assert session.execution is not None and session.execution.main.program is not None
    (segment,) = session.execution.main.program.segments
    assert segment.code is not None
    return session, segment.code.__globals__


@pytest.mark.parametrize("at", range(7))
def test_an_interrupt_stops_the_program_after_the_op(at: int) -> None:
    graph = counting()
    session, names = ready(graph)
    kernel = names[f"k{at}"]

    def interrupted(*args: Any, **how: Any) -> Any:
        names[f"k{at}"] = kernel
        signal.raise_signal(signal.SIGINT)
        return kernel(*args, **how)

    names[f"k{at}"] = interrupted
    assert session.run_to_end().interrupted
    assert len(session.log) == at + 1
    names[f"k{at}"] = interrupted
    repeated = kvviz.run(graph, numbers(2, 4))
    assert repeated.interrupted and len(repeated.log) == 0
    with counted(False):
        assert finished(session) == finished(SingleRun(graph, numbers(2, 4)))


@pytest.mark.parametrize("at", range(7))
def test_a_kernel_that_fails_is_named_and_what_ran_before_is_logged(at: int) -> None:
    graph = counting()
    session, names = ready(graph)
    kernel, names[f"k{at}"] = names[f"k{at}"], None  # which nobody can call
    for run in (session.run_to_end, lambda: kvviz.run(graph, numbers(2, 4))):
        with pytest.raises(kvviz.KvvizError, match=r"failed: TypeError: .* \(inputs: "):
            run()
    names[f"k{at}"] = kernel
    assert [op.op.position for op in session.log] == list(range(at))
    frame = session.execution.main if session.execution else None
    assert frame is not None and list(frame.done) == [1] * at + [0] * (7 - at)
