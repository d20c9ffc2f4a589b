"""Nodes with bodies, sequences, and local functions."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.outside import plain_ops
from tests.outside.plain_ops import fixed
from tests.outside.scopes import FLOATS, Scope, Seq, Val, tensor_type


def body_graph(
    scope: Scope, inputs: list[onnx.ValueInfoProto], outputs: list[Val | onnx.ValueInfoProto]
) -> onnx.GraphProto:
    infos = [out.declared() if isinstance(out, Val) else out for out in outputs]
    return helper.make_graph(scope.nodes, f"body{scope.depth}", inputs, infos, scope.initializers)


def own(scope: Scope, like: Val) -> Val:
    """A value of the scope itself that has the type of another one: what a body may return."""
    found = [v for v in scope.values if (v.dtype, v.shape, v.grows) == (like.dtype, like.shape, like.grows)]
    if found and scope.random.random() < 0.8:
        return scope.random.choice(found)
    seen = scope.pick(lambda v: (v.dtype, v.shape, v.grows) == (like.dtype, like.shape, like.grows))
    if seen is not None:
        return scope.make("Identity", [seen], seen)
    if scope.random.random() < 0.3:
        number = scope.constant(scope.numbers(like.dtype, like.shape))
        return scope.make("Identity", [number], replace(like, grows=None))
    tensor = numpy_helper.from_array(scope.numbers(like.dtype, like.shape), f"t{scope.name()}")
    (name,) = scope.emit("Constant", [], value=tensor)
    return scope.add(replace(like, name=name, exact=True))


def fill(scope: Scope, steps: int) -> None:
    from tests.outside.generator import grow

    for _ in range(steps):
        grow(scope)


def _flag(s: Scope) -> str:
    """A condition: given, constant, or worked out."""
    found = s.pick(lambda v: v.dtype == "bool" and v.shape == () and v.exact)
    if found is not None and s.random.random() < 0.7:
        return found.name
    number = s.pick(lambda v: v.dtype == "int64" and v.shape == () and v.exact)
    if number is not None and s.random.random() < 0.6:
        return s.make("Greater", [number, s.constant(np.array(0, np.int64))], replace(number, dtype="bool", big=1)).name
    return s.constant(np.array(s.random.random() < 0.5)).name


def if_node(s: Scope) -> None:
    if s.depth >= 3 or not s.seen():
        return
    flag = _flag(s)
    sides = [Scope(s.model, s.depth + 1, s, False) for _ in range(2)]
    for side in sides:
        side.function = s.function
        fill(side, s.random.randrange(1, 5))
    results: list[list[Val]] = [[], []]
    for _ in range(s.random.choice((1, 1, 2, 3))):
        like = [v for v in sides[0].values if fixed(v)] or [v for v in s.seen() if fixed(v)]
        if not like:
            return
        chosen = own(sides[0], s.random.choice(like))
        results[0].append(chosen)
        results[1].append(own(sides[1], chosen))
    for place, values in enumerate(results):
        # A graph names each of its outputs once.
        for i, value in enumerate(values):
            if value.name in {v.name for v in values[:i]} or value.name not in {v.name for v in sides[place].values}:
                values[i] = sides[place].make("Identity", [value], value)
    graphs = [body_graph(side, [], list(values)) for side, values in zip(sides, results)]
    names = s.emit("If", [flag], len(results[0]), then_branch=graphs[0], else_branch=graphs[1])
    for name, one, two in zip(names, *results):
        s.add(replace(one, name=name, exact=one.exact and two.exact, big=max(one.big, two.big)))


def loop_node(s: Scope) -> None:
    if s.depth >= 2 or s.function:
        return
    r = s.random
    trips, stop = r.choice((0, 1, 2, 3, 3)), r.choice((9, 9, 9, 1, 2))
    some = [s.pick(lambda v: fixed(v) and v.big < 100 and prod(v.shape) < 100) for _ in range(r.choice((1, 1, 2, 3)))]
    states = [v for v in some if v]
    body = Scope(s.model, s.depth + 1, s)
    count = body.add(Val(body.name(), "int64", (), big=9.0))
    go = Val(body.name(), "bool", ())
    inner = [body.add(replace(v, name=body.name(), exact=v.dtype not in FLOATS)) for v in states]
    long = None
    if r.random() < 0.3 and not s.model.plain:
        long = s.pick(lambda v: fixed(v) and v.rank > 0 and v.dtype == "float32" and prod(v.shape) < 100)
    appended: list[Val] = []
    if not states and long is None:
        return
    if long is not None:
        label = s.model.label()
        past = body.add(replace(long, name=body.name(), grows=(label, 0)))
        row = body.constant(s.numbers("float32", (1, *long.shape[1:])))
        appended = [body.make("Concat", [past, row], replace(past, grows=(label + "+", 0)), axis=0)]
    fill(body, r.randrange(1, 5))
    if stop < 9:
        limit = body.constant(np.array(stop, np.int64))
        out = body.make("Less", [count, limit], Val("", "bool", ()))
    else:
        out = body.make("Identity", [go], go)
    carried = [own(body, replace(v, exact=False)) for v in inner]
    scanned = []
    if r.random() < 0.6:
        found = [v for v in body.values if fixed(v) and v.name not in {c.name for c in carried} and prod(v.shape) < 100]
        scanned = [own(body, r.choice(found))] if found else []
    returned = [out]
    for value in (*carried, *scanned):
        known = {v.name for v in body.values} - {v.name for v in returned} - {count.name, *(v.name for v in inner)}
        # The runtime that judges refuses a body whose output is its input, and one named twice.
        returned.append(value if value.name in known else body.make("Identity", [value], value))
    inputs = [count.declared(), go.declared(), *(v.declared() for v in inner)]
    outputs: list[Val | onnx.ValueInfoProto] = list(returned)
    if long is not None:
        inputs.append(past.declared(loose=True))
        outputs.insert(1 + len(inner), appended[0].declared(loose=True))
    graph = body_graph(body, inputs, outputs)
    limit_name = s.constant(np.array(trips, np.int64)).name if stop == 9 or r.random() < 0.5 else ""
    first = s.constant(np.array(True)).name if r.random() < 0.3 or (not limit_name and r.random() < 0.5) else ""
    fed = [v.name for v in states] + ([long.name] if long else [])
    names = s.emit("Loop", [limit_name, first, *fed], len(outputs) - 1, body=graph)
    for name, value, before in zip(names, returned[1:], states):
        s.add(replace(before, name=name, exact=before.dtype not in FLOATS, big=max(value.big, before.big, 1e3)))
    if long is not None:
        s.add(replace(long, name=names[len(states)], grows=(s.model.label(), 0), exact=long.exact))
    if scanned:
        label, one = s.model.label(), scanned[0]
        s.add(Val(names[-1], one.dtype, (trips, *one.shape), one.dtype not in FLOATS, one.big + 1e3, (label, 0)))


def scan_node(s: Scope) -> None:
    if s.depth >= 2 or s.function:
        return
    r = s.random
    read = s.pick(lambda v: fixed(v) and v.rank > 0 and 0 not in v.shape and prod(v.shape) < 200 and v.big < 100)
    state = s.pick(lambda v: fixed(v) and v.big < 100 and prod(v.shape) < 100)
    if read is None or state is None:
        return
    body = Scope(s.model, s.depth + 1, s)
    axis = r.randrange(read.rank)
    inner = body.add(replace(state, name=body.name(), exact=state.dtype not in FLOATS))
    slice_ = body.add(replace(read, name=body.name(), shape=(*read.shape[:axis], *read.shape[axis + 1 :])))
    fill(body, r.randrange(1, 5))
    carried = own(body, inner)
    if carried.name in (inner.name, slice_.name) or carried.name not in {v.name for v in body.values}:
        carried = body.make("Identity", [carried], carried)
    found = [v for v in body.values if fixed(v) and v.name != carried.name and prod(v.shape) < 100]
    made = r.choice(found)
    if made.name in (inner.name, slice_.name):
        made = body.make("Identity", [made], made)
    graph = body_graph(body, [inner.declared(), slice_.declared()], [carried, made])
    # onnxruntime dies of an empty scan output whose axes it has to swap.
    at = 0 if 0 in made.shape else r.randrange(len(made.shape) + 1)
    ways: dict[str, Any] = {"scan_input_directions": [r.randrange(2)], "scan_output_directions": [r.randrange(2)]}
    axes: dict[str, Any] = {"num_scan_inputs": 1, "scan_input_axes": [axis], "scan_output_axes": [at]}
    names = s.emit("Scan", [state.name, read.name], 2, body=graph, **axes, **ways)
    s.add(replace(state, name=names[0], exact=state.dtype not in FLOATS, big=1e3))
    shape = (*made.shape[:at], read.shape[axis], *made.shape[at:])
    s.add(Val(names[1], made.dtype, shape, made.dtype not in FLOATS, made.big + 1e3))


def partner_like(s: Scope, value: Val) -> Val:
    found = s.pick(lambda v: v.dtype == value.dtype and fixed(v) and v.shape == value.shape)
    return found or s.constant(s.numbers(value.dtype, value.shape))


def sequence(s: Scope) -> None:
    r = s.random
    if not s.seen_sequences() or r.random() < 0.4:
        first = s.pick(lambda v: fixed(v) and v.dtype in ("float32", "int64") and prod(v.shape) < 100)
        if first is None:
            return
        same = [first, *(partner_like(s, first) for _ in range(r.randrange(3)))]
        (name,) = s.emit("SequenceConstruct", [v.name for v in same])
        s.sequences.append(Seq(name, first.dtype, tuple(v.shape for v in same), all(v.exact for v in same)))
        return
    seq = r.choice(s.seen_sequences())
    n = len(seq.shapes)
    way = r.randrange(6)
    if way == 5 and n and s.depth < 2:
        _sequence_loop(s, seq)
    elif way == 0:
        like = Val("", seq.dtype, seq.shapes[0] if n else (), seq.exact)
        more = partner_like(s, like)
        at = r.randrange(-n, n + 1) if n else 0
        asked = [s.constant(np.array(at, np.int64)).name] if r.random() < 0.6 else []
        (name,) = s.emit("SequenceInsert", [seq.name, more.name, *asked])
        shapes = list(seq.shapes)
        shapes.insert(at if asked else n, more.shape)
        s.sequences.append(Seq(name, seq.dtype, tuple(shapes), seq.exact and more.exact))
    elif way == 1 and n > 1:
        at = r.randrange(n)
        (name,) = s.emit("SequenceErase", [seq.name, s.constant(np.array(at, np.int64)).name])
        s.sequences.append(Seq(name, seq.dtype, seq.shapes[:at] + seq.shapes[at + 1 :], seq.exact))
    elif way in (2, 3) and n:
        at = r.randrange(n)
        where = s.constant(np.array(at - n * r.randrange(2), np.int64))
        s.make("SequenceAt", [seq.name, where], Val("", seq.dtype, seq.shapes[at], seq.exact, 1e3))
    elif n and len(set(seq.shapes)) == 1:
        rank, new = len(seq.shapes[0]), r.randrange(2)
        if rank + new:
            axis = r.randrange(rank + new)
            shape = list(seq.shapes[0])
            shape[axis : axis + 1 - new] = [n if new else n * shape[axis]]
            like = Val("", seq.dtype, tuple(shape), seq.exact, 1e3)
            s.make("ConcatFromSequence", [seq.name], like, axis=axis, new_axis=new)


def _sequence_loop(s: Scope, seq: Seq) -> None:
    body = Scope(s.model, s.depth + 1, s)
    count, go = body.add(Val(body.name(), "int64", (), big=9.0)), Val(body.name(), "bool", ())
    shape, past = seq.shapes[0], body.name()
    one = partner_like(body, Val("", seq.dtype, shape, seq.exact))
    fill(body, 2)
    (present,) = body.emit("SequenceInsert", [past, one.name])
    out = body.make("Identity", [go], go)
    types = [helper.make_tensor_sequence_value_info(name, tensor_type(seq.dtype), None) for name in (past, present)]
    graph = body_graph(body, [count.declared(), go.declared(), types[0]], [out, types[1]])
    trips = s.random.randrange(3)
    (name,) = s.emit("Loop", [s.constant(np.array(trips, np.int64)).name, "", seq.name], body=graph)
    s.sequences.append(Seq(name, seq.dtype, (*seq.shapes, *[shape] * trips), seq.exact and one.exact))


def define_function(s: Scope) -> None:
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
