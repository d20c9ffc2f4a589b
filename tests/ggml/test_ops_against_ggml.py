"""Each op gives the nodes and the numbers of real ggml: recorded with ggml 0.25.3 on the CPU."""

import json
from base64 import b64decode

import numpy as np
import pytest

from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.graph.tensor_data import read, stored, to_q8_0
from kvviz.ggml.order.graph_session import KERNELS, Executor

from .op_cases import CASES, quants
from .recordings import DATA, built

FILE = json.loads((DATA / "op_cases.json").read_text("utf-8"))
RECORDED = FILE["cases"]

# Of the largest number: 8-bit quants may differ by one, f16 results by their last bit, sums by their order.
LOOSE = {"q8_0": 8e-3, "bf16": 4e-3, "f16": 1e-3, "f32": 2e-6}


def _tolerance(name: str, node: Tensor) -> float:
    if "q8_0" in name and node.op in ("CPY", "SET_ROWS", "MUL_MAT", "FLASH_ATTN_EXT"):
        return LOOSE["q8_0"]
    if node.op == "FLASH_ATTN_EXT" and "f16" in name:
        return 1e-4  # where the last bit of one f16 sum flips
    if "GELU" in node.desc:
        return LOOSE["f16"]  # out of a table of f16
    if node.op in ("CPY", "CONT", "DUP", "SET", "ACC", "SET_ROWS", "GET_ROWS", "REPEAT", "CONCAT"):
        return 0.0
    return LOOSE.get(node.type, 0.0)


@pytest.mark.parametrize("name", CASES)
def test_nodes_and_numbers_are_those_that_ggml_left(name: str) -> None:
    expected = RECORDED[name]
    ctx = Context()
    graph = ctx.new_graph(name)
    for output in CASES[name](ctx):
        graph.expand(output)
    places = {node: i for i, node in enumerate(graph.nodes)}
    for one, node in zip(built(graph.nodes, lambda tensor: places.get(tensor, tensor.name)), expected, strict=True):
        assert (
            one | {"op_params": [*one["op_params"], *[0] * (16 - len(one["op_params"]))]} | {"bytes": node["bytes"]}
            == node
        )
    executor = Executor(name, values=0)
    executor.run(graph)
    for node, one in zip(graph.nodes, expected):
        raw = b64decode(one["bytes"])
        assert len(raw) == node.nbytes
        theirs = Tensor("", node.type, node.ne, node.nb, data=np.frombuffer(raw, np.uint8))
        tolerance = _tolerance(name, node)
        if tolerance == 0:
            assert (stored(node) == stored(theirs)).all(), node.op
        else:
            a, b = read(node), read(theirs)
            largest = np.abs(b[np.isfinite(b)]).max(initial=0)
            assert np.allclose(a, b, rtol=0, atol=tolerance * largest, equal_nan=True), node.op


def test_blocks_of_q8_0_are_byte_for_byte_those_of_the_reference() -> None:
    assert to_q8_0(quants()).tobytes() == b64decode(FILE["q8_0"])


def test_every_kernel_is_held_to_ggml() -> None:
    assert {node["op"] for nodes in RECORDED.values() for node in nodes} >= KERNELS.keys()
