"""Random calls of single operators through `kvviz.run`, for onnxruntime to judge: results and refusals."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

import kvviz
from kvviz.errors import KvvizError
from tests.ops.kernels import differs
from tests.ops.ort_oracle import _session, one_node_model

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
    call = (asked.inputs, asked.n_outputs, asked.opset, asked.domain, asked.ml)
    return one_node_model(op_type, *call, **asked.attributes)


def feeds_of(asked: Asked) -> dict[str, Any]:
    return {f"x{i}": x for i, x in enumerate(asked.inputs) if x is not None}


def verdict(op_type: str, asked: Asked, rtol: float = 1e-3, atol: float = 1e-4) -> str:
    """``"same"`` or ``"both refuse"``; else how the two differ."""
    model = model_of(op_type, asked)
    try:
        wanted: list[Any] | None = list(_session(model.SerializeToString()).run(None, feeds_of(asked)))
    except Exception as error:
        wanted, why = None, str(error)[-120:]
    try:
        got = list(kvviz.run(kvviz.load(model), feeds_of(asked)).outputs.values())
    except KvvizError as error:
        return "both refuse" if wanted is None else f"refused here alone: {error}"
    if wanted is None:
        return f"refused by onnxruntime alone: {why}"
    found = [differs(have, want, rtol, atol) for have, want in zip(got, wanted, strict=True)]
    return next(filter(None, found), "same")


def normal(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def some(rng: Rng, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def shape(rng: Rng, rank: int, low: int = 1, high: int = 5) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(low, high, rank))
