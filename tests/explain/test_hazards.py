"""Hazards: pairs of ops that only the schedule keeps in order, judged by running other orders and by brute force."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.engine.sessions.io_binding import bind
from kvviz.errors import InputError
from kvviz.graph.model import Graph, Node, Value
from kvviz.lessons.legal_orders import legal_orders, orders
from kvviz.report.faces.hazard_table import hazards
from kvviz.trace.index.hazards import path_between
from kvviz.trace.recording import Trace
from kvviz.trace.records import Run
from kvviz.trace.schema.events import IN_PLACE, NEW, VIEW, Bind, FrameEvent, OpNode, Output, Program
from kvviz.trace.schema.log import Log
from kvviz.trace.schema.regions import LEVELS, Level
from kvviz.trace.trace_data import PolicyFacts
from kvviz.trace.writer import Writer
from tests.engine.graphs import graph_of, numbers, run
from tests.outside import pairs

bound = bind(kvviz.policies.ideal, {"present": "past"})


def scatter() -> Graph:
    """A TensorScatter and another reader of its past, with nothing between them that says who goes first."""
    text = """g (float[1,2,4,3] past, float[1,2,1,3] update, int64[1] at) => (float[1,2,4,3] present, float before) {
        [write] present = TensorScatter <axis = 2> (past, update, at)
        [read] before = ReduceSum <keepdims = 0> (past) }"""
    return graph_of(text, 24)


FEEDS = {"past": np.zeros((1, 2, 4, 3), np.float32), "update": np.ones((1, 2, 1, 3), np.float32), "at": np.array([1])}


def test_one_buffer_on_both_sides_of_a_scatter_makes_the_order_decide_and_the_hazard_names_both_ops() -> None:
    # without a binding every legal order is right
    found = orders(scatter(), FEEDS, donate=["past"])
    assert [order.nodes for order in found] == [("write", "read"), ("read", "write")]
    assert not any(order.wrong for order in found)
    assert [order.trace.steps[order.nodes.index("write")].decision.dispatch for order in found] == ["run", "in_place"]
    first, second = orders(scatter(), FEEDS, donate=["past"], policy=bound)
    assert first.wrong == ("before",) and second.wrong == ()
    assert [(h.kind, h.broken) for h in first.hazards] == [("WAR", True)]
    assert [(h.kind, h.broken) for h in second.hazards] == [("WAR", False)]
    assert "ReduceSum read reads past after TensorScatter write has overwritten it" in first.hazards[0].sentence
    assert "only the schedule runs ReduceSum read first" in second.hazards[0].sentence
    assert not FEEDS["past"].any(), "the inputs survive trying every order"


def test_a_body_comes_after_what_its_condition_needs() -> None:
    text = """g (float[2] x) => (float[2] z) { n = ReduceSum <keepdims = 0> (x) c = Cast <to = 9> (n) y = Neg (x)
        z = If (c) <then_branch = yes () => (float[2] t) { t = Relu (y) },
                    else_branch = no () => (float[2] e) { e = Sin (y) }> }"""
    trace = run(text, {"x": np.ones(2, np.float32)})
    inner = next(step.index for step in trace.steps if step.frame)
    assert path_between(trace, trace.steps[0].index, inner)
    assert not path_between(trace, 0, next(step.index for step in trace.steps if step.node_index == 2))


def test_legal_orders_are_counted_right_and_more_than_the_limit_refused() -> None:
    graph = graph_of("g (float[2] x) => (float[2] d, float[2] e) { a = Neg(x) b = Relu(x) d = Add(a, b) e = Sin(b) }")
    # a, b, d, e with a < d, b < d, b < e: five of the 24 permutations.
    assert len(set(legal_orders(graph, ("d", "e")))) == 5
    with pytest.raises(kvviz.KvvizError, match="more than 4 legal orders"):
        orders(graph, {"x": np.ones(2, np.float32)}, limit=4)


def test_reading_what_an_ancestor_has_overwritten_is_a_broken_war_in_every_order() -> None:
    # given a sum that needs both the cache as it was and the op that was told to overwrite it
    text = """g (float[3] past) => (float[3] present, float[3] sum) {
        [write] present = Neg(past) [both] sum = Add(past, present) }"""
    (order,) = orders(graph_of(text), {"past": np.ones(3, np.float32)}, donate=["past"], policy=bound)
    assert order.wrong == ("sum",)
    assert [(h.kind, h.broken, h.value) for h in order.hazards] == [("WAR", True, "past")]
    assert "after Neg write has overwritten it" in order.hazards[0].sentence


NONE: dict[str, tuple[str, dict[str, np.ndarray]]] = {
    "an element of a sequence is what was put there": (
        """g (float[4] x, int64 i) => (float[4] y) {
        a = Exp(x) s = SequenceConstruct(a) e = SequenceAt(s, i) y = Neg(e) }""",
        {"x": numbers(4), "i": np.array(0)},
    ),
    "a slice of a scan shows what was made before the scan": (
        """g (float[3, 2] x, float[2] s) => (float[2] y, float[3, 2] z) { e = Exp(x) a = Neg(e)
        y, z = Scan <num_scan_inputs = 1, body = b (float[2] v, float[2] r) => (float[2] w, float[2] o)
            { w = Add(v, r) o = Relu(r) }> (s, a) }""",
        {"x": numbers(3, 2), "s": numbers(2)},
    ),
    "of the target of a cast the type alone is asked": (
        "g (float[4] x, int32[4] i) => (float[4] c, float[4] z) { y = Neg (x) c = CastLike (i, y) z = Relu (y) }",
        {"x": numbers(4), "i": np.arange(4, dtype=np.int32)},
    ),
}


@pytest.mark.parametrize("name", NONE)
def test_what_touches_no_bytes_that_another_op_writes_is_no_hazard(name: str) -> None:
    text, feeds = NONE[name]
    assert any(step.decision.taken for step in run(text, feeds).steps)
    for policy in ("ideal", "never", "rten", "onnxruntime"):
        assert hazards(run(text, feeds, policy=policy), "root") == ()


@pytest.mark.parametrize("policy", ["rten", "onnxruntime"])
def test_a_block_from_the_pool_begins_anew(policy: str) -> None:
    # given a block that is handed out again after its last reader, which only the schedule puts before the next writer
    text = """g (float[8, 8] x) => (float s, float[8, 8] y) {
        a = MatMul(x, x) c = MatMul(x, x) s = ReduceSum <keepdims = 0> (a)
        d = MatMul(x, c) e = MatMul(x, d) y = MatMul(x, e) }"""
    trace = run(text, {"x": numbers(8, 8)}, policy=policy)
    made = {out.name: out for step in trace.steps for out in step.outs}
    assert made["a"].storage in {made[name].storage for name in ("d", "e") if made[name].how == "pool"}
    # then the two lives of the block are no hazard for each other
    assert hazards(trace) == ()


CAPACITY = 12
BYTE = np.dtype(np.uint8)


class Written(NamedTuple):
    """An op: the values it reads, and where its output lies; the storage is that of its first input, or a new one."""

    inputs: tuple[str, ...]
    how: int
    offset: int = 0
    shape: tuple[int, ...] = (CAPACITY,)
    strides: tuple[int, ...] = (1,)
    op_type: str = "Op"


def recorded(ops: Sequence[Written]) -> Trace:
    """A run of ops ``n0``, ``n1``, … that make values ``v0``, ``v1``, … of bytes, from an input ``x``."""
    nodes = [
        Node(f"n{i}", op.op_type, "", op.inputs, (f"v{i}",), i, {}, {}, (), 21, None, ()) for i, op in enumerate(ops)
    ]
    x = Value("x", BYTE, (CAPACITY,))
    graph = Graph("hand", (x,), (Value(f"v{len(ops) - 1}"),), tuple(nodes), {})
    records = [OpNode(node, i) for i, node in enumerate(nodes)]
    log = Log()
    log.storages.add(CAPACITY, "donated")
    frame = FrameEvent(Program(graph, records, (f"v{len(ops) - 1}",)), None, None, "", None, 0)
    frame.bindings = (Bind("x", 0, 0, "donated", (CAPACITY,), BYTE, 0),)
    log.frames.append(frame)
    where = {"x": 0}
    for i, op in enumerate(ops):
        if op.how == NEW:
            log.storages.add(CAPACITY, "run")
        where[f"v{i}"] = len(log.storages) - 1 if op.how == NEW else where[op.inputs[0]]
        out = Output(where[f"v{i}"], 0, op.how, op.shape, BYTE, op.offset, op.strides)
        log.write((0, records[i], (0,) if op.how == IN_PLACE else (), (), (out,), (), 0, 0, 0, 0))
    trace = Trace(graph, PolicyFacts("hand"), log)
    trace.runs.append(Run(0, 0, len(ops)))
    return trace


@st.composite
def recordings(draw: st.DrawFn) -> Trace:
    """Random ones, in which ops may overwrite what others still need."""
    ops: list[Written] = []
    for i in range(draw(st.integers(1, 9))):
        names = st.sampled_from(["x", *(f"v{k}" for k in range(i))])
        inputs = tuple(draw(st.lists(names, min_size=1, max_size=3)))
        how = draw(st.sampled_from((IN_PLACE, IN_PLACE, IN_PLACE, VIEW, NEW)))
        region = draw(_regions()) if how != NEW else ((0, (CAPACITY,), (1,)))
        ops.append(Written(inputs, how, *region))
    return recorded(ops)


@st.composite
def _regions(draw: st.DrawFn) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Some bytes of a storage: one axis or two, with gaps and backwards too."""
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=2)))
    strides = tuple(draw(st.sampled_from((1, 2, 3, 4, -1, -2))) for _ in shape)
    reach = [(n - 1) * stride if n else 0 for n, stride in zip(shape, strides)]
    low, high = sum(min(part, 0) for part in reach), sum(max(part, 0) for part in reach)
    if high - low >= CAPACITY:
        return 0, (CAPACITY,), (1,)
    return draw(st.integers(-low, CAPACITY - 1 - high)), shape, strides


