"""An op of very many outputs takes time in proportion to them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

import kvviz
from tests.work import lines_of

MANY = 100_000


def split(outputs: int) -> Any:
    names = [f"o{place}" for place in range(outputs)]
    node = helper.make_node("Split", ["x"], names, axis=0, num_outputs=outputs)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [outputs])]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in names]
    graph = helper.make_graph([node], "split", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def run(outputs: int) -> kvviz.Trace:
    return kvviz.run(kvviz.load(split(outputs)), {"x": np.arange(outputs, dtype=np.float32)})


def test_a_split_into_a_hundred_thousand_parts_is_run() -> None:
    trace = run(MANY)
    assert len(trace.steps[0].outs) == MANY and trace.outputs[f"o{MANY - 1}"].tolist() == [MANY - 1]


def test_four_times_the_parts_take_four_times_the_work() -> None:
    assert lines_of(lambda: run(2_000)) < 5 * lines_of(lambda: run(500))
