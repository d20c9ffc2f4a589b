"""What onnxruntime rewires: Casts that it removes, and a DequantizeLinear for every reader."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz.runtimes.ort.known_types import known
from kvviz.runtimes.ort.rewiring import without_duplicates
from kvviz.runtimes.schedules import Picks
from tests.engine.graphs import graph_of, proto_of
from tests.engine.ort.models import Verdict, casts, judge, quantized, random_model
from tests.engine.ort.oracle import observe
from tests.engine.ort.test_policy import disagreements
from tests.graph.build import model, node
from tests.outside.told import differences, loaded


def assert_as_there(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> kvviz.Trace:
    """Run a model in both: the order of what runs there, and which nodes take new memory, are the same."""
    main, seen = kvviz.load(proto), observe(proto, feeds)
    before = [it.inputs for it in main.nodes]
    trace, ideal = (kvviz.run(main, feeds, policy=policy, poison=True) for policy in ("onnxruntime", "ideal"))
    ran = list(dict.fromkeys(name for name, _ in seen.order))
    assert list(dict.fromkeys(step.node for step in trace.steps if step.node in set(ran))) == ran
    assert disagreements(proto, feeds)[1] == []
    assert [it.inputs for it in main.nodes] == before, "the graph that was given has changed"
    for name, value in trace.outputs.items():
        np.testing.assert_equal(value, ideal.outputs[name])
    return trace


@pytest.mark.parametrize(("kind", "first"), [*product((casts, quantized), range(0, 160, 40))])
def test_random_models_full_of_them_run_as_there(kind: Any, first: int) -> None:
    # given: chains of Casts, or quantized values, with several readers, with outputs in them, some of them in bodies
    verdict, copies = Verdict(), 0
    for seed in range(first, first + 40):
        proto, feeds = random_model(seed, ((kind, 60),))
        judge(proto, feeds, verdict)
        # The nodes that no output needs are dropped here.
        assert disagreements(proto, feeds, False)[1] == [], seed
        trace = assert_as_there(proto, feeds)
        copies += sum("/duplicated" in step.node for step in trace.steps)
    assert verdict.wrong == [] and verdict.decisions > 600
    assert copies > 10 or kind is casts


def test_a_widening_cast_that_is_removed_takes_no_memory() -> None:
    # given: int32 to int64 to double, which onnxruntime makes one Cast
    text = """g (int32[2, 3] x) => (double[3, 2] y) {
        [t] t = Transpose(x) [first] v = Cast <to = 7> (t) [second] y = Cast <to = 11> (v) }"""
    trace = assert_as_there(proto_of(text), {"x": np.arange(6, dtype=np.int32).reshape(2, 3)})
    for told in (trace, loaded(trace)):
        assert [step.allocated for step in told.steps] == [24, 0, 48]
        assert [step.live_bytes for step in told.steps] == [48, 48, 96]
        assert [storage.capacity for storage in told.storages] == [24, 24, 48]
        (where,) = told.steps[1].outs
        assert (where.storage, where.how, where.dtype, where.nbytes) == (1, "view", "int32", 24)


# Element types by their numbers in ONNX.
F32, U8, I8, I32, I64, BOOL, F64 = 1, 2, 3, 6, 7, 9, 11
TYPES = (F32, U8, I8, I32, I64, BOOL, F64)


def casts_to(to: Sequence[int]) -> onnx.ModelProto:
    """Neg, then Casts to these types, then Neg where the last one is a number, or Not."""
    nodes = [node("Neg", "x", "v0", name="begin")]
    nodes += [node("Cast", f"v{i}", f"v{i + 1}", name=f"cast{i}", to=code) for i, code in enumerate(to)]
    last = {BOOL: "Not", U8: "Identity"}.get(to[-1], "Neg")
    return model([*nodes, node(last, f"v{len(to)}", "y", name="end")], ["x float 2 3"], ["y"], opset=18)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_chain_of_casts_loses_those_that_onnxruntime_drops(length: int) -> None:
    chains = list(product(TYPES, repeat=length))
    for types in chains if len(chains) < 50 else Random(length).sample(chains, 50):
        proto = casts_to(types)
        main = kvviz.load(proto)
        kept = without_duplicates(main, main.nodes, [value.name for value in main.outputs], known(main).types).nodes
        ran = {name for name, _ in observe(proto, {"x": np.arange(1, 7, dtype=np.float32).reshape(2, 3)}).order}
        assert {n.name for n in kept} == ran, types


Q = {"q": np.arange(1024, dtype=np.uint8).reshape(32, 32)}
DEQUANTIZED = """g (uint8[n, m] q) => (float[n, m] y) <float s = {0.5}, uint8 z = {3}> {
    [dq] d = DequantizeLinear(q, s, z) [relu] a = Relu(d) [neg] b = %s [add] y = Add(a, b) }"""


def test_every_reader_has_a_dequantizer_of_its_own_in_onnxruntimes_order() -> None:
    # given: two readers, of which one reads twice
    trace = assert_as_there(proto_of((DEQUANTIZED % "Mul(d, d)").replace("n, m", "32, 32")), Q)
    names = ["dq/duplicated_token_1", "dq/duplicated", "neg", "dq", "relu", "add"]
    assert [step.node for step in trace.steps] == names
    assert [step.allocated for step in trace.steps] == [4096, 4096, 4096, 0, 0, 4096]
    assert trace.steps[2].inputs == ("d/duplicated", "d/duplicated_token_0")


@pytest.mark.parametrize("domain", ["", "com.microsoft."])
def test_a_copy_has_the_attributes_of_its_original(domain: str) -> None:
    scales, zeros = (", ".join(str(n * i) for i in range(1, 33)) for n in (1, 0))
    proto = proto_of(f"""g (uint8[32, 32] q) => (float[32, 32] y)
        <float[32] s = {{{scales}}}, uint8[32] z = {{{zeros}}}> {{
        d = {domain}DequantizeLinear <axis = 0> (q, s, z) a = Sign(d) b = Neg(d) y = Add(a, b) }}""")
    wanted = observe(proto, Q).outputs[0]
    np.testing.assert_array_equal(kvviz.run(kvviz.load(proto), Q, policy="onnxruntime").outputs["y"], wanted)


def test_a_trace_with_copies_goes_through_a_file_and_its_order_can_be_followed_without_them() -> None:
    main = graph_of(DEQUANTIZED % "Neg(d)")
    with_copies, without = (kvviz.run(main, Q, policy=policy) for policy in ("onnxruntime", "ideal"))
    assert differences(with_copies, loaded(with_copies)) == [] and "duplicated" in with_copies.to_html()
    for policy, other, names in (
        (kvviz.policies.ideal, with_copies, ["dq", "neg", "relu", "add"]),
        (kvviz.policies.onnxruntime, without, ["dq", "relu", "dq/duplicated", "neg", "add"]),
    ):
        followed = kvviz.run(main, Q, policy=replace(policy, schedule=Picks.of(other)))
        assert [step.node for step in followed.steps] == names
