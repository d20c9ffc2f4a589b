"""Numeric kernels under the engine's promises: fresh or in place, read-only inputs, onnxruntime's numbers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from kvviz.ops.registry import OpSpec
from tests.ops.kernels import computed, frozen, spec_of
from tests.ops.ort_oracle import Inputs, ort_run

__all__ = ["check", "close", "run", "same", "spec_of", "takes_over"]


def run(
    op_type: str, inputs: Inputs, n_outputs: int = 1, opset: int = 21, domain: str = "", **attributes: Any
) -> list[np.ndarray]:
    """Outputs of a kernel given read-only inputs; its promises about memory are checked on the way."""
    spec = spec_of(op_type, opset, domain)
    args = frozen([None if x is None else np.asarray(x) for x in inputs])
    before = [None if x is None else x.copy() for x in args]
    results = _called(spec, args, n_outputs, opset, attributes)
    for x, old in zip(args, before):
        assert x is None or old is None or same(x, old), "an input was written to"
    for y in results:
        assert y.flags.c_contiguous or spec.views, "a fresh output must be in C order"
        sharing = [i for i, x in enumerate(args) if x is not None and np.shares_memory(x, y)]
        assert set(sharing) <= set(spec.views), f"an output shares memory with inputs {sharing}"
    return results


def takes_over(
    op_type: str,
    inputs: Inputs,
    position: int,
    n_outputs: int = 1,
    opset: int = 21,
    domain: str = "",
    **attributes: Any,
) -> list[np.ndarray]:
    """Outputs of a kernel told to overwrite one input; the promises of ``out=`` are checked on the way."""
    spec = spec_of(op_type, opset, domain)
    assert position in spec.overwrites
    args = frozen([None if x is None else np.asarray(x) for x in inputs])
    if spec.fits is not None:
        assert spec.fits(args, position, attributes) == "", "the kernel says that its output does not fit"
    given = inputs[position]
    assert given is not None
    target = np.array(given, order="C")
    args[position] = target
    before = [None if x is None else x.copy() for x in args]
    results = _called(spec, args, n_outputs, opset, {**attributes, "out": target})
    assert results[0] is target, "the overwritten array itself must come back"
    for i, (x, old) in enumerate(zip(args, before)):
        assert i == position or x is None or old is None or same(x, old), f"input {i} was written to"
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
    wanted = ort_run(op_type, inputs, n_outputs, opset, domain, **attributes)
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


def _called(spec: OpSpec, args: list, n_outputs: int, opset: int, attributes: dict[str, Any]) -> list[np.ndarray]:
    extra = {"n_outputs": n_outputs, "opset": opset}
    keywords = {name: value for name, value in extra.items() if name in spec.wants}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        results = computed(spec, args, n_outputs, opset, {**attributes, **keywords})
    results = results if isinstance(results, tuple) else (results,)
    return [y if isinstance(y, np.ndarray) else np.asarray(y) for y in results[:n_outputs]]
