"""Forms in which one operator attends: Attention of ONNX, or GroupQueryAttention of onnxruntime.

In ``attention`` (opset 23) and ``gqa`` the operator appends to the cache itself; in ``static`` (opset 24) TensorScatter
overwrites rows of a cache of fixed size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from kvviz.decoders.forms import INPUTS, Form, MergedForm, ScatteredForm, cache_module


class AttentionForm(Form):
    name = "attention"
    opset = 23
    ir_version = 11
    by_head = False

    def norm(self, x: str, rest: str, weight: str) -> tuple[str, str]:
        return self.build.op("RMSNormalization", x, weight, axis=-1, epsilon=self.shape.epsilon), x

    def rotated(self, layer: int, x: str, heads: int, name: str) -> str:
        # Without a number of heads, the heads are separate already.
        options: dict[str, Any] = {"num_heads": heads} if heads else {}
        return self.build.op("RotaryEmbedding", x, *self.angles(layer), name=name, **options)

    def attend(self, layer: int, projected: tuple[str, ...]) -> str:
        shape, (q, k, v) = self.shape, projected
        if self._angles:
            q, k = self.rotated(layer, q, shape.heads, "q_rope"), self.rotated(layer, k, shape.kv_heads, "k_rope")
        return self._cached(layer, q, k, v)

    def _cached(self, layer: int, q: str, k: str, v: str) -> str:
        pasts, presents = self._pairs(layer)
        inputs = (q, k, v, self.bias(layer), *pasts)
        return self.build.node("Attention", inputs, ("", *presents), **self._heads("q_num_heads"))[0]

    def over(self, layer: int, q: str, keys: str, values: str, **options: Any) -> str:
        return self.build.op("Attention", q, keys, values, self.bias(layer), **options)

    def cross(self, q: str, keys: str, values: str) -> str:
        return self.build.op("Attention", q, keys, values, **self._heads("q_num_heads"))

    def _pairs(self, layer: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        first, second = (self.cache(layer, kind, self.shape.kv_heads, self.shape.head) for kind in self.kinds)
        return (first[0], second[0]), (first[1], second[1])

    def _heads(self, queries: str) -> dict[str, Any]:
        shape = self.shape
        given: dict[str, Any] = {queries: shape.heads, "kv_num_heads": shape.kv_heads}
        if shape.scale:
            given["scale"] = float(shape.scale)
        if shape.score_cap:
            given["softcap"] = float(shape.score_cap)
        return given


class StaticForm(AttentionForm):
    name = "static"
    opset = 24
    inputs = ("input_ids", "position_ids", "write_indices", "nonpad_kv_seqlen")
    rows = ("rows", "rows")
    caches_by_head = False

    def _mask(self, window: int) -> str:
        """Which rows a query sees, ``(batch, 1, new, rows)``; empty if there is no window."""
        if not window:
            return ""
        columns = self._columns(self.build.op("Squeeze", self._rows_before()))
        return self._back(columns, self.build.op("Unsqueeze", "position_ids", self.build.ints(1, 3)), window)

    def keep(self, layer: int, kind: str, new: str, heads: int, size: int) -> str:
        past, present = self.cache(layer, kind, heads, size)
        name = cache_module(kind)
        return self.build.op("TensorScatter", past, new, "write_indices", name=name, output=present, axis=1)

    def _cached(self, layer: int, q: str, k: str, v: str) -> str:
        heads, size = self.shape.kv_heads, self.shape.head
        keys, values = (self.keep(layer, kind, new, heads, size) for kind, new in zip(self.kinds, (k, v)))
        return self.over(layer, q, keys, values, **self._heads("q_num_heads"))

    def over(self, layer: int, q: str, keys: str, values: str, **options: Any) -> str:
        inputs = (q, keys, values, self.bias(layer), "", "", "nonpad_kv_seqlen")
        return self.build.op("Attention", *inputs, is_causal=1, **options)


class GroupedForm(AttentionForm):
    """The operator counts positions itself. It expects padding on the right, so all prompts of a batch must have the
    same length."""

    name = "gqa"
    inputs = INPUTS[:2]
    microsoft = True
    packed = True
    adds_in_norm = True
    _counts: tuple[str, ...] = ()

    def _turns(self, cos: str, sin: str) -> tuple[str, str]:
        return cos, sin

    def _mask(self, window: int) -> str:
        """Add the operator's counts: the tokens of each row less one, and the total length with padding."""
        if not self._counts:
            build = self.build
            count = build.op("ReduceSum", "attention_mask", build.ints(1), keepdims=0)
            last = build.op("Sub", count, build.constant("one", np.int64(1)))
            total = build.op("Squeeze", build.op("Shape", "attention_mask", start=1, end=2))
            self._counts = tuple(build.op("Cast", x, to=TensorProto.INT32) for x in (last, total))
        return ""

    def norm(self, x: str, rest: str, weight: str) -> tuple[str, str]:
        if not rest:
            return super().norm(x, rest, weight)
        kind, outputs = "SkipSimplifiedLayerNormalization", ("", None, None, "")
        made = self.build.node(kind, (x, rest, weight), outputs, domain="com.microsoft", epsilon=self.shape.epsilon)
        return made[0], made[3]

    def attend(self, layer: int, projected: tuple[str, ...]) -> str:
        window, options = self.shape.sight(layer).window, self._heads("num_heads")
        pasts, presents = self._pairs(layer)
        if window:
            options["local_window_size"] = window
        inputs = (*projected, *("",) * (3 - len(projected)), *pasts, *self._counts, *self.angles(layer))
        return self.build.node(
            "GroupQueryAttention", inputs, ("", *presents), domain="com.microsoft", do_rotary=1, **options
        )[0]


FORMS: dict[str, type[Form]] = {
    form.name: form for form in (Form, AttentionForm, GroupedForm, StaticForm, ScatteredForm, MergedForm)
}
"""Ways of keeping the cache: ``concat``, ``attention``, ``gqa``, ``static``, ``scatter_nd``, ``merged``."""

GROWING: dict[str, type[Form]] = {
    name: form for name, form in FORMS.items() if form.rows[0] == "past" and not form.merged
}
"""The forms whose cache grows, in one graph."""
