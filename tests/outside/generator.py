"""Models at random, with inputs for them: by number, so that a case can be had again."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.outside import bodies, moving_ops, plain_ops
from tests.outside.scopes import Fed, Model, Scope, Seq, Val, lay, numbers, tensor_type

Kinds = tuple[tuple[Callable[[Scope], None], int], ...]
KINDS: Kinds = (
    *((plain_ops.unary, 14), (plain_ops.binary, 16), (plain_ops.divide, 1), (plain_ops.compare, 2)),
    *((plain_ops.where, 3), (plain_ops.clip, 2), (plain_ops.cast, 3), (plain_ops.matmul, 3)),
    *((plain_ops.reduce_some, 3), (plain_ops.normalise, 3)),
    *((moving_ops.reshape, 4), (moving_ops.transpose, 4), (moving_ops.slice_some, 5), (moving_ops.unsqueeze, 3)),
    *((moving_ops.flatten, 1), (moving_ops.expand, 3), (moving_ops.split, 3), (moving_ops.identity, 3)),
    *((moving_ops.concat, 7), (moving_ops.gather, 4), (moving_ops.scatter, 6), (moving_ops.pad, 2)),
    *((moving_ops.about_shape, 3), (moving_ops.ordered, 2)),
    *((bodies.if_node, 4), (bodies.loop_node, 4), (bodies.scan_node, 2), (bodies.sequence, 5)),
    *((bodies.call_function, 5),),
)


def grow(scope: Scope) -> None:
    kinds, weights = zip(*scope.model.kinds)
    kind = scope.random.choices(kinds, weights)[0]
    if not (scope.function and kind in (bodies.sequence,)):
        kind(scope)


@dataclass
class Case:
    """A model, and how to run it.

    ``outputs`` is what is asked for (None: what the model says). ``next_feeds``: which outputs become which inputs
    of the run after.
    """

    seed: int
    model: onnx.ModelProto
    inputs: dict[str, Fed]
    donate: tuple[str, ...]
    outputs: tuple[str, ...] | None
    values: dict[str, Val | Seq]
    next_feeds: dict[str, str] = field(default_factory=dict)

    def feeds(self) -> tuple[dict[str, np.ndarray], list[Any]]:
        """Fresh arrays for a run, and what to look at afterwards: see `tests.outside.scopes.lay`."""
        return lay(Random(self.seed), self.inputs, self.donate)


def _shape(r: Random) -> tuple[int, ...]:
    if r.random() < 0.3:
        return (2, 3)
    return tuple(
        r.choice((1, 2, 2, 3, 3, 4, 4, 5, 0) if r.random() < 0.15 else (1, 2, 3, 4))
        for _ in range(r.choice((0, 1, 2, 2, 3, 3, 4)))
    )


def case(seed: int, plain: bool = False, more: Kinds = ()) -> Case:
    """The model and the inputs of a number; ``more`` are kinds of nodes with their weights, beside the others."""
    r = Random(seed)
    model = Model(r, r.choice((18, 21, 21, 21, 22)), KINDS + more, plain)
    main = Scope(model)
    chain = r.random() < 0.35 and not plain
    inputs: dict[str, Fed] = {}
    if r.random() < 0.35 and not plain:
        for _ in range(r.choice((1, 2))):
            bodies.define_function(main)
    declared: list[onnx.ValueInfoProto] = []
    for number in range(r.choice((1, 2, 2, 3, 4))):
        dtypes = ("float32",) * 8 + ("float64", "int64", "int64", "int32", "bool", "uint8", "float16")
        dtype = r.choice(dtypes[:-1] if plain else dtypes)
        shape = _shape(r)
        grows = None
        if shape and r.random() < (0.5 if chain else 0.15):
            axis = r.randrange(len(shape))
            grows = (f"past{number}", axis)
        value = main.add(Val(f"in{number}", dtype, shape, grows=grows, big=20.0))
        declared.append(value.declared(r.random() < 0.2 and not grows))
        inputs[value.name] = Fed(value, numbers(r, dtype, shape))
    if r.random() < 0.4:
        value = main.add(Val("flag", "bool", ()))
        declared.append(value.declared())
        inputs["flag"] = Fed(value, np.array(r.random() < 0.5))
    for number in range(0 if plain else r.choice((0, 0, 1, 2))):
        # An initializer that is an input too: the caller may give another value.
        value = main.add(Val(f"default{number}", "float32", _shape(r)))
        model.initializers.append(numpy_helper.from_array(numbers(r, "float32", value.shape), value.name))
        declared.append(value.declared())
        if r.random() < 0.5:
            inputs[value.name] = Fed(value, numbers(r, "float32", value.shape))
    nodes = r.choice((2, 4, 6, 8, 12, 16))
    while sum(node.op_type != "Constant" for node in main.nodes) < nodes:
        grow(main)
    if chain:
        for given in [fed.value for fed in inputs.values() if fed.value.grows]:
            label, axis = _later(given) or ("", 0)
            rest = [n if i != axis else 1 for i, n in enumerate(given.shape)]
            new = main.constant(main.numbers(given.dtype, rest))
            main.make("Concat", [given, new], replace(given, grows=(label, axis)), axis=axis)
            plain_ops.unary(main)
    return _finish(seed, main, inputs, declared, chain)


def _later(value: Val) -> tuple[str, int] | None:
    """The length of what becomes this input in the next run."""
    return (value.grows[0] + "!", value.grows[1]) if value.grows else None


def _ends(values: Iterable[Val], given: Val) -> list[Val]:
    """Values that may become this input in the next run."""
    like = _later(given), given.dtype, given.shape
    return [v for v in values if (v.grows, v.dtype, v.shape) == like]


def _finish(seed: int, main: Scope, inputs: dict[str, Fed], declared: list[onnx.ValueInfoProto], chain: bool) -> Case:
    r, model = main.random, main.model
    made = [v for v in main.values if v.name not in inputs and not v.name.startswith("default")]
    made = made or [main.make("Identity", [main.values[0]], main.values[0])]
    chosen = {v.name: v for v in r.sample(made, min(len(made), r.choice((1, 1, 2, 3)))) + made[-1:]}
    if r.random() < 0.12:
        given = r.choice(main.values[: len(declared)])
        chosen[given.name] = given
    if chain:
        for given in [f.value for f in inputs.values()]:
            chosen.update({v.name: v for v in _ends(made, given)[-1:]})
    outputs: list[onnx.ValueInfoProto] = [v.declared(loose=True) for v in chosen.values()]
    if main.sequences and r.random() < 0.4:
        seq = main.sequences[-1]
        outputs.append(helper.make_tensor_sequence_value_info(seq.name, tensor_type(seq.dtype), None))
    order = r.sample(range(len(outputs)), len(outputs))
    graph = helper.make_graph(
        main.nodes, "outside", declared, [outputs[i] for i in order], model.initializers + main.initializers
    )
    imports = [helper.make_opsetid("", model.opset), helper.make_opsetid("local", 1)]
    local = [function for function, _, _ in model.functions]
    proto = helper.make_model(graph, opset_imports=imports, functions=local, ir_version=10)
    donate = tuple(name for name in inputs if r.random() < 0.55)
    asked = None
    if r.random() < 0.3:
        asked = tuple({v.name: v for v in r.sample(made, min(len(made), r.choice((1, 2, 3))))})
    kept: dict[str, str] = {}
    if chain:
        for name, fed in inputs.items():
            if ends := _ends(chosen.values(), fed.value):
                kept[name] = r.choice(ends).name
        asked = None if kept else asked
    values: dict[str, Val | Seq] = {v.name: v for v in made} | {s.name: s for s in main.sequences}
    return Case(seed, proto, inputs, donate, asked, values, kept)
