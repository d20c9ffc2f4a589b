"""One attention layer with its KV cache, built as llama.cpp builds it: what a decode step reads and writes.

Sources: ``build_attn``, ``build_attn_mha`` and ``llama_kv_cache::cpy_k``, ``cpy_v``, ``get_k``, ``get_v`` of llama.cpp
0c1e57098, in the order of the ops that they leave in the graph.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import NORMAL, Context
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.graph.tensor_data import tensor_set


@dataclass(frozen=True, slots=True)
class LayerForm:
    """Sizes of a layer; ``flash``: one op, and V stored as K is; else V is stored transposed, a row an element."""

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    kv_size: int = 32
    flash: bool = False
    type_k: str = "f16"
    type_v: str = "f16"
    freq_base: float = 10000.0
    n_ctx_orig: int = 0

    @property
    def width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


def turned(x: np.ndarray, base: float) -> np.ndarray:
    """Neighbours of (tokens, heads, size) as complex numbers, turned by their position times the speed of a pair."""
    speeds = base ** (-2 * np.arange(x.shape[-1] // 2) / x.shape[-1])
    done = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * np.arange(len(x))[:, None, None] * speeds)
    return np.stack((done.real, done.imag), -1).reshape(x.shape)


def plain_attention(
    x: np.ndarray, weights: Mapping[str, np.ndarray], size: int, base: float, stored: Any = np.asarray
) -> np.ndarray:
    """Causal attention of all tokens at once, in float64, row by row; ``stored``: what a cache makes of K and V."""
    q, k, v = ((x @ weights[key].T).reshape(len(x), -1, size) for key in "qkv")
    q = turned(q, base)
    k, v = (stored(one.reshape(len(x), -1)).astype(float).reshape(one.shape) for one in (turned(k, base), v))
    mixed = np.empty_like(q)
    for head, at in np.ndindex(q.shape[1], len(x)):
        shared = head * k.shape[1] // q.shape[1]
        p = k[: at + 1, shared] @ q[at, head] / np.sqrt(size)
        p = np.exp(p - p.max())
        mixed[at, head] = p / p.sum() @ v[: at + 1, shared]
    return np.asarray(mixed.reshape(len(x), -1) @ weights["output"].T)


class AttentionLayer:
    """A layer, its weights ("q", "k", "v", "output") and its cache, which graphs of several steps share."""

    def __init__(self, ctx: Context, form: LayerForm, weights: Mapping[str, Any] | None = None) -> None:
        self.ctx, self.form = ctx, form
        size = {"q": form.width, "k": form.kv_width, "v": form.kv_width, "output": form.width}
        self.weights = {
            key: ctx.new_tensor(
                "f32", form.width, rows, name=f"blk.0.attn_{key}.weight", data=(weights or {}).get(key), role="weight"
            )
            for key, rows in size.items()
        }
        cells = (form.kv_width, form.kv_size)
        self.cache_k = ctx.new_tensor(form.type_k, *cells, name="cache_k_l0", role="state")
        self.cache_v = ctx.new_tensor(form.type_v, *cells, name="cache_v_l0", role="state")
        self.positions: dict[int, int] = {}

    def graph(self, x: Any, positions: Sequence[int]) -> ComputeGraph:
        """The graph of one step over ``x`` (tokens, width), which attends to all cells."""
        form, first = self.form, max(self.positions, default=-1) + 1
        chosen = list(range(first, first + len(positions)))
        self.positions.update(zip(chosen, positions))
        step = _Step(self, tensor_set(self._input("f32", "attn_norm-0", form.width, len(positions)), x))
        step.attend(list(positions), chosen)
        return step.graph

    def mask(self, positions: Sequence[int]) -> np.ndarray:
        """(tokens, cells): 0 where a cell holds a position that is not behind the token's, else −∞."""
        held = np.array([self.positions.get(cell, np.inf) for cell in range(self.form.kv_size)])
        return np.where(held <= np.array(positions)[:, None], 0.0, -np.inf)

    def _input(self, type_: str, name: str, *ne: int) -> Tensor:
        return self.ctx.set_input(self.ctx.new_tensor(type_, *ne, name=name, role="input"))


