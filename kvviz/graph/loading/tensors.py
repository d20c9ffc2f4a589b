"""Weights and attributes: tensors as read-only arrays, checked when the model is read and loaded when used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import helper, numpy_helper

from kvviz.errors import LimitError, LoadError, name_text, quoted
from kvviz.graph.loading.external import MissingDataError, Source, find_external, read_external
from kvviz.graph.model import Dim, Value
from kvviz.memory.storage import SMALL

_T = onnx.TensorProto
_TWICE = (_T.COMPLEX64, _T.COMPLEX128)
# Bits of element types of which several share a byte.
_PACKED = dict.fromkeys((_T.INT4, _T.UINT4, _T.FLOAT4E2M1), 4) | dict.fromkeys((_T.INT2, _T.UINT2), 2)
_PACKED |= {code: 6 for name, code in _T.DataType.items() if name.startswith("FLOAT6")}


@dataclass(frozen=True, slots=True)
class Nowhere:
    """The contents of a weight of a model that was made from shapes."""

    model: str

    def numpy(self) -> NoReturn:
        raise LoadError(f"{self.model} was made from its shapes and has no weights; use kvviz.dry")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A weight that was checked but perhaps not read yet."""

    value: Value
    nbytes: int  # size in the model's own encoding (two 4-bit elements a byte)
    read: Callable[[], np.ndarray]

    @property
    def absence(self) -> Nowhere | None:
        reader = getattr(self.read, "__self__", None)
        return reader if isinstance(reader, Nowhere) else None


@dataclass(slots=True)
class Weights(Mapping[str, np.ndarray]):
    """Mapping of weight names to read-only arrays; each is read on first use and then kept."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    _arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def __getitem__(self, name: str) -> np.ndarray:
        array = self._arrays.get(name)
        if array is None:
            array = self._arrays[name] = frozen(self.tensors[name].read())
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with the arrays, which are read for it: the model's files may be missing where they are unpickled."""
        stored: dict[str, tuple[Value, int, np.ndarray | Nowhere]] = {}
        for name, tensor in self.tensors.items():
            stored[name] = tensor.value, tensor.nbytes, tensor.absence or self[name]
        return _unpickled, (stored,)

    def declared(self, name: str) -> Value:
        return self.tensors[name].value

    def has_contents(self, name: str) -> bool:
        return self.tensors[name].absence is None

    def nbytes(self, name: str) -> int:
        """Size of a weight as the model stores it, in bytes, without reading it."""
        return self.tensors[name].nbytes


def _unpickled(stored: Mapping[str, tuple[Value, int, np.ndarray | Nowhere]]) -> Weights:
    return Weights(
        {
            name: Tensor(value, nbytes, found.numpy)
            if isinstance(found, Nowhere)
            else replace(held(name, found), value=value, nbytes=nbytes)
            for name, (value, nbytes, found) in stored.items()
        }
    )


def frozen(array: np.ndarray) -> np.ndarray:
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def held(name: str, array: np.ndarray) -> Tensor:
    return Tensor(Value(name, array.dtype, array.shape), array.nbytes, lambda: array)


def element_type(code: int, what: str, source: Source) -> np.dtype | None:
    """NumPy's type for an ONNX element type number (strings are objects); None for "undefined"."""
    if code == _T.UNDEFINED:
        return None
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(code))
    except KeyError:
        raise LoadError(
            f"{what} of {source.label} has the unknown element type {code}; export the model again"
        ) from None


def read_tensor(proto: Any, source: Source, what: str = "", name: str = "") -> Tensor:
    """Check a TensorProto and return it as a weight. External files are not read here, but their existence, place and
    size are checked."""
    what = what or f"weight {quoted(name_text(proto.name))}"
    dims = tuple(proto.dims)
    dtype = element_type(proto.data_type, what, source)
    if dtype is None:
        raise LoadError(f"{what} of {source.label} has no element type; export the model again")
    size, nbytes = _declared_size(dims, proto.data_type, dtype, what, source)
    value = Value(name or proto.name, dtype, dims)
    if proto.data_location == _T.EXTERNAL:
        return Tensor(value, nbytes, _external(proto, source, what, dtype, nbytes))
    _check_inline(proto, size, nbytes, what, source)
    if proto.data_type == _T.STRING:
        return Tensor(value, nbytes, _guarded(lambda: _strings(proto, what, source), what, source))
    return Tensor(value, nbytes, _guarded(lambda: _moved(numpy_helper.to_array(proto), source), what, source))


