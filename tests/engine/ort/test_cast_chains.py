"""Casts that onnxruntime removes, and what takes over memory around them."""

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest

import kvviz
from kvviz.runtimes.ort.known_types import known
from kvviz.runtimes.ort.rewiring import without_duplicates
from tests.engine.ort.judge import Verdict, judge
from tests.engine.ort.oracle import observe
from tests.engine.ort.random_models import random_model
from tests.engine.ort.test_policy import disagreements
from tests.graph.build import model, node
from tests.outside.told import loaded

# Element types by their numbers in ONNX.
F16, F32, F64, I8, U8, I32, I64, BOOL = 10, 1, 11, 3, 2, 6, 7, 9

X = {"x": np.arange(6).reshape(2, 3)}


def chain(casts: int, first: str = "") -> onnx.ModelProto:
    """int64 Casts to int64, each with a Neg that reads it, and perhaps an op before."""
    begin = [node(first, "x", "v0", name="begin")] if first else []
    names = ["v0" if first else "x", *(f"v{i + 1}" for i in range(casts))]
    nodes = []
    for i in range(casts):
        nodes.append(node("Cast", names[i], names[i + 1], name=f"cast{i}", to=I64))
        nodes.append(node("Neg", names[i + 1], f"y{i}", name=f"neg{i}"))
    return model([*begin, *nodes], ["x int64 2 3"], [f"y{i}" for i in range(casts)])


def assert_as_there(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> kvviz.Trace:
    """Run a model in both: the order of what runs there, and which nodes take new memory, are the same."""
    main, seen = kvviz.load(proto), observe(proto, feeds)
    trace, ideal = (kvviz.run(main, feeds, policy=policy, poison=True) for policy in ("onnxruntime", "ideal"))
    ran = list(dict.fromkeys(name for name, _ in seen.order))
    assert list(dict.fromkeys(step.node for step in trace.steps if step.node in set(ran))) == ran
    assert disagreements(proto, feeds)[1] == []
    for wanted, (name, value) in zip(seen.outputs, trace.outputs.items()):
        assert value.tobytes() == ideal.outputs[name].tobytes()
        if value.dtype == wanted.dtype == np.int64 and feeds is X:
            assert value.tobytes() == wanted.tobytes()
    return trace


def test_a_widening_cast_that_is_removed_takes_no_memory() -> None:
    # given: int32 to int64 to double, which onnxruntime makes one Cast
    nodes = [
        node("Transpose", "x", "t", name="t"),
        node("Cast", "t", "v", name="first", to=I64),
        node("Cast", "v", "y", name="second", to=11),
    ]
    proto, x = model(nodes, ["x int32 2 3"], ["y"]), {"x": np.arange(6, dtype=np.int32).reshape(2, 3)}
    trace = assert_as_there(proto, x)
    for told in (trace, loaded(trace)):
        assert [step.allocated for step in told.steps] == [24, 0, 48]
        assert [step.live_bytes for step in told.steps] == [48, 48, 96]
        assert [storage.capacity for storage in told.storages] == [24, 24, 48]
        (where,) = told.steps[1].outs
        assert (where.storage, where.how, where.dtype, where.nbytes) == (1, "view", "int32", 24)


def test_the_graph_that_was_given_is_left_as_it_is() -> None:
    main = kvviz.load(chain(3))
    before = [graph_node.inputs for graph_node in main.nodes]
    kvviz.run(main, X, policy="onnxruntime")
    assert [graph_node.inputs for graph_node in main.nodes] == before
    assert [step.node for step in kvviz.run(main, X).steps] == ["cast0", "neg0", "cast1", "neg1", "cast2", "neg2"]


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_chains_run_as_there(first: int) -> None:
    # given: models full of chains, with several readers, with outputs in them, some of them in bodies
    verdict, compared = Verdict(), 0
    for seed in range(first, first + 50):
        proto, feeds = random_model(seed, 7, chains=True)
        try:
            observe(proto, feeds)
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
            continue  # it removes a Cast although a body reads it
        judge(proto, feeds, verdict)
        assert disagreements(proto, feeds)[1] == [], seed  # which drops the nodes that no output needs
        assert_as_there(proto, feeds)
        compared += 1
    assert verdict.wrong == [] and verdict.decisions > 1500 and compared > 40


def casts_to(*to: int) -> onnx.ModelProto:
    """Neg, then Casts to these types, then Neg where the last one is a number, or Not."""
    nodes = [node("Neg", "x", "v0", name="begin")]
    nodes += [node("Cast", f"v{i}", f"v{i + 1}", name=f"cast{i}", to=code) for i, code in enumerate(to)]
    last = {BOOL: "Not", U8: "Identity"}.get(to[-1], "Neg")
    return model([*nodes, node(last, f"v{len(to)}", "y", name="end")], ["x float 2 3"], ["y"], opset=18)


def dropped(proto: onnx.ModelProto) -> set[str]:
    main = kvviz.load(proto)
    outputs = [value.name for value in main.outputs]
    kept = without_duplicates(main, main.nodes, outputs, known(main).types).nodes
    return {n.name for n in main.nodes} - {n.name for n in kept}


def never_ran(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> set[str]:
    return {n.name for n in proto.graph.node} - {name for name, _ in observe(proto, feeds).order}


FEEDS = {"x": np.array([[1, 2, 3], [4, 5, 6]], np.float32)}


@pytest.mark.parametrize("types", [
    (F32, F32), (F64, F32), (F64, F64), (I32, F32), (I64, I32), (I64, I64, I64), (F64, F32, F64), (I32, I64, I32),
    (I32, BOOL), (F64, BOOL), (I8, I64), (I64, I8), (I32, U8), (U8, I32), (U8, I64, F32), (BOOL, F32), (I64, F64),
    (I32, F64, I32), (F64, I32, F64), (F64, I32), (I32, F32, F64), (F32, I32, I32), (I64, I32, I64, I32),
])  # fmt: skip
def test_a_casts_to_loses_those_that_onnxruntime_drops(types: Sequence[int]) -> None:
    proto = casts_to(*types)
    assert dropped(proto) == never_ran(proto, FEEDS)
