"""Decoders of published sizes as graphs without weights, for `kvviz.dry`: what they cost follows from their shapes.

Sizes are those of the models' published configurations.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from numpy.typing import DTypeLike
from onnx import TensorProto, helper

from kvviz.errors import InputError, LoadError
from kvviz.graph.load import assembled
from kvviz.graph.model import Graph
from kvviz.smollm2.checkpoint import Shape
from kvviz.smollm2.decoder import FORMS, decoder

_LLAMA_3 = Shape(32, 4096, 14336, 128256, 32, 8, 128, 8192, 5e5, 1e-5, False)
PRESETS: dict[str, Shape] = {
    "llama-2-7b": Shape(32, 4096, 11008, 32000, 32, 32, 128, 4096, 1e4, 1e-5, False),
    "llama-3-8b": _LLAMA_3,
    "llama-3-70b": replace(_LLAMA_3, layers=80, hidden=8192, inner=28672, heads=64),
    "llama-3.1-8b": replace(_LLAMA_3, positions=131072),
    "llama-3.1-70b": replace(_LLAMA_3, layers=80, hidden=8192, inner=28672, heads=64, positions=131072),
    "llama-3.1-405b": replace(_LLAMA_3, layers=126, hidden=16384, inner=53248, heads=128, positions=131072),
    "llama-3.2-1b": Shape(16, 2048, 8192, 128256, 32, 8, 64, 131072, 5e5, 1e-5, True),
    "llama-3.2-3b": Shape(28, 3072, 8192, 128256, 24, 8, 128, 131072, 5e5, 1e-5, True),
    "smollm2-135m": Shape(30, 576, 1536, 49152, 9, 3, 64, 8192, 1e5, 1e-5, True),
}
"""Sizes by name: layers, hidden, inner, vocabulary, heads, key heads, head size, positions."""


def llama(
    layers: int = 32,
    hidden: int = 4096,
    heads: int = 32,
    kv_heads: int | None = None,
    *,
    inner: int | None = None,
    vocabulary: int = 128256,
    head: int | None = None,
    positions: int = 131072,
    tied: bool = False,
    form: str = "concat",
    dtype: DTypeLike = "float16",
    name: str = "llama",
) -> Graph:
    """A decoder of the Llama family without weights.

    Parameters
    ----------
    layers, hidden, heads : int
        Number of layers, width of the residual stream, query heads.
    kv_heads : int, optional
        Key heads; as many as query heads by default.
    inner : int, optional
        Width of the feed-forward part; 3.5 × ``hidden`` by default.
    vocabulary, head, positions : int
        Number of tokens, size of a head (``hidden / heads`` by default), longest context.
    tied : bool
        The head reads the embedding's weights.
    form : str
        How the cache is kept: ``"concat"`` (elementary operators, opset 18), ``"attention"`` (Attention of opset 23),
        ``"gqa"`` (GroupQueryAttention of onnxruntime).
    dtype : dtype
        Of weights, caches and activations.
    name : str
        Of the graph.

    Returns
    -------
    Graph
        For `kvviz.dry`. To run it with numbers raises `LoadError`.

    Raises
    ------
    InputError
        There is no such form, or the sizes do not go together.

    Examples
    --------
    >>> graph = kvviz.shapes.llama(layers=80, hidden=8192, heads=64, kv_heads=8, form="gqa")
    """
    size = Shape(
        layers,
        hidden,
        hidden * 7 // 2 if inner is None else inner,
        vocabulary,
        heads,
        heads if kv_heads is None else kv_heads,
        hidden // max(heads, 1) if head is None else head,
        positions,
        5e5,
        1e-5,
        tied,
    )
    return _graph(size, form, dtype, name)


def preset(name: str, *, form: str = "concat", dtype: DTypeLike = "float16") -> Graph:
    """A decoder of a published size without weights: ``kvviz.shapes.PRESETS`` has the names; the rest as in `llama`.

    Raises
    ------
    InputError
        There is no model of that name, or no such form.

    Examples
    --------
    >>> graph = kvviz.shapes.preset("llama-3-70b", form="gqa")
    """
    size = PRESETS.get(name)
    if size is None:
        raise InputError(f"no sizes are known of {name!r}; there are {', '.join(PRESETS)}")
    return _graph(size, form, dtype, name)


def _graph(size: Shape, form: str, dtype: DTypeLike, name: str) -> Graph:
    if form not in FORMS:
        raise InputError(f"there is no form {form!r}; there are {', '.join(FORMS)}")
    sizes = (
        size.layers,
        size.hidden,
        size.inner,
        size.vocabulary,
        size.heads,
        size.kv_heads,
        size.head,
        size.positions,
    )
    if min(sizes) < 1:
        raise InputError(f"layers, widths, heads, vocabulary and positions must be 1 or more, not {min(sizes)}")
    if size.heads % size.kv_heads or size.head % 2:
        raise InputError(
            f"{size.heads} heads of {size.head} for {size.kv_heads} key heads do not go together: the number of heads "
            "must be a multiple of the key heads, and their size even"
        )
    kind = helper.tensor_dtype_to_np_dtype(_code(dtype))
    absent = _Absent(name)
    proto = decoder(_Sizes(size, kind), FORMS[form], absent, kind)
    return assembled(proto, absent.weights, f"the shapes of {name}", name)


def _code(dtype: DTypeLike) -> int:
    """The ONNX element type of a dtype, also for names that NumPy does not know (``"bfloat16"``)."""
    if isinstance(dtype, str) and dtype.upper() in dict(TensorProto.DataType.items()):
        return int(TensorProto.DataType.Value(dtype.upper()))
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Weights of which only shape and type are there."""

    shape: Shape
    dtype: np.dtype

    def vector(self, name: str) -> np.ndarray:
        return self._of(self.shape.hidden)

    def matrix(self, name: str, inputs: int, outputs: int, turned_heads: int = 0) -> np.ndarray:
        return self._of(inputs, outputs)

    def joined(self, weights: list[np.ndarray]) -> np.ndarray:
        return self._of(len(weights[0]), sum(weight.shape[1] for weight in weights))

    def finish(self) -> None: ...

    def _of(self, *shape: int) -> np.ndarray:
        return np.broadcast_to(np.empty((), self.dtype), shape)


class _Absent:
    """Initializers of weights that are nowhere."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.mark = uuid.uuid4().hex
        self.weights: dict[str, _Nowhere] = {}

    def add(self, name: str, array: np.ndarray) -> TensorProto:
        location = f"{self.mark}-{len(self.weights)}"
        self.weights[location] = _Nowhere(self.name)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        return tensor


@dataclass(frozen=True, slots=True)
class _Nowhere:
    model: str

    def numpy(self) -> NoReturn:
        raise LoadError(f"{self.model} was made from its shapes and has no weights; use kvviz.dry")
