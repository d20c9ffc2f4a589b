"""Small models for the tests of reading graphs, and where the real ones are."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.ort_session import session_of

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
FILES = sorted([*MODELS.glob("*/*.onnx"), *MODELS.glob("storyteller/*/model.onnx")])
_TYPES = {"float": 1, "int64": 7, "bool": 9, "half": 10, "int32": 6, "string": 8, "uint8": 2}


def file_id(path: Path) -> str:
    """Name of a model file in test reports."""
    return str(path.relative_to(MODELS).with_suffix("")).replace("/", "-").removesuffix("-model")


def value(text: str) -> onnx.ValueInfoProto:
    """A typed value from ``"name float batch 2 ? 8"``; ``-`` in place of dimensions is a scalar, none is no shape."""
    name, *rest = text.split()
    if not rest:
        return onnx.ValueInfoProto(name=name)
    dims: list[Any] = [int(d) if d.isdigit() else None if d == "?" else d for d in rest[1:] if d != "-"]
    return helper.make_tensor_value_info(name, _TYPES[rest[0]], dims if rest[1:] else None)


def node(op: str, inputs: str = "", outputs: str = "", *, domain: str = "", name: str = "", **attributes: Any) -> Any:
    """A node; names are split at blanks, and ``-`` stands for an absent one."""
    absent = [["" if n == "-" else n for n in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *absent, name=name, domain=domain, **attributes)


def graph(
    nodes: Iterable[Any], inputs: Sequence[str] = (), outputs: Sequence[str] = (), name: str = "g", **weights: Any
) -> onnx.GraphProto:
    """A graph; weights are arrays by name."""
    tensors = [numpy_helper.from_array(np.asarray(array), key) for key, array in weights.items()]
    return helper.make_graph(list(nodes), name, [value(i) for i in inputs], [value(o) for o in outputs], tensors)


def model(
    nodes: Iterable[Any] | onnx.GraphProto,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    *,
    opset: int = 18,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
    **weights: Any,
) -> Any:
    """A model that onnxruntime reads too (IR 10)."""
    body = nodes if isinstance(nodes, onnx.GraphProto) else graph(nodes, inputs, outputs, **weights)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(body, opset_imports=imports, functions=list(functions), ir_version=10)


def run_in_onnxruntime(proto: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    """Outputs of a model by onnxruntime on the CPU, one thread, nothing rewritten."""
    return session_of(proto).run(None, feeds)
