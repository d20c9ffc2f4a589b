"""Counts, the missed list and the peak: they add up, say what happened, and take work close to linear."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.explain.retention import Peak, peak
from kvviz.explain.sentences import nearest
from kvviz.explain.summary import counts, missed
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.memory.storage import Pool
from kvviz.trace.blockers import Blocker, BlockerCode
from tests.bench.growth import made, told
from tests.engine.graphs import graph_of, run
from tests.explain.test_fixes import decoded
from tests.graph.build import MODELS, model, node
from tests.work import lines_of

X = {"x": np.ones(8, np.float32)}


def adds_up(found: Peak, trace: kvviz.Trace) -> bool:
    """Whether the parts of a peak are storages, each once, that sum to it."""
    ids = [part.storage for part in found.parts]
    whole = sum(part.bytes for part in found.parts) == found.bytes == trace.peak_bytes
    return whole and None not in ids and len(set(ids)) == len(ids) and all(part.bytes > 0 for part in found.parts)


def test_what_the_appends_of_a_concat_cache_missed_is_the_past_of_every_run() -> None:
    path = MODELS / "o01_optimum_llama" / "model.onnx"
    trace = decoded(path, 6)
    writers = {name for pair in cache_pairs(trace.graph) for name in pair.writer}
    row = 2 * 6 * 4  # two heads of six float32
    entries = [entry for entry in missed(trace) if entry.node in writers]
    # then: a prompt of 5 tokens, so the runs find 0, 5, 6, 7, 8 and 9 rows
    assert len(entries) == 4
    for entry in entries:
        assert entry.copied == sum([5, 6, 7, 8, 9]) * row
        assert {blocker.code for blocker in entry.blockers} == {BlockerCode.NO_CAPACITY}
        assert entry.step == entry.steps[-1]
    # and: with room for all rows, none of them is missed
    assert not writers & {entry.node for entry in missed(decoded(path, 6, kv_capacity=10))}


def test_an_op_whose_input_is_read_later_is_missed_with_its_bytes_and_its_reader() -> None:
    trace = run("g (float[8] x) => (float[8] y) { a = Relu(x) [first] b = Neg(a) [second] y = Add(a, b) }", X)
    relu, neg = missed(trace)
    assert (relu.op_type, relu.blockers[0].code) == ("Relu", BlockerCode.BORROWED_INPUT)
    assert (neg.node, neg.step, neg.bytes, neg.copied) == ("first", 1, 32, 0)
    assert [blocker.code for blocker in neg.blockers] == [BlockerCode.NOT_LAST_USE]
    assert "second" in neg.blockers[0].culprit
    assert counts(trace).in_place == 1
    # of no run as of a trace without steps
    assert counts(trace, 1) == counts(trace) and counts(trace, 0) == counts(trace).__class__()


def looped(trips: int, made: str = "Abs", policy: str = "ideal") -> kvviz.Trace:
    """A Loop whose body negates a captured value, which it may not overwrite."""
    text = f"""g (float[4] x) => (float[4] y, float[k, 4] all) <int64 trips = {{{trips}}}> {{ outer = {made}(x)
        [loop] y, all = Loop (trips, "", x) <body = b (int64 i, bool go, float[4] v)
            => (bool on, float[4] more, float[4] n) {{ on = Identity(go) [neg] n = Neg(outer) more = Add(v, n) }}> }}"""
    return kvviz.run(graph_of(text, 18), {"x": np.ones(4, np.float32)}, policy=policy)


def test_the_iterations_of_a_loop_are_one_entry_and_its_peak_counts_what_they_left_behind() -> None:
    for trips in (0, 1, 7):
        trace = looped(trips)
        assert adds_up(peak(trace), trace) and counts(trace).bodies == 1
    trace = looped(5)
    entry = next(entry for entry in missed(trace) if entry.node == "neg")
    assert entry.frame == ("loop[body]",)
    assert [trace.steps[i].frame for i in entry.steps] == [(f"loop[body:{k}]",) for k in range(5)]
    assert entry.bytes == 5 * 16
    assert {blocker.code for blocker in entry.blockers} >= {BlockerCode.CAPTURED_BY_REFERENCE}


def test_a_peak_names_what_was_alive_and_nothing_else() -> None:
    # given: the first product is dead when the second is made
    wide, tall = np.ones((4, 64), np.float32), np.ones((64, 4), np.float32)
    nodes = [node("MatMul", "x w", "wide"), node("MatMul", "wide v", "slim"), node("MatMul", "slim w", "y")]
    loaded = kvviz.load(model(nodes, ["x float 4 4"], ["y float 4 64"], w=wide, v=tall))
    found = peak(kvviz.run(loaded, {"x": np.ones((4, 4), np.float32)}))
    parts = {part.name: (part.origin, part.bytes) for part in found.parts}
    assert found.step == 1 and parts.pop("w") == parts.pop("v") == ("weights", 1024)
    assert parts == {"wide": ("run", 1024), "x": ("caller", 64), "slim": ("run", 64)}


def test_the_peak_of_a_trace_that_reuses_freed_storages_adds_up() -> None:
    policy = replace(kvviz.policies.never, name="pooled", pool=Pool)
    trace = decoded(MODELS / "o01_optimum_llama" / "model.onnx", 3, policy=policy)
    assert any(out.how == "pool" for step in trace.steps for out in step.outs)
    assert adds_up(peak(trace), trace)


def test_a_trace_without_steps_has_a_peak_and_no_counts() -> None:
    trace = run("g (float[8] x) => (float[8] x) { }", X)
    assert counts(trace) == counts(trace).__class__() and missed(trace) == ()
    assert [(part.name, part.bytes) for part in peak(trace).parts] == [("x", 32)]


def test_the_first_reason_is_that_of_the_input_nearest_to_being_taken() -> None:
    def blocker(code: BlockerCode, position: int) -> Blocker:
        return Blocker(code, f"i{position}", position, "", "")

    shape = blocker(BlockerCode.SHAPE_DIFFERS, 0)
    borrowed, later = blocker(BlockerCode.BORROWED_INPUT, 1), blocker(BlockerCode.NOT_LAST_USE, 1)
    assert nearest([shape, later, borrowed]) == [later, borrowed]
    assert nearest([shape]) == [shape]
    assert [b.position for b in nearest([later, borrowed, blocker(BlockerCode.CONSTANT, 2)])] == [2]
    assert nearest([]) == []


def test_a_reason_is_given_once_for_an_op_that_reads_a_value_twice() -> None:
    trace = run("g (float[8] x) => (float[8] y) { a = Exp(x) [square] b = Mul(a, a) y = Neg(b) }", X)
    square = next(entry for entry in missed(trace) if entry.node == "square")
    codes = [str(blocker.code) for blocker in trace.steps[square.step].decision.blockers]
    assert codes.count("SAME_OP_TWICE") == 2
    assert [str(blocker.code) for blocker in square.blockers] == ["SAME_OP_TWICE"]


def test_captured_values_that_a_loop_copies_are_listed_with_their_bytes_and_the_rule() -> None:
    trace = looped(3, "Relu", "rten")
    # given a body that takes over a copy in every turn
    row = next(row for row in trace.log if row.op.node.name == "loop")
    assert row.op.control == "Loop" and row.allocated >= row.copied >= 3 * 16
    (entry,) = [entry for entry in missed(trace) if entry.node == "loop"]
    assert (entry.bytes, entry.allocated, entry.copied, entry.op_type) == (48, 48, 48, "Loop")
    (reason,) = entry.blockers
    assert (str(reason.code), reason.input, reason.bytes, reason.fix) == ("POLICY", "outer", 48, None)
    assert reason.message.startswith("Loop copied outer for 3 iterations: the policy 'rten' gives every iteration")
    assert sum(one.bytes for one in missed(trace)) == counts(trace).missed_bytes
    assert entry.peak_effect is None
    # and under rules that lend it nothing is copied
    assert not [entry for entry in missed(looped(3, "Relu")) if entry.node == "loop"]


SIZES = {"chain": 500, "wide": 200, "loop": 120}


def placed(trace: kvviz.Trace) -> list[Any]:
    return [(step.outs, step.decision) for step in trace.steps]


def work(name: str, size: int, policy: str, look: Callable[[Any], Any]) -> int:
    model, inputs = made(name, size)
    trace = kvviz.run(kvviz.load(model), inputs, donate=["x"], policy=policy)
    return lines_of(lambda: look(trace))


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(
    ("look", "policy"), [(told, "ideal"), (told, "onnxruntime"), (kvviz.hazards, "ideal"), (placed, "ideal")]
)
def test_four_times_the_ops_take_less_than_five_times_the_work(
    name: str, look: Callable[[Any], Any], policy: str
) -> None:
    few, many = (work(name, size, policy, look) for size in (SIZES[name], 4 * SIZES[name]))
    assert many < 5 * few
