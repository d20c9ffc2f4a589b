"""What is computed again from the control inputs alone is what the run had."""

from collections.abc import Iterator

import numpy as np
import pytest

import kvviz
from kvviz.caches.cache_heat import known_of
from kvviz.caches.control_values import Known
from kvviz.caches.path_search import way_of
from kvviz.caches.visible_rows import sight_of
from kvviz.decode.token_loop import DecodeSession
from kvviz.trace.index.frame_values import RunFrames
from tests.engine.graphs import graph_of
from tests.graph.build import MODELS, model, node

NAMES = [
    "o01_optimum_llama",
    "o02_optimum1_merged_gpt2",
    "o03_optimum1_merged_whisper",
    "o04_dynamo_static_llama_op18",
    "o05_dynamo_llama_op23",
    "o06_mobius_static_llama_op24",
    "o07_genai_llama_int4",
    "storyteller/attention_24",
]


def session_of(name: str) -> DecodeSession:
    ref = np.load(MODELS / name / "ref.npz")
    encoder = "encoder.out.last_hidden_state"
    inputs = {"encoder_hidden_states": ref[encoder]} if encoder in ref else {}
    graph = kvviz.load(MODELS / name / "model.onnx")
    return DecodeSession(graph, ref["prompt"].tolist(), max_new_tokens=2, inputs=inputs)


def values_of(session: DecodeSession) -> Iterator[tuple[int, str, np.ndarray]]:
    """(step, name, value) of what each op of a decode made, right after it ran."""
    while session.advance():
        execution = session.execution
        if execution is None:
            continue
        row = session.log[-1]
        frame = next((frame for frame in execution.stack if frame.id == row.frame), None)
        for name in row.op.node.outputs:
            slot = frame.plan.slots[name] if frame is not None and frame.vals else 0
            value = frame.vals[slot] if frame is not None and slot else None
            if isinstance(value, np.ndarray) and value.size < 5000:
                yield len(session.log) - 1, name, np.array(value)


@pytest.mark.parametrize("name", NAMES)
def test_values_that_are_known_are_those_of_the_run_and_tell_the_masks_of_all_caches(name: str) -> None:
    session = session_of(name)
    seen = list(values_of(session))
    trace, rows = session.trace, session.log
    known = [known_of(trace, RunFrames(trace, run)) for run in range(2)]
    found = unknown = 0
    for step, output, want in seen:
        one = known[trace.log.frames[rows[step].frame].run]
        have = one.value(rows[step].frame - one.frames.first, output)
        unknown += have is None
        if have is not None:
            found += 1
            np.testing.assert_array_equal(have, want, err_msg=output)
            assert have.dtype == want.dtype
    # Masks, lengths and shapes are known; projections, norms and scores are not.
    assert found and unknown > 20
    products = [s for s in trace.steps if s.op_type in ("MatMul", "MatMulNBits", "Softmax", "Attention")]
    for product in products:
        here = known[product.run]
        assert here.value(product.frame_id - here.frames.first, product.outputs[0]) is None
    # The attention of every cache is found, and its mask.
    for run, one in enumerate(known):
        for cache in trace.caches:
            readers = way_of(trace, one.frames, cache).readers
            ran = [reader for reader in readers if one.step(reader.frame, reader.node.index) is not None]
            assert len(ran) == 1, cache.name
            assert cache.axis is not None
            sight = sight_of(one, ran[0], cache.axis)
            assert sight is not None
            valid = cache.runs[run].valid
            # Every row that is valid is seen by somebody, and the last query sees all of them.
            assert sight.rows() == [((0, valid),)]
            assert sight.allowed[0, -1, :valid].all()


def test_a_loops_counter_and_what_follows_from_it_are_known_at_every_turn() -> None:
    text = """g (int64 trips, int64 start, int64 base, float[2] data) => (int64 last, float[2] data2, int64[n] places)
        <int64 two = {2}> {
        last, data2, places = Loop (trips, , start, data) <body = b (int64 i, bool go, int64 count, float[2] x)
            => (bool go2, int64 count2, float[2] x2, int64 place) {
            go2 = Identity (go)  place = Add (i, base)  count2 = Add (count, two)  x2 = Neg (x) }> }"""
    feeds = {"trips": np.array(4), "start": np.array(10), "base": np.array(7), "data": np.ones(2, np.float32)}
    trace = kvviz.run(graph_of(text), feeds)
    known = Known(trace, RunFrames(trace, 0), {name: feeds[name] for name in feeds if name != "data"})
    turns = known.frames.bodies(0, trace.graph.nodes[0])
    assert [known.value(turn, "place") for turn in turns] == [7, 8, 9, 10]
    assert [known.value(turn, "count2") for turn in turns] == [12, 14, 16, 18]
    assert known.value(0, "last") == 18 == trace.outputs["last"]
    assert known.value(0, "data2") is None and known.value(0, "places") is None


def test_long_chains_of_arithmetic_need_no_deep_stack() -> None:
    nodes = [node("Add", f"v{i} one", f"v{i + 1}") for i in range(5000)]
    proto = model(nodes, ["v0 int64 1"], ["v5000 int64 1"], one=np.array([1]))
    trace = kvviz.run(kvviz.load(proto), {"v0": np.array([3])})
    assert Known(trace, RunFrames(trace, 0), {"v0": np.array([3])}).value(0, "v5000") == 5003


def test_layers_share_rows_of_their_caches_where_ops_and_masks_are_equal_and_only_there() -> None:
    hidden = np.array([[[[0, -1e9, 0, 0]]]], np.float32)
    masks = [hidden, hidden.copy(), np.zeros_like(hidden), hidden, hidden]
    nodes, inputs, outputs = [], ["q float 1 1 1 2", "new float 1 1 1 2"], []
    for i in range(len(masks)):
        nodes += [
            node("Concat", f"past_key_values.{i}.key new", f"present.{i}.key", axis=2),
            node("Transpose", f"present.{i}.key", f"t{i}", perm=[0, 1, 3, 2]),
            node("MatMul", f"q t{i}", f"s{i}"),
            # The fourth subtracts its mask, so that it hides nothing; the fifth puts the new row first.
            node("Sub" if i == 3 else "Add", f"s{i} mask{i}", f"m{i}"),
            node("Softmax", f"m{i}", f"p{i}"),
            node("MatMul", f"p{i} present.{i}.key", f"o{i}"),
        ]
        inputs += [f"past_key_values.{i}.key float 1 1 p 2", f"mask{i} float 1 1 1 t"]
        outputs += [f"present.{i}.key float 1 1 t 2", f"o{i} float 1 1 1 2"]
    nodes[4 * 6] = node("Concat", "new past_key_values.4.key", "present.4.key", axis=2)
    feeds = {"q": np.ones((1, 1, 1, 2), np.float32), "new": np.ones((1, 1, 1, 2), np.float32)}
    for i, mask in enumerate(masks):
        feeds |= {f"past_key_values.{i}.key": np.ones((1, 1, 3, 2), np.float32), f"mask{i}": mask}
    caches = kvviz.run(kvviz.load(model(nodes, inputs, outputs)), feeds).caches
    items = [cache.runs[0].items for cache in caches]
    assert [item.read for (item,) in items] == [((0, 1), (2, 4))] * 2 + [((0, 4),)] * 2 + [((0, 1), (2, 4))]
    assert [item.wrote for (item,) in items] == [((3, 4),)] * 4 + [((0, 1),)]
    assert items[0] is items[1]
