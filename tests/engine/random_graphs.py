"""Random graphs: elementwise ops, views, reductions, joins and scatters over a few small shapes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import kvviz
from kvviz import Trace

Shape = tuple[int, ...]
SHAPES: list[Shape] = [(2, 3), (3, 2), (6,), (1, 3), (2, 1, 3)]
VIEWS = ("reshape", "transpose", "identity", "unsqueeze", "slice", "expand")
KINDS = (
    *("unary", "binary") * 6,
    *VIEWS,
    *("reduce", "softmax", "concat", "scatter_elements", "split", "where", "tile", "trilu") * 3,
)


class Writer:
    """A graph in the making; `grow` adds a node, by the method of its kind, over a value that fits it."""

    unaries: Sequence[str] = ("Tanh", "Neg", "Sin", "Relu", "Abs", "Sigmoid")
    # Of which ranks the value may be; of any where nothing is said.
    ranks: Mapping[str, tuple[int, ...]] = {"trilu": (2, 3, 4, 5)}

    def __init__(self, draw: Random, inputs: Mapping[str, Shape]) -> None:
        self.draw, self.shapes = draw, dict(inputs)
        self.numbers = np.random.default_rng(draw.randrange(1 << 30))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.made: list[str] = []

    def grow(self, kind: str) -> None:
        if (found := self.found(kind)) is not None:
            getattr(self, kind)(*found)

    def found(self, kind: str) -> tuple[Any, ...] | None:
        """What a node of a kind is made over: a value and its shape."""
        if (ranks := self.ranks.get(kind)) is None:
            x: str | None = self.draw.choice(list(self.shapes))
        else:
            x = self.pick(lambda shape: len(shape) in ranks and all(shape))
        return None if x is None else (x, self.shapes[x])

    def pick(self, fits: Callable[[Shape], bool]) -> str | None:
        names = [name for name, shape in self.shapes.items() if fits(shape)]
        if not names:
            return None
        # Newer values more often, so that chains form; the rest are readers of what is there already.
        return self.draw.choice(names[-3:] if self.draw.random() < 0.5 else names)

    def like(self, shape: Shape) -> str:
        """A value of that shape, or a weight."""
        name = self.pick(lambda have: have == shape)
        return self.normals(*shape) if name is None or self.draw.random() < 0.4 else name

    def normals(self, *shape: int) -> str:
        return self.weight(self.numbers.standard_normal(shape).astype(np.float32))

    def whole(self, *numbers: int, dtype: type = np.int64) -> str:
        return self.weight(np.array(numbers, dtype))

    def weight(self, array: np.ndarray) -> str:
        name = f"k{len(self.weights)}"
        self.weights[name] = array
        return name

    def add(self, op: str, inputs: list[str], shapes: Sequence[Shape], **attributes: Any) -> None:
        names = [f"v{len(self.made) + i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"n{len(self.nodes)}", **attributes))
        self.made += names
        self.shapes |= dict(zip(names, shapes))

    def unary(self, x: str, shape: Shape) -> None:
        self.add(self.draw.choice(self.unaries), [x], [shape])

    def binary(self, x: str, shape: Shape) -> None:
        y, result = self.beside(x, shape)
        self.add(self.draw.choice(("Add", "Sub", "Mul", "Max", "Min")), [x, y], [result])

    def where(self, x: str, shape: Shape) -> None:
        y, result = self.beside(x, shape)
        self.add("Where", [self.weight(np.array([self.draw.choice((False, True))])), x, y], [result])

    def beside(self, x: str, shape: Shape) -> tuple[str, Shape]:
        """Another operand, and the shape of what is made of both."""
        y = self.draw.choice(list(self.shapes))
        try:
            return y, np.broadcast_shapes(shape, self.shapes[y])
        except ValueError:
            return x, shape

    def reshape(self, x: str, shape: Shape) -> None:
        size = prod(shape)
        to = self.draw.choice([(size,), (1, size), (size, 1), *((n, size // n) for n in (2, 3) if size % n == 0)])
        self.add("Reshape", [x, self.whole(*to)], [to])

    def transpose(self, x: str, shape: Shape) -> None:
        perm = self.draw.sample(range(len(shape)), len(shape))
        self.add("Transpose", [x], [tuple(shape[p] for p in perm)], perm=perm)

    def identity(self, x: str, shape: Shape) -> None:
        self.add("Identity", [x], [shape])

    def unsqueeze(self, x: str, shape: Shape) -> None:
        axis = self.draw.randint(0, len(shape))
        self.add("Unsqueeze", [x, self.whole(axis)], [(*shape[:axis], 1, *shape[axis:])])

    def slice(self, x: str, shape: Shape) -> None:
        axis = self.draw.randrange(len(shape))
        start = self.draw.randrange(shape[axis])
        bounds = [self.whole(n) for n in (start, shape[axis], axis)]
        self.add("Slice", [x, *bounds], [(*shape[:axis], shape[axis] - start, *shape[axis + 1 :])])

    def expand(self, x: str, shape: Shape) -> None:
        to = (2, *shape) if len(shape) < 3 else shape
        self.add("Expand", [x, self.whole(*to)], [to])

    def reduce(self, x: str, shape: Shape) -> None:
        axes = sorted(self.draw.sample(range(len(shape)), min(len(shape), self.draw.choice([1, 1, 2, 3]))))
        kind = self.draw.choice(["ReduceMax", "ReduceSum", "ReduceMean"])
        self.add(kind, [x, self.whole(*axes)], [tuple(1 if i in axes else n for i, n in enumerate(shape))])

    def softmax(self, x: str, shape: Shape) -> None:
        self.add("Softmax", [x], [shape], axis=self.draw.randrange(-1, len(shape)))

    def concat(self, x: str, shape: Shape) -> None:
        y = self.draw.choice([n for n, s in self.shapes.items() if len(s) == len(shape) and s[1:] == shape[1:]])
        self.add("Concat", [x, y], [(shape[0] + self.shapes[y][0], *shape[1:])], axis=0)

    def scatter_elements(self, x: str, shape: Shape) -> None:
        axis = self.draw.randrange(len(shape))
        part = (*shape[:axis], 1, *shape[axis + 1 :])
        indices = self.weight(np.full(part, self.draw.randrange(shape[axis])))
        self.add("ScatterElements", [x, indices, self.like(part)], [shape], axis=axis)

    def split(self, x: str, shape: Shape) -> None:
        if shape[0] > 1:
            sizes = self.whole(1, shape[0] - 1)
            self.add("Split", [x, sizes], [(1, *shape[1:]), (shape[0] - 1, *shape[1:])], axis=0)

    def tile(self, x: str, shape: Shape) -> None:
        times = self.draw.randint(1, 2)
        self.add("Tile", [x, self.whole(times, *(1,) * (len(shape) - 1))], [(times * shape[0], *shape[1:])])

    def trilu(self, x: str, shape: Shape) -> None:
        self.add("Trilu", [x], [shape], upper=self.draw.randrange(2))


def _value(name: str, shape: Shape | None = None) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name) if shape is None else helper.make_tensor_value_info(name, 1, shape)


Wrapped = tuple[list[onnx.NodeProto], list[str]]


def inside_if(writer: Writer, outputs: list[str], first: str) -> Wrapped:
    """All of it in a branch; one more op outside reads the first input."""
    results = [f"{name}_out" for name in outputs]
    then = helper.make_graph(writer.nodes, "then", [], [_value(n, writer.shapes[n]) for n in outputs])
    other = helper.make_node("ConstantOfShape", ["k_shape"], ["other"])
    names = [f"e{i}" for i in range(len(outputs))]
    copies = [helper.make_node("Identity", ["other"], [name]) for name in names]
    no = helper.make_graph([other, *copies], "else", [], [_value(name) for name in names])
    branch = helper.make_node("If", ["k_true"], results, name="if", then_branch=then, else_branch=no)
    after = helper.make_node("Neg", [first], ["after"], name="after")
    return [branch, after], [*results, "after"]


def inside_loop(writer: Writer, outputs: list[str], first: str) -> Wrapped:
    """All of it in a body that runs three times and carries the first input along; other outputs are stacked."""
    shapes, carried = writer.shapes, f"{first}_in"
    next_state = next((name for name in reversed(writer.made) if shapes[name] == shapes[first]), carried)
    nodes = []
    for node in writer.nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [carried if name == first else name for name in node.input]
        nodes.append(copy)
    ends = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", [next_state], ["carried"])]
    body_in = [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("go", 9, [])]
    body_out = [helper.make_tensor_value_info("on", 9, []), _value("carried", shapes[first])]
    body_out += [_value(name, shapes[name]) for name in outputs]
    body = helper.make_graph([*nodes, *ends], "body", [*body_in, _value(carried, shapes[first])], body_out)
    results = ["last", *(f"{name}_all" for name in outputs)]
    return [helper.make_node("Loop", ["k_trips", "", first], results, name="loop", body=body)], results


Around = Callable[[Writer, list[str], str], Wrapped] | None


def model_of(
    writer: Writer, inputs: Mapping[str, Shape], outputs: list[str], around: Around, *opsets: onnx.OperatorSetIdProto
) -> onnx.ModelProto:
    """The model of what was written, flat or inside of something."""
    nodes, weights = writer.nodes, writer.weights
    if around is not None:
        nodes, outputs = around(writer, outputs, next(iter(inputs)))
        weights |= {"k_true": np.array(True), "k_trips": np.array(3), "k_shape": np.array([1])}
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    ends = [_value(name, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(nodes, "random", ends, [_value(name) for name in outputs], tensors)
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


@dataclass(frozen=True)
class Example:
    """A model with inputs for it, those that are donated, and those that get room to grow."""

    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    donate: list[str]
    grow: list[str]


def _example(draw: Random) -> Example:
    inputs = {f"x{i}": draw.choice(SHAPES) for i in range(draw.randint(1, 3))}
    writer, length = Writer(draw, inputs), draw.randint(1, 14)
    while len(writer.nodes) < length:
        writer.grow(draw.choice(KINDS))
    outputs = draw.sample(writer.made, min(len(writer.made), draw.randint(1, 4)))
    around = draw.choice([None, None, inside_if, inside_loop])
    model = model_of(writer, inputs, outputs, around, helper.make_opsetid("", 21))
    arrays = {name: writer.numbers.standard_normal(shape).astype(np.float32) for name, shape in inputs.items()}
    donate = [name for name in inputs if draw.randrange(2)]
    return Example(model, arrays, donate, [name for name in donate if draw.randrange(2)])


def examples() -> st.SearchStrategy[Example]:
    """Graphs of up to 14 nodes, flat or inside an If or a Loop."""
    return st.randoms(use_true_random=False).map(_example)


def feeds(example: Example) -> dict[str, np.ndarray]:
    """Arrays for one run: the donated ones its own, with room where asked for, the borrowed ones read-only."""
    given = {name: array.copy() for name, array in example.inputs.items()}
    for name in example.grow:
        given[name] = kvviz.reserve(given[name], 0, len(given[name]) + 7)
    for name, array in given.items():
        array.flags.writeable = name in example.donate
    return given


def assert_same_bits(first: Trace, second: Trace) -> None:
    assert first.outputs.keys() == second.outputs.keys()
    for name, output in first.outputs.items():
        other = second.outputs[name]
        assert (output.dtype, output.shape) == (other.dtype, other.shape)
        assert output.tobytes() == other.tobytes(), f"{name} differs"
