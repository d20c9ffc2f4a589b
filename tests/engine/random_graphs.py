"""Random graphs for hypothesis: elementwise ops, views, reductions, joins and scatters over a few small shapes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import kvviz
from kvviz import Trace

Shape = tuple[int, ...]
SHAPES: list[Shape] = [(2, 3), (3, 2), (6,), (1, 3), (2, 1, 3)]
UNARY = ["Tanh", "Neg", "Sin", "Relu", "Abs", "Sigmoid"]
BINARY = ["Add", "Sub", "Mul", "Max", "Min"]
KINDS = [
    "unary",
    "unary",
    "binary",
    "binary",
    "view",
    "view",
    "reduce",
    "softmax",
    "concat",
    "scatter",
    "split",
    "where",
    "tile",
    "triangle",
]


@dataclass
class Sketch:
    """A graph in the making: nodes so far, and the shape of every value."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)

    def weight(self, array: Any) -> str:
        name = f"k{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def add(self, op: str, inputs: list[str], shapes: list[Shape], **attributes: Any) -> None:
        names = [f"v{len(self.made) + i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"n{len(self.nodes)}", **attributes))
        self.made += names
        self.shapes |= dict(zip(names, shapes))


@dataclass(frozen=True)
class Example:
    """A model with inputs for it, those that are donated, and those that get room to grow."""

    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    donate: list[str]
    grow: list[str]


def _view(draw: Any, sketch: Sketch, x: str) -> None:
    shape = sketch.shapes[x]
    size = int(np.prod(shape))
    options = ["Reshape", "Transpose", "Identity", "Unsqueeze", "Slice", "Expand"]
    op = draw(st.sampled_from(options))
    if op == "Reshape":
        target = draw(
            st.sampled_from([(size,), (1, size), (size, 1), *[(n, size // n) for n in (2, 3) if size % n == 0]])
        )
        sketch.add(op, [x, sketch.weight(np.array(target))], [target])
    elif op == "Transpose":
        perm = draw(st.permutations(range(len(shape))))
        sketch.add(op, [x], [tuple(shape[p] for p in perm)], perm=list(perm))
    elif op == "Identity":
        sketch.add(op, [x], [shape])
    elif op == "Unsqueeze":
        axis = draw(st.integers(0, len(shape)))
        sketch.add(op, [x, sketch.weight(np.array([axis]))], [(*shape[:axis], 1, *shape[axis:])])
    elif op == "Slice":
        axis = draw(st.integers(0, len(shape) - 1))
        start = draw(st.integers(0, shape[axis] - 1))
        bounds = [sketch.weight(np.array([n])) for n in (start, shape[axis], axis)]
        sketch.add(op, [x, *bounds], [(*shape[:axis], shape[axis] - start, *shape[axis + 1 :])])
    else:
        target = (2, *shape) if len(shape) < 3 else shape
        sketch.add(op, [x, sketch.weight(np.array(target))], [target])


def _node(draw: Any, sketch: Sketch) -> None:
    """One more node over values that exist already."""
    names = st.sampled_from(list(sketch.shapes))
    x = draw(names)
    shape = sketch.shapes[x]
    kind = draw(st.sampled_from(KINDS))
    if kind == "unary":
        sketch.add(draw(st.sampled_from(UNARY)), [x], [shape])
    elif kind in ("binary", "where"):
        y = draw(names)
        try:
            result = np.broadcast_shapes(shape, sketch.shapes[y])
        except ValueError:
            y, result = x, shape
        if kind == "where":
            sketch.add("Where", [sketch.weight(np.array([draw(st.booleans())])), x, y], [result])
        else:
            sketch.add(draw(st.sampled_from(BINARY)), [x, y], [result])
    elif kind == "view":
        _view(draw, sketch, x)
    elif kind == "reduce":
        axis = draw(st.integers(0, len(shape) - 1))
        op = draw(st.sampled_from(["ReduceSum", "ReduceMax"]))
        sketch.add(op, [x, sketch.weight(np.array([axis]))], [(*shape[:axis], 1, *shape[axis + 1 :])])
    elif kind == "tile":
        times = draw(st.integers(1, 2))
        repeats = sketch.weight(np.array([times, *(1,) * (len(shape) - 1)]))
        sketch.add("Tile", [x, repeats], [(times * shape[0], *shape[1:])])
    elif kind == "triangle" and len(shape) > 1:
        sketch.add("Trilu", [x], [shape], upper=draw(st.integers(0, 1)))
    elif kind == "softmax":
        sketch.add("Softmax", [x], [shape], axis=-1)
    elif kind == "concat":
        partners = [n for n, s in sketch.shapes.items() if len(s) == len(shape) and s[1:] == shape[1:]]
        y = draw(st.sampled_from(partners))
        sketch.add("Concat", [x, y], [(shape[0] + sketch.shapes[y][0], *shape[1:])], axis=0)
    elif kind == "scatter":
        rows = draw(st.integers(0, shape[0] - 1))
        indices = sketch.weight(np.full((1, *shape[1:]), rows))
        updates = sketch.weight(np.full((1, *shape[1:]), 0.5, np.float32))
        sketch.add("ScatterElements", [x, indices, updates], [shape], axis=0)
    elif shape[0] > 1:
        sizes = sketch.weight(np.array([1, shape[0] - 1]))
        sketch.add("Split", [x, sizes], [(1, *shape[1:]), (shape[0] - 1, *shape[1:])], axis=0)
    else:
        sketch.add("Neg", [x], [shape])


def _value(name: str, shape: Shape | None = None) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name) if shape is None else helper.make_tensor_value_info(name, 1, shape)


def inside_if(sketch: Sketch, outputs: list[str], inputs: list[str]) -> tuple[list[onnx.NodeProto], list[str]]:
    """All of it in a branch; one more op outside reads the first input."""
    results = [f"{name}_out" for name in outputs]
    then = helper.make_graph(sketch.nodes, "then", [], [_value(n, sketch.shapes[n]) for n in outputs])
    other = helper.make_node("ConstantOfShape", ["k_shape"], ["other"])
    names = [f"e{i}" for i in range(len(outputs))]
    copies = [helper.make_node("Identity", ["other"], [name]) for name in names]
    no = helper.make_graph([other, *copies], "else", [], [_value(name) for name in names])
    branch = helper.make_node("If", ["k_true"], results, name="if", then_branch=then, else_branch=no)
    after = helper.make_node("Neg", [inputs[0]], ["after"], name="after")
    return [branch, after], [*results, "after"]


def inside_loop(sketch: Sketch, outputs: list[str], inputs: list[str]) -> tuple[list[onnx.NodeProto], list[str]]:
    """All of it in a body that runs three times and carries the first input along; other outputs are stacked."""
    first = inputs[0]
    next_state = next((n for n in reversed(sketch.made) if sketch.shapes[n] == sketch.shapes[first]), f"{first}_in")
    nodes = []
    for node in sketch.nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [f"{first}_in" if name == first else name for name in node.input]
        nodes.append(copy)
    ends = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", [next_state], ["carried"])]
    stacked = [n for n in outputs if n in sketch.made]
    body_in = [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("go", 9, [])]
    body_in.append(_value(f"{first}_in", sketch.shapes[first]))
    body_out = [helper.make_tensor_value_info("on", 9, []), _value("carried", sketch.shapes[first])]
    body_out += [_value(n, sketch.shapes[n]) for n in stacked]
    body = helper.make_graph([*nodes, *ends], "body", body_in, body_out)
    results = ["last", *(f"{n}_all" for n in stacked)]
    return [helper.make_node("Loop", ["k_trips", "", first], results, name="loop", body=body)], results


@st.composite
def examples(draw: Any) -> Example:
    """Graphs of up to 14 nodes, flat or inside an If or a Loop."""
    sketch = Sketch()
    inputs = [f"x{i}" for i in range(draw(st.integers(1, 3)))]
    for name in inputs:
        sketch.shapes[name] = draw(st.sampled_from(SHAPES))
    for _ in range(draw(st.integers(1, 14))):
        _node(draw, sketch)
    outputs = draw(st.lists(st.sampled_from(sketch.made), min_size=1, max_size=4, unique=True))
    around = draw(st.sampled_from(["flat", "flat", "if", "loop"]))
    nodes, results = sketch.nodes, outputs
    if around == "if":
        nodes, results = inside_if(sketch, outputs, inputs)
    elif around == "loop":
        nodes, results = inside_loop(sketch, outputs, inputs)
    sketch.weights |= {"k_true": np.array(True), "k_trips": np.array(3), "k_shape": np.array([1])}
    tensors = [numpy_helper.from_array(array, name) for name, array in sketch.weights.items()]
    values = [_value(name, sketch.shapes[name]) for name in inputs]
    graph = helper.make_graph(nodes, "random", values, [_value(name) for name in results], tensors)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    seed = draw(st.integers(0, 99))
    arrays = {
        n: np.random.default_rng((seed, i)).standard_normal(sketch.shapes[n]).astype(np.float32)
        for i, n in enumerate(inputs)
    }
    donate = draw(st.lists(st.sampled_from(inputs), unique=True))
    grow = draw(st.lists(st.sampled_from(donate), unique=True)) if donate else []
    return Example(model, arrays, donate, grow)


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
