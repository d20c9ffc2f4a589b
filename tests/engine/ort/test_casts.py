"""Which Casts onnxruntime drops before it plans, against the nodes in its profile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

import kvviz
from kvviz.runtimes.ort.known_types import known
from kvviz.runtimes.ort.ort_order import schedule
from kvviz.runtimes.ort.removed_casts import is_unsafe, without_duplicates
from tests.engine.ort.oracle import observe
from tests.graph.build import model, node

F16, F32, F64, I8, U8, I32, I64, BOOL = 10, 1, 11, 3, 2, 6, 7, 9


def chain(*to: int) -> onnx.ModelProto:
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
def test_a_chain_of_casts_loses_those_that_onnxruntime_drops(types: Sequence[int]) -> None:
    proto = chain(*types)
    assert dropped(proto) == never_ran(proto, FEEDS)


def test_casts_there_and_back_are_both_dropped_and_a_lossy_one_is_kept() -> None:
    assert dropped(chain(F64, F32)) == {"cast0", "cast1"}
    assert dropped(chain(I32, F32)) == set()


@pytest.mark.parametrize("extra", ["read elsewhere", "output of the graph", "second cast wanted", "captured twice"])
def test_a_cast_that_something_else_reads_is_treated_as_onnxruntime_treats_it(extra: str) -> None:
    nodes = [
        node("Neg", "x", "a", name="begin"),
        node("Cast", "a", "b", name="there", to=F64),
        node("Cast", "b", "c", name="back", to=F32),
        node("Neg", "c", "y", name="end"),
    ]
    outputs = ["y"]
    if extra == "read elsewhere":
        nodes.append(node("Exp", "b", "z", name="reader"))
        outputs.append("z")
    elif extra == "output of the graph":
        outputs.append("b")
    elif extra == "second cast wanted":
        outputs.append("c")
    else:
        nodes += [node("Cast", "b", "d", name="again", to=I64), node("Neg", "d", "z", name="end2")]
        outputs.append("z")
    proto = model(nodes, ["x float 2 3"], outputs, opset=18)
    assert dropped(proto) == never_ran(proto, FEEDS)


def test_a_dropped_cast_still_runs_here_before_what_reads_it() -> None:
    main = kvviz.load(chain(F64, F32))
    assert [n.name for n in schedule(main, main.nodes, ["y"])] == ["begin", "cast0", "cast1", "end"]
    trace = kvviz.run(main, FEEDS, policy="onnxruntime")
    assert [step.allocated for step in trace.steps] == [24, 0, 0, 24]


@pytest.mark.parametrize(("source", "target", "unsafe"), [
    ("uint8", "uint8", False), ("uint8", "uint16", False), ("uint16", "uint8", True), ("uint8", "int8", True),
    ("uint8", "int16", False), ("int8", "uint16", True), ("int64", "float32", True), ("int16", "float32", False),
    ("float32", "int64", True), ("float16", "float32", False), ("bool", "uint8", False),
])  # fmt: skip
def test_a_cast_is_unsafe_where_the_target_lacks_bits_or_a_sign(source: str, target: str, unsafe: bool) -> None:
    # as its RemoveDuplicateCastTransformer reckons
    assert is_unsafe(np.dtype(source), np.dtype(target)) is unsafe
