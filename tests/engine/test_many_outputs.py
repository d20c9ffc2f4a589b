"""An op of very many outputs takes time in proportion to them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import kvviz

MANY = 100_000


def split(outputs: int) -> Any:
    names = [f"o{place}" for place in range(outputs)]
    node = helper.make_node("Split", ["x"], names, axis=0, num_outputs=outputs)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [outputs])]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in names]
    graph = helper.make_graph([node], "split", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_a_split_into_a_hundred_thousand_parts_is_run() -> None:
    begun = time.perf_counter()
    graph = kvviz.load(split(MANY))
    trace = kvviz.run(graph, {"x": np.arange(MANY, dtype=np.float32)})
    assert len(trace.steps[0].outs) == MANY and trace.outputs[f"o{MANY - 1}"].tolist() == [MANY - 1]
    # What grew with the square of their number took minutes.
    assert time.perf_counter() - begun < 60
