"""Small graphs and devices for the tests of the simulated device."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import kvviz
from kvviz.graph.model import Graph
from tests.graph.build import model, node

Inputs = dict[str, Sequence[int | str]]


def graph(nodes: Sequence[tuple[str, str, str]], inputs: Inputs, outputs: Sequence[str], **weights: Any) -> Graph:
    """A graph of float32; a node is (op, names of inputs, name of the output)."""
    values = [f"{name} float {' '.join(map(str, dims))}" for name, dims in inputs.items()]
    unknown = " ?" * len(next(iter(inputs.values())))
    results = [f"{name} float{unknown}" for name in outputs]
    return kvviz.load(model([node(*one) for one in nodes], values, results, **weights), name="program")


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
