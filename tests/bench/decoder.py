"""A Llama-like decoder of plain ops, made with onnx.helper, as large as a benchmark wants it.

Ops are those of common exporters: RMSNorm from Pow, ReduceMean, Add, Sqrt, Div and Mul; rotary embedding from Slice,
Neg, Concat, Mul and Add; a cache that grows by Concat; grouped queries by Unsqueeze, Expand and Reshape; attention by
MatMul and Softmax; SwiGLU from Sigmoid and Mul.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Size:
    """Sizes of a decoder; ``heads`` query heads share ``kv_heads`` key and value heads."""

    layers: int = 8
    hidden: int = 512
    heads: int = 8
    kv_heads: int = 4
    inner: int = 1536
    vocabulary: int = 8192
    positions: int = 256

    @property
    def head(self) -> int:
        """Length of one head."""
        return self.hidden // self.heads


def decoder(size: Size = Size(), seed: int = 0) -> onnx.ModelProto:
    """The model, with random weights that keep activations near 1.

    Parameters
    ----------
    size : Size
    seed : int

    Returns
    -------
    ModelProto
        Opset 18, IR 10. Inputs ``input_ids``, ``position_ids``, ``past_key_values.N.key|value``; outputs ``logits``,
        ``present.N.key|value``.
    """
    return _Builder(size, seed).model()


class _Builder:
    def __init__(self, size: Size, seed: int) -> None:
        self.size = size
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.scope = ""
        self.numbers: dict[str, int] = {}

    def model(self) -> onnx.ModelProto:
        size = self.size
        hidden = self.op("Gather", self.random_weight("embed", (size.vocabulary, size.hidden), 1.0), "input_ids")
        cos, sin = self.angles()
        bias = self.causal_bias()
        for layer in range(size.layers):
            hidden = self.layer(layer, hidden, cos, sin, bias)
        self.scope = "/lm_head"
        self.op("MatMul", self.norm(hidden), self.matrix("lm_head", size.hidden, size.vocabulary), output="logits")
        rows = ["batch", size.kv_heads, "past", size.head], ["batch", size.kv_heads, "total", size.head]
        names = [f"{layer}.{kind}" for layer in range(size.layers) for kind in ("key", "value")]
        graph = helper.make_graph(
            self.nodes,
            "decoder",
            [
                helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "new"])
                for n in ("input_ids", "position_ids")
            ]
            + [helper.make_tensor_value_info(f"past_key_values.{n}", TensorProto.FLOAT, rows[0]) for n in names],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "new", size.vocabulary])]
            + [helper.make_tensor_value_info(f"present.{n}", TensorProto.FLOAT, rows[1]) for n in names],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)

    def layer(self, layer: int, hidden: str, cos: str, sin: str, bias: str) -> str:
        self.scope = f"/model/layers.{layer}/self_attn"
        hidden = self.op("Add", hidden, self.attention(layer, self.norm(hidden), cos, sin, bias))
        self.scope = f"/model/layers.{layer}/mlp"
        normed, size = self.norm(hidden), self.size
        gate = self.op("MatMul", normed, self.matrix("gate", size.hidden, size.inner))
        gate = self.op("Mul", gate, self.op("Sigmoid", gate))
        up = self.op("MatMul", normed, self.matrix("up", size.hidden, size.inner))
        down = self.op("MatMul", self.op("Mul", gate, up), self.matrix("down", size.inner, size.hidden))
        return self.op("Add", hidden, down)

    def attention(self, layer: int, x: str, cos: str, sin: str, bias: str) -> str:
        size = self.size
        query = self.rotated(self.heads("q", x, size.heads), cos, sin)
        key = self.rotated(self.heads("k", x, size.kv_heads), cos, sin)
        value = self.heads("v", x, size.kv_heads)
        kept = []
        for kind, new in (("key", key), ("value", value)):
            present = f"present.{layer}.{kind}"
            self.op("Concat", f"past_key_values.{layer}.{kind}", new, output=present, axis=2)
            kept.append(self.shared(present))
        scores = self.op("MatMul", query, self.op("Transpose", kept[0], perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.constant("scale", np.float32(size.head**-0.5)))
        mixed = self.op("MatMul", self.op("Softmax", self.op("Add", scores, bias), axis=-1), kept[1])
        flat = self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.ints("flat", 0, 0, size.hidden))
        return self.op("MatMul", flat, self.matrix("o", size.hidden, size.hidden))

    def heads(self, kind: str, x: str, heads: int) -> str:
        flat = self.op("MatMul", x, self.matrix(kind, self.size.hidden, heads * self.size.head))
        split = self.op("Reshape", flat, self.ints(f"heads_{heads}", 0, 0, heads, self.size.head))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def rotated(self, x: str, cos: str, sin: str) -> str:
        half, axis = self.size.head // 2, self.ints("last", -1)
        first = self.op("Slice", x, self.ints("zero", 0), self.ints("half", half), axis)
        second = self.op("Slice", x, self.ints("half", half), self.ints("end", 2**31), axis)
        turned = self.op("Concat", self.op("Neg", second), first, axis=-1)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", turned, sin))

    def shared(self, present: str) -> str:
        """Each key and value head once for every query head that reads it."""
        size = self.size
        groups = self.op("Unsqueeze", present, self.ints("two", 2))
        wide = self.op("Expand", groups, self.ints("repeat", 1, 1, size.heads // size.kv_heads, 1, 1))
        return self.op("Reshape", wide, self.ints("all_heads", 0, size.heads, -1, size.head))

    def norm(self, x: str) -> str:
        mean = self.op("ReduceMean", self.op("Pow", x, self.constant("square", np.float32(2))), self.ints("last", -1))
        root = self.op("Sqrt", self.op("Add", mean, self.constant("epsilon", np.float32(1e-5))))
        gain = self.random_weight(self.unique("norm"), (self.size.hidden,), 0.1, 1.0)
        return self.op("Mul", self.op("Div", x, root), gain)

    def angles(self) -> tuple[str, str]:
        size = self.size
        speeds = 10_000.0 ** (-np.arange(0, size.head, 2) / size.head)
        angles = np.tile(np.arange(size.positions)[:, None] * speeds, 2).astype(np.float32)
        found = []
        for name, table in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            rows = self.op("Gather", self.constant(f"{name}_table", table), "position_ids")
            found.append(self.op("Unsqueeze", rows, self.ints("one", 1)))
        return found[0], found[1]

    def causal_bias(self) -> str:
        """0 where a token may look, a large negative number where it may not, shape (new, total)."""
        past = self.length("past_key_values.0.key", 2)
        total = self.op("Add", past, self.length("input_ids", 1))
        one = self.constant("step", np.int64(1))
        rows = self.op("Unsqueeze", self.op("Range", past, total, one), self.ints("one", 1))
        columns = self.op("Range", self.constant("from", np.int64(0)), total, one)
        may = self.op("LessOrEqual", columns, rows)
        return self.op("Where", may, self.constant("open", np.float32(0)), self.constant("shut", np.float32(-1e9)))

    def length(self, name: str, axis: int) -> str:
        return self.op("Gather", self.op("Shape", name), self.constant(f"axis_{axis}", np.int64(axis)), axis=0)

    def matrix(self, name: str, rows: int, columns: int) -> str:
        return self.random_weight(self.unique(name), (rows, columns), rows**-0.5)

    def random_weight(self, name: str, shape: tuple[int, ...], scale: float, mean: float = 0.0) -> str:
        values = self.random.standard_normal(shape, np.float32) * np.float32(scale) + np.float32(mean)
        return self.constant(name, values)

    def ints(self, name: str, *values: int) -> str:
        return self.constant(name, np.array(values, np.int64))

    def constant(self, name: str, array: np.ndarray | np.generic) -> str:
        if self.numbers.setdefault(f"weight {name}", len(self.weights)) == len(self.weights):
            self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, op: str, *inputs: str, output: str = "", **attributes: object) -> str:
        name = self.unique(op)
        self.nodes.append(helper.make_node(op, inputs, [output or f"{name}_output_0"], name, **attributes))
        return output or f"{name}_output_0"

    def unique(self, name: str) -> str:
        number = self.numbers[f"{self.scope}/{name}"] = self.numbers.get(f"{self.scope}/{name}", -1) + 1
        return f"{self.scope}/{name}_{number}" if number else f"{self.scope}/{name}"
