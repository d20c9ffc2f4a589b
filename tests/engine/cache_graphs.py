"""Random graphs around caches: operators that write or append to them, views of them, and readers that would notice.

The nodes are collected in the `Sketch` of `random_graphs`; what is new here are the operators that keep caches.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.engine.random_graphs import Shape, Sketch, inside_if, inside_loop

MS = "com.microsoft"
HEADS, ROWS, SIZE = 2, 4, 8
LARGEST = 1024
LAYOUTS = ("apart", "with room", "halves", "rows of one block", "inside", "one array", "a part of the other")


@dataclass(frozen=True)
class CacheExample:
    """A model that keeps caches, arrays for it, and how the caller gives them.

    ``layout``: how ``past0`` and ``past1`` lie in memory. ``row_inside``: ``row`` is a row of ``past0`` itself.
    ``backwards``: the caller names the inputs from the last to the first.
    """

    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    donate: list[str]
    layout: str
    row_inside: bool
    backwards: bool


def over(ranks: tuple[int, ...]) -> Callable[[Callable[..., None]], Callable[[Any], None]]:
    """A node over a value of such a rank; none where there is no such value."""

    def added_by(add: Callable[..., None]) -> Callable[[Any], None]:
        def added(writer: Any) -> None:
            if (found := writer.cache(ranks)) is not None:
                add(writer, *found)

        return added

    return added_by


def over_pasts(add: Callable[..., None]) -> Callable[[Any], None]:
    """A node over a past of keys and one of values."""

    def added(writer: Any) -> None:
        if (found := writer.pasts()) is not None:
            add(writer, *found)

    return added


class Writer:
    """Adds random nodes to a sketch: every method adds one, where a value fits it."""

    def __init__(self, draw: random.Random, sketch: Sketch) -> None:
        self.draw, self.sketch = draw, sketch
        self.numbers = np.random.default_rng(draw.randrange(1 << 30))

    def pick(self, fits: Callable[[Shape], bool]) -> str | None:
        names = [name for name, shape in self.sketch.shapes.items() if fits(shape)]
        if not names:
            return None
        # Newer values more often, so that chains form; the rest are readers of what is there already.
        return self.draw.choice(names[-3:] if self.draw.random() < 0.5 else names)

    def like(self, shape: Shape) -> str:
        """A value of that shape, or a weight."""
        name = self.pick(lambda have: have == shape)
        return self.normals(*shape) if name is None or self.draw.random() < 0.4 else name

    def normals(self, *shape: int) -> str:
        return self.sketch.weight(self.numbers.standard_normal(shape).astype(np.float32))

    def whole(self, *numbers: int, dtype: type = np.int64) -> str:
        return self.sketch.weight(np.array(numbers, dtype))

    def cache(self, rank: tuple[int, ...]) -> tuple[str, Shape] | None:
        name = self.pick(lambda shape: len(shape) in rank and all(shape))
        return None if name is None else (name, self.sketch.shapes[name])

    @over((3, 4))
    def tensor_scatter(self, x: str, shape: Shape) -> None:
        axis, mode = self.draw.randrange(1, len(shape)), self.draw.choice(["linear", "circular"])
        rows = self.draw.choice([1, 1, min(2, shape[axis])])
        last = 2 * shape[axis] if mode == "circular" else shape[axis] - rows
        update = self.like((*shape[:axis], rows, *shape[axis + 1 :]))
        starts = self.whole(*(self.draw.randint(0, last) for _ in range(shape[0])))
        inputs = [x, update] if self.draw.random() < 0.2 else [x, update, starts]
        self.sketch.add("TensorScatter", inputs, [shape], axis=axis, mode=mode)

    @over((2, 3, 4))
    def scatter_nd(self, x: str, shape: Shape) -> None:
        depth = self.draw.randrange(1, len(shape) + 1)
        places = list(np.ndindex(*shape[:depth]))
        chosen = self.draw.sample(places, min(len(places), self.draw.choice([1, 1, 2])))
        indices = self.sketch.weight(np.array(chosen, np.int64))
        self.sketch.add("ScatterND", [x, indices, self.like((len(chosen), *shape[depth:]))], [shape])

    @over((2, 3, 4))
    def scatter_elements(self, x: str, shape: Shape) -> None:
        axis = self.draw.randrange(len(shape))
        part = (*shape[:axis], 1, *shape[axis + 1 :])
        indices = self.sketch.weight(np.full(part, self.draw.randrange(shape[axis])))
        self.sketch.add("ScatterElements", [x, indices, self.like(part)], [shape], axis=axis)

    @over((3, 4))
    def concat(self, x: str, shape: Shape) -> None:
        if self.draw.random() < 0.7:
            # What may have room: a past, and what was appended to one.
            appended = [node.output[0] for node in self.sketch.nodes if node.op_type == "Concat"]
            x = self.draw.choice(["past0", "past1", *appended])
            shape = self.sketch.shapes[x]
        axis = 2 if self.draw.random() < 0.8 else self.draw.randrange(len(shape))
        new = (*shape[:axis], 1, *shape[axis + 1 :])
        total = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
        if np.prod(total) > LARGEST:
            return
        inputs = [x, self.like(new)] if self.draw.random() < 0.85 else [self.like(new), x]
        self.sketch.add("Concat", inputs, [total], axis=axis)

    def pasts(self) -> tuple[str, str, Shape] | None:
        """Two values that can be a past of keys and one of values."""
        if (found := self.cache((4,))) is None or found[1][3] != SIZE or np.prod(found[1]) > LARGEST:
            return None
        key, shape = found
        # One value on both sides is a case of its own, and should not be the most frequent one.
        others = [name for name, have in self.sketch.shapes.items() if have == shape and name != key]
        value = self.draw.choice(others) if others and self.draw.random() < 0.7 else self.like(shape)
        return key, value, shape

    @over_pasts
    def attention_inside(self, key: str, value: str, shape: Shape) -> None:
        batch, heads, rows, size = shape
        new, grown = (batch, heads, 1, size), (batch, heads, rows + 1, size)
        queries = (batch, heads * self.draw.choice([1, 2]), 1, size)
        inputs = [self.like(queries), self.like(new), self.like(new), "", key, value]
        self.sketch.add("Attention", inputs, [queries, grown, grown], is_causal=self.draw.randrange(2))

    @over_pasts
    def attention_outside(self, key: str, value: str, shape: Shape) -> None:
        batch, heads, rows, size = shape
        queries = (batch, heads * self.draw.choice([1, 2]), self.draw.choice([1, 2]), size)
        inputs = [self.like(queries), key, value]
        if self.draw.random() < 0.6:
            inputs += ["", "", "", self.whole(*(self.draw.randint(1, rows) for _ in range(batch)))]
        self.sketch.add("Attention", inputs, [queries], is_causal=self.draw.randrange(2))

    @over_pasts
    def group_query(self, key: str, value: str, shape: Shape) -> None:
        batch, heads, rows, size = shape
        valid = [rows + 1] * batch
        if self.draw.random() < 0.6:
            valid = [self.draw.randint(1, rows) for _ in range(batch)]
        total, width = max(valid), heads * self.draw.choice([1, 2])
        new, present = (batch, 1, heads * size), (batch, heads, max(total, rows), size)
        inputs = [self.like((batch, 1, width * size)), self.like(new), self.like(new), key, value]
        inputs += [self.whole(*(n - 1 for n in valid), dtype=np.int32), self.whole(total, dtype=np.int32)]
        shapes: list[Shape] = [(batch, 1, width * size), present, present]
        self.sketch.add("GroupQueryAttention", inputs, shapes, domain=MS, num_heads=width, kv_num_heads=heads)

    @over_pasts
    def multi_head(self, key: str, value: str, shape: Shape) -> None:
        batch, heads, rows, size = shape
        new = (batch, 1, heads * size)
        inputs, present = [self.like(new) for _ in range(3)] + ["", "", "", key, value], (batch, heads, rows, size)
        if self.draw.random() < 0.5:
            inputs.append(self.whole(self.draw.randrange(rows), dtype=np.int32))
        else:
            present = (batch, heads, rows + 1, size)
        self.sketch.add("MultiHeadAttention", inputs, [new, present, present], domain=MS, num_heads=heads)

    @over((4,))
    def linear_attention(self, state: str, shape: Shape) -> None:
        batch, heads, size, width = shape
        keys, values = (batch, 1, heads * size), (batch, 1, heads * width)
        told = {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": "linear"}
        inputs = [self.like(keys), self.like(keys), self.like(values), state]
        self.sketch.add("LinearAttention", inputs, [values, shape], domain=MS, **told)

    @over((3,))
    def causal_conv(self, state: str, shape: Shape) -> None:
        batch, channels, columns = shape
        x = (batch, channels, self.draw.choice([1, 2]))
        inputs = [self.like(x), self.normals(channels, 1, columns + 1), "", state]
        self.sketch.add("CausalConvWithState", inputs, [x, shape], domain=MS)

    @over((4,))
    def transpose(self, x: str, shape: Shape) -> None:
        perm = self.draw.choice([(0, 2, 1, 3), (0, 2, 1, 3), (0, 1, 3, 2), (1, 0, 2, 3)])
        self.sketch.add("Transpose", [x], [tuple(shape[p] for p in perm)], perm=list(perm))

    @over((3, 4))
    def slice(self, x: str, shape: Shape) -> None:
        axis = self.draw.choice([2, 2, 1])
        start = self.draw.randrange(shape[axis])
        stop = self.draw.randint(start + 1, shape[axis])
        bounds = [self.whole(n) for n in (start, stop, axis)]
        self.sketch.add("Slice", [x, *bounds], [(*shape[:axis], stop - start, *shape[axis + 1 :])])

    @over((3, 4))
    def reshape(self, x: str, shape: Shape) -> None:
        to = (shape[0], int(np.prod(shape[1:-1])), shape[-1]) if len(shape) == 4 else (shape[0], 1, *shape[1:])
        self.sketch.add("Reshape", [x, self.whole(*to)], [to])

    def identity(self) -> None:
        x = self.draw.choice(list(self.sketch.shapes))
        self.sketch.add("Identity", [x], [self.sketch.shapes[x]])

    def unary(self) -> None:
        x = self.draw.choice(list(self.sketch.shapes))
        self.sketch.add(self.draw.choice(["Neg", "Relu", "Abs"]), [x], [self.sketch.shapes[x]])

    def binary(self) -> None:
        x = self.draw.choice(list(self.sketch.shapes))
        shape = self.sketch.shapes[x]
        self.sketch.add(self.draw.choice(["Add", "Mul"]), [x, self.like(shape)], [shape])

    @over((3, 4))
    def reduce(self, x: str, shape: Shape) -> None:
        axes = sorted(self.draw.sample(range(len(shape)), self.draw.choice([1, 1, 2, 3])))
        kind = self.draw.choice(["ReduceMax", "ReduceSum", "ReduceMean"])
        self.sketch.add(kind, [x, self.whole(*axes)], [tuple(1 if i in axes else n for i, n in enumerate(shape))])

    @over((4,))
    def matmul(self, x: str, shape: Shape) -> None:
        if self.draw.random() < 0.5:
            self.sketch.add("MatMul", [self.normals(*shape[:2], 3, shape[2]), x], [(*shape[:2], 3, shape[3])])
        else:
            self.sketch.add("MatMul", [x, self.normals(*shape[:2], shape[3], 3)], [(*shape[:3], 3)])

    @over((4,))
    def softmax(self, x: str, shape: Shape) -> None:
        self.sketch.add("Softmax", [x], [shape], axis=self.draw.randrange(-1, 4))


WRITERS = (
    "tensor_scatter", "tensor_scatter", "scatter_nd", "scatter_elements", "concat", "concat", "attention_inside",
    "attention_inside", "attention_outside", "group_query", "multi_head", "multi_head", "linear_attention",
    "causal_conv",
)  # fmt: skip
AROUND = (None, None, None, inside_if, inside_loop)
OTHERS = ("transpose", "slice", "slice", "reshape", "identity", "unary", "binary", "reduce", "matmul", "softmax")


def cache_example(seed: int, length: int) -> CacheExample:
    """A graph of about so many nodes and half as many readers more; a long one may lie inside an If or a Loop."""
    draw = random.Random(seed)
    batch = draw.choice([1, 1, 2])
    sketch = Sketch()
    layout = draw.choice((*LAYOUTS, LAYOUTS[1]))
    rows = ROWS - 1 if layout == "a part of the other" else ROWS
    sketch.shapes = {
        "past0": (batch, HEADS, ROWS, SIZE), "past1": (batch, HEADS, rows, SIZE), "row": (batch, HEADS, 1, SIZE),
        "flat": (batch, 1, HEADS * SIZE),
    }  # fmt: skip
    inputs = dict(sketch.shapes)
    writer = Writer(draw, sketch)
    while len(sketch.nodes) < length:
        getattr(writer, draw.choice(WRITERS if draw.random() < 0.6 else OTHERS))()
    for name in draw.sample(list(sketch.shapes), min(len(sketch.shapes), length // 2)):
        # Readers of whatever there is, the pasts among it.
        sketch.add(draw.choice(["Neg", "ReduceMax", "Identity"]), [name], [sketch.shapes[name]])
        if sketch.nodes[-1].op_type == "ReduceMax":
            sketch.nodes[-1].attribute.append(helper.make_attribute("keepdims", 0))
            sketch.shapes[sketch.made[-1]] = ()
    draw.shuffle(sketch.nodes)
    outputs = draw.sample(sketch.made, min(len(sketch.made), draw.randint(2, 5)))
    sketch.nodes = _sorted(sketch.nodes, {*inputs, *sketch.weights})
    nodes, results = sketch.nodes, outputs
    around = draw.choice(AROUND) if length > 6 else None
    if around is not None:
        nodes, results = around(sketch, outputs, list(inputs))
        sketch.weights |= {"k_true": np.array(True), "k_trips": np.array(3), "k_shape": np.array([1])}
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs.items()]
    tensors = [numpy_helper.from_array(array, name) for name, array in sketch.weights.items()]
    graph = helper.make_graph(nodes, "caches", ends, [onnx.ValueInfoProto(name=name) for name in results], tensors)
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, ir_version=10, opset_imports=opsets)
    arrays = {name: writer.numbers.standard_normal(shape).astype(np.float32) for name, shape in inputs.items()}
    row_inside = draw.random() < 0.3
    if layout == "one array":
        arrays["past1"] = arrays["past0"]
    elif layout == "a part of the other":
        arrays["past1"] = arrays["past0"][:, :, :rows]
    if row_inside:
        arrays["row"] = arrays["past0"][:, :, 1:2]
    donate = [name for name in arrays if draw.random() < 0.75]
    return CacheExample(model, arrays, donate, layout, row_inside, draw.random() < 0.5)


def _sorted(nodes: list[onnx.NodeProto], known: set[str]) -> list[onnx.NodeProto]:
    """The nodes in an order in which they can run, and otherwise as they come."""
    order: list[onnx.NodeProto] = []
    while nodes:
        ready = next(node for node in nodes if all(not name or name in known for name in node.input))
        nodes = [node for node in nodes if node is not ready]
        known |= set(ready.output)
        order.append(ready)
    return order