@settings(max_examples=200)
@given(trace=recordings())
def test_hazards_of_any_recording_are_those_that_trying_every_pair_finds(trace: kvviz.Trace) -> None:
    for level in LEVELS:
        for ordered in (False, True):
            assert pairs.told(kvviz.hazards(trace, level, ordered)) == pairs.expected(trace, {}, level, ordered)


def _kinds(trace: kvviz.Trace, level: Level = "exact", ordered: bool = False) -> list[tuple]:
    found = kvviz.hazards(trace, level, ordered)
    return [(h.kind, h.first, h.second, h.root, h.bytes, h.ordered, h.broken) for h in found]


def _cache(order: str) -> Writer:
    """Three rows of a cache of eight, q8_0: one op writes rows 5 and 0, others read rows of it, in an order."""
    w = Writer("rows")
    cache = w.value("cache", (8, 64), "q8_0", w.storage(8 * 68, origin="donated"))
    w.bind(cache, "donated")
    new = w.value("new", (2, 64), "float32")
    w.op("NEW", [], [new])
    after = w.value("cache (rows)", (8, 64), "q8_0", w.storage_of(cache))
    head = w.value("cache (view)", (2, 64), "q8_0", w.storage_of(cache), offset=68)
    for letter in order:
        if letter == "w":
            w.op("SET_ROWS", [new, cache], [after], reads=[new], writes=[after], rows={after: [5, 0]})
        elif letter == "a":
            w.op("MUL", [cache], [w.value("all", (8, 8), "float32")])
        else:
            w.op("MUL", [cache], [w.value("head", (8, 2), "float32")], reads=[head])
    return w


