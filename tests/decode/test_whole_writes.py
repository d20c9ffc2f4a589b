"""Writes that go to whole entries, heads or columns of a cache, and inputs that are gone when a meter is read."""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.trace.records import CacheRun
from tests.decode.small import ROWS, filled, small, tensor_scatter
from tests.graph.build import graph, model, node

SHAPE = (1, 2, 5, 3)


def only_run(trace: Trace, output: str = "cache_out") -> CacheRun:
    (cache,) = (cache for cache in trace.caches if cache.output == output)
    (run,) = cache.runs
    return run


def rows_that_changed(before: np.ndarray, trace: Trace) -> list[int]:
    """Rows whose numbers are others afterwards, which are just those that the meter says were written."""
    after = trace.outputs["cache_out"]
    changed = [row for row in range(SHAPE[2]) if not np.array_equal(before[:, :, row], after[:, :, row])]
    assert [[row for span in item.wrote for row in range(*span)] for item in only_run(trace).items] == [changed]
    return changed


@pytest.mark.parametrize(
    "at",
    [[[0]], [[0, 0], [0, 1]], [[0, 1]], [[0, 0, 3], [0, 1, 3]], [[0, 1, 4], [0, 1, 2]], [[[0, 0, 3]], [[0, 1, 3]]]],
    ids=["an entry", "all heads", "a head", "a row of all heads", "two rows of a head", "a row of each head"],
)
def test_a_scatter_by_fewer_indices_than_reach_the_rows_writes_all_rows(at: list) -> None:
    # given a cache of which all rows hold something, and indices that name an entry, heads in it, or rows in heads
    nodes = [node("ScatterND", "cache at new", "cache_out")]
    proto = model(nodes, ["cache float 1 2 5 3", "at int64", "new float"], ["cache_out float 1 2 5 3"])
    cache, places = np.ones(SHAPE, np.float32), np.array(at)
    new = np.full((*places.shape[:-1], *SHAPE[places.shape[-1] :]), 2, np.float32)
    # when they are overwritten
    trace = kvviz.run(kvviz.load(proto), {"cache": cache, "at": places, "new": new})
    # then those rows are written whose numbers have changed
    assert only_run(trace).rows_written == len(rows_that_changed(cache, trace))


def test_a_scatter_along_another_axis_writes_as_many_rows_as_it_has_indices_for() -> None:
    # given a cache that is first scattered into along its last axis, in two of its rows, and then along its rows
    nodes = [
        node("ScatterElements", "cache columns first", "half", axis=3),
        node("ScatterElements", "half rows second", "cache_out", axis=2),
    ]
    inputs = ["cache float 1 2 5 3", "columns int64 1 2 2 1", "first float 1 2 2 1", "rows int64 1 2 1 3"]
    proto = model(nodes, [*inputs, "second float 1 2 1 3"], ["cache_out float 1 2 5 3"])
    cache = np.ones(SHAPE, np.float32)
    feeds = {
        "columns": np.full((1, 2, 2, 1), 2),
        "first": np.full((1, 2, 2, 1), 7, np.float32),
        "rows": np.full((1, 2, 1, 3), 4),
        "second": np.full((1, 2, 1, 3), 9, np.float32),
    }
    trace = kvviz.run(kvviz.load(proto), {"cache": cache, **feeds})
    assert len(rows_that_changed(cache, trace)) == 3


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


