"""The decoder that all forms have in common: embedding, layers of attention and SwiGLU, and the head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from kvviz.smollm2.builder import Builder, Keeper
from kvviz.smollm2.checkpoint import Shape
from kvviz.smollm2.forms import ATTENTION, CONCAT, GQA, Form, Shared

FORMS: dict[str, Form] = {form.name: form for form in (CONCAT, ATTENTION, GQA)}
"""Ways of keeping the cache: ``concat``, ``attention``, ``gqa``."""


class Weights(Protocol):
    """Where a decoder's sizes and weights come from; a `kvviz.smollm2.checkpoint.Checkpoint` is one."""

    @property
    def shape(self) -> Shape: ...
    def vector(self, name: str) -> np.ndarray: ...
    def matrix(self, name: str, inputs: int, outputs: int, turned_heads: int = 0) -> np.ndarray: ...
    def joined(self, weights: list[np.ndarray]) -> np.ndarray: ...
    def finish(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Parts:
    checkpoint: Weights
    form: Form
    build: Builder

    @property
    def shape(self) -> Shape:
        return self.checkpoint.shape


def decoder(checkpoint: Weights, form: Form, store: Keeper, dtype: DTypeLike = np.float32) -> ModelProto:
    """Build the graph, writing weights to the store as they are read.

    Inputs ``input_ids``, ``attention_mask`` and, but for ``gqa``, ``position_ids``, all int64 ``(batch, …)``, and
    ``past_key_values.N.key|value``, ``(batch, key heads, past, head size)``. Outputs ``logits`` of the last
    position, ``(batch, 1, vocabulary)``, and ``present.N.key|value``. ``dtype`` is the type of all that is not a number
    of something.
    """
    build = Builder(store, dtype)
    parts, shape = _Parts(checkpoint, form, build), checkpoint.shape
    hidden, head = _embedding(parts)
    shared, rest = form.prepare(build, shape), ""
    for layer in range(shape.layers):
        hidden, rest = _layer(parts, layer, hidden, rest, shared)
    build.scope = "/model"
    if rest:
        hidden = build.op("Add", hidden, rest)
    # Only the last position is scored: that is all that a decode reads, and the head is the largest product.
    hidden = build.op("Gather", hidden, build.ints(-1), name="last", axis=1)
    normed, _ = _norm(parts, hidden, "", "norm", "output_norm")
    build.scope = "/lm_head"
    if not shape.tied:
        head = build.weight("lm_head.weight", checkpoint.matrix("output.weight", shape.hidden, shape.vocabulary))
    build.op("MatMul", normed, head, output="logits")
    checkpoint.finish()
    return _model(build, form, shape)


def _embedding(parts: _Parts) -> tuple[str, str]:
    """Rows of the tokens, and the weight that they come from if the head reads it too. A tied weight is kept once and
    the way the head reads it, ``(hidden, vocabulary)``: a product with one row is about twice as fast so, and tokens
    are only a few columns to gather."""
    build, shape = parts.build, parts.shape
    build.scope = "/model/embed_tokens"
    weight = parts.checkpoint.matrix("token_embd.weight", shape.hidden, shape.vocabulary)
    if not shape.tied:
        table = build.weight("model.embed_tokens.weight", weight.T)
        return build.op("Gather", table, "input_ids"), ""
    table = build.weight("model.embed_tokens.weight", weight)
    columns = build.op("Gather", table, "input_ids", axis=1)
    return build.op("Transpose", columns, perm=[1, 2, 0]), table


def _layer(parts: _Parts, layer: int, hidden: str, rest: str, shared: Shared) -> tuple[str, str]:
    """One layer. What it takes and gives is the residual stream, and what is still to be added to it."""
    build, shape, theirs, scope = parts.build, parts.shape, f"blk.{layer}", f"/model/layers.{layer}"
    build.scope = scope
    x, hidden = _norm(parts, hidden, rest, "input_layernorm", f"{theirs}.attn_norm")
    build.scope = f"{scope}/self_attn"
    mixed = parts.form.attend(build, shape, layer, _projected(parts, x, theirs), shared)
    x = _linear(parts, mixed, "o_proj", f"{theirs}.attn_output", shape.heads * shape.head, shape.hidden)
    build.scope = scope
    hidden, rest = _residual(parts, hidden, x)
    x, hidden = _norm(parts, hidden, rest, "post_attention_layernorm", f"{theirs}.ffn_norm")
    build.scope = f"{scope}/mlp"
    gate = _linear(parts, x, "gate_proj", f"{theirs}.ffn_gate", shape.hidden, shape.inner)
    up = _linear(parts, x, "up_proj", f"{theirs}.ffn_up", shape.hidden, shape.inner)
    gate = build.op("Mul", gate, build.op("Sigmoid", gate, name="act_fn"), name="act_fn")
    x = _linear(parts, build.op("Mul", gate, up), "down_proj", f"{theirs}.ffn_down", shape.inner, shape.hidden)
    build.scope = scope
    return _residual(parts, hidden, x)


def _projected(parts: _Parts, x: str, theirs: str) -> tuple[str, ...]:
    """Queries, keys and values; side by side in one value where the form wants that."""
    shape, read = parts.shape, parts.checkpoint.matrix
    queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
    weights = {
        "q_proj": read(f"{theirs}.attn_q.weight", shape.hidden, queries, shape.heads),
        "k_proj": read(f"{theirs}.attn_k.weight", shape.hidden, keys, shape.kv_heads),
        "v_proj": read(f"{theirs}.attn_v.weight", shape.hidden, keys),
    }
    if parts.form.packed:
        weights = {"qkv_proj": parts.checkpoint.joined(list(weights.values()))}
    return tuple(_product(parts, x, module, weight) for module, weight in weights.items())


def _linear(parts: _Parts, x: str, module: str, name: str, inputs: int, outputs: int) -> str:
    return _product(parts, x, module, parts.checkpoint.matrix(f"{name}.weight", inputs, outputs))


def _product(parts: _Parts, x: str, module: str, weight: np.ndarray) -> str:
    build = parts.build
    path = build.scope.strip("/").replace("/", ".")
    return build.op("MatMul", x, build.weight(f"{path}.{module}.weight", weight), name=module)


def _residual(parts: _Parts, hidden: str, x: str) -> tuple[str, str]:
    """Add to the residual stream, or leave that to the norm that follows."""
    return (hidden, x) if parts.form.adds_in_norm else (parts.build.op("Add", hidden, x), "")


def _norm(parts: _Parts, hidden: str, rest: str, module: str, name: str) -> tuple[str, str]:
    """The normed stream, and the stream itself with all added."""
    build, outer = parts.build, parts.build.scope
    path = outer.strip("/").replace("/", ".")
    weight = build.weight(f"{path}.{module}.weight", parts.checkpoint.vector(f"{name}.weight"))
    build.scope = f"{outer}/{module}"
    normed = parts.form.norm(build, hidden, rest, weight, parts.shape.epsilon)
    build.scope = outer
    return normed


def _model(build: Builder, form: Form, shape: Shape) -> ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(build.dtype)

    def tokens(name: str) -> ValueInfoProto:
        length = "total" if name == "attention_mask" else "new"
        return helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length])

    def cache(name: str, length: str) -> list[ValueInfoProto]:
        rows = ["batch", shape.kv_heads, length, shape.head]
        names = [f"{name}.{layer}.{kind}" for layer in range(shape.layers) for kind in ("key", "value")]
        return [helper.make_tensor_value_info(n, kind, rows) for n in names]

    scores = helper.make_tensor_value_info("logits", kind, ["batch", 1, shape.vocabulary])
    graph = helper.make_graph(
        build.nodes,
        "smollm2",
        [*map(tokens, form.inputs), *cache("past_key_values", "past")],
        [scores, *cache("present", "total")],
        list(build.weights.values()),
    )
    opsets = [helper.make_opsetid("", form.opset)]
    if form.microsoft:
        opsets.append(helper.make_opsetid("com.microsoft", 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=form.ir_version, producer_name="kvviz.smollm2")
