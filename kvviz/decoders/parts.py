"""Parts of the layers of all families: products, norms, feed-forward; and special parts of DeepSeek and Whisper."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from kvviz.decoders.builder import Builder
from kvviz.decoders.decoder_shape import Shape
from kvviz.decoders.forms import Form
from kvviz.decoders.operator_forms import AttentionForm


class Weights(Protocol):
    """The source of a decoder's sizes and weights; a `kvviz.smollm2.checkpoint.Checkpoint` is one."""

    @property
    def shape(self) -> Shape: ...
    def tensor(self, name: str, *shape: int) -> np.ndarray: ...
    def matrix(self, name: str, inputs: int, outputs: int, turned_heads: int = 0) -> np.ndarray: ...
    def joined(self, weights: list[np.ndarray]) -> np.ndarray: ...
    def finish(self) -> None: ...


class Parts:
    """Adds parts of layers to a graph. Weights have their GGUF names; modules have the names of Hugging Face."""

    def __init__(self, source: Weights, form: Form, build: Builder) -> None:
        self.source, self.form, self.build, self.shape = source, form, build, source.shape

    def weight(self, module: str, array: np.ndarray) -> str:
        """Keep a weight of a module in the scope, such as ``"q_proj.weight"``."""
        return self.build.weight(f"{self.build.scope.strip('/').replace('/', '.')}.{module}", array)

    def linear(self, x: str, module: str, name: str, inputs: int, outputs: int, biased: bool = False) -> str:
        weight = self.source.matrix(f"{name}.weight", inputs, outputs)
        return self.product(x, module, weight, self.source.tensor(f"{name}.bias", outputs) if biased else None)

    def product(self, x: str, module: str, weight: np.ndarray, bias: np.ndarray | None = None) -> str:
        y = self.build.op("MatMul", x, self.weight(f"{module}.weight", weight), name=module)
        if bias is None:
            return y
        return self.build.op("Add", y, self.weight(f"{module}.bias", bias), name=module)

    def norm(self, x: str, rest: str, module: str, name: str, width: int) -> tuple[str, str]:
        """The norm of ``x``, or of ``x + rest``; and the value that was normed."""
        build, outer = self.build, self.build.scope
        weight = self.weight(f"{module}.weight", self.source.tensor(f"{name}.weight", width))
        if self.shape.encoder_rows:
            bias = self.weight(f"{module}.bias", self.source.tensor(f"{name}.bias", width))
            return build.op("LayerNormalization", x, weight, bias, name=module, epsilon=self.shape.epsilon), x
        build.scope = f"{outer}/{module}"
        normed = self.form.norm(x, rest, weight)
        build.scope = outer
        return normed

    def feed_forward(self, x: str, theirs: str, inner: int, module: str = "") -> str:
        """SwiGLU, or GELU for Gemma."""
        build, hidden = self.build, self.shape.hidden
        outer = build.scope
        build.scope = f"{outer}/{module}" if module else outer
        gate = self.linear(x, "gate_proj", f"{theirs}_gate", hidden, inner)
        up = self.linear(x, "up_proj", f"{theirs}_up", hidden, inner)
        y = self.linear(build.op("Mul", self.bent(gate), up), "down_proj", f"{theirs}_down", inner, hidden)
        build.scope = outer
        return y

    def bent(self, x: str) -> str:
        build = self.build
        if self.shape.gemma:
            return self.gelu(x, "tanh")
        return build.op("Mul", x, build.op("Sigmoid", x, name="act_fn"), name="act_fn")

    def gelu(self, x: str, approximate: str) -> str:
        """GELU, ``"tanh"`` or ``"none"``; from elementary operators if the opset has no Gelu."""
        build, name = self.build, "act_fn"
        if self.form.opset >= 20:
            return build.op("Gelu", x, name=name, approximate=approximate)
        if approximate == "tanh":
            cube = build.op("Pow", x, build.number("three", 3), name=name)
            cube = build.op("Mul", cube, build.number("cube", 0.044715), name=name)
            scale = build.number("root_2_pi", (2 / math.pi) ** 0.5)
            share = build.op("Tanh", build.op("Mul", build.op("Add", x, cube, name=name), scale, name=name), name=name)
        else:
            share = build.op("Erf", build.op("Div", x, build.number("root_2", 2**0.5), name=name), name=name)
        share = build.op("Add", share, build.number("unit", 1), name=name)
        return build.op("Mul", build.op("Mul", x, share, name=name), build.number("half", 0.5), name=name)


