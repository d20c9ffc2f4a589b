"""Calling kernels in tests as the engine does, on read-only inputs, and holding them against onnxruntime."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

import kvviz.ops  # noqa: F401  (registers every kernel)
from kvviz.graph.model import Node
from kvviz.ops.kernels import kernel_of
from kvviz.ops.registry import OpSpec, find
from tests.ops.ort_oracle import ort_run

Array = np.ndarray
Inputs = Sequence[Array | None]


def spec_of(op_type: str, opset: int = 21, domain: str = "") -> OpSpec:
    """The table's entry, which must be there."""
    spec = find(domain, op_type, opset if domain == "" else 1)
    assert spec is not None, f"no kernel for {domain}.{op_type} at opset {opset}"
    return spec


def kernel_named(op_type: str, opset: int = 21, domain: str = "") -> Callable[..., Any]:
    """The kernel of a table entry that has one of its own."""
    kernel = spec_of(op_type, opset, domain).kernel
    assert kernel is not None
    return kernel


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
    if spec.kernel is not None:
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


def run(
    op_type: str, inputs: Inputs, n_outputs: int = 1, opset: int = 21, domain: str = "", **attributes: Any
) -> list[Array]:
    """Outputs of a kernel given read-only inputs; what the table says of their memory is checked on the way."""
    args = frozen([None if x is None else np.asarray(x) for x in inputs])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        results = run_kernel(op_type, args, n_outputs, opset, domain, **attributes)[:n_outputs]
    assert not broken_promises(spec_of(op_type, opset, domain), args, results)
    return list(results)


def broken_promises(spec: OpSpec, inputs: Inputs, outputs: Sequence[Array | None]) -> list[str]:
    """What the table says of the memory of outputs, and is not so."""
    # A cache of attention lies as its rows came, that of Concat is what it computes.
    caches, found = {grow.output for grow in spec.grows} - {0}, []
    for i, y in enumerate(outputs):
        shared = {k for k, x in enumerate(inputs) if x is not None and y is not None and np.shares_memory(x, y)}
        found += [f"output {i} shares memory with inputs {shared}"] if not shared <= set(spec.views) else []
        packed = y is None or shared or i in caches or y.flags.c_contiguous
        found += [] if packed else [f"output {i} is not in C order"]
    return found


def check(
    op_type: str,
    inputs: Inputs,
    n_outputs: int = 1,
    opset: int = 21,
    domain: str = "",
    rtol: float = 1e-5,
    atol: float = 1e-6,
    **attributes: Any,
) -> list[np.ndarray]:
    """The kernel's outputs, after they were compared with onnxruntime's: shape, dtype and numbers."""
    protos = {n: numpy_helper.from_array(v) if isinstance(v, Array) else v for n, v in attributes.items()}
    wanted = ort_run(op_type, inputs, n_outputs, opset, domain, **protos)
    got = run(op_type, inputs, n_outputs, opset, domain, **attributes)
    for mine, theirs in zip(got, wanted, strict=True):
        close(mine, theirs, rtol, atol)
    return got


def close(mine: Array, theirs: Array, rtol: float, atol: float) -> None:
    """Equal within the tolerances; whole numbers, booleans and text exactly."""
    assert not differs(mine, theirs, rtol, atol)


def differs(have: Any, want: Any, rtol: float, atol: float) -> str:
    """How a value differs from the oracle's, in shape, dtype and numbers; empty where it does not."""
    if isinstance(want, list):
        if not isinstance(have, list) or len(have) != len(want):
            return f"{have} in place of {want}"
        return next(filter(None, (differs(h, w, rtol, atol) for h, w in zip(have, want))), "")
    if isinstance(want, dict):
        same = set(have) == set(want) and all(np.isclose(have[label], want[label], rtol, atol) for label in want)
        return "" if same else "another map"
    if (have.shape, have.dtype) != (want.shape, want.dtype):
        return f"{have.dtype}{have.shape} in place of {want.dtype}{want.shape}"
    if have.dtype.kind in "iubO":
        return "" if np.array_equal(have, want) else "other values"
    have, want = have.astype(np.float64), want.astype(np.float64)
    if np.allclose(have, want, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        return f"off by {np.nanmax(np.abs(have - want)):.3g}"


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays hold the same bits."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def ints(*values: int) -> Array:
    """A vector of int64, as shapes and axes are given."""
    return np.array(values, np.int64)


def rand(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Normal numbers, the same for a shape and seed every time."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def room_for(past: Array, rows: int, axis: int) -> Array:
    """A present of ``rows`` rows whose first ones are the past, as a view into a larger block, and the past in it."""
    block = np.full((*past.shape[:axis], rows + 3, *past.shape[axis + 1 :]), 7, past.dtype)
    by_row = np.moveaxis(block, axis, 0)
    by_row[: past.shape[axis]] = np.moveaxis(past, axis, 0)
    return np.moveaxis(by_row[:rows], 0, axis)
