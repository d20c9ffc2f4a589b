"""Weights of which only shape and type are there, or that are random."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from kvviz.decoders.decoder_shape import Shape
from kvviz.graph.tensors import Nowhere


@dataclass(frozen=True, slots=True)
class Sizes:
    """A source of weights that have no contents; with ``random``, small ones."""

    shape: Shape
    dtype: np.dtype
    random: np.random.Generator | None = None

    def tensor(self, name: str, *shape: int) -> np.ndarray:
        if self.random is None:
            return np.broadcast_to(np.empty((), self.dtype), shape)
        # Norms keep what passes them about as large as it was.
        small = self.random.standard_normal(shape) * (shape[-2] if len(shape) > 1 else 100) ** -0.5
        return (small + ("norm" in name and "bias" not in name)).astype(self.dtype)

    def matrix(self, name: str, inputs: int, outputs: int, turned_heads: int = 0) -> np.ndarray:
        return self.tensor(name, inputs, outputs)

    def joined(self, weights: list[np.ndarray]) -> np.ndarray:
        if self.random is None:
            return self.tensor("", *weights[0].shape[:-1], sum(weight.shape[-1] for weight in weights))
        return np.concatenate(weights, axis=-1)

    def finish(self) -> None: ...


class Absent:
    """A keeper of weights that are nowhere."""

    contents = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.mark = uuid.uuid4().hex
        self.arrays: dict[str, Nowhere] = {}

    def add(self, name: str, array: np.ndarray) -> TensorProto:
        location = f"{self.mark}-{len(self.arrays)}"
        self.arrays[location] = Nowhere(self.name)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        return tensor