def latent_attention(parts: Parts, layer: int, x: str) -> str:
    build, form, shape, sizes, theirs = parts.build, parts.form, parts.shape, parts.shape.latent, f"blk.{layer}.attn"
    assert sizes is not None
    q = parts.linear(x, "q_a_proj", f"{theirs}_q_a", shape.hidden, sizes.queries)
    q, _ = parts.norm(q, "", "q_a_layernorm", f"{theirs}_q_a_norm", sizes.queries)
    size = sizes.plain + sizes.rotary
    q = form.to_heads(parts.linear(q, "q_b_proj", f"{theirs}_q_b", sizes.queries, shape.heads * size), shape.heads, "q")
    plain, turned = build.node("Split", (q, build.ints(sizes.plain, sizes.rotary)), ("", ""), "q", axis=-1)
    turned = form.rotated(layer, turned, 0, "q_rope")
    rows = parts.linear(x, "kv_a_proj_with_mqa", f"{theirs}_kv_a_mqa", shape.hidden, sizes.rank + sizes.rotary)
    latent, key = build.node("Split", (rows, build.ints(sizes.rank, sizes.rotary)), ("", ""), "kv", axis=-1)
    latent, _ = parts.norm(latent, "", "kv_a_layernorm", f"{theirs}_kv_a_norm", sizes.rank)
    one = build.ints(1)
    key = build.op("Squeeze", form.rotated(layer, build.op("Unsqueeze", key, one), 0, "k_rope"), one)
    latents, keys = (
        form.keep(layer, kind, new, 0, width)
        for kind, new, width in zip(form.kinds, (latent, key), (sizes.rank, sizes.rotary))
    )
    # Queries are projected into the latent space instead of expanding the keys.
    plain = _by_head(parts, plain, "k_b_proj", f"{theirs}_k_b", sizes.plain, sizes.rank)
    shared = build.op("Unsqueeze", latents, one, name="latents")
    if isinstance(form, AttentionForm):
        # The operator takes keys as one tensor.
        whole = build.op("Unsqueeze", build.op("Concat", latents, keys, name="keys", axis=-1), one, name="keys")
        queries = build.op("Concat", plain, turned, name="queries", axis=-1)
        mixed = form.over(layer, queries, whole, shared, scale=shape.score_scale)
    else:
        found = _products(parts, plain, shared), _products(parts, turned, build.op("Unsqueeze", keys, one))
        scores = build.op("Add", *found)
        scores = build.op("Mul", scores, build.number("scale", shape.score_scale))
        mixed = build.op("MatMul", form.shares(scores, form.bias(layer)), shared)
    mixed = form.from_heads(_by_head(parts, mixed, "v_b_proj", f"{theirs}_v_b", sizes.rank, sizes.value), sizes.value)
    return parts.linear(mixed, "o_proj", f"{theirs}_output", shape.heads * sizes.value, shape.hidden)


def _by_head(parts: Parts, x: str, module: str, theirs: str, inputs: int, outputs: int) -> str:
    weight = parts.source.tensor(theirs, parts.shape.heads, inputs, outputs)
    return parts.build.op("MatMul", x, parts.weight(f"{module}.weight", weight), name=module)


def _products(parts: Parts, queries: str, keys: str) -> str:
    return parts.build.op("MatMul", queries, parts.build.op("Transpose", keys, perm=[0, 1, 3, 2]))


def experts(parts: Parts, layer: int, x: str) -> str:
    """The experts' feed-forward part as one wide product, in which each token weights the experts that it chose. ONNX
    has no operator for this, so all experts are computed. The groups that limit DeepSeek's router are left out: they
    only affect which experts are chosen."""
    build, shape, sizes, theirs = parts.build, parts.shape, parts.shape.experts, f"blk.{layer}.ffn"
    assert sizes is not None
    fit = build.op("Sigmoid", parts.linear(x, "gate", f"{theirs}_gate_inp", shape.hidden, sizes.count), name="gate")
    bias = parts.weight("gate.e_score_correction_bias", parts.source.tensor(f"{theirs}_exp_probs_b", sizes.count))
    ranked = build.op("Add", fit, bias, name="gate")
    best, _ = build.node("TopK", (ranked, build.ints(sizes.chosen)), ("", ""), "gate", axis=-1)
    # By comparison, not by the indices of the best, so that no write depends on data.
    chosen = build.op("GreaterOrEqual", ranked, build.op("ReduceMin", best, build.ints(-1), name="gate"), name="gate")
    shares = build.op("Where", chosen, fit, build.number("nothing", 0), name="gate")
    shares = build.op("Div", shares, build.op("ReduceSum", shares, build.ints(-1), name="gate"), name="gate")
    shares = build.op("Mul", shares, build.number("expert_scale", sizes.scale), name="gate")
    wide = sizes.count * sizes.inner
    gate = parts.linear(x, "experts.gate_proj", f"{theirs}_gate_exps", shape.hidden, wide)
    up = parts.linear(x, "experts.up_proj", f"{theirs}_up_exps", shape.hidden, wide)
    y = build.op("Reshape", build.op("Mul", parts.bent(gate), up), build.ints(0, 0, sizes.count, sizes.inner))
    y = build.op("Mul", y, build.op("Unsqueeze", shares, build.ints(-1)))
    y = build.op("Reshape", y, build.ints(0, 0, wide))
    y = parts.linear(y, "experts.down_proj", f"{theirs}_down_exps", wide, shape.hidden)
    common = parts.feed_forward(x, f"{theirs}_shared", sizes.shared * sizes.inner, "shared_experts")
    return build.op("Add", y, common)


def plain_attention(parts: Parts, layer: int, x: str) -> str:
    projected = tuple(_square(parts, layer, x, "attn", name, biased=name != "k") for name in "qkv")
    return _square(parts, layer, parts.form.attend(layer, projected), "attn", "out")


def cross_attention(parts: Parts, layer: int, x: str) -> str:
    """Attention to the encoder's keys and values, which are inputs that no run changes."""
    shape, form = parts.shape, parts.form
    q = _square(parts, layer, x, "cross_attn", "q")
    keys, values = (
        form.given(layer, f"encoder.{kind}", shape.encoder_rows, shape.heads, shape.head) for kind in ("key", "value")
    )
    return _square(parts, layer, form.cross(q, keys, values), "cross_attn", "out")


def plain_feed_forward(parts: Parts, layer: int, x: str) -> str:
    shape, theirs = parts.shape, f"blk.{layer}.ffn"
    x = parts.linear(x, "fc1", f"{theirs}_up", shape.hidden, shape.inner, biased=True)
    return parts.linear(parts.gelu(x, "none"), "fc2", f"{theirs}_down", shape.inner, shape.hidden, biased=True)


def _square(parts: Parts, layer: int, x: str, module: str, name: str, biased: bool = True) -> str:
    width = parts.shape.hidden
    return parts.linear(x, f"{name}_proj", f"blk.{layer}.{module}_{name}", width, width, biased=biased)
