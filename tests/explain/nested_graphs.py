"""Random graphs with bodies inside bodies: branches, loops and local functions that capture, carry and hand out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

SHAPE = (2, 3)
UNARY = ("Relu", "Neg", "Tanh", "Abs")
BINARY = ("Add", "Sub", "Mul")


@dataclass
class Writer:
    """Nodes of one graph in the making; ``seen`` are the names that they may read, those of outer graphs too."""

    draw: random.Random
    count: list[int]
    seen: list[str]
    depth: int = 0
    made: list[str] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def name(self, kind: str) -> str:
        self.count[0] += 1
        return f"{kind}{self.count[0]}"

    def add(self, op: str, inputs: list[str], outputs: list[str], **attributes: object) -> None:
        self.nodes.append(helper.make_node(op, inputs, outputs, name=self.name("n"), **attributes))
        self.seen += outputs
        self.made += outputs

    def pick(self) -> str:
        # Newer values more often, so that chains form.
        return self.draw.choice(self.seen[-4:] if self.draw.random() < 0.6 else self.seen)

    def write(self, length: int) -> None:
        for _ in range(length):
            kinds = ["unary"] * 4 + ["binary"] * 3 + ["view"] * 2 + ["call"]
            kinds += ["if", "if", "loop"] if self.depth < 2 else []
            getattr(self, self.draw.choice(kinds))()

    def unary(self) -> None:
        self.add(self.draw.choice(UNARY), [self.pick()], [self.name("v")])

    def binary(self) -> None:
        self.add(self.draw.choice(BINARY), [self.pick(), self.pick()], [self.name("v")])

    def view(self) -> None:
        if self.draw.random() < 0.4:
            self.add("Identity", [self.pick()], [self.name("v")])
            return
        flat = self.name("v")
        self.add("Reshape", [self.pick(), "k_flat"], [flat])
        self.seen.remove(flat)
        self.made.remove(flat)
        self.add("Reshape", [flat, "k_shape"], [self.name("v")])

    def call(self) -> None:
        self.add("f", [self.pick(), self.pick()], [self.name("v")], domain="local")

    def inner(self, names: list[str]) -> Writer:
        return Writer(self.draw, self.count, [*self.seen, *names], self.depth + 1)

    def body(self, kind: str, inputs: list[str], first: list[str], outputs: int) -> onnx.GraphProto:
        """A graph that gives ``first`` and then some values of its own, or values that it captures."""
        inner = self.inner([name for name in inputs if name.startswith("c")])
        inner.write(self.draw.randint(1, 4))
        given = [inner.draw.choice(inner.made or inner.seen) for _ in range(outputs)]
        results = []
        for name in given:
            # An output of a body must be made there, and once.
            if name not in inner.made or name in results or self.draw.random() < 0.3:
                inner.add("Identity", [name], [inner.name("o")])
                name = inner.made[-1]
            results.append(name)
        if first:
            inner.nodes.append(helper.make_node("Identity", [inputs[1]], [first[0]], name=inner.name("n")))
        types = {"i": 7, "g": 9}
        ins = [helper.make_tensor_value_info(n, types.get(n[0], 1), [] if n[0] in types else SHAPE) for n in inputs]
        outs = [helper.make_tensor_value_info(n, 9, []) for n in first]
        outs += [helper.make_tensor_value_info(n, 1, SHAPE) for n in results]
        return helper.make_graph(inner.nodes, kind, ins, outs)

    def if_(self) -> None:
        yes, no = self.body("yes", [], [], 1), self.body("no", [], [], 1)
        condition = self.draw.choice(["k_true", "k_false"])
        self.add("If", [condition], [self.name("v")], then_branch=yes, else_branch=no)

    def loop(self) -> None:
        inputs = [self.name("i"), self.name("g"), self.name("c")]
        scans = self.draw.randint(0, 1)
        body = self.body("body", inputs, [self.name("go")], 1 + scans)
        outputs = [self.name("v"), *(self.name("s") for _ in range(scans))]
        self.add("Loop", ["k_trips", "", self.pick()], outputs, body=body)
        for name in outputs[1:]:
            # Of another shape: nobody reads it on.
            self.seen.remove(name)
            self.made.remove(name)


setattr(Writer, "if", Writer.if_)


def nested(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[str]]:
    """A model, inputs for it, and those that are donated."""
    draw = random.Random(seed)
    inputs = ["x0", "x1"][: draw.randint(1, 2)]
    writer = Writer(draw, [0], list(inputs))
    writer.write(draw.randint(3, 9))
    outputs = draw.sample(writer.made, min(len(writer.made), draw.randint(1, 3)))
    weights = {
        "k_true": np.array(True),
        "k_false": np.array(False),
        "k_trips": np.array(2),
        "k_flat": np.array([6]),
        "k_shape": np.array(SHAPE),
    }
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    ends = [[helper.make_tensor_value_info(name, 1, SHAPE) for name in names] for names in (inputs, outputs)]
    graph = helper.make_graph(writer.nodes, "nested", *ends, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    body = [helper.make_node("Neg", ["p"], ["t"]), helper.make_node("Add", ["t", "q"], ["r"])]
    function = helper.make_function("local", "f", ["p", "q"], ["r"], body, opsets[:1])
    model = helper.make_model(graph, ir_version=10, opset_imports=opsets, functions=[function])
    random_numbers = np.random.default_rng(seed)
    arrays = {name: random_numbers.standard_normal(SHAPE).astype(np.float32) for name in inputs}
    return model, arrays, [name for name in inputs if draw.random() < 0.5]
