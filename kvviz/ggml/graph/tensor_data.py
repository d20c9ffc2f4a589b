"""What a tensor holds: its root's bytes, looked at by its own sizes and strides, also as q8_0 blocks and bf16.

Source: ``quantize_row_q8_0_ref`` and ``ggml_compute_fp32_to_bf16`` of ggml. The back end for x86 rounds halves in q8_0
to even, and multiplies by ``127 / amax``: a few quants may differ from it by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.ggml.graph.tensor import PLAIN, Tensor, described, type_size

Q8_0 = np.dtype([("d", "<f2"), ("qs", "i1", (32,))])
"""A block of 32 elements in 34 bytes."""

RUN_TYPES: dict[str, Any] = {**PLAIN, "bf16": np.uint16, "q8_0": Q8_0}
"""Element types that can be computed with, as NumPy stores them."""


def stored(tensor: Tensor) -> np.ndarray:
    """Its elements, or blocks, where they lie, (ne3, ne2, ne1, ne0); writing to them writes the root. Raises
    `KvvizError` if it has no data, reaches beyond its root, or is of a type that is not computed with."""
    root, block = tensor.root, type_size(tensor.type)[0]
    if tensor.type not in RUN_TYPES:
        raise KvvizError(f"{described(tensor)} cannot be computed: only {', '.join(RUN_TYPES)} can")
    if root.data is None:
        raise KvvizError(f"{described(root)} has no data: a recording cannot run again")
    # Without elements it takes no byte of its root, whatever its offset.
    start = tensor.view_offs if tensor.nbytes else 0
    if start + tensor.nbytes > root.nbytes:
        end = start + tensor.nbytes
        raise KvvizError(f"{described(tensor)} reaches byte {end} of {root.name!r}, which has {root.nbytes}")
    shape = (*tensor.ne[:0:-1], tensor.ne[0] // block)
    return np.ndarray(shape, RUN_TYPES[tensor.type], root.data, start, tensor.nb[::-1])


def read(tensor: Tensor) -> np.ndarray:
    """Its elements, (ne3, ne2, ne1, ne0): of floating types as float32, integers as they are; maybe no copy."""
    raw = stored(tensor)
    if tensor.type == "q8_0":
        return from_q8_0(raw)
    if tensor.type == "bf16":
        return from_bf16(raw)
    return raw.astype(np.float32) if tensor.type == "f16" else raw


def write(tensor: Tensor, values: np.ndarray) -> None:
    """Store elements, in a form that broadcasts to (ne3, ne2, ne1, ne0), in the tensor's own type."""
    raw = stored(tensor)
    with np.errstate(all="ignore"):
        raw[...] = to_type(values, tensor.type)


def to_type(values: np.ndarray, type_: str) -> np.ndarray:
    if type_ == "q8_0":
        return to_q8_0(values)
    if type_ == "bf16":
        return to_bf16(values)
    return values.astype(RUN_TYPES[type_], copy=False)


def rounded(values: np.ndarray, type_: str) -> np.ndarray:
    """Float32 numbers after a round trip through another element type."""
    if type_ == "f32":
        return values
    with np.errstate(all="ignore"):
        there = to_type(values, type_)
    return {"q8_0": from_q8_0, "bf16": from_bf16}.get(type_, lambda a: a.astype(np.float32))(there)


def allocate(root: Tensor) -> None:
    if root.data is None:
        root.data = np.zeros(root.nbytes, np.uint8)


def tensor_set(tensor: Tensor, values: Any) -> Tensor:
    """Fill a tensor with numbers, as ``ggml_backend_tensor_set`` does with bytes; returns the tensor.

    Parameters
    ----------
    values : array_like
        As many numbers as it has elements, those of ``ne[0]`` next to each other; or one for all.
    """
    array = np.asarray(values)
    shape = tensor.ne[::-1]
    if array.size not in (1, int(np.prod(shape))):
        raise KvvizError(f"{described(tensor)} takes {int(np.prod(shape))} numbers, not {array.size}")
    allocate(tensor.root)
    write(tensor, np.broadcast_to(array.reshape(-1), shape) if array.size == 1 else array.reshape(shape))
    note_values(tensor)
    return tensor


def tensor_get(tensor: Tensor) -> np.ndarray:
    """A copy of a tensor's data, the outermost axis first and axes of size 1 at that end cut: floats as float32.

    Raises
    ------
    KvvizError
        If it has not run yet.
    """
    if tensor.root.data is None:
        raise KvvizError(f"{described(tensor)} has not been computed")
    return read(tensor).reshape(tensor.region.shape).copy()


def has_numbers(tensor: Tensor) -> bool:
    """Whether there is something to look at."""
    return 0 not in tensor.ne and tensor.root.data is not None and tensor.type in RUN_TYPES


def note_values(tensor: Tensor) -> None:
    """Keep the content of an index: ops that use it touch the rows that it names."""
    root = tensor.root
    if root.type in ("i32", "i64") and root.data is not None:
        root.values = root.data.view(PLAIN[root.type]).copy()


def to_q8_0(floats: np.ndarray) -> np.ndarray:
    """Blocks of the last axis, whose length is a multiple of 32: ``d = amax / 127``, halves away from zero."""
    parts = floats.astype(np.float32, copy=False).reshape(*floats.shape[:-1], -1, 32)
    made = np.empty(parts.shape[:-1], Q8_0)
    with np.errstate(all="ignore"):
        d = np.abs(parts).max(-1) / np.float32(127)
        scaled = parts * np.where(d != 0, np.float32(1) / d, np.float32(0))[..., None]
        # In float64 a half can be added without rounding.
        made["qs"] = np.trunc(scaled.astype(np.float64) + np.copysign(0.5, scaled)).astype(np.int8)
        made["d"] = d.astype(np.float16)
    return made


def from_q8_0(blocks: np.ndarray) -> np.ndarray:
    """Elements of blocks, the last axis 32 times as long."""
    floats = blocks["qs"].astype(np.float32) * blocks["d"].astype(np.float32)[..., None]
    return floats.reshape(*blocks.shape[:-1], -1)


def to_bf16(floats: np.ndarray) -> np.ndarray:
    """Upper halves of float32, rounded to even, as uint16."""
    bits = np.ascontiguousarray(floats, np.float32).view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(floats), bits >> 16 | 64, rounded).astype(np.uint16)


def from_bf16(halves: np.ndarray) -> np.ndarray:
    return (halves.astype(np.uint32) << 16).view(np.float32)
