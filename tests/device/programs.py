"""Small graphs and devices for the tests of the simulated device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import kvviz
from kvviz.graph.model import Graph

Inputs = dict[str, Sequence[int | str]]


def graph(nodes: Sequence[tuple[str, str, str]], inputs: Inputs, outputs: Sequence[str], **weights: Any) -> Graph:
    """A graph of float32; a node is (op, names of inputs, name of the output)."""
    made = [helper.make_node(op, given.split(), [out]) for op, given, out in nodes]
    shape = list(next(iter(inputs.values())))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(dims)) for name, dims in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * len(shape)) for name in outputs]
    kept = [helper.make_tensor(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape, v) for n, v in weights.items()]
    body = helper.make_graph(made, "program", values, results, kept)
    return kvviz.load(helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


def chain(shape: Sequence[int | str] = (64, 128)) -> Graph:
    """``((a + w) * w) - w``, as in tt-mlir's ``eltwise_binary_op_chain.mlir``."""
    nodes = [("Add", "a w", "s"), ("Mul", "s w", "m"), ("Sub", "m w", "out")]
    return graph(nodes, {"a": shape, "w": shape}, ["out"])


def double(shape: Sequence[int | str] = (64, 128)) -> Graph:
    """``x + x``."""
    return graph([("Add", "x x", "y")], {"x": shape}, ["y"])


def numbers(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    """Values of float32."""
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(np.float32)


def codes(device: Any) -> list[str]:
    """The codes of all warnings so far."""
    return [warning.code for warning in device.warnings]