class _Step:
    """A graph while it is built."""

    def __init__(self, layer: AttentionLayer, x: Tensor) -> None:
        self.layer, self.x = layer, x
        self.ctx, self.form = layer.ctx, layer.form
        self.graph = layer.ctx.new_graph("attention layer")
        self.tokens = x.ne[1]

    def attend(self, positions: list[int], cells: list[int]) -> None:
        """All of it, in the order in which llama.cpp expands its parts."""
        form, layer = self.form, self.layer
        where = tensor_set(layer._input("i32", "inp_pos", self.tokens), positions)
        q = self.turned(self.projected("q", form.heads), where, "Qcur")
        k = self.turned(self.projected("k", form.kv_heads), where, "Kcur")
        v = self.projected("v", form.kv_heads)
        for one in (q, v, k):
            self.graph.expand(one)
        self.store(k, v, cells)
        mask = layer.mask(positions)
        out = self.flash(q, mask) if form.flash else self.softmax(q, mask)
        self.graph.expand(self.named(self.ctx.mul_mat(layer.weights["output"], out), "attn_out"))

    def named(self, tensor: Tensor, name: str) -> Tensor:
        return self.ctx.set_name(tensor, f"{name}-0")

    def projected(self, key: str, heads: int) -> Tensor:
        """[head_dim, heads, tokens]."""
        product = self.named(self.ctx.mul_mat(self.layer.weights[key], self.x), f"{key.upper()}cur")
        split = self.ctx.reshape_3d(product, self.form.head_dim, heads, self.tokens)
        return self.named(split, f"{key.upper()}cur")

    def turned(self, split: Tensor, where: Tensor, name: str) -> Tensor:
        form = self.form
        args = (NORMAL, form.n_ctx_orig, form.freq_base, 1.0, 0.0, 1.0, 32.0, 1.0)
        return self.named(self.ctx.rope_ext(split, where, None, form.head_dim, *args), name)

    def store(self, k: Tensor, v: Tensor, cells: list[int]) -> None:
        where = tensor_set(self.layer._input("i64", "attn_inp_k_idxs", self.tokens), cells)
        self.graph.expand(self.ctx.set_rows(self.layer.cache_k, self.flat(k), where))
        if self.form.flash:
            where = tensor_set(self.layer._input("i64", "attn_inp_v_idxs", self.tokens), cells)
            self.graph.expand(self.ctx.set_rows(self.layer.cache_v, self.flat(v), where))
        else:
            self.graph.expand(self.scattered(v, cells))

    def flat(self, one: Tensor) -> Tensor:
        """[kv_width, tokens]."""
        return self.ctx.view_2d(one, self.form.kv_width, self.tokens, one.nb[2], 0)

    def scattered(self, v: Tensor, cells: list[int]) -> Tensor:
        """Each element of V into the row of its place, at its cell: an index for every element."""
        form, count = self.form, self.form.kv_width * self.tokens
        rows = np.arange(form.kv_width)[None] * form.kv_size + np.array(cells)[:, None]
        where = tensor_set(self.layer._input("i64", "attn_inp_v_idxs", count), rows)
        single = self.ctx.reshape_2d(self.ctx.reshape_2d(v, form.kv_width, self.tokens), 1, count)
        return self.ctx.set_rows(
            self.ctx.reshape_2d(self.layer.cache_v, 1, form.kv_width * form.kv_size), single, where
        )

    def heads_first(self, one: Tensor) -> Tensor:
        return self.ctx.permute(one, 0, 2, 1, 3)

    def query(self, q: Tensor) -> Tensor:
        return self.heads_first(self.ctx.view_4d(q, *q.ne, *q.nb[1:], 0))

    def rows(self, cache: Tensor) -> Tensor:
        """[head_dim, kv_heads, kv_size] of a cache that has a row for each cell."""
        form, row = self.form, cache.nb[1]
        ne = (form.head_dim, form.kv_heads, form.kv_size, 1)
        return self.heads_first(self.ctx.view_4d(cache, *ne, row // form.kv_heads, row, cache.nbytes, 0))

    def columns(self) -> Tensor:
        """[kv_size, kv_heads, head_dim] of the V cache that has a column for each cell."""
        form, cache = self.form, self.layer.cache_v
        step = form.kv_size * cache.nb[0]
        ne = (form.kv_size, form.kv_heads, form.head_dim, 1)
        return self.heads_first(self.ctx.view_4d(cache, *ne, step * form.head_dim, step, cache.nbytes, 0))

    def softmax(self, q: Tensor, mask: np.ndarray) -> Tensor:
        ctx, scale = self.ctx, self.form.head_dim**-0.5
        kq = ctx.mul_mat_set_prec(ctx.mul_mat(self.rows(self.layer.cache_k), self.query(q)))
        weights = ctx.soft_max_ext(kq, self.masking("f32", mask), scale, 0.0)
        out = ctx.mul_mat(self.columns(), weights)
        for tensor, name in ((kq, "kq"), (weights, "kq_soft_max"), (out, "kqv")):
            self.named(tensor, name)
        return self.named(ctx.cont_2d(self.heads_first(out), self.form.width, self.tokens), "kqv_out")

    def flash(self, q: Tensor, mask: np.ndarray) -> Tensor:
        ctx, scale = self.ctx, self.form.head_dim**-0.5
        masking = self.masking("f16", mask)
        keys, values = self.rows(self.layer.cache_k), self.rows(self.layer.cache_v)
        out = ctx.flash_attn_ext_set_prec(ctx.flash_attn_ext(self.query(q), keys, values, masking, scale))
        return self.named(ctx.reshape_2d(out, self.form.width, self.tokens), "kqv_out")

    def masking(self, type_: str, mask: np.ndarray) -> Tensor:
        return tensor_set(self.layer._input(type_, "attn_inp_kq_mask", mask.shape[1], mask.shape[0]), mask)
