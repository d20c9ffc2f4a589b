"""Graphs while they are made: what values there are, where they can be seen, and the nodes that make them.

And where the arrays of a run lie: memory of their own, parts of larger arrays, memory that two of them share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import kvviz

FLOATS = ("float32", "float64", "float16")
INTS = ("int64", "int32", "uint8")


@dataclass(frozen=True)
class Val:
    """A value: what is known of it before anything runs.

    ``exact``: every runtime must compute the same bits. ``big``: no element is larger. ``grows``: a name for its
    length along an axis, where that changes from run to run or is not known; (name, axis).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    exact: bool = True
    big: float = 10.0
    grows: tuple[str, int] | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    def declared(self, loose: bool = False) -> onnx.ValueInfoProto:
        """Its type for a model; ``loose`` leaves the shape out."""
        shape: list[Any] = list(self.shape)
        if self.grows:
            shape[self.grows[1]] = self.grows[0]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        return helper.make_tensor_value_info(self.name, kind, None if loose else shape)


@dataclass(frozen=True)
class Seq:
    """A sequence of tensors of one type; their shapes."""

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    exact: bool = True


@dataclass
class Model:
    """What all graphs of one model share.

    ``plain``: nothing for which onnxruntime rewrites a model (functions, halves), and no lengths that change while
    it runs.
    """

    random: Random
    opset: int
    kinds: tuple[tuple[Callable[[Scope], None], int], ...]
    plain: bool = False
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    constants: list[Val] = field(default_factory=list)
    functions: list[Any] = field(default_factory=list)
    labels: int = 0

    def label(self) -> str:
        self.labels += 1
        return f"n{self.labels}"


class Scope:
    """One graph while it is made. Sister bodies give their values the same names, as exporters do."""

    def __init__(self, model: Model, depth: int = 0, outer: Scope | None = None, function: bool = False) -> None:
        self.model, self.random, self.depth, self.outer = model, model.random, depth, outer
        self.function = function
        self.nodes: list[onnx.NodeProto] = []
        self.values: list[Val] = []
        self.sequences: list[Seq] = []
        self.initializers: list[onnx.TensorProto] = []
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"{'fdbcxyz'[self.depth] if not self.function else 'q'}{self.depth}_{self.count}"

    def seen(self) -> list[Val]:
        """All values that a node here may read, the nearest last."""
        return [*(self.outer.seen() if self.outer else ()), *self.values]

    def seen_sequences(self) -> list[Seq]:
        return [*(self.outer.seen_sequences() if self.outer else ()), *self.sequences]

    def pick(self, fits: Callable[[Val], bool]) -> Val | None:
        """One of the values that fit: often a late one, so that chains grow, often any, so that they fork."""
        found = [value for value in self.seen() if fits(value)]
        if not found:
            return None
        return self.random.choice(found[-3:] if self.random.random() < 0.5 else found)

    def emit(self, op: str, inputs: Sequence[str], count: int = 1, domain: str = "", **attributes: Any) -> list[str]:
        """A node; the names of its outputs."""
        outputs = [self.name() for _ in range(count)]
        named = f"{op}_{outputs[0]}" if self.random.random() < 0.8 else ""
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=named, domain=domain, **attributes))
        return outputs

    def make(self, op: str, inputs: Sequence[Val | str], like: Val, **attributes: Any) -> Val:
        """A node of one output, of which all but the name is known."""
        names = [value if isinstance(value, str) else value.name for value in inputs]
        return self.add(replace(like, name=self.emit(op, names, **attributes)[0]))

    def add(self, value: Val) -> Val:
        self.values.append(value)
        return value

    def constant(self, array: Any) -> Val:
        """A value that is part of the model: a Constant node, or an initializer of this graph or of the main one."""
        array = np.asarray(array)
        value = Val("", str(array.dtype), array.shape, big=float(np.abs(array.astype(float)).max(initial=0.0)))
        way = self.random.random()
        if self.function or way < 0.3:
            (name,) = self.emit("Constant", [], value=numpy_helper.from_array(array))
            return replace(value, name=name)
        main = way < 0.8
        name = f"w{len(self.model.initializers)}" if main else self.name()
        (self.model.initializers if main else self.initializers).append(numpy_helper.from_array(array, name))
        value = replace(value, name=name)
        if main and value.rank:
            self.model.constants.append(value)
        return value

    def numbers(self, dtype: str, shape: Sequence[int]) -> np.ndarray:
        return numbers(self.random, dtype, shape)