def test_rows_are_followed_where_an_entry_is_picked_by_a_single_number() -> None:
    # given a past of which a Gather takes the first entry, with one axis less, before it is appended to
    nodes = [
        node("Gather", "past zero", "first", axis=0),
        node("Concat", "first new", "grown", axis=1),
        node("Unsqueeze", "grown front", "present"),
    ]
    inputs, outputs = ["past float 1 2 s 4", "new float 2 n 4"], ["present float 1 2 t 4"]
    proto = model(nodes, inputs, outputs, zero=np.array(0), front=np.array([0]))
    past, new = np.ones((1, 2, 5, 4), np.float32), np.ones((2, 1, 4), np.float32)
    run = only_run(kvviz.run(kvviz.load(proto), {"past": past, "new": new}), "present")
    assert [(item.held, item.wrote) for item in run.items] == [(((0, 6, 0),), ((5, 6),))]
    # and an axis that is counted from the end is the same where no shapes are declared
    for axis in (0, -2):
        nodes = [node("Neg", "n", "m"), node("Concat", "past m", "present", axis=axis)]
        proto = model(nodes, ["past float", "n float"], ["present float"])
        feeds = {"past": np.ones((5, 3), np.float32), "n": np.ones((2, 3), np.float32)}
        run = only_run(kvviz.run(kvviz.load(proto), feeds), "present")
        assert [(item.held, item.wrote) for item in run.items] == [(((0, 7, 0),), ((5, 7),))]


@pytest.mark.parametrize("policy", ["ideal", "never", "onnxruntime", "rten"])
def test_a_cache_that_is_one_of_many_outputs_was_written_where_it_has_memory_of_its_own(policy: str) -> None:
    # given an operator that gives back keys and values but takes no past
    names = "y present.0.key present.0.value"
    nodes = [node("MultiHeadAttention", "q k v", names, domain="com.microsoft", num_heads=2)]
    pasts = [f"past_key_values.0.{kind} float 1 2 s 4" for kind in ("key", "value")]
    inputs = [*(f"{name} float 1 n 8" for name in "qkv"), *pasts]
    outputs = ["y float 1 n 8", *(f"present.0.{kind} float 1 2 n 4" for kind in ("key", "value"))]
    feeds: dict[str, Any] = {name: np.ones((1, 3, 8), np.float32) for name in "qkv"}
    feeds |= {past.split()[0]: np.zeros((1, 2, 0, 4), np.float32) for past in pasts}
    trace = kvviz.run(kvviz.load(model(nodes, inputs, outputs, domains=["com.microsoft"])), feeds, policy=policy)
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
    then = graph([node("Add", "at one", "there")], [], ["there int64 1"])
    other = graph([node("Identity", "at", "here")], [], ["here int64 1"])
    nodes = [
        node("If", "later", "start", then_branch=then, else_branch=other),
        node("TensorScatter", "cache new start", "cache_out", axis=2),
    ]
    inputs = ["cache float 1 2 5 3", "new float 1 2 1 3", "at int64 1", "later bool -"]
    proto = model(nodes, inputs, ["cache_out float 1 2 5 3"], opset=24, one=np.array([1]))
    cache, new = np.ones(SHAPE, np.float32), np.full((1, 2, 1, 3), 2, np.float32)
    feeds = {"cache": cache, "new": new, "at": np.array([2]), "later": np.array(later)}
    trace = kvviz.run(kvviz.load(proto), feeds)
    assert rows_that_changed(cache, trace) == [2 + later]


@pytest.mark.parametrize("more", [1, 2])
def test_a_row_has_as_many_bytes_whatever_axes_a_cache_has_more_than_its_op(more: int) -> None:
    # given a buffer of 24 rows with axes of length 1 ahead, which are taken away for the operator and added again
    nodes = [node("Squeeze", f"past_{kind} ahead", f"{kind}_before") for kind in ("key", "value")]
    nodes.append(
        node("GroupQueryAttention", "q k v key_before value_before last total", "y key_after value_after",
             domain="com.microsoft", num_heads=2, kv_num_heads=2)
    )  # fmt: skip
    nodes += [node("Unsqueeze", f"{kind}_after ahead", f"present_{kind}") for kind in ("key", "value")]
    shape = [*[1] * more, 1, 2, 24, 16]
    caches = [f"{{}}_{kind} float {' '.join(map(str, shape))}" for kind in ("key", "value")]
    inputs = [*(f"{one} float 1 1 32" for one in "qkv"), "last int32 1", "total int32 -"]
    inputs += [text.format("past") for text in caches]
    outputs = ["y float 1 1 32", *(text.format("present") for text in caches)]
    proto = model(nodes, inputs, outputs, domains=["com.microsoft"], ahead=np.arange(more))
    past = {name: np.zeros(shape, np.float32) for name in ("past_key", "past_value")}
    for array in past.values():
        array[..., :5, :] = 1
    feeds = {one: np.ones((1, 1, 32), np.float32) for one in "qkv"}
    counts = {"last": np.array([5], np.int32), "total": np.array(6, np.int32)}
    # when a sixth row is written in place
    trace = kvviz.run(kvviz.load(proto), {**feeds, **counts, **past}, donate=list(past))
    # then that is one of 16 numbers for each of two heads
    for kind in ("key", "value"):
        run = only_run(trace, f"present_{kind}")
        assert (run.rows_written, run.bytes_written, run.bytes_copied) == (1, 2 * 16 * 4, 0)


