"""Binding an output to an input: obeyed without a look at who still reads it, as IO binding does."""

import numpy as np
import onnx
import pytest

import kvviz
from kvviz.engine.sessions.io_binding import bind
from tests.decode.small import HEADS, ROWS, SIZE, small
from tests.engine.graphs import graph_of, numbers, run_graph

GRAPH = """
agraph (float[2, 3] past) => (float[2, 3] present, float before)
{ present = Neg (past) before = ReduceSum <keepdims = 0> (past) }
"""
bound = bind(kvviz.policies.ideal, {"present": "past"})


def test_a_bound_output_overwrites_what_a_later_op_still_reads() -> None:
    past = numbers(2, 3)
    trace = run_graph(graph_of(GRAPH), {"past": past.copy()}, donate=["past"], policy=bound)
    assert trace.steps[0].decision.taken == ("past",)
    np.testing.assert_allclose(trace.outputs["before"], -past.sum(), rtol=1e-6)


TURNED = """
agraph (float[2, 3] past) => (float[2, 3] present)
{ a = Transpose <perm = [1, 0]> (past) c = Neg (a) present = Transpose <perm = [1, 0]> (c) }
"""
GROWS = """
agraph (float[N, 3] past, float[2, 3] new) => (float[M, 3] present)
{ present = Concat <axis = 0> (past, new) }
"""


def test_under_a_policy_that_places_outputs_any_op_writes_where_the_caller_wants() -> None:
    under = bind(kvviz.policies.onnxruntime, {"present": "past"})
    for text in (TURNED, GRAPH):
        graph, past = graph_of(text), numbers(2, 3)
        trace = run_graph(graph, {"past": past.copy()}, donate=["past"], policy=under)
        (given,) = [bound for bound in trace.frames[0].bindings if bound.name == "past"]
        (present,) = [out for step in trace.steps for out in step.outs if out.name == "present"]
        assert (present.storage, present.nbytes) == (given.storage, past.nbytes)
        np.testing.assert_allclose(trace.outputs["present"], -past)
    assert trace.bytes_allocated == trace.outputs["before"].nbytes


def test_a_present_that_is_longer_than_its_past_does_not_go_there() -> None:
    under = bind(kvviz.policies.onnxruntime, {"present": "past"})
    feeds = {"past": numbers(4, 3), "new": numbers(2, 3)}
    trace = run_graph(graph_of(GROWS), feeds, donate=["past"], policy=under)
    (step,) = trace.steps
    assert step.outs[0].how == "new" and step.allocated == 6 * 3 * 4


@pytest.mark.parametrize("obeyed", [False, True])
def test_a_buffer_that_is_read_again_is_overwritten_only_for_a_binding(obeyed: bool) -> None:
    one = small("grouped")
    proto = onnx.ModelProto.FromString(one.proto.SerializeToString())
    proto.graph.node.append(onnx.helper.make_node("Add", [*next(iter(one.caches.items()))], ["both"], name="late"))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("both", 1, ["b", HEADS, "rows", SIZE]))
    feeds = {"input_ids": np.array([[5]]), **one.controls(4, 1)}
    feeds |= {name: np.zeros((1, HEADS, ROWS, SIZE), np.float32) for name in one.caches}
    policy = kvviz.policies.onnxruntime
    policy = bind(policy, {output: name for name, output in one.caches.items()}) if obeyed else policy
    trace = kvviz.run(kvviz.load(proto), feeds, donate=list(one.caches), policy=policy)
    (step,) = [step for step in trace.steps if step.op_type == "GroupQueryAttention"]
    assert [out.how for out in step.outs[1:]] == (["in place"] * 2 if obeyed else ["new"] * 2)
    assert [hazard.broken for hazard in kvviz.hazards(trace)] == [True] * obeyed


def test_grouped_attention_without_presents_has_nothing_to_share() -> None:
    one = small("grouped")
    proto = onnx.ModelProto.FromString(one.proto.SerializeToString())
    (attention,) = [node for node in proto.graph.node if node.op_type == "GroupQueryAttention"]
    del attention.output[1:], proto.graph.output[1:]
    feeds = {"input_ids": np.array([[5]]), **one.controls(4, 1)}
    feeds |= {name: np.zeros((1, HEADS, ROWS, SIZE), np.float32) for name in one.caches}
    trace = kvviz.run(kvviz.load(proto), feeds, donate=list(one.caches), policy="onnxruntime")
    assert not any(step.decision.taken for step in trace.steps if step.op_type == "GroupQueryAttention")
