"""Graphs whose node ``target`` is kept from running in place by one thing only, and the same graphs without it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import kvviz
from tests.engine.graphs import numbers

X = {"x": numbers(2, 3)}
NEW = {"new": numbers(1, 1, 2)}
PAST = numbers(1, 4, 2)


@dataclass(frozen=True)
class Case:
    """A graph whose node ``target`` is blocked for one reason, and the same without the culprit."""

    code: str
    culprit: str
    text: str
    cure: str = ""
    inputs: dict = field(default_factory=lambda: X)
    input: str = "a"
    options: dict = field(default_factory=dict)
    cured_options: dict = field(default_factory=dict)
    cured_inputs: dict = field(default_factory=dict)
    message: str = ""
    opset: int = 21


LATER = "g (float[2, 3] x) => (float[2, 3] t, float[2, 3] z) { a = Exp(x) [target] t = Relu(a) [later] z = Neg(%s) }"
TWO = "g (float[2, 3] x) => (float[2, 3] t%s) { a = Exp(x) [target] t = Relu(a) }"
BRANCH = """g (float[2, 3] x) => (float[2, 3] t, float[2, 3] z) <bool c = {1}> {
    a = Exp(x)
    [if] t = If (c) <then_branch = yes () => (float[2, 3] u) { [target] u = Relu(a) },
                     else_branch = no () => (float[2, 3] v) { v = Neg(a) }>
    [later] z = Neg(%s) }"""
TAKEN_OUT = """g (float[2, 3] x) => (float[2, 3] t%s) <bool c = {1}> {
    a = Exp(x)
    [if] t = If (c) <then_branch = yes () => (float[2, 3] u) { [target] u = Relu(a) },
                     else_branch = no () => (float[2, 3] v) { v = Neg(a) }> }"""
KEPT_INSIDE = """g (float[2, 3] x) => (float[2, 3] t, float[2, 3] z) <bool c = {1}> {
    [if] t, z = If (c) <then_branch = yes () => (float[2, 3] u, float[2, 3] %s) { a = Exp(x) o = Exp(x)
                                                                                 [target] u = Relu(a) },
                        else_branch = no () => (float[2, 3] v, float[2, 3] w) { v = Neg(x) w = Exp(x) }> }"""
FUNCTION = """g (float[2, 3] x) => (float[2, 3] t, float[2, 3] z) {
    a = Exp(x) [call] t = local.f(a) [later] z = Neg(%s) }
    <domain: "local", opset_import: ["" : 21]> f (p) => (q) { [target] q = Relu(p) }"""
ALIAS = """g (float[2, 3] x) => (float[2, 3] t, float[6] z) <int64[1] flat = {-1}> {
    a = Exp(x) v = Reshape(%s, flat) [target] t = Relu(a) z = Neg(v) }"""
ALIAS_BESIDE = """g (float[2, 3] x) => (float[2, 3] t, float[6] z, float[2, 3] y) <int64[1] flat = {-1}> {
    a = Exp(x) v = Reshape(%s, flat) w = Exp(x) [target] t = Relu(a) z = Neg(v) y = Neg(w) }"""
ALIAS_ITSELF = """g (float[2, 3] x) => (float[2, 3] t) <int64[1] first = {0}, int64[1] one = {1}> {
    a = Exp(x) b = Exp(x) v = Slice(%s, first, one) [target] t = Add(a, v) }"""
APPEND = (
    "g (float[1, N, 2] past, float[1, 1, 2] new) => (float[1, M, 2] t) { [target] t = Concat <axis = 1> (past, new) }"
)

DONATED = {"donate": ["past"]}


def appended(past: Any, cured: int = 9, **facts: Any) -> Case:
    """An append that has no room, and the same to a block of so many rows."""
    told: dict[str, Any] = {"code": "NO_CAPACITY", "culprit": "the buffer of past", "options": DONATED, **facts}
    told |= {"inputs": {**NEW, "past": past}, "input": "past", "text": APPEND, "cured_options": DONATED}
    return Case(**told, cured_inputs={"past": lambda: kvviz.reserve(PAST, 1, cured)})


CASES = {
    "a later op reads it": Case("NOT_LAST_USE", "later", LATER % "a", LATER % "x"),
    "the caller takes it": Case("REQUESTED_OUTPUT", "the caller", TWO % ", float[2, 3] a", TWO % ""),
    "its graph gives it out": Case("REQUESTED_OUTPUT", "if", KEPT_INSIDE % "a", KEPT_INSIDE % "o"),
    "the caller owns it": Case(
        "BORROWED_INPUT",
        "the caller",
        "g (float[2, 3] x) => (float[2, 3] t) { [target] t = Relu(x) }",
        input="x",
        cured_options={"donate": ["x"]},
    ),
    "it is a weight": Case(
        "CONSTANT",
        "w",
        "g () => (float[2] t) <float[2] w = {1, -2}> { [target] t = Relu(w) }",
        "g (float[2] w) => (float[2] t) { [target] t = Relu(w) }",
        inputs={},
        input="w",
        cured_options={"donate": ["w"]},
        cured_inputs={"w": np.array([1, -2], np.float32)},
    ),
    "a branch borrows it from a later reader": Case("CAPTURED_BY_REFERENCE", "later", BRANCH % "a", BRANCH % "x"),
    "a branch borrows what the caller takes": Case(
        "CAPTURED_BY_REFERENCE", "the caller", TAKEN_OUT % ", float[2, 3] a", TAKEN_OUT % ""
    ),
    "a function borrows it from a later reader": Case(
        "CAPTURED_BY_REFERENCE", "later", FUNCTION % "a", FUNCTION % "x", input="p"
    ),
    "a view of it is still read": Case("ALIASED", "v", ALIAS % "a", ALIAS % "x"),
    "a view of it is still read, and something else as well": Case(
        "ALIASED", "v", ALIAS_BESIDE % "a", ALIAS_BESIDE % "x"
    ),
    "this op reads a view of it too": Case("ALIASED", "v", ALIAS_ITSELF % "a", ALIAS_ITSELF % "b"),
    "this op reads it twice": Case(
        "SAME_OP_TWICE",
        "target",
        "g (float[2, 3] x) => (float[2, 3] t) { a = Exp(x) [target] t = Add(a, a) }",
        "g (float[2, 3] x) => (float[2, 3] t) { a = Exp(x) b = Exp(x) [target] t = Add(a, b) }",
    ),
    "the output is larger": Case(
        "SHAPE_DIFFERS",
        "a",
        "g (float[2, 3] x, float[3] r) => (float[2, 3] t) { a = Exp(r) [target] t = Add(a, x) }",
        "g (float[2, 3] x, float[2, 3] r) => (float[2, 3] t) { a = Exp(r) [target] t = Add(a, x) }",
        inputs={**X, "r": np.ones(3, np.float32)},
        cured_inputs={"r": np.ones((2, 3), np.float32)},
        message=": it is [3], the output [2, 3]",
    ),
    "the output has another type": Case(
        "DTYPE_DIFFERS",
        "a",
        "g (float16[2, 3] h, float[3] s) => (float[2, 3] t) { a = Identity(h) [target] t = RMSNormalization(a, s) }",
        "g (float[2, 3] h, float[3] s) => (float[2, 3] t) { a = Identity(h) [target] t = RMSNormalization(a, s) }",
        inputs={"h": numbers(2, 3, dtype=np.float16), "s": np.ones(3, np.float32)},
        options={"donate": ["h"]},
        cured_options={"donate": ["h"]},
        cured_inputs={"h": numbers(2, 3, dtype=np.float16).astype(np.float32)},
        message=": it holds float16, the output float32",
        opset=23,
    ),
    "no room is reserved": appended(PAST, 5, message=": it holds 4 rows along axis 1, and 5 are needed"),
    "the reserved room is full": appended(lambda: kvviz.reserve(PAST, 1, 4)),
    "the reserved room is on another axis": appended(lambda: kvviz.reserve(PAST, 2, 9)),
    "the caller owns the reserved block": appended(
        lambda: kvviz.reserve(PAST, 1, 9), code="BORROWED_INPUT", culprit="the caller", options={}
    ),
    "it is transposed": Case(
        "NOT_CONTIGUOUS",
        "a",
        "g (float[2, 2] x) => (float[2, 2] t) { e = Exp(x) a = Transpose <perm = [1, 0]> (e) [target] t = Relu(a) }",
        "g (float[2, 2] x) => (float[2, 2] t) { e = Exp(x) a = Transpose <perm = [0, 1]> (e) [target] t = Relu(a) }",
        inputs={"x": np.array([[1, 2], [2, 1]], np.float32)},
    ),
    "the policy forbids it": Case(
        "POLICY",
        "never",
        "g (float[2, 3] x) => (float[2, 3] t) { a = Exp(x) [target] t = Relu(a) }",
        options={"policy": "never"},
    ),
}