def numbers(random: Random, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """Small numbers with few bits, so that sums and products of some of them are exact."""
    draw = np.random.default_rng(random.getrandbits(32))
    if dtype == "bool":
        return np.asarray(draw.integers(0, 2, shape), bool)
    if dtype == "uint8":
        return np.asarray(draw.integers(0, 20, shape), np.uint8)
    if dtype in INTS:
        return np.asarray(draw.integers(-9, 10, shape), dtype)
    return np.asarray(draw.integers(-32, 33, shape) / 8, dtype)


def tensor_type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def on(fits: Callable[[Val], bool]) -> Callable[[Callable[[Scope, Val], None]], Callable[[Scope], None]]:
    """A kind of node made of a value that fits; where there is none, nothing is added."""

    def kind_of(make: Callable[[Scope, Val], None]) -> Callable[[Scope], None]:
        def kind(s: Scope) -> None:
            value = s.pick(fits)
            if value is not None:
                make(s, value)

        return kind

    return kind_of


WAYS = ("own", "own", "own", "part", "step", "back", "fortran", "room", "bytes", "class")


@dataclass(frozen=True)
class Fed:
    """An input and the numbers that it is given."""

    value: Val
    numbers: np.ndarray


class Named(np.ndarray):
    """A class of arrays that is not NumPy's own."""


def lay(r: Random, inputs: dict[str, Fed], donate: Sequence[str]) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Arrays with these numbers, each in a way of its own, and guards: (what, array, copy, mask).

    Of a guard what the mask says (None: all) must be the same after the run. Borrowed arrays are read-only views.
    """
    feeds: dict[str, np.ndarray] = {}
    guards: list[Any] = []
    for name, fed in inputs.items():
        borrowed = name not in donate
        feeds[name] = _one(r, fed, borrowed, guards, name)
    _share(r, inputs, feeds, guards, donate)
    for name in inputs:
        if name not in donate:
            guards.append((f"borrowed {name}", feeds[name], feeds[name].copy(), None))
            feeds[name] = feeds[name].view()
            feeds[name].flags.writeable = False
    return feeds, guards


def _one(r: Random, fed: Fed, borrowed: bool, guards: list[Any], name: str) -> np.ndarray:
    numbers, way = fed.numbers, r.choice(WAYS)
    shape, axis = numbers.shape, r.randrange(max(numbers.ndim, 1))
    if way == "room" and shape:
        axis = fed.value.grows[1] if fed.value.grows and r.random() < 0.8 else axis
        return kvviz.reserve(numbers, axis, shape[axis] + r.choice((0, 1, 2, 5)))
    if way == "bytes" and numbers.size:
        return np.frombuffer(bytearray(numbers.tobytes()), numbers.dtype).reshape(shape)
    if way == "fortran" and shape:
        return np.array(numbers, order="F")
    if way == "class":
        return numbers.copy().view(Named)
    if way in ("part", "step", "back") and shape:
        whole = np.full((shape[0] * 2 + 3, *shape[1:]), 7, numbers.dtype)
        where = {"part": slice(2, 2 + shape[0]), "step": slice(1, 1 + 2 * shape[0], 2)}.get(way)
        where = where or slice(shape[0], 0, -1)
        view = whole[where]
        view[...] = numbers
        mask = np.ones(whole.shape, bool)
        mask[where] = False
        guards.append((f"around {name}", whole, whole.copy(), mask))
        return view
    if borrowed and r.random() < 0.1 and shape:
        return np.broadcast_to(numbers[:1], shape)
    return numbers.copy()


def _share(
    r: Random, inputs: dict[str, Fed], feeds: dict[str, np.ndarray], guards: list[Any], donate: Sequence[str]
) -> None:
    names = [(a, b) for a in inputs for b in inputs if a < b and inputs[a].numbers.dtype == inputs[b].numbers.dtype]
    names = [(a, b) for a, b in names if feeds[a].size and feeds[b].size]
    if not names or r.random() < 0.6:
        return
    first, second = r.choice(names)
    a, b = inputs[first].numbers, inputs[second].numbers
    if a.shape == b.shape and r.random() < 0.5:
        feeds[second] = feeds[first]
    else:
        common = r.choice((0, 1, min(a.size, b.size)))
        block = np.concatenate([a.reshape(-1), b.reshape(-1)[common:]])
        feeds[first] = block[: a.size].reshape(a.shape)
        feeds[second] = block[a.size - common :][: b.size].reshape(b.shape)
    guards[:] = [g for g in guards if g[0] not in (f"around {first}", f"around {second}")]
