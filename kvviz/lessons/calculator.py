"""The calculator: what a KV cache costs, with sliders."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape
from typing import Any
from uuid import uuid4

import ipywidgets
from IPython.display import display

from kvviz.lessons.cache_arithmetic import BANDWIDTHS, DTYPES, CacheSize, binary, cache_size
from kvviz.lessons.model_shapes import MODELS, ModelShape
from kvviz.widget.still_image import stands_in

_OWN = "a shape of your own"
_LONGEST = 2**20
_WIDE = ipywidgets.Layout(width="430px")
# Where there is no room for both, the figures go below the sliders.
_WRAPPED = ipywidgets.Layout(flex_flow="row wrap")
_UNSHRUNK = ipywidgets.Layout(flex="0 0 auto", max_width="100%", overflow="hidden")
_STYLE = {"description_width": "130px"}


class Calculator(ipywidgets.VBox):
    """Sliders for model, length, batch, element types and memory; the figures and a chart follow them.

    Parameters
    ----------
    model : str
        One of `kvviz.lessons.MODELS`.
    length, batch : int
        As in `cache_size`.

    Attributes
    ----------
    size : CacheSize
        What is shown.
    """

    def __init__(self, model: str = "Llama-3.1-8B", length: int | None = None, batch: int = 1) -> None:
        first = cache_size(model, length, batch)
        shape = first.shape
        options: dict[str, Any] = {"style": _STYLE, "layout": _WIDE}
        own = {"continuous_update": True, **options}
        self.model = ipywidgets.Dropdown(options=[*MODELS, _OWN], value=shape.name, description="model", **options)
        self.layers = ipywidgets.IntSlider(shape.layers, 1, 160, description="layers", **own)
        self.kv_heads = ipywidgets.IntSlider(shape.kv_heads, 1, 128, description="KV heads", **own)
        self.head_size = ipywidgets.IntSlider(shape.head_size, 16, 256, 16, description="head size", **own)
        self.length = ipywidgets.SelectionSlider(
            options=[(f"{n:,}", n) for n in _lengths(first.length)], value=first.length, description="tokens", **own
        )
        self.batch = ipywidgets.IntSlider(batch, 1, max(256, batch), description="sequences", **own)
        kinds = list(dict.fromkeys((shape.dtype, *DTYPES)))
        self.dtype = ipywidgets.Dropdown(options=kinds, value=shape.dtype, description="cache in", **options)
        self.weight_dtype = ipywidgets.Dropdown(options=kinds, value=shape.dtype, description="weights in", **options)
        self.bandwidth = ipywidgets.Dropdown(
            options=[(f"{name}: {rate / 1e9:,.4g} GB/s", rate) for name, rate in BANDWIDTHS.items()],
            value=BANDWIDTHS["A100 80 GB"],
            description="memory",
            **options,
        )
        self._shown = ipywidgets.HTML()
        # What the sliders change is the model that was chosen last: where they came from makes no difference.
        self._chosen = self._shape = shape
        self._key, self._setting = uuid4().hex, False
        self._controls = (
            *(self.model, self.layers, self.kv_heads, self.head_size, self.length, self.batch),
            *(self.dtype, self.weight_dtype, self.bandwidth),
        )
        sliders = ipywidgets.VBox(self._controls, layout=_UNSHRUNK)
        super().__init__([ipywidgets.HBox([sliders, self._shown], layout=_WRAPPED)])
        self.add_class("kv-calculator")
        self.model.observe(self._choose, "value")
        for control in self._controls[1:]:
            control.observe(self._follow, "value")
        self._follow()

    @property
    def size(self) -> CacheSize:
        """The size of the caches as the controls stand."""
        return cache_size(
            self._shape,
            self.length.value,
            self.batch.value,
            dtype=self.dtype.value,
            weight_dtype=self.weight_dtype.value,
            bandwidth=self.bandwidth.value,
        )

    def _choose(self, change: Any) -> None:
        """Show the shape of the model that was chosen; of one's own the sliders say it."""
        if change["new"] == _OWN:
            return
        self._chosen = self._shape = shape = MODELS[change["new"]]
        self._setting = True
        try:
            self.layers.value, self.kv_heads.value, self.head_size.value = shape.layers, shape.kv_heads, shape.head_size
            self.dtype.value = self.weight_dtype.value = shape.dtype
        finally:
            self._setting = False
        self._follow()

    def _follow(self, change: Any = None) -> None:
        if self._setting:
            return
        told = (self.layers.value, self.kv_heads.value, self.head_size.value)
        if told != (self._shape.layers, self._shape.kv_heads, self._shape.head_size):
            self._shape = _changed(self._chosen, *told)
            self.model.value = _OWN
        self._shown.value = f"{self.size._repr_html_()}{chart(self.size)}"

    def _ipython_display_(self) -> None:
        """Show the sliders, and behind them in an output of its own what a reader sees where they cannot be."""
        display(super()._repr_mimebundle_(), raw=True)
        display({"text/html": stands_in(self._key, self.size._repr_html_(), "kv-calculator")}, raw=True)

    def __repr__(self) -> str:
        return f"<Calculator: {self._shape.name}>"


