"""The forms of a decoder: which operators keep its cache and attend to it.

``concat`` and ``scatter_nd`` use elementary operators only, as exporters do at opset 18: the cache grows by Concat, or
has a fixed number of rows that ScatterND overwrites between two Transposes. The others are in `operator_forms`.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import ValueInfoProto, helper

from kvviz.decoders.builder import Builder
from kvviz.decoders.decoder_shape import Shape, Sight

INPUTS = ("input_ids", "attention_mask", "position_ids")


class Form:
    """``concat``, and the base of the other forms: how the cache is kept, the mask, and the operators of attention.
    Values between operators are ``(batch, new, heads·size)``. With ``by_head``, queries, keys and values are ``(batch,
    heads, new, size)`` while they are rotated, kept and attended to."""

    name = "concat"
    opset = 18
    ir_version = 8
    inputs: tuple[str, ...] = INPUTS  # inputs other than caches
    positions = "position_ids"
    rows = ("past", "total")  # of a cache, before and after a run
    by_head = True
    caches_by_head = True  # caches are ``(batch, heads, rows, size)``; else ``(batch, rows, heads·size)``
    microsoft = False  # it uses operators of onnxruntime
    packed = False  # queries, keys and values are projected by one product and stay side by side
    adds_in_norm = False  # residual sums are left to the norm after them
    merged = False  # an If chooses between a graph that reads the cache and one for the prompt alone

    def __init__(self, build: Builder, shape: Shape) -> None:
        self.build, self.shape = build, shape
        self.pasts: list[ValueInfoProto] = []
        self.presents: list[ValueInfoProto] = []
        self._biases: dict[int, str] = {}
        self._angles: dict[float, tuple[str, str]] = {}

    def prepare(self, sight: Sight) -> None:
        """Add what all layers with one sight share: cosines and sines of the tokens' positions, and the mask."""
        if not self.shape.encoder_rows and sight.theta not in self._angles:
            self.build.scope = "/model/rotary_emb"
            self._angles[sight.theta] = self._turns(*self._tables(sight.theta))
        if sight.window not in self._biases:
            self.build.scope = "/model/mask"
            self._biases[sight.window] = self._mask(sight.window)

    def bias(self, layer: int) -> str:
        """The mask that is added to the scores of a layer; empty if the operator masks by itself."""
        return self._biases[self.shape.sight(layer).window]

    def angles(self, layer: int) -> tuple[str, str]:
        return self._angles[self.shape.sight(layer).theta]

    def _tables(self, theta: float) -> tuple[str, str]:
        """Cosines and sines of all positions, ``(positions, size / 2)``, the same for both halves of a head."""
        where = "model.rotary_emb" if theta == self.shape.theta else "model.rotary_emb_local"
        if self.build.store.contents:
            tables = rotary_tables(self.shape, theta, self.build.dtype, self.by_head)
        else:
            width = self.shape.rotary if self.by_head else self.shape.rotary // 2
            tables = (np.broadcast_to(np.empty((), self.build.dtype), (self.shape.positions, width)),) * 2
        cos, sin = (self.build.weight(f"{where}.{name}", table) for name, table in zip(("cos", "sin"), tables))
        return cos, sin

    def _turns(self, cos: str, sin: str) -> tuple[str, str]:
        """Cosines and sines of the tokens' positions, for all layers; ``(batch, 1, new, size)`` if ``by_head``."""
        found = []
        for table, name in ((cos, "cos"), (sin, "sin")):
            rows = self.build.op("Gather", table, self.positions, name=name)
            if self.by_head and self.positions == "position_ids":
                rows = self.build.op("Unsqueeze", rows, self.build.ints(1), name=name)
            found.append(rows)
        return found[0], found[1]

    def _mask(self, window: int) -> str:
        """The attention mask, ``(batch, 1, new, total)``: 0 where a query sees a key, else the lowest number. A query
        sees the tokens up to its own that are not padding. The lowest number is used instead of minus infinity because
        rows of padding see nothing, and would become NaN."""
        build = self.build
        total = build.op("Squeeze", build.op("Shape", "attention_mask", start=1, end=2))
        past = self._rows_before()
        columns = self._columns(total)
        rows = build.op("Slice", columns, past, build.ints(2**62), build.ints(0))
        causal = self._back(columns, build.op("Unsqueeze", rows, build.ints(1)), window)
        real = build.op("Unsqueeze", build.op("Cast", "attention_mask", to=9), build.ints(1, 2))
        return self._hidden_where_not(build.op("And", real, causal))

    def _rows_before(self) -> str:
        return self.build.op("Shape", f"past_key_values.0.{self.kinds[0]}", start=self.axis, end=self.axis + 1)

    def _columns(self, total: str) -> str:
        zero, one = self.build.constant("zero", np.int64(0)), self.build.constant("one", np.int64(1))
        return self.build.op("Range", zero, total, one)

    def _back(self, columns: str, rows: str, window: int) -> str:
        seen = self.build.op("LessOrEqual", columns, rows)
        if window:
            first = self.build.op("Sub", rows, self.build.constant(f"window.{window}", np.int64(window)))
            seen = self.build.op("And", seen, self.build.op("Greater", columns, first))
        return seen

    def _hidden_where_not(self, seen: str) -> str:
        lowest = float(ml_dtypes.finfo(self.build.dtype).min)
        return self.build.op("Where", seen, self.build.number("shown", 0), self.build.number("hidden", lowest))

    @property
    def kinds(self) -> tuple[str, str]:
        if self.shape.latent:
            return "latent", "rotary"
        return ("decoder.key", "decoder.value") if self.shape.encoder_rows else ("key", "value")

    @property
    def axis(self) -> int:
        return 2 if self.caches_by_head and not self.shape.latent else 1

    def cache(self, layer: int, kind: str, heads: int, size: int) -> tuple[str, str]:
        """Declare a cache as input and output; ``heads`` is 0 if all heads share its rows."""
        names = f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"
        for name, rows, found in zip(names, self.rows, (self.pasts, self.presents)):
            found.append(self._value(name, rows, heads, size, self.caches_by_head))
        return names

    def given(self, layer: int, kind: str, rows: int, heads: int, size: int) -> str:
        name = f"past_key_values.{layer}.{kind}"
        self.pasts.append(self._value(name, rows, heads, size, self.by_head))
        return name

    def _value(self, name: str, rows: int | str, heads: int, size: int, by_head: bool) -> ValueInfoProto:
        kind = helper.np_dtype_to_tensor_dtype(self.build.dtype)
        dims = ["batch", heads, rows, size] if by_head and heads else ["batch", rows, max(heads, 1) * size]
        return helper.make_tensor_value_info(name, kind, dims)

    def keep(self, layer: int, kind: str, new: str, heads: int, size: int) -> str:
        """Write new rows to a cache; returns all of its rows."""
        past, present = self.cache(layer, kind, heads, size)
        return self.build.op("Concat", past, new, name=cache_module(kind), output=present, axis=self.axis)

    def norm(self, x: str, rest: str, weight: str) -> tuple[str, str]:
        """The RMS norm of ``x``, or of ``x + rest`` if ``rest`` is not empty; and the value that was normed."""
        build = self.build
        square = build.op("Pow", x, build.number("two", 2))
        mean = build.op("ReduceMean", square, build.ints(-1))
        root = build.op("Sqrt", build.op("Add", mean, build.number("epsilon", self.shape.epsilon)))
        return build.op("Mul", build.op("Div", x, root), weight), x

    def rotated(self, layer: int, x: str, heads: int, name: str) -> str:
        """Rotary embedding: each element is rotated together with the one half a head away."""
        build, (cos, sin) = self.build, self.angles(layer)
        first, second = build.node("Split", (x,), ("", ""), name, axis=-1, num_outputs=2)
        turned = build.op("Concat", build.op("Neg", second, name=name), first, name=name, axis=-1)
        return build.op("Add", build.op("Mul", x, cos, name=name), build.op("Mul", turned, sin, name=name), name=name)

    def attend(self, layer: int, projected: tuple[str, ...]) -> str:
        shape = self.shape
        counts = (shape.heads, shape.kv_heads, shape.kv_heads)
        q, k, v = (self.to_heads(x, heads, name) for x, heads, name in zip(projected, counts, "qkv"))
        if self._angles:
            q, k = self.rotated(layer, q, shape.heads, "q_rope"), self.rotated(layer, k, shape.kv_heads, "k_rope")
        keys, values = (
            self.keep(layer, kind, new, shape.kv_heads, shape.head) for kind, new in zip(self.kinds, (k, v))
        )
        return self.mixed(q, keys, values, self.bias(layer))

    def cross(self, q: str, keys: str, values: str) -> str:
        return self.mixed(self.to_heads(q, self.shape.heads, "q"), keys, values, "")

    def mixed(self, q: str, keys: str, values: str, bias: str) -> str:
        build, shape = self.build, self.shape
        scale = build.number("scale", shape.score_scale)
        # Query heads that share a key head are rows of one product, so keys and values are never repeated in memory.
        q = build.op("Reshape", build.op("Mul", q, scale), build.ints(0, shape.kv_heads, -1, shape.head))
        scores = build.op("MatMul", q, build.op("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = build.op("Reshape", scores, build.ints(0, shape.heads, -1, 0))
        weights = self.shares(scores, bias)
        mixed = build.op("MatMul", build.op("Reshape", weights, build.ints(0, shape.kv_heads, -1, 0)), values)
        return self.from_heads(build.op("Reshape", mixed, build.ints(0, shape.heads, -1, shape.head)), shape.head)

    def shares(self, scores: str, bias: str) -> str:
        """Attention weights: the share of each key in each query's result."""
        if self.shape.score_cap:
            scores = capped(self.build, scores, self.shape.score_cap, "score_cap")
        return self.build.op("Softmax", self.build.op("Add", scores, bias) if bias else scores, axis=-1)

    def to_heads(self, x: str, heads: int, name: str) -> str:
        split = self.build.op("Reshape", x, self.build.ints(0, 0, heads, self.shape.head), name=name)
        return self.build.op("Transpose", split, name=name, perm=[0, 2, 1, 3])

    def from_heads(self, x: str, size: int) -> str:
        together = self.build.op("Transpose", x, perm=[0, 2, 1, 3])
        return self.build.op("Reshape", together, self.build.ints(0, 0, self.shape.heads * size))


class MergedForm(Form):
    """``merged``: ``concat`` in one branch and the same without a cache in the other, as optimum exports it."""

    name = "merged"
    inputs = (*INPUTS, "use_cache_branch")
    merged = True


class ScatteredForm(Form):
    """``scatter_nd``: rows of a cache of fixed size are overwritten; ``cache_position`` says which."""

    name = "scatter_nd"
    inputs = ("input_ids", "cache_position")
    positions = "cache_position"
    rows = ("rows", "rows")

    def _mask(self, window: int) -> str:
        columns = self._columns(self.build.op("Squeeze", self._rows_before()))
        rows = self.build.op("Unsqueeze", "cache_position", self.build.ints(1))
        return self._hidden_where_not(self._back(columns, rows, window))

    def keep(self, layer: int, kind: str, new: str, heads: int, size: int) -> str:
        past, present = self.cache(layer, kind, heads, size)
        build, name = self.build, cache_module(kind)
        # ScatterND writes along the first axis.
        there = [self.axis, *(axis for axis in range(self.axis + 2) if axis != self.axis)]
        back = [there.index(axis) for axis in range(self.axis + 2)]
        past, new = (build.op("Transpose", x, name=name, perm=there) for x in (past, new))
        places = build.op("Unsqueeze", "cache_position", build.ints(1), name=name)
        written = build.op("ScatterND", past, places, new, name=name)
        return build.op("Transpose", written, name=name, output=present, perm=back)


def cache_module(kind: str) -> str:
    """The module name of the nodes that keep a cache, within the scope of its layer."""
    return {"key": "k_cache", "value": "v_cache"}.get(kind.split(".")[-1], f"{kind}_cache")


def capped(build: Builder, x: str, cap: float, name: str, output: str = "") -> str:
    """A soft bound: ``cap·tanh(x / cap)``."""
    limit = build.number(name, cap)
    return build.op("Mul", build.op("Tanh", build.op("Div", x, limit)), limit, output=output)


def rotary_tables(shape: Shape, theta: float, dtype: np.dtype, twice: bool) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of all positions, computed in float64; of both halves of a head if ``twice``."""
    speeds = theta ** (-np.arange(0, shape.rotary, 2) / shape.rotary)
    angles = np.arange(shape.positions)[:, None] * speeds
    angles = np.concatenate((angles, angles), axis=1) if twice else angles
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
