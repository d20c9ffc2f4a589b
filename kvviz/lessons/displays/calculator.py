"""The calculator: what a KV cache costs, with sliders."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape
from typing import Any
from uuid import uuid4

import ipywidgets
from IPython.display import display

from kvviz.lessons.cache_arithmetic import BANDWIDTHS, DTYPES, MODELS, CacheSize, binary, cache_size
from kvviz.widget.still_image import stands_in

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
        """Show the sliders, and behind them in an output of its own what a reader sees where they cannot be."""
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