def test_a_reader_of_rows_that_were_written_reads_these_and_one_of_other_rows_does_not() -> None:
    trace = _cache("wa").finish()
    assert _kinds(trace) == [("RAW", 1, 2, "cache", 2 * 68, False, False)]
    assert kvviz.hazards(trace)[0].sentence.endswith("only the schedule runs SET_ROWS cache (rows) first")
    with pytest.raises(InputError, match="no level 'bytes'; choose one of root, range, exact"):
        kvviz.hazards(trace, "bytes")  # type: ignore[arg-type]
    # Rows 1 and 2 lie between rows 0 and 5.
    assert _kinds(_cache("wv").finish()) == []
    assert _kinds(_cache("wv").finish(), "range") == [("RAW", 1, 2, "cache", 2 * 68, False, False)]
    assert _kinds(_cache("wv").finish(), "root") == [("RAW", 1, 2, "cache", 8 * 68, False, False)]


def test_an_append_to_a_block_of_the_caller_rivals_who_reads_the_block_later() -> None:
    # given: the first op that touches the block appends to it, and another reads what was there before
    block = kvviz.reserve(numbers(2, 3), 0, 4)
    text = """g (float[2, 3] x) => (float[3, 3] y, float[3, 3] z) <float[1, 3] w = {1, 2, 3}> {
        y = Concat <axis = 0> (x, w) z = Concat <axis = 0> (x, w) }"""
    trace = run(text, {"x": block}, donate=["x"])
    assert [step.outs[0].how for step in trace.steps] == ["append", "new"]
    # then their bytes differ, and a coarse look takes them for the same
    assert kvviz.hazards(trace) == ()
    (hazard,) = kvviz.hazards(trace, "root")
    assert (hazard.kind, hazard.first, hazard.second, hazard.value, hazard.broken) == ("WAR", 0, 1, "x", True)
