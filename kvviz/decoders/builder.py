"""Collecting the nodes and weights of a graph, with names that contain their module.

Large weights go to one file beside the model; each begins on a page, so that the file can be memory-mapped.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike
from onnx import NodeProto, TensorProto, helper, numpy_helper

PAGE = 4096


class Store:
    contents = True

    def __init__(self, path: Path) -> None:
        self.path = path
        # Never an existing file, which another process may have mapped.
        self._file = path.open("xb")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def add(self, name: str, array: np.ndarray) -> TensorProto:
        """Write an array, in C order and little-endian, at the next multiple of 4096 bytes; returns its initializer."""
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        self._file.write(bytes(-self._file.tell() % PAGE))
        entries = {"location": self.path.name, "offset": self._file.tell(), "length": array.nbytes}
        array.tofile(self._file)
        tensor = TensorProto(
            name=name,
            data_type=helper.np_dtype_to_tensor_dtype(array.dtype.newbyteorder("=")),
            dims=array.shape,
            data_location=TensorProto.EXTERNAL,
        )
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    @property
    def nbytes(self) -> int:
        return self._file.tell() if not self._file.closed else self.path.stat().st_size


class Held:
    """Arrays in memory instead of a file, by the location in their initializers. ``absent``: stands for weights without
    contents."""

    def __init__(self, absent: Any = None) -> None:
        # A prefix that no file contains by chance or intent.
        self._prefix = uuid.uuid4().hex
        self._absent = absent
        self.contents = absent is None
        self.arrays: dict[str, Any] = {}

    def add(self, name: str, array: np.ndarray) -> TensorProto:
        """Keep an array, in C order; returns its initializer."""
        location = f"{self._prefix}-{len(self.arrays)}"
        self.arrays[location] = self._absent
        if self._absent is None:
            array = np.ascontiguousarray(array)
            # A copy in memory of its own: a view would keep the whole file alive.
            self.arrays[location] = array = array if array.base is None else array.copy()
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        return tensor


class Keeper(Protocol):
    """Keeps large weights. Without ``contents``, only their types and shapes are kept."""

    contents: bool

    def add(self, name: str, array: np.ndarray) -> TensorProto: ...


class Builder:
    """Nodes, and the weights that they read; large ones go to the store. ``dtype``: what the model computes in."""

    def __init__(self, store: Keeper, dtype: DTypeLike = np.float32) -> None:
        self.store = store
        self.dtype = np.dtype(dtype)
        self.scope = ""
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, TensorProto] = {}
        self._names: dict[str, int] = {}

    def op(self, op: str, *inputs: str, name: str = "", output: str = "", domain: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return the output's name; ``name`` is the module within the scope, such as
        ``"q_proj"``."""
        return self.node(op, inputs, (output,), name, domain, **attributes)[0]

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str | None],
        name: str = "",
        domain: str = "",
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Add a node. Outputs without a name (``""``) are named after it; None is an unused output."""
        full = self._unique("/".join(filter(None, (self.scope, name, op))))
        made = tuple("" if out is None else out or f"{full}_output_{i}" for i, out in enumerate(outputs))
        self.nodes.append(helper.make_node(op, inputs, made, full, domain=domain, **attributes))
        return made

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights[name] = self.store.add(name, array)
        return name

    def constant(self, name: str, array: np.ndarray | np.generic) -> str:
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def number(self, name: str, value: float | np.floating[Any]) -> str:
        """A scalar of the type that the model computes in."""
        return self.constant(name, np.asarray(value, self.dtype))

    def ints(self, *values: int) -> str:
        return self.constant(f"ints.{'_'.join(map(str, values))}", np.array(values, np.int64))

    def _unique(self, name: str) -> str:
        seen = self._names.get(name, 0)
        self._names[name] = seen + 1
        return f"{name}_{seen}" if seen else name
