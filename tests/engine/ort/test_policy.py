"""The policy ``onnxruntime`` end to end: results, memory, reasons, donated inputs, and what it does not follow."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import kvviz
from kvviz import Trace
from kvviz.decode.run_sessions import SingleRun
from kvviz.errors import KvvizError, OpError
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph
from kvviz.runtimes.named_policies import find_policy
from kvviz.runtimes.ort.ort_policy import onnxruntime as policy
from kvviz.trace.blockers import BlockerCode
from tests.engine.graphs import graph_of, proto_of
from tests.engine.ort.models import FILES, IDS, random_model, stored_inputs, with_names, without_dead_nodes
from tests.engine.ort.oracle import Observed, observe
from tests.engine.test_schedules import foretold

X = {"x": np.arange(6, dtype=np.float32).reshape(2, 3) + 1}


def run(main: Graph, feeds: dict[str, np.ndarray], rules: Any = policy, **options: Any) -> Trace:
    return kvviz.run(main, {name: array.copy() for name, array in feeds.items()}, policy=rules, poison=True, **options)


def disagreements(proto: onnx.ModelProto, feeds: dict, mem_reuse: bool = True) -> tuple[int, list[tuple]]:
    """Steps compared, and those that took new memory here but not in onnxruntime, or the other way round.

    Left out are steps of which the statistics tell nothing: control nodes (their bodies are told), what makes
    sequences, and outputs of branches and of Scan bodies, which onnxruntime counts at the control node.
    """
    without_dead_nodes(proto.graph)
    main = kvviz.load(proto)
    seen, trace = observe(proto, feeds, mem_reuse).allocated, run(main, feeds, policy(mem_reuse=mem_reuse))
    counted_outside = {
        value.name
        for _, it in main.walk()
        if it.op_type in ("If", "Scan")
        for body in it.subgraphs.values()
        for value in body.outputs
    }
    compared, wrong, met = 0, [], set()
    for step in trace.steps:
        told = step.node in seen and step.node not in met
        if step.op_type in ("If", "Loop", "Scan", "SequenceConstruct", "SequenceInsert") or not told:
            continue
        met.add(step.node)
        if counted_outside.isdisjoint(step.outputs):
            compared += 1
            if (step.allocated > 0) != (seen[step.node] > 0):
                wrong.append((step.node, step.allocated, seen[step.node]))
    return compared, wrong


def picked(main: Graph, feeds: dict[str, np.ndarray], rng: np.random.Generator) -> Trace:
    """A run in which somebody picks what comes next at random, and first asks what each op would allocate and free."""
    session = SingleRun(main, {name: array.copy() for name, array in feeds.items()}, policy=policy, poison=True)
    foretold(session, rng)
    return session.trace


@pytest.mark.parametrize("first", range(1000, 1200, 50))
def test_random_models_take_new_memory_exactly_where_onnxruntime_does(first: int) -> None:
    compared = in_place = 0
    for seed in range(first, first + 50):
        proto, feeds = random_model(seed)
        for mem_reuse in (True, False):
            count, wrong = disagreements(proto, feeds, mem_reuse)
            assert wrong == [], seed
            compared += count
        main = kvviz.load(proto)
        mine = run(main, feeds)
        for other in (run(main, feeds, "ideal"), picked(main, feeds, np.random.default_rng(seed))):
            np.testing.assert_equal(mine.outputs, other.outputs, err_msg=str(seed))
        in_place += sum(step.decision.dispatch == "in_place" for step in mine.steps)
    assert compared > 400 and in_place > 10


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_real_models_take_new_memory_exactly_where_onnxruntime_does(path: Path) -> None:
    feeds = stored_inputs(path)[-1]
    compared, wrong = disagreements(with_names(onnx.load(path)), feeds)
    assert wrong == [] and compared > 20
    main = kvviz.load(path)
    mine, ideal = run(main, feeds), run(main, feeds, "ideal")
    for name, value in ideal.outputs.items():
        # A Transpose is a copy here and a view there, and BLAS sums strided operands in another order.
        np.testing.assert_allclose(mine.outputs[name], value, rtol=1e-5, atol=1e-5)
    # when the caches are donated
    given = run(main, feeds, donate=[pair.input for pair in cache_pairs(main) if pair.input in feeds])
    np.testing.assert_equal(given.outputs, mine.outputs)
    assert (given.bytes_allocated < mine.bytes_allocated) == ("TensorScatter" in {it.op_type for it in main.nodes})


def test_a_step_says_what_the_plan_did_in_onnxruntimes_words() -> None:
    main = graph_of("""g (float[2, 3] x) => (float[6] y) <int64[1] s = {-1}> {
        n = Neg(x) r = Relu(n) e = Exp(r) f = Neg(e) y = Reshape(f, s) }""", 18)  # fmt: skip
    session = SingleRun(main, X, policy=policy)
    trace = session.run_to_end()
    placed = [(p.notes.buffers[0].kind, p.notes.buffers[0].rule) for p in session.plan.order]
    own, reused = ("kAllocate", ""), ("kReuse", "MayInplace")
    assert placed == [own, reused, own, ("kReuse", "freelist"), ("kAllocateOutput", "")]
    assert trace.log[1].op.note == "kReuse of n (MayInplace)"
    # f takes over the dead buffer, as a new generation; the output of the graph has memory of its own
    assert [step.allocated for step in trace.steps] == [24, 0, 24, 0, 24]
    places = [(step.outs[0].storage, step.outs[0].generation) for step in trace.steps]
    assert places[3] == (places[0][0], places[1][1] + 1)
    without = run(main, X, policy(mem_reuse=False))
    assert [step.allocated for step in without.steps] == [24, 0, 24, 24, 24]
    trace = run(graph_of("g (float[2, 3] x) => (float[2, 3] y) { n = Neg(x) y = Relu(n) }", 18), X)
    (blocker,) = trace.steps[1].decision.blockers
    assert blocker.code is BlockerCode.POLICY and "output of the graph" in blocker.message


def test_lengths_that_belie_their_name_fail_here_as_they_do_in_onnxruntime() -> None:
    proto = proto_of("""g (float[n] x, float[n] z) => (float[m] y) {
        a = Neg(x) aa = Exp(a) b = Neg(z) bb = Exp(b) y = Concat <axis = 0> (aa, bb) }""", 18)  # fmt: skip
    small, large = np.ones(3, np.float32), np.ones(8, np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert len(session.run(None, {"x": small, "z": large})[0]) == 11
    with pytest.raises(Exception, match="Shape mismatch attempting to re-use buffer"):
        observe(proto, {"x": large, "z": small})
    main = kvviz.load(proto)
    assert run(main, {"x": small, "z": large}).outputs["y"].shape == (11,)
    with pytest.raises(OpError, match=r"'n'.*12 bytes and 32 are needed"):
        run(main, {"x": large, "z": small})


def scatter(more: str = "", outputs: str = "") -> Graph:
    return graph_of(f"""g (float[1, 4, 2] cache, float[1, 1, 2] rows, int64[1] at) => (float[1, 4, 2] new{outputs}) {{
        new = TensorScatter(cache, rows, at) {more} }}""", 24)  # fmt: skip


CACHE = {"cache": np.zeros((1, 4, 2), np.float32), "rows": np.ones((1, 1, 2), np.float32), "at": np.array([1])}


def test_a_donated_cache_is_written_in_place_unless_it_is_read_again_and_is_not_said_to_be_lent() -> None:
    kept, given = (run(scatter(), CACHE, donate=names) for names in ([], ["cache"]))
    (blocker,) = kept.steps[0].decision.blockers
    assert blocker.code is BlockerCode.BORROWED_INPUT and kept.steps[0].allocated == 32
    assert given.steps[0].decision.dispatch == "in_place" and given.steps[0].allocated == 0
    assert given.outputs["new"].tobytes() == kept.outputs["new"].tobytes()
    graph = scatter("both = Mul(cache, new)", ", float[1, 4, 2] both")
    lent, given = (run(graph, CACHE, donate=names) for names in ([], ["cache"]))
    left = {BlockerCode.NOT_LAST_USE, BlockerCode.POLICY}
    assert {b.code for b in lent.steps[0].decision.blockers} == {*left, BlockerCode.BORROWED_INPUT}
    assert {b.code for b in given.steps[0].decision.blockers} == left and not given.outputs["both"].any()


def test_a_loop_copies_what_it_carried_into_memory_of_its_own() -> None:
    main = graph_of("""g (float[2, 3] x) => (float[2, 3] y) <int64 n = {2}> {
        y = Loop (n, "", x) <body = b (int64 i, bool c, float[2, 3] s) => (bool d, float[2, 3] t) {
            d = Identity(c) t = Neg(s) }> }""", 18)  # fmt: skip
    trace = run(main, X)
    loop = trace.steps[-1]
    # Two iterations with a counter and a condition each, and the copy.
    assert (loop.allocated, loop.written, loop.copied) == (2 * 9 + 24, 24, 24)
    assert trace.outputs["y"].tobytes() == X["x"].tobytes()


def test_an_op_that_is_run_before_its_time_overwrites_nothing_that_is_still_read() -> None:
    main = graph_of("g (float[2, 3] x) => (float[2, 3] y) { n = Neg(x) r = Relu(n) s = Sigmoid(n) y = Add(r, s) }", 18)
    planned = run(main, X)
    assert [step.op_type for step in planned.steps] == ["Neg", "Sigmoid", "Relu", "Add"]
    seen = set()
    for seed in range(8):
        trace = picked(main, X, np.random.default_rng(seed))
        relu = next(step for step in trace.steps if step.op_type == "Relu")
        seen.add((relu.index, relu.decision.dispatch))
        assert trace.outputs["y"].tobytes() == planned.outputs["y"].tobytes()
    assert seen == {(1, "run"), (2, "in_place")}


def test_the_policy_has_a_name_a_version_and_one_option() -> None:
    assert find_policy("onnxruntime") is policy is kvviz.policies.onnxruntime
    assert policy(mem_reuse=True) is policy and policy(mem_reuse=False) is policy(mem_reuse=False)
    assert policy.version.startswith("1.31") and "mem_reuse" in policy(mem_reuse=False).name
    with pytest.raises(KvvizError, match="its options are mem_reuse"):
        policy(speed=True)


ONES = {"x": np.ones((2, 3), np.float32)}


def test_what_runs_there_only_and_what_is_spelled_out_there_and_one_op_or_a_frame_here() -> None:
    def both(text: str) -> tuple[Observed, list[str], Trace]:
        proto = proto_of(text, 18)
        seen = observe(proto, ONES)
        return seen, [name for name, _ in seen.order], run(kvviz.load(proto), ONES)

    # Nodes that no output needs, an operator without a kernel, a local function.
    _, ran, trace = both("g (float[2, 3] x) => (float[2, 3] y) { [wanted] y = Neg(x) [dead] z = Exp(x) }")
    assert ran == ["dead", "wanted"] and [step.node for step in trace.steps] == ["wanted"]
    _, ran, trace = both("g (float[2, 3] x) => (float[2, 3] y) { [first] h = Neg(x) [swish] y = HardSwish(h) }")
    assert len(ran) > 2 and "swish" not in ran and [step.node for step in trace.steps] == ["first", "swish"]
    seen, ran, trace = both("""g (float[2, 3] x) => (float[2, 3] y) {
        [first] h = Neg(x) [call] g = local.f(h) [end] y = Neg(g) }
        <domain: "local", opset_import: ["" : 18]> f (a) => (c) { [inner] b = Neg(a) [last] c = Exp(b) }""")
    assert len(ran) == 4 and not {"call", "inner"} & set(ran)
    assert [step.node for step in trace.steps] == ["first", "inner", "last", "call", "end"]
    # What a body returns has memory of its own here; there the last op takes over the dead buffer of h.
    assert seen.allocated[ran[2]] == 0 and [step.allocated for step in trace.steps] == [24, 24, 24, 0, 24]
