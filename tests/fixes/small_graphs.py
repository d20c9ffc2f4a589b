"""Small graphs at random whose order matters: values of many sizes, views, chains in place, several outputs."""

import random
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Small:
    """A model, inputs for it, and those that are donated."""

    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    donate: list[str]


class _Sketch:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.shapes: dict[str, Shape] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, values: list[int]) -> str:
        name = f"k{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def add(self, op: str, inputs: list[str], shapes: list[Shape], **attributes: object) -> None:
        names = [f"v{len(self.nodes)}_{place}" for place in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, f"n{len(self.nodes)}", **attributes))
        self.shapes |= dict(zip(names, shapes))

    def pick(self) -> str:
        """A value to read; new ones and those that nobody reads yet more often than others."""
        names = list(self.shapes)
        read = {name for node in self.nodes for name in node.input}
        return self.rng.choice(names + names[-3:] + [name for name in names if name not in read])

    def grow(self) -> None:
        rng, x = self.rng, self.pick()
        shape = self.shapes[x]
        rows, columns = shape
        kind = rng.choice(["unary", "unary", "binary", "binary", "tile", "reduce", "view", "view", "split", "concat"])
        if kind == "unary":
            self.add(rng.choice(["Exp", "Neg", "Relu", "Softmax"]), [x], [shape])
        elif kind == "binary":
            alike = [name for name, other in self.shapes.items() if other == shape]
            self.add(rng.choice(["Add", "Mul"]), [x, rng.choice(alike)], [shape])
        elif kind == "tile" and rows < 64:
            times = rng.choice([2, 3, 4])
            self.add("Tile", [x, self.weight([times, 1])], [(rows * times, columns)])
        elif kind == "reduce" and rows > 1:
            self.add("ReduceSum", [x, self.weight([0])], [(1, columns)])
        elif kind == "view":
            self.view(x, rows, columns)
        elif kind == "split" and rows > 1:
            cut = rng.randrange(1, rows)
            self.add("Split", [x, self.weight([cut, rows - cut])], [(cut, columns), (rows - cut, columns)], axis=0)
        elif kind == "concat":
            other = rng.choice([name for name, there in self.shapes.items() if there[1] == columns])
            self.add("Concat", [x, other], [(rows + self.shapes[other][0], columns)], axis=0)
        else:
            self.add("Sigmoid", [x], [shape])

    def view(self, x: str, rows: int, columns: int) -> None:
        op = self.rng.choice(["Transpose", "Reshape", "Slice", "Slice", "Identity"])
        if op == "Transpose":
            self.add(op, [x], [(columns, rows)], perm=[1, 0])
        elif op == "Reshape":
            self.add(op, [x, self.weight([1, rows * columns])], [(1, rows * columns)])
        elif op == "Slice" and rows > 1:
            begin = self.rng.randrange(rows - 1)
            end = self.rng.randrange(begin + 1, rows + 1)
            self.add(op, [x, *(self.weight([n]) for n in (begin, end, 0))], [(end - begin, columns)])
        else:
            self.add("Identity", [x], [(rows, columns)])


def small_graph(seed: int, most: int = 9) -> Small:
    """A graph of at most so many ops; some of its values are requested, some of its inputs are donated."""
    rng = random.Random(seed)
    sketch = _Sketch(rng)
    inputs = [f"x{place}" for place in range(rng.randrange(1, 4))]
    for name in inputs:
        sketch.shapes[name] = (rng.choice([1, 2, 5, 8, 16]), rng.choice([1, 4]))
    given = dict(sketch.shapes)
    for _ in range(rng.randrange(3, most + 1)):
        sketch.grow()
    read = {name for node in sketch.nodes for name in node.input}
    made = [name for name in sketch.shapes if name not in given]
    outputs = [name for name in made if name not in read and rng.random() < 0.8] or made[-1:]
    outputs += [name for name in made if name not in outputs and rng.random() < 0.1]
    graph = helper.make_graph(
        sketch.nodes,
        f"small {seed}",
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in given.items()],
        [helper.make_tensor_value_info(name, 1, sketch.shapes[name]) for name in outputs],
        sketch.weights,
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    arrays = {n: np.random.default_rng(seed).random(shape, np.float32) for n, shape in given.items()}
    return Small(model, arrays, [name for name in inputs if rng.random() < 0.6])
