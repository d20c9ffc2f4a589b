"""Parts of the layers of all families: products, norms, the feed-forward part."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from kvviz.decoders.builder import Builder
from kvviz.decoders.decoder_shape import Shape
from kvviz.decoders.forms import Form


class Weights(Protocol):
    """Where a decoder's sizes and weights come from; a `kvviz.smollm2.checkpoint.Checkpoint` is one."""

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

    def linear(
        self, x: str, module: str, name: str, inputs: int, outputs: int, *, biased: bool = False, turned_heads: int = 0
    ) -> str:
        weight = self.source.matrix(f"{name}.weight", inputs, outputs, turned_heads)
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
        """The activation function."""
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
