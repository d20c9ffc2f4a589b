"""Weights in one file beside the model, each beginning on a page, so that whoever reads them can map them."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import numpy as np
from onnx import TensorProto, helper

PAGE = 4096


class Store:
    """A file, not there yet, that arrays are appended to, for a model with external data in the same folder."""

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
