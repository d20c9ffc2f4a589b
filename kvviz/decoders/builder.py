"""Collecting the nodes and weights of a graph, with names that say in which module they are.

Large weights lie in one file beside the model, each beginning on a page, so that whoever reads them can map them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike
from onnx import NodeProto, TensorProto, helper, numpy_helper

PAGE = 4096


class Store:
    """A file, not there yet, that arrays are appended to, for a model with external data in the same folder."""

    contents = True

    def __init__(self, path: Path) -> None:
        self.path = path
        # Never one that is there: a file that somebody has mapped must not change under them.
        self._file = path.open("xb")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def add(self, name: str, array: np.ndarray) -> TensorProto:
        """Write an array, in C order and little-endian, at the next multiple of 4096 bytes; gives its initializer."""
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
    """Arrays in memory in place of a file, by the location that their initializers name."""

    contents = True

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.arrays: dict[str, np.ndarray] = {}

    def add(self, name: str, array: np.ndarray) -> TensorProto:
        """Keep an array, in C order; gives its initializer."""
        location = f"{self.mark}-{len(self.arrays)}"
        array = np.ascontiguousarray(array)
        # Memory of its own: a view would count as all of the file that it looks into.
        self.arrays[location] = array = array if array.base is None else array.copy()
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        return tensor


class Keeper(Protocol):
    """Where large weights go; gives their initializers. Without ``contents`` only types and shapes are kept."""

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
        """Add a node of one output, and give that output's name; ``name`` is the module within the scope, as
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
        """Add a node. Outputs without a name (``""``) are called after it; None stands for one that nobody reads."""
        full = self._unique("/".join(filter(None, (self.scope, name, op))))
        made = tuple("" if out is None else out or f"{full}_output_{i}" for i, out in enumerate(outputs))
        self.nodes.append(helper.make_node(op, inputs, made, full, domain=domain, **attributes))
        return made

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights[name] = self.store.add(name, array)
        return name

    def constant(self, name: str, array: np.ndarray | np.generic) -> str:
        """Keep a small weight in the model itself; of one name there is one."""
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def number(self, name: str, value: float | np.floating[Any]) -> str:
        """A number in the type that the model computes in."""
        return self.constant(name, np.asarray(value, self.dtype))

    def ints(self, *values: int) -> str:
        return self.constant(f"ints.{'_'.join(map(str, values))}", np.array(values, np.int64))

    def _unique(self, name: str) -> str:
        seen = self._names.get(name, 0)
        self._names[name] = seen + 1
        return f"{name}_{seen}" if seen else name
