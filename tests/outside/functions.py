"""Functions that a model defines itself, and calls of them."""

from dataclasses import replace

import onnx
from onnx import helper

from tests.outside import plain_ops
from tests.outside.bodies import if_node, partner_like
from tests.outside.plain_ops import fixed
from tests.outside.scopes import Scope, Val


def define_function(s: Scope) -> None:
    """A function of up to three tensors of one shape, kept for calls."""
    model, r = s.model, s.random
    inner = Scope(model, 0, None, function=True)
    shape = (2, 3)
    formals = [inner.add(Val(inner.name(), "float32", shape, False)) for _ in range(r.choice((1, 2, 2, 3)))]
    shaped = [plain_ops.unary, plain_ops.binary, plain_ops.binary, call_function, if_node]
    for _ in range(r.randrange(2, 6)):
        r.choice(shaped)(inner)
    if r.random() < 0.3:
        first = inner.values[-1]
        node = helper.make_node("LeakyRelu", [first.name], [inner.name()])
        alpha = node.attribute.add()
        alpha.name, alpha.ref_attr_name, alpha.type = "alpha", "slope", onnx.AttributeProto.FLOAT
        inner.nodes.append(node)
        inner.add(replace(first, name=node.output[0]))
    made = [v for v in inner.values[len(formals) :] if v.shape == shape and v.dtype == "float32"]
    outs = list({v.name: v for v in (made[-1:] + made[:1])}.values()) or [inner.make("Neg", [formals[0]], formals[0])]
    name = f"local{len(model.functions)}"
    imports = [helper.make_opsetid("", model.opset), helper.make_opsetid("local", 1)]
    function = helper.make_function(
        "local", name, [v.name for v in formals], [v.name for v in outs], inner.nodes, imports, ["slope"]
    )
    model.functions.append((function, len(formals), len(outs)))


def call_function(s: Scope) -> None:
    if not s.model.functions:
        return
    function, takes, gives = s.random.choice(s.model.functions)
    value = s.pick(lambda v: v.dtype == "float32" and v.shape == (2, 3) and fixed(v))
    if value is None:
        return
    args = [value.name, *(partner_like(s, value).name for _ in range(takes - 1))]
    outs = s.emit(function.name, args, gives, domain="local", slope=0.5)
    if gives > 1 and s.random.random() < 0.3:
        s.nodes[-1].output[gives - 1] = ""
        outs.pop()
    for name in outs:
        s.add(replace(value, name=name, exact=False, big=value.big + 50))