def test_what_a_scan_collects_is_not_taken_for_what_its_last_turn_made() -> None:
    # given a cache of two entries, which a Loop or a Scan makes longer one by one and puts together at the end
    longer = [node("Gather", "past_key.0 i", "mine", axis=0), node("Gather", "new i", "fresh", axis=0)]
    longer.append(node("Concat", "mine fresh", "longer", axis=0))
    turn = graph([*longer, node("Identity", "go", "on")], ["i int64 -", "go bool -"], ["on bool -", "longer float t 4"])
    scanned = graph(longer, ["i int64 -"], ["longer float t 4"])
    loops = [
        node("Loop", "two true", "present_key.0", body=turn),
        node("Scan", "places", "present_key.0", body=scanned, num_scan_inputs=1),
    ]
    inputs = ["past_key.0 float 2 p 4", "new float 2 1 4"]
    weights: dict[str, Any] = {"two": np.array(2), "true": np.array(True), "places": np.arange(2)}
    feeds = {"past_key.0": np.ones((2, 3, 4), np.float32), "new": np.ones((2, 1, 4), np.float32)}
    # when they run
    traces = [
        kvviz.run(kvviz.load(model([loop], inputs, ["present_key.0 float 2 t 4"], **weights)), feeds) for loop in loops
    ]
    # then they do the same and are measured alike: by no turn, as each made a part of it
    np.testing.assert_array_equal(*(trace.outputs["present_key.0"] for trace in traces))
    looped, scan = (only_run(trace, "present_key.0") for trace in traces)
    for name in ("items", "capacity", "valid", "rows_written", "bytes_written", "bytes_copied", "reallocations"):
        assert getattr(looped, name) == getattr(scan, name)


def test_a_cache_that_a_scan_carries_is_measured_in_all_turns() -> None:
    # given a Scan that writes one row in each of two turns
    body = graph(
        [node("ScatterElements", "cache at new", "cache2", axis=1)],
        ["cache float 1 6 4", "at int64 1 1 4", "new float 1 1 4"],
        ["cache2 float 1 6 4"],
    )
    nodes = [node("Scan", "past_key.0 rows fresh", "present_key.0", body=body, num_scan_inputs=2)]
    inputs = ["past_key.0 float 1 6 4", "rows int64 2 1 1 4", "fresh float 2 1 1 4"]
    loaded = kvviz.load(model(nodes, inputs, ["present_key.0 float 1 6 4"]))
    rows, fresh = np.array([2, 3]).repeat(4).reshape(2, 1, 1, 4), np.ones((2, 1, 1, 4), np.float32)
    # when it may overwrite the cache, or not
    for donate, copied in (["past_key.0"], 0), ([], 6 * 16):
        past = np.zeros((1, 6, 4), np.float32)
        trace = kvviz.run(loaded, {"past_key.0": past, "rows": rows, "fresh": fresh}, donate=donate)
        # then both rows are counted, and the copy that the first turn made
        run = only_run(trace, "present_key.0")
        assert (run.bytes_copied, run.bytes_written, run.reallocations) == (copied, copied + 2 * 16, int(not donate))
