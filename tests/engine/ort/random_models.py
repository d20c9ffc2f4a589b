"""Random models of `tests.outside` for the comparisons with onnxruntime, some full of Casts or of quantized values."""

from dataclasses import replace
from random import Random

import numpy as np
import onnx

from tests.engine.ort.models import with_names
from tests.outside.generator import Kinds, case
from tests.outside.plain_ops import fixed
from tests.outside.scopes import Scope, Val, tensor_type

TO = ("float32", "int32", "float64", "int64")


def run_of_ops(s: Scope) -> None:
    """Ops that may run in place, one after the other."""
    x = s.pick(lambda v: v.dtype == "float32")
    for _ in range(s.random.randrange(2, 5)):
        x = x and s.make(s.random.choice(("Relu", "Neg", "Exp", "Sigmoid", "Abs")), [x], replace(x, exact=False))


def casts(s: Scope) -> None:
    """Casts that read each other, most of them to the type that is there already, with readers of their own."""
    x = s.pick(lambda v: v.dtype in TO and fixed(v))
    if x is None:
        return
    chain = [x]
    for _ in range(s.random.randrange(2, 5)):
        source = chain[-1] if s.random.random() < 0.8 else s.random.choice(chain)
        to = source.dtype if s.random.random() < 0.6 else s.random.choice((x.dtype, *TO))
        chain.append(s.make("Cast", [source], replace(source, dtype=to, exact=False), to=tensor_type(to)))
    for value in chain:
        for _ in range(s.random.randrange(3)):
            s.make(s.random.choice(("Neg", "Abs", "Sign")), [value], value)


def quantized(s: Scope) -> None:
    """A value in eight bits and back, which may be read several times, by one op twice, and be an output."""
    x = s.pick(lambda v: v.dtype == "float32" and fixed(v))
    if x is None:
        return
    how: list[Val | str] = [s.constant(np.float32(0.05)), s.constant(np.uint8(100))]
    small = s.make("QuantizeLinear", [x, *how], replace(x, dtype="uint8", exact=False))
    d = s.make("DequantizeLinear", [small, *how], replace(x, exact=False))
    for _ in range(s.random.randrange(3)):
        op = s.random.choice(("Relu", "Neg", "Mul", "QuantizeLinear"))
        if op == "QuantizeLinear":
            s.make(op, [d, *how], replace(d, dtype="uint8"))
        else:
            s.make(op, [d] * (1 + (op == "Mul")), d)


def random_model(seed: int, more: Kinds = ()) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of a number whose nodes have names of their own, and inputs for it; ``more``: kinds of nodes."""
    one, draw = case(seed, plain=True, more=((run_of_ops, 30), *more)), Random(seed)
    # A sequence is copied there and holds its parts here, so that none is an output.
    outputs = [output for output in one.model.graph.output if output.type.HasField("tensor_type")]
    del one.model.graph.output[:]
    one.model.graph.output.extend(outputs)
    known = {output.name for output in outputs}
    known |= {name for node in one.model.graph.node for name in node.input}
    for value in one.values.values():
        # Most ends are wanted, so that little of the model is dead.
        if isinstance(value, Val) and value.name not in known and draw.random() < 0.7:
            one.model.graph.output.append(value.declared(loose=True))
    return with_names(one.model), {name: np.array(fed.numbers) for name, fed in one.inputs.items()}