def _moved(array: np.ndarray, source: Source) -> np.ndarray:
    """A weight, in one of the model's blocks if it is large. Its memory is read-only, so that kernels may keep what
    they compute from it."""
    if not array.size or array.dtype.hasobject:
        return array
    if array.nbytes < SMALL:
        data = memoryview(array.tobytes())
    else:
        data = source.blocks.take(array.nbytes)
        np.frombuffer(data, array.dtype).reshape(array.shape)[...] = array
    return np.frombuffer(data.toreadonly(), array.dtype).reshape(array.shape)


def read_sparse(proto: Any, source: Source, what: str = "", name: str = "") -> Tensor:
    """Check a SparseTensorProto (COO; indices linear or one row per element) and return it as a dense weight."""
    name = name or proto.values.name
    what = what or f"sparse weight {quoted(name)}"
    dims = tuple(proto.dims)
    values, indices = read_tensor(proto.values, source, what), read_tensor(proto.indices, source, what)
    size, nbytes = _declared_size(dims, proto.values.data_type, values.value.dtype, what, source)

    def dense() -> np.ndarray:
        data, where = values.read(), indices.read()
        if where.ndim == 2 and len(dims) != where.shape[1]:
            raise ValueError(f"{where.shape[1]} indices an element for {len(dims)} dimensions")
        flat = where if where.ndim == 1 else np.ravel_multi_index(tuple(where.T), dims)
        if flat.shape != data.shape or (flat.size and not 0 <= flat.min() <= flat.max() < size):
            raise ValueError("its indices lie outside its shape")
        out = np.zeros(size, data.dtype)
        out[flat] = data
        return out.reshape(dims)

    return Tensor(Value(name, values.value.dtype, dims), nbytes, _guarded(dense, what, source))


def _declared_size(
    dims: tuple[int, ...], code: int, dtype: np.dtype | None, what: str, source: Source
) -> tuple[int, int]:
    """(elements, bytes) of a shape and element type, checked against the limit."""
    if any(dim < 0 for dim in dims):
        raise LoadError(f"{what} of {source.label} has the shape {list(dims)} with a negative length")
    size = math.prod(dims)
    # A string counts with its reference.
    bits = _PACKED.get(code, 8 * dtype.itemsize if dtype is not None else 8)
    nbytes = (size * bits + 7) // 8
    if nbytes > source.limit:
        raise LimitError(
            f"{what} of {source.label} declares {nbytes:,} bytes (shape {list(dims)}), more than the limit "
            f"of {source.limit:,}; pass a larger tensor_limit= if this size is correct"
        )
    return size, nbytes


def _check_inline(proto: Any, size: int, nbytes: int, what: str, source: Source) -> None:
    if proto.HasField("raw_data"):
        have, need, unit = len(proto.raw_data), nbytes, "bytes"
        if proto.data_type == _T.STRING:
            raise LoadError(f"{what} of {source.label} keeps strings as raw data, which ONNX forbids; export it again")
    else:
        fieldname = helper.tensor_dtype_to_field(proto.data_type)
        # Two 4-bit or four 2-bit elements share one entry, as they would share one byte.
        need = nbytes if _PACKED.get(proto.data_type) in (2, 4) else size * (1 + (proto.data_type in _TWICE))
        have, unit = len(getattr(proto, fieldname)), f"entries in {fieldname}"
    if have != need:
        raise LoadError(
            f"{what} of {source.label} has {have:,} {unit} where its shape {list(proto.dims)} needs {need:,}; "
            "the file is damaged, get it or export it again"
        )


def _strings(proto: Any, what: str, source: Source) -> np.ndarray:
    try:
        strings = [entry.decode() for entry in proto.string_data]
    except UnicodeDecodeError as error:
        raise LoadError(f"{what} of {source.label} holds a string that is not UTF-8: {error}") from None
    array = np.empty(len(strings), object)
    array[:] = strings
    return array.reshape(tuple(proto.dims))


