"""Calling kernels in tests as the engine does, on read-only inputs, and holding them against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

import kvviz.ops  # noqa: F401  (registers every kernel)
from kvviz.graph.model import Node
from kvviz.ops.kernel_of import kernel_of
from kvviz.ops.registry import OpSpec, find, reference
from tests.ops.ort_oracle import ort_run

Array = np.ndarray
Inputs = Sequence[Array | None]


def spec_of(op_type: str, opset: int = 21, domain: str = "") -> OpSpec:
    """The table's entry, which must be there."""
    spec = find(domain, op_type, opset if domain == "" else 1)
    assert spec is not None, f"no kernel for {domain}.{op_type} at opset {opset}"
    return spec


def run_kernel(
    op_type: str,
    inputs: Inputs,
    n_outputs: int = 1,
    opset: int = 21,
    domain: str = "",
    out: Array | None = None,
    grown: tuple | None = None,
    **attributes: Any,
) -> tuple:
    """Outputs of a kernel; lists among the attributes become tuples, as they are in a graph."""
    spec = spec_of(op_type, opset, domain)
    keywords = {name: tuple(v) if isinstance(v, list) else v for name, v in attributes.items()}
    offered = {"n_outputs": n_outputs, "opset": opset, "out": out, "grown": grown}
    keywords |= {name: v for name, v in offered.items() if name in spec.wants and v is not None}
    result = computed(spec, inputs, n_outputs, opset, keywords)
    return result if isinstance(result, tuple) else (result,)


def computed(spec: OpSpec, args: Sequence[Any], n_outputs: int, opset: int, keywords: dict[str, Any]) -> Any:
    """What the kernel of a table entry gives, also where that is the reference evaluator's."""
    if spec.kernel is not reference:
        return spec.kernel(*args, **keywords)
    attributes = {name: value for name, value in keywords.items() if name not in ("out", "opset", "n_outputs")}
    names = tuple("" if x is None else f"x{i}" for i, x in enumerate(args))
    outputs = tuple(f"y{i}" for i in range(n_outputs))
    call = kernel_of(Node("n", spec.op_type, spec.domain, names, outputs, 0, attributes, opset=opset)).call
    return call(*args, **{name: value for name, value in keywords.items() if name == "out"})


def frozen(inputs: Inputs) -> list[Array | None]:
    """Read-only copies with the same strides order, so that a kernel that writes to its input fails."""
    copies = [None if x is None else x.copy(order="K") for x in inputs]
    for x in copies:
        if x is not None:
            x.flags.writeable = False
    return copies


def assert_like_ort(
    op_type: str,
    inputs: Inputs,
    n_outputs: int = 1,
    opset: int = 21,
    domain: str = "",
    rtol: float = 1e-5,
    atol: float = 1e-6,
    **attributes: Any,
) -> tuple:
    """Run both on the same inputs; compare shapes, dtypes and values, and what memory the outputs lie in."""
    given = frozen(inputs)
    outputs = run_kernel(op_type, given, n_outputs, opset, domain, **attributes)
    protos = {n: numpy_helper.from_array(v) if isinstance(v, Array) else v for n, v in attributes.items()}
    expected = ort_run(op_type, inputs, n_outputs, opset, domain, **protos)
    may_share = spec_of(op_type, opset, domain).views
    for have, want in zip(outputs[:n_outputs], expected, strict=True):
        assert isinstance(have, Array)
        assert (have.dtype, have.shape) == (want.dtype, want.shape)
        if have.dtype.kind in "fc" or have.dtype.type.__module__ != "numpy":
            np.testing.assert_allclose(have.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(have, want)
        if any(x is not None and np.may_share_memory(have, x) for x in given):
            assert may_share, "an output lies in an input's memory, and the table does not say so"
        else:
            assert have.flags.c_contiguous, "fresh memory must be row-major"
    return outputs


def ints(*values: int) -> Array:
    """A vector of int64, as shapes and axes are given."""
    return np.array(values, np.int64)


def rand(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Normal numbers, the same for a shape and seed every time."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)
