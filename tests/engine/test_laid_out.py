"""Values that do not lie in row-major order are overwritten where nothing depends on how they lie, and only there."""

from typing import Any

import numpy as np
import pytest

import kvviz
from tests.engine.graphs import numbers, run, step_of
from tests.ops.kernels import run_kernel

TRANSPOSED = "g (float[3, 4] x, float[4, 3] z) => (float[m, n] y) {{ p = Exp(x) t = Transpose(p) [op] a = {} }}"
BLIND = {
    "Concat": "Neg(t) y = Concat <axis = 0> (z, a)",
    "a view and Concat": "Neg(t) v = Transpose(a) y = Concat <axis = 0> (x, v)",
    "another op in place": "Neg(t) c = Relu(a) y = Concat <axis = 0> (z, c)",
    "an op with another operand": "Add(t, z) y = Concat <axis = 0> (z, a)",
    "a comparison": "Neg(t) b = Less(a, z) y = Where(b, z, z)",
}
SEEING = {
    "a product": "Neg(t) y = MatMul(a, x)",
    "a sum": "Neg(t) y = ReduceSum(a)",
    "a sum of a view": "Neg(t) v = Transpose(a) y = ReduceSum(v)",
    "a sum of what overwrites it": "Neg(t) c = Relu(a) y = ReduceSum(c)",
    "the caller": "Neg(t) y = Identity(a)",
    "an exponential, which NumPy may compute otherwise": "Neg(t) c = Exp(a) y = Concat <axis = 0> (z, c)",
}
X = {"x": numbers(3, 4), "z": numbers(4, 3)}


@pytest.mark.parametrize("text", BLIND.values(), ids=BLIND)
def test_transposed_values_are_overwritten_where_nobody_depends_on_their_order(text: str) -> None:
    text, inputs = TRANSPOSED.format(text), X
    trace = run(text, inputs)
    step = step_of(trace, "op")
    assert step.decision.taken == ("t",) and step.allocated == 0
    assert step.outs[0].how == "in place" and step.outs[0].strides == (4, 16)
    assert trace.outputs["y"].tobytes() == run(text, inputs, policy="never").outputs["y"].tobytes()
    np.testing.assert_array_equal(
        trace.value("a", step.index), run(text, inputs, policy="never").value("a", step.index)
    )


@pytest.mark.parametrize("text", SEEING.values(), ids=SEEING)
def test_they_are_not_where_somebody_may_depend_on_it(text: str) -> None:
    text, inputs = TRANSPOSED.format(text), X
    trace = run(text, inputs)
    step = step_of(trace, "op")
    assert step.decision.dispatch == "run"
    assert [blocker.code for blocker in step.decision.blockers] == ["NOT_CONTIGUOUS"]
    assert trace.outputs["y"].tobytes() == run(text, inputs, policy="never").outputs["y"].tobytes()


def test_rows_of_a_cache_with_room_are_overwritten_after_an_append() -> None:
    text = """g (float[1, 2, P, 4] past, float[1, 2, 1, 4] row, int64[1] at) => (float[1, 2, T, 4] y) {
        p = Concat <axis = 2> (past, row) [op] y = TensorScatter(p, row, at) }"""
    row, at = numbers(1, 2, 1, 4), np.array([1])
    past = kvviz.reserve(numbers(1, 2, 3, 4), 2, 8)
    trace = run(text, {"past": past, "row": row, "at": at}, opset=24, donate=["past"])
    assert step_of(trace, "op").decision.taken == ("p",) and trace.bytes_copied == 0
    never = run(text, {"past": numbers(1, 2, 3, 4), "row": row, "at": at}, opset=24, policy="never")
    assert trace.outputs["y"].tobytes() == never.outputs["y"].tobytes()


INTS = np.arange(12, dtype=np.int64).reshape(3, 4)
ROWS = np.array([[0], [2]])
CELLS = np.array([[0, 1], [2, 3], [0, 1]])
WRITERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    **{op: ([numbers(3, 4), numbers(3, 4, seed=1)], {}) for op in ("Add", "Sub", "Mul", "Div", "Min", "Max")},
    **{op: ([abs(numbers(3, 4)) + 1], {}) for op in ("Neg", "Abs", "Sqrt", "Reciprocal", "Relu", "Floor", "Ceil")},
    **{op: ([numbers(3, 4)], {}) for op in ("Round", "Sign")},
    **{op: ([INTS, INTS + 5], {}) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{op: ([INTS > 3, INTS > 6], {}) for op in ("And", "Or", "Xor")},
    "Not": ([INTS > 3], {}),
    "BitwiseNot": ([INTS], {}),
    "Clip": ([numbers(3, 4), np.float32(-0.5), np.float32(0.5)], {}),
    "ScatterND": ([numbers(3, 4), ROWS, numbers(2, 4)], {}),
    "ScatterND of cells": ([numbers(3, 4), CELLS, numbers(3)], {"reduction": "add"}),
    "ScatterElements": ([numbers(3, 4), ROWS, numbers(2, 1)], {}),
    "TensorScatter": ([numbers(3, 4), numbers(3, 1), np.array([2, 0, 1])], {"axis": 1}),
}


@pytest.mark.parametrize("case", WRITERS)
def test_a_kernel_writes_over_an_input_of_any_layout(case: str) -> None:
    op, (inputs, attributes) = case.split()[0], WRITERS[case]
    meant = run_kernel(op, inputs, opset=24, **attributes)[0]
    past = np.asfortranarray(inputs[0])
    result = run_kernel(op, [past, *inputs[1:]], opset=24, out=past, **attributes)[0]
    assert result is past and result.strides != meant.strides
    assert result.tobytes() == meant.tobytes()
