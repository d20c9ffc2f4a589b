"""Random graphs around caches: operators that write or append to them, views of them, and readers that would notice;
and the memory in which a caller gives caches: apart, with room, as parts of one block, or one array under two names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper

import kvviz
from tests.engine.random_graphs import Around, Shape, Writer, inside_if, inside_loop, model_of

MS = "com.microsoft"
HEADS, ROWS, SIZE = 2, 4, 8
LARGEST = 1024
LAYOUTS = ("apart", "with room", "halves", "rows of one block", "inside", "one array", "a part of the other")
OVER_PASTS = ("attention_inside", "attention_outside", "group_query", "multi_head")
WRITERS = (
    "tensor_scatter", "tensor_scatter", "scatter_nd", "scatter_elements", "concat", "concat", "attention_inside",
    "attention_inside", "attention_outside", "group_query", "multi_head", "multi_head", "linear_attention",
    "causal_conv",
)  # fmt: skip
OTHERS = ("transpose", "slice", "slice", "reshape", "identity", "unary", "binary", "reduce", "matmul", "softmax")
AROUND: tuple[Around, ...] = (None, None, None, inside_if, inside_loop)


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


class CacheWriter(Writer):
    """A graph in the making that keeps caches."""

    unaries = ("Neg", "Relu", "Abs")
    ranks: Mapping[str, tuple[int, ...]] = {
        **dict.fromkeys(("scatter_nd", "scatter_elements"), (2, 3, 4)),
        **dict.fromkeys(("tensor_scatter", "concat", "slice", "reshape", "reduce"), (3, 4)),
        **dict.fromkeys((*OVER_PASTS, "linear_attention", "transpose", "matmul", "softmax"), (4,)),
        "causal_conv": (3,),
    }

    def found(self, kind: str) -> tuple[Any, ...] | None:
        """A value and its shape; for attention two of a shape, as a past of keys and one of values."""
        if (found := super().found(kind)) is None or kind not in OVER_PASTS:
            return found
        key, shape = found
        if shape[3] != SIZE or prod(shape) > LARGEST:
            return None
        # One value on both sides is a case of its own, and should not be the most frequent one.
        others = [name for name, have in self.shapes.items() if have == shape and name != key]
        return key, self.draw.choice(others) if others and self.draw.random() < 0.7 else self.like(shape), shape

    def tensor_scatter(self, x: str, shape: Shape) -> None:
        axis, mode = self.draw.randrange(1, len(shape)), self.draw.choice(["linear", "circular"])
        rows = self.draw.choice([1, 1, min(2, shape[axis])])
        last = 2 * shape[axis] if mode == "circular" else shape[axis] - rows
        update = self.like((*shape[:axis], rows, *shape[axis + 1 :]))
        starts = self.whole(*(self.draw.randint(0, last) for _ in range(shape[0])))
        inputs = [x, update] if self.draw.random() < 0.2 else [x, update, starts]
        self.add("TensorScatter", inputs, [shape], axis=axis, mode=mode)

    def scatter_nd(self, x: str, shape: Shape) -> None:
        depth = self.draw.randrange(1, len(shape) + 1)
        places = list(np.ndindex(*shape[:depth]))
        chosen = self.draw.sample(places, min(len(places), self.draw.choice([1, 1, 2])))
        indices = self.weight(np.array(chosen, np.int64))
        self.add("ScatterND", [x, indices, self.like((len(chosen), *shape[depth:]))], [shape])

    def concat(self, x: str, shape: Shape) -> None:
        if self.draw.random() < 0.7:
            # What may have room: a past, and what was appended to one.
            appended = [node.output[0] for node in self.nodes if node.op_type == "Concat"]
            x = self.draw.choice(["past0", "past1", *appended])
            shape = self.shapes[x]
        axis = 2 if self.draw.random() < 0.8 else self.draw.randrange(len(shape))
        new = (*shape[:axis], 1, *shape[axis + 1 :])
        total = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
        if prod(total) > LARGEST:
            return
        inputs = [x, self.like(new)] if self.draw.random() < 0.85 else [self.like(new), x]
        self.add("Concat", inputs, [total], axis=axis)

    def attention_inside(self, key: str, value: str, shape: Shape) -> None:
        batch, heads, rows, size = shape
        new, grown = (batch, heads, 1, size), (batch, heads, rows + 1, size)
        queries = (batch, heads * self.draw.choice([1, 2]), 1, size)
        inputs = [self.like(queries), self.like(new), self.like(new), "", key, value]
        self.add("Attention", inputs, [queries, grown, grown], is_causal=self.draw.randrange(2))

    def attention_outside(self, key: str, value: str, shape: Shape) -> None:
        batch, heads, rows, size = shape
        queries = (batch, heads * self.draw.choice([1, 2]), self.draw.choice([1, 2]), size)
        inputs = [self.like(queries), key, value]
        if self.draw.random() < 0.6:
            inputs += ["", "", "", self.whole(*(self.draw.randint(1, rows) for _ in range(batch)))]
        self.add("Attention", inputs, [queries], is_causal=self.draw.randrange(2))

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
        self.add("GroupQueryAttention", inputs, shapes, domain=MS, num_heads=width, kv_num_heads=heads)

    def multi_head(self, key: str, value: str, shape: Shape) -> None:
        batch, heads, rows, size = shape
        new = (batch, 1, heads * size)
        inputs, present = [self.like(new) for _ in range(3)] + ["", "", "", key, value], (batch, heads, rows, size)
        if self.draw.random() < 0.5:
            inputs.append(self.whole(self.draw.randrange(rows), dtype=np.int32))
        else:
            present = (batch, heads, rows + 1, size)
        self.add("MultiHeadAttention", inputs, [new, present, present], domain=MS, num_heads=heads)

    def linear_attention(self, state: str, shape: Shape) -> None:
        batch, heads, size, width = shape
        keys, values = (batch, 1, heads * size), (batch, 1, heads * width)
        told = {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": "linear"}
        inputs = [self.like(keys), self.like(keys), self.like(values), state]
        self.add("LinearAttention", inputs, [values, shape], domain=MS, **told)

    def causal_conv(self, state: str, shape: Shape) -> None:
        batch, channels, columns = shape
        x = (batch, channels, self.draw.choice([1, 2]))
        inputs = [self.like(x), self.normals(channels, 1, columns + 1), "", state]
        self.add("CausalConvWithState", inputs, [x, shape], domain=MS)

    def transpose(self, x: str, shape: Shape) -> None:
        perm = self.draw.choice([(0, 2, 1, 3), (0, 2, 1, 3), (0, 1, 3, 2), (1, 0, 2, 3)])
        self.add("Transpose", [x], [tuple(shape[p] for p in perm)], perm=list(perm))

    def slice(self, x: str, shape: Shape) -> None:
        axis = self.draw.choice([2, 2, 1])
        start = self.draw.randrange(shape[axis])
        stop = self.draw.randint(start + 1, shape[axis])
        bounds = [self.whole(n) for n in (start, stop, axis)]
        self.add("Slice", [x, *bounds], [(*shape[:axis], stop - start, *shape[axis + 1 :])])

    def reshape(self, x: str, shape: Shape) -> None:
        to = (shape[0], prod(shape[1:-1]), shape[-1]) if len(shape) == 4 else (shape[0], 1, *shape[1:])
        self.add("Reshape", [x, self.whole(*to)], [to])

    def binary(self, x: str, shape: Shape) -> None:
        self.add(self.draw.choice(["Add", "Mul"]), [x, self.like(shape)], [shape])

    def matmul(self, x: str, shape: Shape) -> None:
        if self.draw.random() < 0.5:
            self.add("MatMul", [self.normals(*shape[:2], 3, shape[2]), x], [(*shape[:2], 3, shape[3])])
        else:
            self.add("MatMul", [x, self.normals(*shape[:2], shape[3], 3)], [(*shape[:3], 3)])


def cache_example(seed: int, length: int) -> CacheExample:
    """A graph of about so many nodes and half as many readers more; a long one may lie inside an If or a Loop."""
    draw = Random(seed)
    batch = draw.choice([1, 1, 2])
    layout = draw.choice((*LAYOUTS, LAYOUTS[1]))
    rows = ROWS - 1 if layout == "a part of the other" else ROWS
    inputs: dict[str, Shape] = {
        "past0": (batch, HEADS, ROWS, SIZE), "past1": (batch, HEADS, rows, SIZE), "row": (batch, HEADS, 1, SIZE),
        "flat": (batch, 1, HEADS * SIZE),
    }  # fmt: skip
    writer = CacheWriter(draw, inputs)
    while len(writer.nodes) < length:
        writer.grow(draw.choice(WRITERS if draw.random() < 0.6 else OTHERS))
    for name in draw.sample(list(writer.shapes), min(len(writer.shapes), length // 2)):
        # Readers of whatever there is, the pasts among it.
        writer.add(draw.choice(["Neg", "ReduceMax", "Identity"]), [name], [writer.shapes[name]])
        if writer.nodes[-1].op_type == "ReduceMax":
            writer.nodes[-1].attribute.append(helper.make_attribute("keepdims", 0))
            writer.shapes[writer.made[-1]] = ()
    draw.shuffle(writer.nodes)
    outputs = draw.sample(writer.made, min(len(writer.made), draw.randint(2, 5)))
    writer.nodes = _sorted(writer.nodes, {*inputs, *writer.weights})
    around = draw.choice(AROUND) if length > 6 else None
    model = model_of(writer, inputs, outputs, around, helper.make_opsetid("", 24), helper.make_opsetid(MS, 1))
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


@dataclass(frozen=True)
class Given:
    """Inputs of one run, and the blocks that they lie in, each with a mask of what the run may write to."""

    feeds: dict[str, np.ndarray]
    blocks: list[tuple[np.ndarray, np.ndarray]]

    def kept(self) -> list[bytes]:
        """The bytes that no run may change."""
        return [block[~may].tobytes() for block, may in self.blocks]


def given(example: CacheExample) -> Given:
    """Arrays for one run, laid out as the example says."""
    arrays, donate, layout = example.inputs, example.donate, example.layout
    pasts = {name: arrays[name] for name in ("past0", "past1")}
    places: list[tuple] = [(..., slice(0, past.shape[2]), slice(None)) for past in pasts.values()]
    if layout == "with room":
        blocks = [_block(kvviz.reserve(past, 2, ROWS + 3)) for past in pasts.values()]
    elif layout == "a part of the other":
        blocks = [_block(kvviz.reserve(pasts["past0"], 2, ROWS + 3))] * 2
    elif layout == "halves":
        blocks, places = [np.stack([*pasts.values()])] * 2, [(0,), (1,)]
    elif layout == "rows of one block":
        blocks = [np.concatenate([*pasts.values()], axis=2)] * 2
        places[1] = (..., slice(ROWS, None), slice(None))
    elif layout == "inside":
        padding = ((1, 1), *((0, 0),) * 4)
        blocks = [np.pad(past[None], padding, constant_values=77) for past in pasts.values()]
        places = [(1,), (1,)]
    elif layout == "one array":
        blocks = [pasts["past0"].copy()] * 2
    else:
        blocks = [past.copy() for past in pasts.values()]
    placed = dict(zip(pasts, zip(blocks, places)))
    feeds = {name: block[where] for name, (block, where) in placed.items()}
    masks = {id(block): (block, np.zeros(block.shape, np.bool_)) for block, _ in placed.values()}
    for name in sorted(placed, key=lambda n: n not in donate):
        block, where = placed[name]
        # A block with room is given away with its room.
        spare = layout in ("with room", "a part of the other")
        if name in donate and spare:
            masks[id(block)][1][...] = True
        masks[id(block)][1][where] = name in donate
    for name in ("row", "flat"):
        if name == "row" and example.row_inside:
            feeds[name] = feeds["past0"][:, :, 1:2]
            if name not in donate:
                block, where = placed["past0"]
                masks[id(block)][1][where][:, :, 1:2] = False
            continue
        feeds[name] = arrays[name].copy()
        masks[id(feeds[name])] = feeds[name], np.full(feeds[name].shape, name in donate)
    if example.backwards:
        feeds = dict(reversed(feeds.items()))
    return Given(feeds, list(masks.values()))


def _block(array: np.ndarray) -> np.ndarray:
    """All of a block that `kvviz.reserve` made, filled with a number that is in no cache."""
    block = array.base
    assert block is not None
    block[:, :, array.shape[2] :] = 77
    return block
