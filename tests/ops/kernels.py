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
) -> list[np.ndarray]:
    """Outputs of a kernel given read-only inputs; its promises about memory are checked on the way."""
    spec = spec_of(op_type, opset, domain)
    args = frozen([None if x is None else np.asarray(x) for x in inputs])
    before = [None if x is None else x.copy() for x in args]
    results = _called(op_type, args, n_outputs, opset, domain, attributes)
    for x, old in zip(args, before):
        assert x is None or old is None or same(x, old), "an input was written to"
    for y in results:
        assert y.flags.c_contiguous or spec.views, "a fresh output must be in C order"
        sharing = [i for i, x in enumerate(args) if x is not None and np.shares_memory(x, y)]
        assert set(sharing) <= set(spec.views), f"an output shares memory with inputs {sharing}"
    return results


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
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        close(mine, theirs, rtol, atol)
    return got


def close(mine: np.ndarray, theirs: np.ndarray, rtol: float, atol: float) -> None:
    """Equal within the tolerances; whole numbers, booleans and text exactly."""
    if mine.dtype.kind in "iubOUS":
        np.testing.assert_array_equal(mine, theirs)
    else:
        np.testing.assert_allclose(mine.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays hold the same bits."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def ints(*values: int) -> Array:
    """A vector of int64, as shapes and axes are given."""
    return np.array(values, np.int64)


def rand(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Normal numbers, the same for a shape and seed every time."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def _called(
    op_type: str, args: list, n_outputs: int, opset: int, domain: str, attributes: dict[str, Any]
) -> list[np.ndarray]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        results = run_kernel(op_type, args, n_outputs, opset, domain, **attributes)
    return [y if isinstance(y, np.ndarray) else np.asarray(y) for y in results[:n_outputs]]
