"""Random models that onnxruntime runs: shapes by number, by name or unknown; views, bodies, dead nodes, sequences."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.engine.ort.quantized_steps import quantized

Array = np.ndarray
Dims = tuple[int, ...]

UNARY = ("Neg", "Abs", "Exp", "Relu", "Sigmoid", "Tanh", "Softmax", "LeakyRelu", "Elu", "Clip", "Sqrt", "LogSoftmax")
BINARY = ("Add", "Mul", "Sub", "Max")
TO = (np.float32, np.int32, np.float64, np.int64)
FLOATS = (np.float32, np.float64)


@dataclass(frozen=True)
class Val:
    """A value of the model with the shape that it has when it runs."""

    name: str
    dtype: Any
    shape: Dims


@dataclass
class Maker:
    """A model while it is made up.

    Attributes
    ----------
    rng : numpy.random.Generator
    sizes : dict of str to int
        Names of dimensions and how long they are.
    bits : bool
        Whether every third step quantizes a value and dequantizes it again.
    """

    rng: np.random.Generator
    sizes: dict[str, int]
    bits: bool = False
    count: int = 0
    depth: int = 0
    feeds: dict[str, Array] = field(default_factory=dict)

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def pick(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def step(self, kinds: Any) -> Any:
        return quantized if self.bits and self.chance(0.34) else self.pick(kinds)


@dataclass
class Body:
    """One graph of the model: its nodes, weights and visible values."""

    maker: Maker
    outer: list[Val]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    values: list[Val] = field(default_factory=list)

    def choose(self, kinds: tuple = FLOATS, rank: int | None = None) -> Val | None:
        """A visible value: mostly of this graph, and mostly a late one."""
        maker = self.maker
        own = [v for v in self.values if v.dtype in kinds and (rank is None or len(v.shape) >= rank)]
        outer = [v for v in self.outer if v.dtype in kinds and (rank is None or len(v.shape) >= rank)]
        if outer and (not own or maker.chance(0.2)):
            return maker.pick(outer)
        if not own:
            return None
        return own[-1 - min(int(maker.rng.geometric(0.45)) - 1, len(own) - 1)]

    def weight(self, array: Any) -> str:
        """A constant: an initializer, or sometimes a Constant node."""
        name = self.maker.name("w")
        tensor = numpy_helper.from_array(np.asarray(array), name)
        if self.maker.chance(0.2):
            self.nodes.append(helper.make_node("Constant", [], [name], name, value=tensor))
        else:
            self.weights.append(tensor)
        return name

    def add(
        self, op: str, inputs: list[str], *outs: tuple[Any, Dims] | None, domain: str = "", **attributes: Any
    ) -> list[Val]:
        """A node; an output that is None is absent."""
        names = ["" if o is None else self.maker.name("v") for o in outs]
        node = helper.make_node(op, inputs, names, self.maker.name(op), domain=domain, **attributes)
        self.nodes.append(node)
        made = [Val(n, np.dtype(o[0]).type, tuple(o[1])) for n, o in zip(names, outs) if o is not None]
        self.values += made
        return made


# ---- one op each ----------------------------------------------------------------------------------------------------


def unary(body: Body) -> None:
    x = body.choose()
    if x is not None:
        op = body.maker.pick(UNARY)
        if "Softmax" in op and not x.shape:
            op = "Relu"
        op = op if x.dtype == np.float32 or op in ("Neg", "Abs", "Exp", "Relu", "Sigmoid", "Sqrt", "Clip") else "Neg"
        body.add(op, [x.name], (x.dtype, x.shape))


def whole(body: Body) -> None:
    x = body.choose((np.int32, np.int64))
    if x is not None:
        body.add(body.maker.pick(("Neg", "Abs", "Sign")), [x.name], (x.dtype, x.shape))


def binary(body: Body) -> None:
    x = body.choose()
    if x is None:
        return
    same = [v for v in (*body.values, *body.outer) if v.dtype == x.dtype and v.shape == x.shape]
    other = x.name if body.maker.chance(0.1) else body.maker.pick(same).name
    if body.maker.chance(0.25):
        shape = () if body.maker.chance(0.5) or not x.shape else x.shape[-1:]
        other = body.weight(np.full(shape, 0.5, x.dtype))
    inputs = [x.name, other] if body.maker.chance(0.7) else [other, x.name]
    body.add(body.maker.pick(BINARY), inputs, (x.dtype, x.shape))


def cast(body: Body) -> None:
    x = body.choose(TO)
    if x is not None:
        to = body.maker.pick(TO)
        body.add("Cast", [x.name], (to, x.shape), to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


def casts(body: Body) -> None:
    """Casts that read each other, most of them to the type that is there already, with readers of their own."""
    x, maker = body.choose(TO), body.maker
    if x is None:
        return
    chain = [x]
    for _ in range(int(maker.rng.integers(2, 5))):
        source = chain[-1] if maker.chance(0.8) else maker.pick(chain)
        to = source.dtype if maker.chance(0.6) else maker.pick((x.dtype, *TO))
        code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
        chain += body.add("Cast", [source.name], (to, source.shape), to=code)
    for value in chain:
        for _ in range(int(maker.rng.integers(3))):
            body.add(maker.pick(("Neg", "Abs", "Sign")), [value.name], (value.dtype, value.shape))


def view(body: Body) -> None:
    x = body.choose((*FLOATS, np.int64, np.int32))
    if x is None:
        return
    kind = int(body.maker.rng.integers(6))
    size = int(np.prod(x.shape))
    if kind == 0:
        body.add("Identity", [x.name], (x.dtype, x.shape))
    elif kind == 1:
        body.add("Reshape", [x.name, body.weight(np.array([-1], np.int64))], (x.dtype, (size,)))
    elif kind == 2 and x.shape:
        first = int(np.prod(x.shape[:1]))
        body.add("Flatten", [x.name], (x.dtype, (first, size // first)), axis=1)
    elif kind == 3 and len(x.shape) < 4:
        body.add("Unsqueeze", [x.name, body.weight(np.array([0], np.int64))], (x.dtype, (1, *x.shape)))
    elif kind == 4 and x.shape and x.shape[0] == 1:
        body.add("Squeeze", [x.name, body.weight(np.array([0], np.int64))], (x.dtype, x.shape[1:]))
    elif x.shape:
        # The shape of another value of the same size, which onnxruntime may or may not know.
        like = body.maker.pick([v for v in (*body.values, *body.outer) if int(np.prod(v.shape)) == size])
        (shape,) = body.add("Shape", [like.name], (np.int64, (len(like.shape),)))
        body.add("Reshape", [x.name, shape.name], (x.dtype, like.shape))


def moving(body: Body) -> None:
    x = body.choose((*FLOATS, np.int64), rank=1)
    if x is None:
        return
    kind = int(body.maker.rng.integers(6))
    rows, rest = x.shape[0], x.shape[1:]
    if kind == 0:
        body.add("Concat", [x.name, x.name], (x.dtype, (2 * rows, *rest)), axis=0)
    elif kind == 1 and rows > 1:
        half = rows // 2
        sizes = body.weight(np.array([half, rows - half], np.int64))
        body.add("Split", [x.name, sizes], (x.dtype, (half, *rest)), (x.dtype, (rows - half, *rest)), axis=0)
    elif kind == 2:
        cut = [body.weight(np.array([n], np.int64)) for n in (0, max(rows - 1, 1), 0)]
        body.add("Slice", [x.name, *cut], (x.dtype, (max(rows - 1, 1), *rest)))
    elif kind == 3:
        order = body.weight(np.arange(rows, dtype=np.int64)[::-1].copy())
        body.add("Gather", [x.name, order], (x.dtype, x.shape))
    elif kind == 4 and len(x.shape) > 1:
        body.add("Transpose", [x.name], (x.dtype, x.shape[::-1]))
    else:
        (shape,) = body.add("Shape", [x.name], (np.int64, (len(x.shape),)))
        body.add("Expand", [body.weight(np.zeros(1, x.dtype)), shape.name], (x.dtype, x.shape))


def several(body: Body) -> None:
    """Ops with more than one output, some of them absent or read by nobody."""
    x = body.choose((np.float32,), rank=1)
    if x is None:
        return
    kind = int(body.maker.rng.integers(4))
    last = x.shape[-1]
    if kind == 0:
        k = body.weight(np.array([last], np.int64))
        body.add("TopK", [x.name, k], (np.float32, x.shape), (np.int64, x.shape))
    elif kind == 1:
        ones = body.weight(np.ones(last, np.float32))
        row = (np.float32, (*x.shape[:-1], 1))
        body.add(
            "LayerNormalization", [x.name, ones], (np.float32, x.shape), None if body.maker.chance(0.5) else row, row
        )
    elif kind == 2:
        ones = body.weight(np.ones(last, np.float32))
        if len(x.shape) == 3:
            extra = (np.float32, x.shape) if body.maker.chance(0.5) else None
            outs = [(np.float32, x.shape), None, None, extra] if extra else [(np.float32, x.shape)]
            body.add("SkipSimplifiedLayerNormalization", [x.name, x.name, ones], *outs, domain="com.microsoft")
    else:
        body.add("Dropout", [x.name], (np.float32, x.shape), (np.bool_, x.shape))


def reducing(body: Body) -> None:
    x = body.choose(FLOATS, rank=1)
    if x is None:
        return
    kind = int(body.maker.rng.integers(4))
    if kind == 0:
        axes = body.weight(np.array([-1], np.int64))
        keep = int(body.maker.chance(0.5))
        shape = (*x.shape[:-1], 1) if keep else x.shape[:-1]
        body.add("ReduceSum", [x.name, axes], (x.dtype, shape), keepdims=keep)
    elif kind == 1 and x.dtype == np.float32:
        wide = body.weight(np.full((x.shape[-1], x.shape[-1]), 0.1, np.float32))
        body.add("MatMul", [x.name, wide], (x.dtype, x.shape))
    elif kind == 2 and len(x.shape) > 1:
        index = body.weight(np.zeros(x.shape, np.int64))
        body.add("ScatterElements", [x.name, index, x.name], (x.dtype, x.shape), axis=-1)
    elif len(x.shape) == 2:
        body.add("Trilu", [x.name], (x.dtype, x.shape))


def sequence(body: Body) -> None:
    x = body.choose((np.float32,), rank=1)
    if x is None:
        return
    seq = body.maker.name("seq")
    body.nodes.append(helper.make_node("SequenceConstruct", [x.name, x.name], [seq], body.maker.name("Construct")))
    if body.maker.chance(0.5):
        again = body.maker.name("seq")
        body.nodes.append(helper.make_node("SequenceInsert", [seq, x.name], [again], body.maker.name("Insert")))
        seq = again
    body.add("SequenceAt", [seq, body.weight(np.int64(0))], (np.float32, x.shape))


def branch(body: Body) -> None:
    """An If whose branches read outer values and return values of the same shapes."""
    x = body.choose((np.float32,))
    maker = body.maker
    if x is None or maker.depth > 1:
        return
    condition = body.weight(np.array(maker.chance(0.5)))
    wanted = [(x.dtype, x.shape)] * (1 + maker.chance(0.3))
    graphs = [inner_graph(body, [], wanted, 3) for _ in range(2)]
    body.add("If", [condition], *wanted, then_branch=graphs[0], else_branch=graphs[1])


def loop(body: Body) -> None:
    """A Loop with one carried value and perhaps a scan output."""
    x = body.choose((np.float32,))
    maker = body.maker
    if x is None or maker.depth > 1:
        return
    trips = int(maker.rng.integers(1, 4))
    head = [Val(maker.name("i"), np.int64, ()), Val(maker.name("c"), np.bool_, ())]
    state = Val(maker.name("state"), np.float32, x.shape)
    scanned = [(np.float32, x.shape)] * maker.chance(0.6)
    graph = inner_graph(body, [*head, state], [(np.float32, x.shape), *scanned], 4, again=head[1].name)
    count = body.weight(np.array(trips, np.int64))
    outs = [(np.float32, x.shape), *((np.float32, (trips, *shape)) for _, shape in scanned)]
    body.add("Loop", [count, "", x.name], *outs, body=graph)


def scan(body: Body) -> None:
    """A Scan along the first axis, with a carried row."""
    x = body.choose((np.float32,), rank=2)
    if x is None or body.maker.depth > 1:
        return
    row = x.shape[1:]
    state, part = (Val(body.maker.name(n), np.float32, row) for n in ("row", "part"))
    graph = inner_graph(body, [state, part], [(np.float32, row), (np.float32, row)], 3, ranked=True)
    first = body.weight(np.ones(row, np.float32))
    body.add("Scan", [first, x.name], (np.float32, row), (np.float32, x.shape), body=graph, num_scan_inputs=1)


def inner_graph(
    outer: Body, inputs: list[Val], wanted: list[tuple[Any, Dims]], length: int, again: str = "", ranked: bool = False
) -> onnx.GraphProto:
    """A body: some random ops, then what makes outputs of the wanted shapes out of what there is."""
    maker = outer.maker
    maker.depth += 1
    body = Body(maker, [*outer.outer, *outer.values])
    body.values += inputs
    for _ in range(length):
        maker.step(STEPS if maker.depth < 2 else PLAIN)(body)
    outputs = []
    if again:
        (go_on,) = body.add("Identity", [again], (np.bool_, ()))
        outputs.append(helper.make_tensor_value_info(go_on.name, onnx.TensorProto.BOOL, []))
    for dtype, shape in wanted:
        fitting = [v for v in body.values if v.dtype == dtype and v.shape == shape]
        visible = [v for v in body.outer if v.dtype == dtype and v.shape == shape]
        source = maker.pick(fitting or visible)
        op = maker.pick(("Identity", "Neg", "Relu", "Reshape"))
        given = [source.name]
        if op == "Reshape":
            given.append(body.weight(np.array(shape, np.int64)))
        (made,) = body.add(op, given, (dtype, shape))
        outputs.append(helper.make_tensor_value_info(made.name, onnx.TensorProto.FLOAT, declared(maker, shape, ranked)))
    maker.depth -= 1
    return helper.make_graph(body.nodes, maker.name("g"), [typed(maker, v) for v in inputs], outputs, body.weights)


PLAIN = (unary, unary, unary, binary, binary, cast, view, view, moving, several, reducing, whole)
STEPS = (*PLAIN, *PLAIN, unary, sequence, branch, loop, scan)


# ---- models ---------------------------------------------------------------------------------------------------------


def declared(maker: Maker, shape: Dims, ranked: bool = False) -> list[Any] | None:
    """What the model says of a shape: numbers, names that are true, or nothing."""
    if not ranked and maker.chance(0.3):
        return None
    names = [[n for n, size in maker.sizes.items() if size == dim] for dim in shape]
    return [dim if maker.chance(0.5) else maker.pick(found) if found and maker.chance(0.5) else None
            for dim, found in zip(shape, names)]  # fmt: skip


def typed(maker: Maker, value: Val) -> onnx.ValueInfoProto:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return helper.make_tensor_value_info(value.name, code, declared(maker, value.shape) if value.shape else [])


def random_model(
    seed: int, length: int = 14, chains: bool = False, bits: bool = False
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of about ``length`` ops in the main graph, and inputs for it.

    ``chains``: every third step is a chain of Casts; ``bits``: it quantizes a value and dequantizes it, in bodies too.
    """
    rng = np.random.default_rng(seed)
    maker = Maker(rng, {"b": 2, "s": 3, "t": 3, "d": 4}, bits)
    body = Body(maker, [])
    known = int(rng.integers(4))
    shapes: list[list[Any]] = [[2, 3, 4], [3, 4], [2, 4]]
    inputs = []
    for dims in shapes[: int(rng.integers(1, 4))]:
        value = Val(maker.name("x"), np.float32, tuple(dims))
        said: list[Any] = list(dims)
        if known:
            words = {2: ["b"], 3: ["s", "t"], 4: ["d"]}
            said = [
                d if known == 1 and maker.chance(0.5) else maker.pick(words[d]) if maker.chance(0.8) else None
                for d in dims
            ]
        inputs.append(helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, said))
        maker.feeds[value.name] = rng.standard_normal(dims).astype(np.float32) * 0.5 + 1
        body.values.append(value)
    for _ in range(length):
        (casts if chains and maker.chance(0.34) else maker.step(STEPS))(body)
    made = [v for v in body.values if v.name not in maker.feeds]
    read = {name for node in body.nodes for name in node.input}
    ends = [v for v in made if v.name not in read]
    # Some ends stay dead; some inner values are wanted too.
    wanted = [v for v in ends if maker.chance(0.7)] or made[-1:]
    wanted += [v for v in made if v not in ends and maker.chance(0.08)]
    outputs = [
        helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(np.dtype(v.dtype)), None) for v in wanted
    ]
    graph = helper.make_graph(body.nodes, "random", inputs, outputs, body.weights)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=imports), maker.feeds
