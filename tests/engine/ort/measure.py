"""Asking the installed onnxruntime which inputs an operator overwrites or shares, one node at a time.

The node's outputs are read by Shape only, so that none is an output of the graph. Each input is handed over once dead
(made by a Concat that nobody else reads) and else kept (an input of the graph, which is never overwritten). What the
node takes less in new memory, it took from that input.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from tests.engine.ort.oracle import observe, options

Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """One operator with inputs that it accepts, as many as possible of the size of an output.

    ``fixed``: inputs that are constants. ``since``, ``until``: opset versions for which it is written.
    """

    op_type: str
    inputs: tuple[Array | None, ...]
    domain: str = ""
    outputs: int = 1
    fixed: frozenset[int] = frozenset()
    since: int = 1
    until: int = 26
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        kinds = "-".join("none" if x is None else str(x.dtype) for x in self.inputs)
        return f"{self.domain}{'.' * bool(self.domain)}{self.op_type}-{kinds}-{self.since}"


@dataclass(frozen=True)
class Measured:
    """Bytes that an operator took anew: where it had to leave all inputs alone, and where one of them was dead."""

    outputs: list[Array]
    kept: int
    dead: dict[int, int]


def measure(case: Case, opset: int) -> Measured | None:
    """Run one operator with each of its inputs dead in turn; None where onnxruntime runs its function body instead."""
    kept = observe(*_model(case, opset, None), mem_reuse=False).allocated
    if "it" not in kept:
        return None
    feeds = _feeds(case)
    session = ort.InferenceSession(_plain(case, opset).SerializeToString(), options(), ["CPUExecutionProvider"])
    dead = {
        i: observe(*_model(case, opset, i), mem_reuse=False).allocated["it"]
        for i, x in enumerate(case.inputs)
        if x is not None and x.ndim and i not in case.fixed
    }
    return Measured(session.run(None, feeds), kept["it"], dead)


def _feeds(case: Case) -> dict[str, Array]:
    return {f"x{i}": x for i, x in enumerate(case.inputs) if x is not None and i not in case.fixed}


def _model(case: Case, opset: int, dead: int | None) -> tuple[onnx.ModelProto, dict[str, Array]]:
    made = [f"y{j}" for j in range(case.outputs)]
    before = [] if dead is None else [helper.make_node("Concat", [f"x{dead}"], ["dead"], "dead", axis=0)]
    names = ["dead" if i == dead else f"x{i}" if x is not None else "" for i, x in enumerate(case.inputs)]
    after = [helper.make_node("Shape", [name], [f"{name}_shape"]) for name in made]
    return _graph(case, opset, [*before, _node(case, names, made), *after], [f"{n}_shape" for n in made]), _feeds(case)


def _plain(case: Case, opset: int) -> onnx.ModelProto:
    made = [f"y{j}" for j in range(case.outputs)]
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(case.inputs)]
    return _graph(case, opset, [_node(case, names, made)], made)


def _node(case: Case, names: list[str], made: list[str]) -> onnx.NodeProto:
    return helper.make_node(case.op_type, names, made, "it", domain=case.domain, **case.attributes)


def _graph(case: Case, opset: int, nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in _feeds(case).items()
    ]
    weights = [
        numpy_helper.from_array(x, f"x{i}") for i, x in enumerate(case.inputs) if i in case.fixed and x is not None
    ]
    graph = helper.make_graph(nodes, "one", inputs, [onnx.ValueInfoProto(name=n) for n in outputs], weights)
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid(case.domain, 1)] if case.domain else [])]
    return helper.make_model(graph, ir_version=10, opset_imports=imports)
