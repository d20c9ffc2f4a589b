"""What a KV cache costs, from the shape of a model alone: bytes, and the pace that memory allows.

A cache has, for each token, layer, key or value, and KV head, one row of a head's size. To decode a token, all weights
but the input embeddings, and the whole cache, are read from memory once, and each element takes part in about two
operations: the pace is that of the memory, ``bandwidth / (weights + cache)`` steps a second (Austin and others, *How to
Scale Your Model*, "All About Transformer Inference"). A batch shares one reading of the weights, but each sequence has
a cache of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from numbers import Real
from types import MappingProxyType

from kvviz.errors import KvvizError
from kvviz.lessons.model_shapes import ModelShape, model_shape, positive
from kvviz.trace.element_types import BLOCKS, nbytes

BANDWIDTHS: Mapping[str, float] = MappingProxyType(
    {"DDR5-5600, two channels": 89.6e9, "RTX 4090": 1008e9, "A100 80 GB": 2039e9, "H100 SXM": 3350e9}
)
"""Bytes a second that a memory delivers at most, by the makers' data sheets."""

_USUAL = "A100 80 GB"

DTYPES = ("float32", "float16", "bfloat16", "float8", "int8", "q8_0", "q5_0", "q4_0")
"""Element types that are offered; every other that `kvviz.trace.element_types` knows is taken as well."""

# Sizes of what NumPy has no type for.
_PLAIN = {"bfloat16": "float16", "float8": "int8"}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class CacheSize:
    """The size of the caches of a batch of sequences.

    Attributes
    ----------
    shape : ModelShape
    length : int
        Tokens of each sequence.
    batch : int
        Sequences.
    dtype, weight_dtype : str
        Element types of cache and weights.
    bandwidth : float
        Bytes a second that the memory delivers.
    """

    shape: ModelShape
    length: int
    batch: int
    dtype: str
    weight_dtype: str
    bandwidth: float

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one more token of one sequence adds, as long as nothing is thrown away."""
        return 2 * self.shape.layers * self.shape.kv_heads * _bytes(self.shape.head_size, self.dtype)

    @property
    def rows(self) -> int:
        """Tokens whose rows are kept for each sequence; at most the sliding window, if there is one."""
        return self.length if self.shape.window is None else min(self.length, self.shape.window)

    @property
    def cache_bytes(self) -> int:
        """Bytes of all caches together."""
        return self.batch * self.rows * self.bytes_per_token

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return _bytes(self.shape.parameters, self.weight_dtype)

    @property
    def outgrows(self) -> int | None:
        """Length from which the caches are larger than the weights; None if a sliding window keeps them smaller."""
        length = self.weight_bytes // (self.batch * self.bytes_per_token) + 1
        return None if self.shape.window is not None and length > self.shape.window else length

    @property
    def grouping(self) -> int:
        """How many times smaller the caches are than if every query head had its own keys and values."""
        return self.shape.heads // self.shape.kv_heads

    @property
    def step_bytes(self) -> int:
        """Bytes that a decode step reads at least: the weights that it multiplies with, and all caches, once."""
        return _bytes(self.shape.parameters_read, self.weight_dtype) + self.cache_bytes

    @property
    def step_seconds(self) -> float:
        """Minimum time of a decode step in seconds."""
        return self.step_bytes / self.bandwidth

    @property
    def tokens_per_second(self) -> float:
        """Tokens that all sequences together get in a second, at most."""
        return self.batch / self.step_seconds

    def lines(self) -> list[tuple[str, str]]:
        """Names and figures to show."""
        outgrows = "never: the window is smaller" if self.outgrows is None else f"{self.outgrows:,} tokens a sequence"
        times = "1: every query head has keys and values of its own" if self.grouping == 1 else f"{self.grouping} times"
        rest = "" if self.shape.tied else " (of the embedding table one row)"
        kept = "" if self.rows == self.length else f" (the last {self.rows:,} tokens of {self.length:,})"
        return [
            ("one token adds", binary(self.bytes_per_token)),
            (f"cache, {self.batch} × {self.length:,} tokens", binary(self.cache_bytes) + kept),
            ("weights", f"{binary(self.weight_bytes)} ({self.shape.parameters:,} parameters)"),
            ("the cache outgrows the weights at", outgrows),
            ("saved by sharing key and value heads", times),
            ("one decode step reads", binary(self.step_bytes) + rest),
            (f"at {self.bandwidth / 1e9:,.4g} GB/s at most", f"{self.tokens_per_second:,.1f} tokens/s"),
        ]

    def __str__(self) -> str:
        return "\n".join([f"{self.shape.name}, cache in {self.dtype}", *(f"{n}: {v}" for n, v in self.lines())])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{escape(name)}</td><td><b>{escape(told)}</b></td></tr>" for name, told in self.lines())
        return f"<table><caption>{escape(self.shape.name)}, cache in {escape(self.dtype)}</caption>{rows}</table>"


def cache_size(
    model: str | ModelShape,
    length: int | None = None,
    batch: int = 1,
    *,
    dtype: str | None = None,
    weight_dtype: str | None = None,
    bandwidth: float = BANDWIDTHS[_USUAL],
) -> CacheSize:
    """The size of the KV caches of a model.

    Parameters
    ----------
    model : str or ModelShape
        One of `MODELS`, or a shape of your own.
    length : int, optional
        Tokens of each sequence; by default the longest that the model was made for.
    batch : int
        Sequences.
    dtype, weight_dtype : str, optional
        Element types of cache and weights, block types such as ``"q8_0"`` too; by default that of the published
        weights.
    bandwidth : float
        Bytes a second that the memory delivers.

    Returns
    -------
    CacheSize

    Raises
    ------
    KvvizError
        If the model or a type is not known, or a number is not positive.

    Examples
    --------
    >>> binary(cache_size("Llama-3.1-70B", 131072).cache_bytes)
    '40 GiB'
    """
    shape = model if isinstance(model, ModelShape) else model_shape(model)
    made = CacheSize(
        shape,
        shape.context if length is None else positive("length", length),
        positive("batch", batch),
        shape.dtype if dtype is None else dtype,
        shape.dtype if weight_dtype is None else weight_dtype,
        bandwidth,
    )
    if isinstance(bandwidth, bool) or not isinstance(bandwidth, Real) or not 0 < bandwidth < math.inf:
        raise KvvizError(f"bandwidth is {bandwidth!r}; give bytes a second, such as BANDWIDTHS[{_USUAL!r}]")
    for kind in (made.dtype, made.weight_dtype):
        _bytes(32, kind)
    return made


def binary(amount: float) -> str:
    """Bytes in binary units, as sizes of caches are quoted: ``128 KiB``, ``1.33 GiB``."""
    power = 0
    while amount >= 1024 and power < len(_UNITS) - 1:
        amount /= 1024
        power += 1
    return f"{amount:,.4g} {_UNITS[power]}"


def _bytes(elements: int, dtype: str) -> int:
    if dtype in BLOCKS:
        return nbytes((elements,), dtype)
    try:
        size = nbytes((elements,), _PLAIN.get(dtype, dtype))
    except TypeError:
        size = 0
    if size < 1:
        raise KvvizError(f"there is no element type {dtype!r}; choose one of {', '.join(DTYPES)}")
    return size
