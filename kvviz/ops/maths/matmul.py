"""Matrix products: MatMul, Gemm, FusedMatMul and Einsum; linear models and scalings of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import FLOAT32, contiguous, in_float32, is_narrow, rounded_once
from kvviz.ops.registry import op

# A matrix of at least that many bytes is assumed to come from memory, not from a cache of the processor.
_STREAMED = 1 << 18
# Columns of fewer bytes are not worth a call each; longer rows leave no room for sums in the nearest cache.
_SHORT, _LONG = 384, 1 << 13
# With that many columns, and that many per row, BLAS takes three times as long over few rows as over few columns.
_WIDE, _PER_ROW = 512, 32


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``numpy.matmul(a, b)`` for any dtype; the result may be in any order. A few rows times a wide transposed matrix,
    as queries times the keys of a long cache, are computed as columns."""
    a, b = _readable(a), _readable(b)
    if a.ndim < 2 or b.ndim < 2 or a.dtype != b.dtype:
        return np.matmul(a, b)
    size, columns = b.shape[-2:]
    if columns >= max(_WIDE, _PER_ROW * a.shape[-2]) and b.strides[-2] == b.itemsize and a.shape[-2] > 1:
        return np.matmul(b.swapaxes(-1, -2), contiguous(a.swapaxes(-1, -2))).swapaxes(-1, -2)
    if b.ndim > 2:
        return np.matmul(a, b)
    stream = _streamed(a, b)
    if stream is not None:
        return stream(a, b)
    if a.ndim > 2 and a.shape[0] != 1 and a.size and a.flags.c_contiguous and a.shape[-1] == size:
        # One product of tall matrices; NumPy would make one small product per batch entry.
        return np.matmul(a.reshape(-1, size), b).reshape(*a.shape[:-1], columns)
    return np.matmul(a, b)


def _streamed(a: np.ndarray, b: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray] | None:
    """How to read a large matrix that is multiplied with one row, as in every decode step: in memory order, as one
    stream, because it takes as long as the matrix takes to come from memory. BLAS reads it in blocks (measured: 10 to
    15 GB/s for 512 to 1,536 columns, against 23 to 28)."""
    size = a.shape[-1]
    if a.size != size or size != b.shape[0] or b.nbytes < _STREAMED:
        return None
    if b.strides == (b.itemsize, size * b.itemsize) and b.strides[1] >= _SHORT:
        return _by_columns
    return _by_rows if b.flags.c_contiguous and b.strides[0] <= _LONG else None


