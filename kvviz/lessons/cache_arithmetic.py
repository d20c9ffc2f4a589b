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
from dataclasses import dataclass, replace
from difflib import get_close_matches
from html import escape
from numbers import Integral
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import ipywidgets
from IPython.display import display

from kvviz.errors import KvvizError
from kvviz.shapes import PRESETS
from kvviz.trace.schema.element_types import BLOCKS, nbytes
from kvviz.widget.still_image import stands_in

BANDWIDTHS: Mapping[str, float] = MappingProxyType(
    {"DDR5-5600, two channels": 89.6e9, "RTX 4090": 1008e9, "A100 80 GB": 2039e9, "H100 SXM": 3350e9}
)
"""Bytes a second that a memory delivers at most, by the makers' data sheets."""

DTYPES = ("float32", "float16", "bfloat16", "float8", "int8", "q8_0", "q5_0", "q4_0")
"""Element types that are offered; every other that `kvviz.trace.schema.element_types` knows is taken as well."""

_PLAIN = {"bfloat16": "float16", "float8": "int8"}  # of the size of what NumPy has no type for


def _positive(name: str, value: Any) -> int:
    """A count as a plain int, which does not overflow.

    Raises `KvvizError`: if it is no whole number from 1 on.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise KvvizError(f"{name} is {value!r}; it must be a whole number, 1 or more")
    return int(value)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder of the Llama family: grouped-query attention, a gated MLP of three matrices, RMSNorm."""

    name: str
    layers: int
    hidden: int  # width of the residual stream
    heads: int  # query heads
    kv_heads: int
    head_size: int  # elements of a head
    intermediate: int  # width inside the MLP
    vocabulary: int
    context: int  # longest sequence that it was made for
    tied: bool = False  # the output matrix is that of the embeddings
    biased: bool = False  # queries, keys and values have biases
    window: int | None = None  # of sliding-window attention: at most this many rows are read
    dtype: str = "bfloat16"  # of the published weights

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "kv_heads", "head_size", "intermediate", "vocabulary", "context"):
            object.__setattr__(self, name, _positive(name, getattr(self, name)))
        if self.window is not None:
            _positive("window", self.window)
        if self.heads % self.kv_heads:
            raise KvvizError(f"{self.heads} query heads cannot share {self.kv_heads} KV heads evenly")

    @property
    def parameters(self) -> int:
        """Number of weights, as the published files have them."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = 2 * self.hidden * queries + 2 * self.hidden * keys + self.biased * (queries + 2 * keys)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.layers * layer + self.hidden + self.vocabulary * self.hidden * (1 if self.tied else 2)


def _published(name: str, dtype: str = "bfloat16") -> ModelShape:
    """A decoder whose sizes `kvviz.shapes` has, with their sources."""
    size = PRESETS[name.lower()]
    sizes = (size.layers, size.hidden, size.heads, size.kv_heads, size.head, size.inner)
    options = (size.tied, size.biased, size.window or None)
    return ModelShape(name, *sizes, size.vocabulary, size.positions, *options, dtype)


_ALL = (
    ModelShape("storyteller", 3, 64, 4, 2, 16, 160, 128, 160, dtype="float32"),
    *map(_published, ("SmolLM2-135M", "Qwen2.5-0.5B", "TinyLlama-1.1B")),
    *(_published(name, "float16") for name in ("Llama-2-7B", "Llama-2-13B", "Llama-2-70B")),
    *map(_published, ("Mistral-7B", "Llama-3-8B", "Llama-3-70B", "Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B")),
)
MODELS: Mapping[str, ModelShape] = MappingProxyType({shape.name: shape for shape in _ALL})
"""The known models by name."""


@dataclass(frozen=True, slots=True)
class CacheSize:
    """The size of the caches of a batch of sequences."""

    shape: ModelShape
    length: int  # tokens of each sequence
    batch: int  # sequences
    dtype: str  # of the cache
    weight_dtype: str
    bandwidth: float  # bytes a second that the memory delivers

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one more token of one sequence adds, as long as nothing is thrown away."""
        return 2 * self.shape.layers * self.shape.kv_heads * _bytes(self.shape.head_size, self.dtype)

    @property
    def rows(self) -> int:
        """Tokens whose rows are kept for each sequence; at most the sliding window, if there is one."""
        return min(self.length, self.shape.window or self.length)

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
        # Of embeddings that are not the output matrix as well it looks one up.
        embeddings = 0 if self.shape.tied else self.shape.vocabulary * self.shape.hidden
        return _bytes(self.shape.parameters - embeddings, self.weight_dtype) + self.cache_bytes

    @property
    def tokens_per_second(self) -> float:
        """Tokens that all sequences together get in a second, at most."""
        return self.batch * self.bandwidth / self.step_bytes

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
        rows = "".join(f"<tr><td>{escape(name)}</td><td><b>{escape(text)}</b></td></tr>" for name, text in self.lines())
        return f"<table><caption>{escape(self.shape.name)}, cache in {escape(self.dtype)}</caption>{rows}</table>"