def _external(proto: Any, source: Source, what: str, dtype: np.dtype, nbytes: int) -> Callable[[], np.ndarray]:
    entries = {name_text(entry.key): name_text(entry.value) for entry in proto.external_data}
    kept = source.held.get(entries.get("location", ""))
    if kept is not None:
        if isinstance(kept, Nowhere):
            return kept.numpy
        return _guarded((lambda: kept) if isinstance(kept, np.ndarray) else kept.numpy, what, source)
    found: tuple[str, int] | None = None
    # A dry run needs no data. Readers of a weight whose data are missing get the error, or the data if they have
    # appeared since.
    with suppress(MissingDataError):
        found = find_external(entries, nbytes, what, source)

    def contents() -> np.ndarray:
        if not nbytes:
            return np.zeros(tuple(proto.dims), dtype)
        path, offset = found or find_external(entries, nbytes, what, source)
        packed = proto.data_type in _PACKED
        data = memoryview(bytearray(nbytes)) if packed or nbytes < SMALL else source.blocks.take(nbytes)
        read_external(path, offset, data, source)
        if packed:
            inline = _T(data_type=proto.data_type, dims=proto.dims, raw_data=data.tobytes())
            return _moved(numpy_helper.to_array(inline), source)
        return np.frombuffer(data.toreadonly(), dtype).reshape(tuple(proto.dims))

    return _guarded(contents, what, source)


def _guarded(read: Callable[[], np.ndarray], what: str, source: Source) -> Callable[[], np.ndarray]:
    def guarded() -> np.ndarray:
        try:
            return read()
        except (LoadError, MemoryError):
            raise
        except Exception as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise LoadError(f"{what} of {source.label} cannot be read: {why}") from error

    return guarded


_A = onnx.AttributeProto


def attribute(proto: Any, node: str, source: Source) -> Any:
    """Value of an attribute other than a graph. Numbers and strings become Python's own (bytes that are not UTF-8 stay
    bytes), lists become tuples, tensors read-only arrays, sparse ones dense, and types a nameless ``Value``."""
    what = f"attribute {quoted(name_text(proto.name))} of {node}"
    kind = proto.type or _guess(proto)
    if kind == _A.UNDEFINED:
        return None
    if kind not in _A.AttributeType.values():
        raise LoadError(f"{what} of {source.label} has the unknown kind {kind}; export the model again")
    if not proto.type or proto.ref_attr_name:
        typed = _A(type=kind)
        typed.MergeFrom(proto)
        typed.type = kind
        typed.ClearField("ref_attr_name")
        proto = typed
    return _own(helper.get_attribute_value(proto), what, source)


def _own(value: Any, what: str, source: Source) -> Any:
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, onnx.TensorProto):
        return frozen(read_tensor(value, source, what).read())
    if isinstance(value, onnx.SparseTensorProto):
        return frozen(read_sparse(value, source, what).read())
    if isinstance(value, onnx.TypeProto):
        return value_type("", value, source, what)
    return tuple(_own(item, what, source) for item in value) if isinstance(value, list) else value


def constant(node: Any, name: str, source: Source) -> Tensor:
    """The weight of a Constant node, in any of the seven forms of ONNX's Constant."""
    what = f"constant {quoted(name)}"
    for proto in node.attribute:
        if proto.name == "value":
            return read_tensor(proto.t, source, what, name)
        if proto.name == "sparse_value":
            return read_sparse(proto.sparse_tensor, source, what, name)
        if proto.name in _CONSTANTS:
            return held(name, frozen(np.array(attribute(proto, what, source), _CONSTANTS[proto.name])))
    raise LoadError(
        f"the Constant node that makes {quoted(name)} in {source.label} has no value; export the model again"
    )


def value_type(name: str, proto: Any, source: Source, what: str = "") -> Value:
    what = what or f"value {quoted(name)}"
    kind = proto.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return Value(name, kind=kind.removesuffix("_type"))
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return Value(name, kind="map" if kind == "map_type" else "tensor")
    tensor = getattr(proto, kind)
    shape = tuple(_dim(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
    return Value(name, element_type(tensor.elem_type, what, source), shape)


def _dim(proto: Any) -> Dim:
    if proto.HasField("dim_value"):
        # A negative length means a free one, as onnxruntime reads it (1.31, and exporters of Keras).
        return int(proto.dim_value) if proto.dim_value >= 0 else None
    return name_text(proto.dim_param) or None


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _guess(proto: Any) -> int:
    """The kind of an attribute without a type, as in models of IR 1 and 2."""
    for kind, name in _FIELDS.items():
        if proto.HasField(name) if name in ("f", "i", "s", "t") else len(getattr(proto, name)):
            return kind
    return int(_A.UNDEFINED)


_FIELDS = {_A.TENSOR: "t", _A.FLOAT: "f", _A.INT: "i", _A.STRING: "s"}
_FIELDS |= {_A.FLOATS: "floats", _A.INTS: "ints", _A.STRINGS: "strings", _A.TENSORS: "tensors"}
_CONSTANTS: dict[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}