def _by_columns(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    y = np.empty((*a.shape[:-1], b.shape[1]), a.dtype)
    np.vecdot(b.T, a.reshape(-1), y.reshape(-1))
    return y


def _by_rows(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("...i,ij->...j", a, b)


def _steady(args: Sequence[Any], attributes: dict) -> Callable[..., Any] | None:
    a, b = args
    if a.dtype != b.dtype or a.dtype.char not in "fd" or min(a.ndim, b.ndim) < 2 or not a.flags.c_contiguous:
        return None
    if b.ndim == 2 and (stream := _streamed(a, b)) is not None:
        return stream
    return np.matmul if b.flags.c_contiguous and (b.ndim > 2 or a.ndim == 2 or a.shape[0] == 1) else None


def _readable(x: np.ndarray) -> np.ndarray:
    """An operand that BLAS can read. NumPy sums reversed or strided elements itself, with other rounding, so a policy
    that views what another copies would get other bits."""
    if not x.ndim or x.itemsize in x.strides[-2:]:
        return x
    return x.copy()


@op("MatMul", steady=_steady)
def matmul(a, b):
    if a.dtype.char in "fd":
        y = product(a, b)
    elif is_narrow(a):
        return in_float32(matmul, a, b)
    else:
        y = np.matmul(a, b)
    return y if y.flags.c_contiguous else y.copy()


def _steady_gemm(args: Sequence[Any], attributes: dict) -> Callable[..., Any] | None:
    a, b = args[:2]
    plain = attributes["alpha"] == 1 and attributes["beta"] == 1 and not attributes["transA"] and a.shape[0] == 1
    if not plain or a.dtype != b.dtype or a.dtype.char not in "fd" or not a.flags.c_contiguous or b.ndim != 2:
        return None
    turned = attributes["transB"]
    multiply = _streamed(a, b.T if turned else b) or np.matmul

    def steady(a, b, c=None):
        y = multiply(a, b.T if turned else b)
        return y if c is None else np.add(y, c, y)

    return steady if b.flags.c_contiguous else None


@op("Gemm", steady=_steady_gemm)
def gemm(a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0, broadcast=1):
    """alpha A B + beta C; C broadcasts to the product, not the other way round."""
    if is_narrow(a):
        return in_float32(gemm, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    if a.ndim != 2 or b.ndim != 2:
        raise OpError(f"Gemm multiplies two matrices, but has {a.shape} and {b.shape}")
    y = product(a.T if transA else a, b.T if transB else b)
    if alpha != 1.0:
        np.multiply(y, np.asarray(alpha, y.dtype) if y.dtype.kind == "f" else int(alpha), y)
    if c is not None and beta != 0.0:
        if beta != 1.0:
            c = np.multiply(c, np.asarray(beta, c.dtype))
        try:
            np.add(y, c, y)
        except ValueError:
            raise OpError(f"C of Gemm has shape {c.shape}, which does not broadcast to {y.shape}") from None
    return y if y.flags.c_contiguous else y.copy()


@op("FusedMatMul", "TransposeMatMul", domain="com.microsoft")
@rounded_once
def fused_matmul(a, b, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    """alpha A B after transposing: ``trans`` swaps the last two axes, ``transBatch`` moves axis 0 to the third last. A
    vector is not transposed."""
    y = product(_turned(a, transA, transBatchA), _turned(b, transB, transBatchB))
    if alpha != 1.0:
        y = np.multiply(y, np.asarray(alpha, y.dtype))
    return contiguous(y)


def _turned(x, transposed, batch_transposed):
    if x.ndim < 2:
        return x
    if batch_transposed:
        x = np.moveaxis(x, 0, -2)
    return x.swapaxes(-1, -2) if transposed else x


@op("Einsum", since=12)
def einsum(*inputs, equation):
    equation = equation.replace(" ", "")
    if is_narrow(inputs[0]):
        return in_float32(einsum, *inputs, equation=equation)
    work = sum(x.size for x in inputs)
    y = np.einsum(equation, *inputs, optimize=len(inputs) > 1 and work > 4096)
    # A diagonal or a transposition comes back as a view of the input.
    return y.copy() if y.base is not None or not y.flags.c_contiguous else y


ML = "ai.onnx.ml"


def _scores(x, coefficients, intercepts, rows):
    """One score per row of the coefficients and batch entry; a vector is one entry."""
    x = np.atleast_2d(x).astype(FLOAT32, copy=False)
    if len(coefficients) != rows * x.shape[-1] or x.ndim != 2 or (intercepts and len(intercepts) != rows):
        raise OpError(
            f"{len(coefficients)} coefficients and {len(intercepts)} intercepts do not fit {rows} rows over {x.shape}"
        )
    y = x @ np.array(coefficients, FLOAT32).reshape(rows, -1).T
    return y + np.array(intercepts, FLOAT32) if intercepts else y


def transformed(y, how):
    if how == "LOGISTIC":
        return (1 / (1 + np.exp(-y))).astype(FLOAT32)
    if how in ("SOFTMAX", "SOFTMAX_ZERO"):
        power = np.exp(y - y.max(1, keepdims=True))
        if how == "SOFTMAX_ZERO":
            # Scores that are almost 0 stay as they are, and do not count.
            small = np.abs(y) <= np.float32(1e-7)
            power = np.where(small, np.float32(0), power)
            total = power.sum(1, keepdims=True)
            return np.where(small, y, power / np.where(total == 0, 1, total))
        return power / power.sum(1, keepdims=True)
    if how == "NONE":
        return y
    raise OpError(f"post_transform {how!r} is none of NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO")


@op("LinearRegressor", domain=ML)
def linear_regressor(x, *, coefficients, intercepts=(), post_transform="NONE", targets=1):
    """A product with a matrix of (targets, features) plus the intercepts; a single target is never transformed."""
    return transformed(_scores(x, coefficients, intercepts, targets), post_transform if targets > 1 else "NONE")


@op("LinearClassifier", domain=ML)
def linear_classifier(
    x, *, coefficients, classlabels_ints=(), classlabels_strings=(), intercepts=(), post_transform="NONE", **unused
):
    """The label with the highest score, and all scores. One row of coefficients decides between two labels."""
    labels = list(classlabels_strings) or list(classlabels_ints)
    rows = len(intercepts) or len(labels)
    y = _scores(x, coefficients, intercepts, rows)
    if len(labels) == 2 and rows == 1:
        best = (y[:, 0] > 0).astype(np.int64)
        # Softmax variants do not change a pair that was made of one score.
        logistic = post_transform == "LOGISTIC"
        y = np.concatenate([-y, y] if logistic else [1 - y, y], 1)
        post_transform = post_transform if logistic else "NONE"
    elif len(labels) == rows:
        best = y.argmax(1)
    else:
        raise OpError(f"{rows} rows of coefficients do not decide between the {len(labels)} labels {labels}")
    return np.array(labels, object if classlabels_strings else np.int64)[best], transformed(y, post_transform)


@op("Normalizer", domain=ML)
def normalizer(x, *, norm="MAX"):
    """Each row divided by its norm, if that is not 0. MAX is the largest element, even a negative one."""
    y = x.astype(FLOAT32, copy=False)
    if norm == "MAX":
        size = y.max(-1, keepdims=True)
    elif norm == "L1":
        size = np.abs(y).sum(-1, keepdims=True)
    elif norm == "L2":
        size = np.sqrt((y * y).sum(-1, keepdims=True))
    else:
        raise OpError(f"norm {norm!r} is none of MAX, L1, L2")
    return y / np.where(size == 0, np.float32(1), size)


@op("Scaler", domain=ML)
def scaler(x, *, offset, scale):
    """``(x - offset) × scale``, one number each or one a feature; always float32."""
    for what, numbers in (("offset", offset), ("scale", scale)):
        if len(numbers) not in (1, x.shape[-1]):
            raise OpError(f"{len(numbers)} numbers of {what} do not fit {x.shape[-1]} features")
    return (x.astype(FLOAT32) - np.array(offset, FLOAT32)) * np.array(scale, FLOAT32)