def _lengths(*more: int) -> list[int]:
    return sorted({*(2**power for power in range(4, 21)), *more})


def _changed(shape: ModelShape, layers: int, kv_heads: int, head_size: int) -> ModelShape:
    """A shape with other layers and heads; its weights follow."""
    heads = max(shape.heads - shape.heads % kv_heads, kv_heads)
    return replace(shape, name=_OWN, layers=layers, heads=heads, kv_heads=kv_heads, head_size=head_size)


_W, _H, _LEFT, _BOTTOM, _TOP, _RIGHT = 430, 210, 62, 30, 10, 14


def chart(size: CacheSize) -> str:
    """Bytes of cache and weights by the length of the sequences, both axes in powers of two, as an SVG.

    It takes the ink of what is around it, so that it is drawn on light and dark grounds alike.
    """
    low, high = 16, _LONGEST
    per_token = size.batch * size.bytes_per_token
    window = size.shape.window or high
    ends = (per_token * low, per_token * min(window, high), size.weight_bytes)
    bottom, top = math.floor(math.log2(min(ends))), math.ceil(math.log2(max(ends)))

    def x(length: float) -> float:
        return _LEFT + (_W - _LEFT - _RIGHT) * math.log2(length / low) / math.log2(high / low)

    def y(amount: float) -> float:
        return _H - _BOTTOM - (_H - _BOTTOM - _TOP) * (math.log2(amount) - bottom) / max(1, top - bottom)

    line = f"M{x(low):.1f} {y(ends[0]):.1f}L{x(min(window, high)):.1f} {y(ends[1]):.1f}L{x(high):.1f} {y(ends[1]):.1f}"
    step = max(1, (top - bottom) // 5)
    marks = "".join(
        f'<text x="{_LEFT - 6}" y="{y(2.0**p) + 4:.1f}" text-anchor="end">{binary(2.0**p)}</text>'
        f'<path d="M{_LEFT} {y(2.0**p):.1f}H{_W - _RIGHT}" stroke="currentColor" stroke-opacity=".15"/>'
        for p in range(bottom, top + 1, step)
    ) + "".join(
        f'<text x="{x(2**p):.1f}" y="{_H - _BOTTOM + 16}" text-anchor="middle">{_short(2**p)}</text>'
        for p in range(4, 21, 4)
    )
    told = binary(size.cache_bytes)
    here = min(max(size.length, low), high)
    title = f"{size.shape.name}: cache and weights by length; cache {told} at {size.length:,} tokens"
    return (
        f'<svg viewBox="0 0 {_W} {_H}" width="{_W}" height="{_H}" role="img" aria-label="{escape(title)}" '
        'style="font: 10.5px system-ui, sans-serif" fill="currentColor" stroke="none">'
        f"{marks}"
        f'<path d="M{_LEFT} {y(size.weight_bytes):.1f}H{_W - _RIGHT}" fill="none" stroke="#8a8f98" stroke-width="2"/>'
        f'<text x="{_LEFT + 5}" y="{y(size.weight_bytes) - 5:.1f}">weights {binary(size.weight_bytes)}</text>'
        f'<path d="{line}" fill="none" stroke="#3b82d6" stroke-width="2"/>'
        f'<circle cx="{x(here):.1f}" cy="{y(size.cache_bytes):.1f}" r="5" fill="#3b82d6"/>'
        f'<text x="{min(x(here), _W - 110) + 8:.1f}" y="{y(size.cache_bytes) + 14:.1f}">cache {told}</text>'
        f'<text x="{_W - _RIGHT}" y="{_H - 2}" text-anchor="end">tokens a sequence</text></svg>'
    )


def _short(length: int) -> str:
    return f"{length // 2**20}M" if length >= 2**20 else f"{length // 1024}k" if length >= 1024 else str(length)
