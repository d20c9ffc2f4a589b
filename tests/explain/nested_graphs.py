"""Random graphs with bodies inside bodies: branches, loops and local functions that capture, carry and hand out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from tests.engine.graphs import proto_of

SHAPE = (2, 3)
FUNCTION = '<domain: "local", opset_import: ["" : 21]> f (p, q) => (r) { t = Neg (p) r = Add (t, q) }'
WEIGHTS = "bool k_true = {1}, bool k_false = {0}, int64 k_trips = {2}, int64[1] k_flat = {6}, int64[2] k_shape = {2, 3}"
TYPES = {"i": "int64", "g": "bool"}


def typed(names: Sequence[str]) -> str:
    """Values in the text of a graph; the first letter of a name tells its type."""
    return ", ".join(f"{TYPES.get(name[0], 'float[2, 3]')} {name}" for name in names)


@dataclass
class Writer:
    """Nodes of one graph in the making; ``seen`` are the names that they may read, those of outer graphs too."""

    draw: random.Random
    count: list[int]
    seen: list[str]
    depth: int = 0
    made: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)

    def name(self, kind: str) -> str:
        self.count[0] += 1
        return f"{kind}{self.count[0]}"

    def add(self, op: str, inputs: Sequence[str], *outputs: str, attributes: str = "") -> None:
        self.nodes.append(f"[{self.name('n')}] {', '.join(outputs)} = {op} ({', '.join(inputs)}) {attributes}")
        self.seen += outputs
        self.made += outputs

    def forget(self, names: Sequence[str]) -> None:
        """Of another shape: nobody reads them on."""
        for name in names:
            self.seen.remove(name)
            self.made.remove(name)

    def pick(self) -> str:
        # Newer values more often, so that chains form.
        return self.draw.choice(self.seen[-4:] if self.draw.random() < 0.6 else self.seen)

    def write(self, length: int) -> None:
        for _ in range(length):
            kinds = ["unary"] * 4 + ["binary"] * 3 + ["view"] * 2 + ["call"]
            kinds += ["branches", "branches", "loop"] if self.depth < 2 else []
            getattr(self, self.draw.choice(kinds))()

    def unary(self) -> None:
        self.add(self.draw.choice(("Relu", "Neg", "Tanh", "Abs")), [self.pick()], self.name("v"))

    def binary(self) -> None:
        self.add(self.draw.choice(("Add", "Sub", "Mul")), [self.pick(), self.pick()], self.name("v"))

    def call(self) -> None:
        self.add("local.f", [self.pick(), self.pick()], self.name("v"))

    def view(self) -> None:
        if self.draw.random() < 0.4:
            self.add("Identity", [self.pick()], self.name("v"))
            return
        flat = self.name("v")
        self.add("Reshape", [self.pick(), "k_flat"], flat)
        self.forget([flat])
        self.add("Reshape", [flat, "k_shape"], self.name("v"))

    def body(self, kind: str, inputs: list[str], first: list[str], outputs: int) -> str:
        """A graph that gives ``first`` and then some values of its own, or values that it captures."""
        carried = [name for name in inputs if name.startswith("c")]
        inner = Writer(self.draw, self.count, [*self.seen, *carried], self.depth + 1)
        inner.write(self.draw.randint(1, 4))
        given = [inner.draw.choice(inner.made or inner.seen) for _ in range(outputs)]
        results: list[str] = []
        for name in given:
            # An output of a body must be made there, and once.
            if name not in inner.made or name in results or self.draw.random() < 0.3:
                inner.add("Identity", [name], inner.name("o"))
                name = inner.made[-1]
            results.append(name)
        if first:
            inner.add("Identity", [inputs[1]], *first)
        return f"{kind} ({typed(inputs)}) => ({typed([*first, *results])}) {{ {' '.join(inner.nodes)} }}"

    def branches(self) -> None:
        yes, no = self.body("yes", [], [], 1), self.body("no", [], [], 1)
        condition = self.draw.choice(["k_true", "k_false"])
        self.add("If", [condition], self.name("v"), attributes=f"<then_branch = {yes}, else_branch = {no}>")

    def loop(self) -> None:
        inputs = [self.name("i"), self.name("g"), self.name("c")]
        scans = self.draw.randint(0, 1)
        body = self.body("body", inputs, [self.name("go")], 1 + scans)
        outputs = [self.name("v"), *(self.name("s") for _ in range(scans))]
        self.add("Loop", ["k_trips", '""', self.pick()], *outputs, attributes=f"<body = {body}>")
        self.forget(outputs[1:])


def nested(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[str]]:
    draw = random.Random(seed)
    inputs = ["x0", "x1"][: draw.randint(1, 2)]
    writer = Writer(draw, [0], list(inputs))
    writer.write(draw.randint(3, 9))
    outputs = draw.sample(writer.made, min(len(writer.made), draw.randint(1, 3)))
    text = f"nested ({typed(inputs)}) => ({typed(outputs)}) <{WEIGHTS}> {{ {' '.join(writer.nodes)} }} {FUNCTION}"
    random_numbers = np.random.default_rng(seed)
    arrays = {name: random_numbers.standard_normal(SHAPE).astype(np.float32) for name in inputs}
    return proto_of(text), arrays, [name for name in inputs if draw.random() < 0.5]