def cache_size(
    model: str | ModelShape,
    length: int | None = None,
    batch: int = 1,
    *,
    dtype: str | None = None,
    weight_dtype: str | None = None,
    bandwidth: float = BANDWIDTHS["A100 80 GB"],
) -> CacheSize:
    """The size of the KV caches of a model: one of `MODELS` by its name, in any case, or a shape of your own.

    ``length``: tokens of each sequence; by default the longest that the model was made for.
    ``dtype``, ``weight_dtype``: element types of cache and weights, block types such as ``"q8_0"`` too; by default that
    of the published weights.

    Raises `KvvizError`: if the model or a type is not known, or a number is not positive.

    Examples
    --------
    >>> binary(cache_size("Llama-3.1-70B", 131072).cache_bytes)
    '40 GiB'
    """
    shape = model if isinstance(model, ModelShape) else _known(model)
    length, batch = _positive("length", shape.context if length is None else length), _positive("batch", batch)
    if not isinstance(bandwidth, (int, float)) or not 0 < bandwidth < math.inf:
        raise KvvizError(f"bandwidth is {bandwidth!r}; give bytes a second, such as BANDWIDTHS['A100 80 GB']")
    kinds = dtype or shape.dtype, weight_dtype or shape.dtype
    for kind in kinds:
        _bytes(32, kind)
    return CacheSize(shape, length, batch, *kinds, bandwidth)


