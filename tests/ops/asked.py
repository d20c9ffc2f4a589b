"""Random calls of single operators through `kvviz.run`, for onnxruntime to judge: results and refusals."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import kvviz
from kvviz.errors import KvvizError
from tests.ops.ort_oracle import IR_VERSION, _session

ML = "ai.onnx.ml"
Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class Asked:
    """One call: arrays, lists of arrays (sequences) or None; attributes; and what the outputs are."""

    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    n_outputs: int = 1
    opset: int = 21
    domain: str = ""
    ml: int = 3


Maker = Callable[[Rng], Asked]
MAKERS: dict[str, Maker] = {}


def asks(op_type: str) -> Callable[[Maker], Maker]:
    """Register what makes random calls of an operator."""

    def register(maker: Maker) -> Maker:
        MAKERS[op_type] = maker
        return maker

    return register


def model_of(op_type: str, asked: Asked) -> onnx.ModelProto:
    """A model of that one node; all inputs are fed."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(asked.inputs)]
    infos = [_info(name, x) for name, x in zip(names, asked.inputs) if x is not None]
    outputs = [f"y{i}" for i in range(asked.n_outputs)]
    node = helper.make_node(op_type, names, outputs, domain=asked.domain, **asked.attributes)
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=name) for name in outputs])
    imports = [helper.make_opsetid("", asked.opset)]
    if asked.domain:
        imports.append(helper.make_opsetid(asked.domain, asked.ml))
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=imports)


def _info(name: str, x: Any) -> onnx.ValueInfoProto:
    if isinstance(x, list):
        kind = helper.np_dtype_to_tensor_dtype(x[0].dtype) if x else TensorProto.FLOAT
        return helper.make_tensor_sequence_value_info(name, kind, None)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


def feeds_of(asked: Asked) -> dict[str, Any]:
    return {f"x{i}": x for i, x in enumerate(asked.inputs) if x is not None}


def by_onnxruntime(model: onnx.ModelProto, asked: Asked) -> list[Any]:
    """What onnxruntime makes of a call."""
    return list(_session(model.SerializeToString()).run(None, feeds_of(asked)))


def verdict(op_type: str, asked: Asked, rtol: float = 1e-3, atol: float = 1e-4) -> str:
    """``"same"`` or ``"both refuse"``; else how the two differ."""
    model = model_of(op_type, asked)
    try:
        wanted: list[Any] | None = by_onnxruntime(model, asked)
    except Exception as error:
        wanted, why = None, str(error)[-120:]
    try:
        got = list(kvviz.run(kvviz.load(model), feeds_of(asked)).outputs.values())
    except KvvizError as error:
        return "both refuse" if wanted is None else f"refused here alone: {error}"
    if wanted is None:
        return f"refused by onnxruntime alone: {why}"
    found = [difference(have, want, rtol, atol) for have, want in zip(got, wanted, strict=True)]
    return next(filter(None, found), "same")


def difference(have: Any, want: Any, rtol: float, atol: float) -> str:
    """How a value differs from the oracle's; empty where it does not."""
    if isinstance(want, list):
        if not isinstance(have, list) or len(have) != len(want):
            return f"{have} in place of {want}"
        return next(filter(None, (difference(h, w, rtol, atol) for h, w in zip(have, want))), "")
    if isinstance(want, dict):
        same = set(have) == set(want) and all(np.isclose(have[label], want[label], rtol, atol) for label in want)
        return "" if same else "another map"
    if have.shape != want.shape or have.dtype != want.dtype:
        return f"{have.dtype}{have.shape} in place of {want.dtype}{want.shape}"
    if want.dtype.kind in "iubO":
        return "" if np.array_equal(have, want) else "other values"
    off = np.abs(have - want) > atol + rtol * np.abs(want)
    return f"{np.count_nonzero(off)} other numbers" if off.any() or (np.isnan(have) != np.isnan(want)).any() else ""


def normal(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def some(rng: Rng, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def shape(rng: Rng, rank: int, low: int = 1, high: int = 5) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(low, high, rank))


def i64(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int64)
