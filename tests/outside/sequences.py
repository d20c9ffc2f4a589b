"""Sequences of tensors: made, changed, looped over, and joined."""

from math import prod

import numpy as np
from onnx import helper

from tests.outside.bodies import body_graph, fill, partner_like
from tests.outside.plain_ops import fixed
from tests.outside.scopes import Scope, Seq, Val, tensor_type


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
    """Append to a sequence in every iteration, then use it."""
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
