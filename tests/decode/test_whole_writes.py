"""Writes that go to whole entries, heads or columns of a cache, and inputs that are gone when a meter is read."""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.trace.records import CacheRun
from tests.decode.small import ROWS, filled, small, tensor_scatter
from tests.engine.graphs import graph_of
from tests.graph.build import model, node

SHAPE = (1, 2, 5, 3)


def only_run(trace: Trace, output: str = "cache_out") -> CacheRun:
    (cache,) = (cache for cache in trace.caches if cache.output == output)
    (run,) = cache.runs
    return run


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def rows_that_change(inputs: str, body: str, feeds: dict[str, Any]) -> list[int]:
    """Rows of a cache of ones that some nodes change, which are just those that the meter says were written."""
    head = f"g (float[1,2,5,3] cache, {inputs}) => (float[1,2,5,3] cache_out) <int64[1] one = {{1}}>"
    trace = kvviz.run(graph_of(f"{head} {{ {body} }}", opset=24), {"cache": ones(*SHAPE), **feeds})
    changed = [row for row in range(SHAPE[2]) if (trace.outputs["cache_out"][:, :, row] != 1).any()]
    run = only_run(trace)
    assert [[row for span in item.wrote for row in range(*span)] for item in run.items] == [changed]
    assert run.rows_written == len(changed)
    return changed


@pytest.mark.parametrize(
    "at",
    [[[0]], [[0, 0], [0, 1]], [[0, 1]], [[0, 0, 3], [0, 1, 3]], [[0, 1, 4], [0, 1, 2]], [[[0, 0, 3]], [[0, 1, 3]]]],
    ids=["an entry", "all heads", "a head", "a row of all heads", "two rows of a head", "a row of each head"],
)
def test_a_scatter_by_fewer_indices_than_reach_the_rows_writes_all_rows(at: list) -> None:
    # given indices that name an entry, heads in it, or rows in heads
    places = np.array(at)
    feeds = {"at": places, "new": 2 * ones(*places.shape[:-1], *SHAPE[places.shape[-1] :])}
    assert rows_that_change("int64[] at, float[] new", "cache_out = ScatterND (cache, at, new)", feeds)


def test_a_scatter_along_another_axis_writes_as_many_rows_as_it_has_indices_for() -> None:
    # given a cache that is first scattered into along its last axis, in two of its rows, and then along its rows
    inputs = "int64[1,2,2,1] columns, float[1,2,2,1] first, int64[1,2,1,3] rows, float[1,2,1,3] second"
    body = """half = ScatterElements <axis = 3> (cache, columns, first)
        cache_out = ScatterElements <axis = 2> (half, rows, second)"""
    feeds = {"columns": np.full((1, 2, 2, 1), 2), "first": 7 * ones(1, 2, 2, 1)}
    feeds |= {"rows": np.full((1, 2, 1, 3), 4), "second": 9 * ones(1, 2, 1, 3)}
    assert rows_that_change(inputs, body, feeds) == [0, 1, 4]