def binary(amount: float) -> str:
    """Bytes in binary units, as sizes of caches are quoted: ``128 KiB``, ``1.33 GiB``."""
    power = min(int(math.log2(max(amount, 1))) // 10, 4)
    return f"{amount / 1024**power:,.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def _known(name: Any) -> ModelShape:
    names = {known.lower(): known for known in MODELS}
    if isinstance(name, str) and name.lower() in names:
        return MODELS[names[name.lower()]]
    near = [names[one] for one in get_close_matches(str(name).lower(), list(names), 2)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(MODELS)}"
    raise KvvizError(f"there is no model {name!r} here: {hint}")


def _bytes(elements: int, dtype: str) -> int:
    try:
        size = nbytes((elements,), dtype if dtype in BLOCKS else _PLAIN.get(dtype, dtype))
    except TypeError:
        size = 0
    if size < 1:
        raise KvvizError(f"there is no element type {dtype!r}; choose one of {', '.join(DTYPES)}")
    return size


_OWN = "a shape of your own"


class Calculator(ipywidgets.VBox):
    """Sliders for model, length, batch, element types and memory; the figures and a chart follow them.

    It begins with one of `MODELS`, and a length and a batch as in `cache_size`.
    """

    def __init__(self, model: str = "Llama-3.1-8B", length: int | None = None, batch: int = 1) -> None:
        first = cache_size(model, length, batch)
        # What the sliders change is the model that was chosen last: where they came from makes no difference.
        self._chosen = self._shape = shape = first.shape
        self._key, self._setting = uuid4().hex, False
        look: dict[str, Any] = {"layout": ipywidgets.Layout(width="430px"), "style": {"description_width": "130px"}}
        lengths = [(f"{n:,}", n) for n in sorted({*(2**power for power in range(4, 21)), first.length})]
        kinds = list(dict.fromkeys((shape.dtype, *DTYPES)))
        memories = [(f"{name}: {rate / 1e9:,.4g} GB/s", rate) for name, rate in BANDWIDTHS.items()]
        dropdown, slider = ipywidgets.Dropdown, ipywidgets.IntSlider
        self.model = dropdown(options=[*MODELS, _OWN], value=shape.name, description="model", **look)
        self.layers = slider(shape.layers, 1, 160, description="layers", **look)
        self.kv_heads = slider(shape.kv_heads, 1, 128, description="KV heads", **look)
        self.head_size = slider(shape.head_size, 16, 256, 16, description="head size", **look)
        self.length = ipywidgets.SelectionSlider(options=lengths, value=first.length, description="tokens", **look)
        self.batch = slider(batch, 1, max(256, batch), description="sequences", **look)
        self.dtype = dropdown(options=kinds, value=shape.dtype, description="cache in", **look)
        self.weight_dtype = dropdown(options=kinds, value=shape.dtype, description="weights in", **look)
        self.bandwidth = dropdown(options=memories, value=first.bandwidth, description="memory", **look)
        self._shown = ipywidgets.HTML()
        shapes = (self.layers, self.kv_heads, self.head_size, self.length, self.batch)
        controls = (*shapes, self.dtype, self.weight_dtype, self.bandwidth)
        # Where there is no room for both, the figures go below the sliders.
        unshrunk = ipywidgets.Layout(flex="0 0 auto", max_width="100%", overflow="hidden")
        sliders = ipywidgets.VBox([self.model, *controls], layout=unshrunk)
        super().__init__([ipywidgets.HBox([sliders, self._shown], layout=ipywidgets.Layout(flex_flow="row wrap"))])
        self.add_class("kv-calculator")
        self.model.observe(self._choose, "value")
        for control in controls:
            control.observe(self._follow, "value")
        self._follow()

    @property
    def size(self) -> CacheSize:
        """The size of the caches as the controls stand."""
        kinds = {"dtype": self.dtype.value, "weight_dtype": self.weight_dtype.value}
        return cache_size(self._shape, self.length.value, self.batch.value, bandwidth=self.bandwidth.value, **kinds)

    def _choose(self, change: Any) -> None:
        """Move the sliders to the shape of the model that was chosen."""
        if change["new"] == _OWN:
            return
        self._chosen = self._shape = shape = MODELS[change["new"]]
        self._setting = True
        self.layers.value, self.kv_heads.value, self.head_size.value = shape.layers, shape.kv_heads, shape.head_size
        self.dtype.value = self.weight_dtype.value = shape.dtype
        self._setting = False
        self._follow()

    def _follow(self, change: Any = None) -> None:
        if self._setting:
            return
        sizes = {"layers": self.layers.value, "kv_heads": self.kv_heads.value, "head_size": self.head_size.value}
        if any(getattr(self._shape, name) != value for name, value in sizes.items()):
            heads = max(self._chosen.heads // sizes["kv_heads"], 1) * sizes["kv_heads"]
            self._shape = replace(self._chosen, name=_OWN, heads=heads, **sizes)
            self.model.value = _OWN
        self._shown.value = f"{self.size._repr_html_()}{chart(self.size)}"

    def _ipython_display_(self) -> None:
        """Show the sliders, and after them in an output of its own what a reader sees where they cannot be."""
        display(super()._repr_mimebundle_(), raw=True)
        display({"text/html": stands_in(self._key, self.size._repr_html_(), "kv-calculator")}, raw=True)

    def __repr__(self) -> str:
        return f"<Calculator: {self._shape.name}>"


def chart(size: CacheSize) -> str:
    """Bytes of cache and weights by the length of the sequences, both axes in powers of two, as an SVG.

    It takes the ink of what is around it, so that it is drawn on light and dark grounds alike.
    """
    left, right, top, bottom = 62, 416, 10, 180  # of the axes, in pixels
    first, last = 4, 20  # powers of two: lengths
    full = min(size.shape.window or 2**last, 2**last)  # from here on the cache is no longer
    ends = [size.batch * length * size.bytes_per_token for length in (2**first, full)]
    amounts = [*ends, size.weight_bytes]
    low, high = math.floor(math.log2(min(amounts))), math.ceil(math.log2(max(amounts)))

    def x(length: float) -> float:
        return left + (right - left) * (min(max(math.log2(length), first), last) - first) / (last - first)

    def y(amount: float) -> float:
        return bottom - (bottom - top) * (math.log2(amount) - low) / max(1, high - low)

    held, weights, here = binary(size.cache_bytes), y(size.weight_bytes), x(size.length)
    title = escape(f"{size.shape.name}: cache and weights by length; cache {held} at {size.length:,} tokens")
    parts = [
        f'<svg viewBox="0 0 430 210" width="430" height="210" role="img" aria-label="{title}" '
        'style="font: 10.5px system-ui, sans-serif" fill="currentColor" stroke="none">'
    ]
    for amount in (2**power for power in range(low, high + 1, max(1, (high - low) // 5))):
        parts += [f'<text x="{left - 6}" y="{y(amount) + 4:.1f}" text-anchor="end">{binary(amount)}</text>']
        parts += [f'<path d="M{left} {y(amount):.1f}H{right}" stroke="currentColor" stroke-opacity=".15"/>']
    for length, name in ((2**4, "16"), (2**8, "256"), (2**12, "4k"), (2**16, "64k"), (2**20, "1M")):
        parts += [f'<text x="{x(length):.1f}" y="{bottom + 16}" text-anchor="middle">{name}</text>']
    line = f"M{left} {y(ends[0]):.1f}L{x(full):.1f} {y(ends[1]):.1f}H{right}"
    parts += [
        f'<path d="M{left} {weights:.1f}H{right}" fill="none" stroke="#8a8f98" stroke-width="2"/>',
        f'<text x="{left + 5}" y="{weights - 5:.1f}">weights {binary(size.weight_bytes)}</text>',
        f'<path d="{line}" fill="none" stroke="#3b82d6" stroke-width="2"/>',
        f'<circle cx="{here:.1f}" cy="{y(size.cache_bytes):.1f}" r="5" fill="#3b82d6"/>',
        f'<text x="{min(here, 320) + 8:.1f}" y="{y(size.cache_bytes) + 14:.1f}">cache {held}</text>',
        f'<text x="{right}" y="208" text-anchor="end">tokens a sequence</text></svg>',
    ]
    return "".join(parts)