@pytest.mark.parametrize("donate", [(), ("write_indices",)])
def test_a_meter_does_not_read_an_input_that_the_run_has_overwritten(
    donate: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a decoder that counts its rows on in the memory of an input, and no room to keep inputs
    monkeypatch.setattr("kvviz.engine.sessions.replay.BUDGET", 0)
    count = [node("Add", "write_indices step", "nonpad_kv_seqlen")]
    made = tensor_scatter(count=count)
    proto = made.proto
    proto.graph.initializer.append(model([], step=np.array([1])).graph.initializer[0])
    feeds: dict[str, Any] = {"input_ids": np.array([[5]]), "cache_position": np.array([4])}
    at = np.array([4])
    # when it runs
    trace = kvviz.run(kvviz.load(proto), {**feeds, **filled(ROWS, 4), "write_indices": at}, donate=donate)
    (add,) = (step for step in trace.steps if step.op_type == "Add" and "step" in step.inputs)
    assert (add.decision.taken, at.item()) == ((donate, 5) if donate else ((), 4))
    # then the meter names the row that was written, or none, but never the one behind it
    run = only_run(trace, "present.0.key")
    assert run.rows_written == 1
    assert [item.wrote for item in run.items] == ([] if donate else [((4, 5),)])


def test_the_row_of_a_donated_counter_is_known_where_inputs_are_kept() -> None:
    made = small("tensor_scatter")
    feeds: dict[str, Any] = {"input_ids": np.array([[5]]), **made.controls(4, 1), **filled(ROWS, ROWS)}
    trace = kvviz.run(kvviz.load(made.proto), feeds, donate=list(feeds))
    assert [item.wrote for item in only_run(trace, "present.0.key").items] == [((4, 5),)]


def test_rows_are_followed_where_axes_go_or_have_no_declared_length() -> None:
    # given a past of which a Gather takes the first entry, with one axis less, before it is appended to
    gathered = """g (float[1,2,s,4] past, float[2,n,4] new) => (float[1,2,t,4] present)
        <int64 zero = {0}, int64[1] front = {0}> {
        first = Gather <axis = 0> (past, zero)  grown = Concat <axis = 1> (first, new)
        present = Unsqueeze (grown, front) }"""
    cases = [(gathered, ones(1, 2, 5, 4), ones(2, 2, 4))]
    # and one whose axis is counted from the end, where no shapes are declared
    for axis in (0, -2):
        text = f"g (float[] past, float[] new) => (float[] present) {{ present = Concat <axis = {axis}> (past, new) }}"
        cases.append((text, ones(5, 3), ones(2, 3)))
    for text, past, new in cases:
        run = only_run(kvviz.run(graph_of(text), {"past": past, "new": new}), "present")
        assert [(item.held, item.wrote) for item in run.items] == [(((0, 7, 0),), ((5, 7),))]


@pytest.mark.parametrize("policy", ["ideal", "never", "onnxruntime", "rten"])
def test_a_cache_that_is_one_of_many_outputs_was_written_where_it_has_memory_of_its_own(policy: str) -> None:
    # given an operator that gives back keys and values but takes no past
    graph = graph_of("""g (float[1,n,8] q, float[1,n,8] k, float[1,n,8] v, float[1,2,s,4] past_key,
        float[1,2,s,4] past_value)
        => (float[1,n,8] y, float[1,2,n,4] present_key, float[1,2,n,4] present_value)
        { y, present_key, present_value = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v) }""")
    feeds = {name: ones(1, 3, 8) for name in "qkv"} | {f"past_{kind}": ones(1, 2, 0, 4) for kind in ("key", "value")}
    trace = kvviz.run(graph, feeds, policy=policy)
    # then each of them counts what was stored for it alone
    (step,) = trace.steps
    want = {out.name: out.nbytes if out.how == "new" else 0 for out in step.outs[1:]}
    assert {cache.output: cache.runs[0].bytes_written for cache in trace.caches} == want
    assert [cache.runs[0].bytes_copied for cache in trace.caches] == [0, 0]
    assert {cache.runs[0].rows_written for cache in trace.caches} == {3}


def test_a_cache_that_is_written_from_an_earlier_row_on_goes_back_to_that_token() -> None:
    # given a stream that writes five rows, then the third of them once more
    made = small("tensor_scatter")
    chunks = [{"input_ids": np.array([[3, 7, 1, 9, 4]]), **made.controls(0, 5)}]
    chunks += [{"input_ids": np.array([[8]]), **made.controls(2, 1)}]
    trace = kvviz.stream(kvviz.load(made.proto), chunks, states=filled(ROWS))
    # then that row holds the token of its own place
    for cache in trace.caches:
        first, second = (run.items[0] for run in cache.runs)
        assert (first.held, first.wrote) == (((0, 5, 0),), ((0, 5),))
        assert (second.held, second.wrote) == (((0, 5, 0),), ((2, 3),))


@pytest.mark.parametrize("later", [False, True])
def test_a_row_that_a_branch_chooses_is_known(later: bool) -> None:
    # given a start row that comes out of an If, and a cache that is written there
    body = """start = If (later) <then_branch = t () => (int64[1] there) { there = Add (at, one) },
            else_branch = e () => (int64[1] here) { here = Identity (at) }>
        cache_out = TensorScatter <axis = 2> (cache, new, start)"""
    feeds = {"new": 2 * ones(1, 2, 1, 3), "at": np.array([2]), "later": np.array(later)}
    assert rows_that_change("float[1,2,1,3] new, int64[1] at, bool later", body, feeds) == [2 + later]


@pytest.mark.parametrize("axes", ["1", "1,1"])
def test_a_row_has_as_many_bytes_whatever_axes_a_cache_has_more_than_its_op(axes: str) -> None:
    # given a buffer of 24 rows with axes of length 1 ahead, which are taken away for the operator and added again
    cache, ahead = f"float[{axes},1,2,24,16]", ", ".join(str(axis) for axis in range(axes.count("1")))
    graph = graph_of(f"""g (float[1,1,32] q, float[1,1,32] k, float[1,1,32] v, int32[1] last, int32 total,
        {cache} past_key, {cache} past_value) => (float[1,1,32] y, {cache} present_key, {cache} present_value)
        <int64[{axes.count("1")}] ahead = {{{ahead}}}> {{
        a = Squeeze (past_key, ahead)  b = Squeeze (past_value, ahead)
        y, c, d = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (q, k, v, a, b, last, total)
        present_key = Unsqueeze (c, ahead)  present_value = Unsqueeze (d, ahead) }}""")
    past = {name: np.zeros((*[1] * axes.count("1"), 1, 2, 24, 16), np.float32) for name in ("past_key", "past_value")}
    for array in past.values():
        array[..., :5, :] = 1
    counts = {"last": np.array([5], np.int32), "total": np.array(6, np.int32)}
    # when a sixth row is written in place
    trace = kvviz.run(graph, {**{one: ones(1, 1, 32) for one in "qkv"}, **counts, **past}, donate=list(past))
    # then that is one of 16 numbers for each of two heads
    for kind in ("key", "value"):
        run = only_run(trace, f"present_{kind}")
        assert (run.rows_written, run.bytes_written, run.bytes_copied) == (1, 2 * 16 * 4, 0)


LONGER = """mine = Gather <axis = 0> (past_key, i)  fresh = Gather <axis = 0> (new, i)
    longer = Concat <axis = 0> (mine, fresh)"""
COLLECTED = {
    "Loop": f"""present_key = Loop (two, true) <body = l (int64 i, bool go) => (bool on, float[t,4] longer)
        {{ {LONGER}  on = Identity (go) }}>""",
    "Scan": f"""present_key = Scan <num_scan_inputs = 1, body = s (int64 i) => (float[t,4] longer)
        {{ {LONGER} }}> (places)""",
}


def test_what_a_scan_collects_is_not_taken_for_what_its_last_turn_made() -> None:
    # given a cache of two entries, which a Loop or a Scan makes longer one by one and puts together at the end
    feeds = {"past_key": ones(2, 3, 4), "new": ones(2, 1, 4)}
    head = """g (float[2,p,4] past_key, float[2,1,4] new) => (float[2,t,4] present_key)
        <int64 two = {2}, bool true = {1}, int64[2] places = {0, 1}>"""
    traces = [kvviz.run(graph_of(f"{head} {{ {body} }}"), feeds) for body in COLLECTED.values()]
    # then they do the same and are measured alike: by no turn, as each made a part of it
    np.testing.assert_array_equal(*(trace.outputs["present_key"] for trace in traces))
    looped, scan = (only_run(trace, "present_key") for trace in traces)
    for name in ("items", "capacity", "valid", "rows_written", "bytes_written", "bytes_copied", "reallocations"):
        assert getattr(looped, name) == getattr(scan, name)


def test_a_cache_that_a_scan_carries_is_measured_in_all_turns() -> None:
    # given a Scan that writes one row in each of two turns
    graph = graph_of("""g (float[1,6,4] past_key, int64[2,1,1,4] rows, float[2,1,1,4] fresh)
        => (float[1,6,4] present_key) {
        present_key = Scan <num_scan_inputs = 2, body = b (float[1,6,4] cache, int64[1,1,4] at, float[1,1,4] new)
            => (float[1,6,4] made) { made = ScatterElements <axis = 1> (cache, at, new) }> (past_key, rows, fresh) }""")
    rows, fresh = np.array([2, 3]).repeat(4).reshape(2, 1, 1, 4), ones(2, 1, 1, 4)
    # when it may overwrite the cache, or not
    for donate, copied in (["past_key"], 0), ([], 6 * 16):
        past = np.zeros((1, 6, 4), np.float32)
        trace = kvviz.run(graph, {"past_key": past, "rows": rows, "fresh": fresh}, donate=donate)
        # then both rows are counted, and the copy that the first turn made
        run = only_run(trace, "present_key")
        assert (run.bytes_copied, run.bytes_written, run.reallocations) == (copied, copied + 2 * 16, int(not donate))
