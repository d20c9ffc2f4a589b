"""Matrix products: MatMul, Gemm, FusedMatMul, MatMulInteger and Einsum."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import FLOAT64, contiguous, in_float32, is_narrow, rounded_once
from kvviz.ops.registry import op

# -- product ----------------------------------------------------------------------------------------------------------
# Matrix products as NumPy has them, called the way that is fastest for the shapes and the memory of the operands.
#
# A decode step multiplies one row, or the few heads that share keys, by matrices that come from memory. There BLAS
# loses to its own order of reading, and to paths of its that are made for large products. BLAS and NumPy's own loops
# are written for particular processors, so that no rule holds on all of them: which way is the fastest is measured
# once a process, when it is first asked. One choice for the whole process keeps results equal from run to run and
# from policy to policy.


# Bytes that a measurement reads in turns: more than a core's own caches hold, so that they come from memory.
_READ, _ROUNDS = 32 << 20, 3
# Rows of fewer bytes are judged by those of 2 kB, longer ones by those of 6 kB.
_NARROW = 4 << 10
_WIDTHS = {"narrow": 512, "wide": 1536}
_HEADS, _ROWS, _LENGTH, _KEYS = 3, 3, 64, 2048

Products = dict[str, Callable[[np.ndarray], object]]


@dataclass(frozen=True, slots=True)
class Ways:
    """What is the fastest way of each product, and how many bytes of the matrix each way reads a second.

    Products: ``"row × narrow"`` and ``"row × wide"``, one row times a matrix (``"einsum"`` or ``"matmul"``); ``"row ×
    narrow, transposed"`` and the same for wide (``"vecdot"`` or ``"matmul"``); ``"few rows"``, times a large transposed
    matrix (``"turned"``, the transpose of the other product, or ``"matmul"``).
    """

    chosen: dict[str, str]
    speeds: dict[tuple[str, str], float]

    def of_row(self, nbytes: int, transposed: bool = False) -> str:
        """The way for one row times a matrix whose bytes lie together in lines of ``nbytes``."""
        width = "narrow" if nbytes <= _NARROW else "wide"
        return self.chosen[f"row × {width}, transposed" if transposed else f"row × {width}"]


@cache
def fastest_ways() -> Ways:
    """The fastest ways here. The first call takes about a tenth of a second."""
    memory = np.full(_READ // 4, 0.5, np.float32)
    chosen: dict[str, str] = {}
    speeds: dict[tuple[str, str], float] = {}
    for product, ways, operands in _contests(memory):
        took = _in_turns(ways, operands)
        nbytes = sum(operand.nbytes for operand in operands)
        chosen[product] = min(took, key=took.__getitem__)
        speeds |= {(product, way): nbytes / seconds for way, seconds in took.items()}
    return Ways(chosen, speeds)


def _contests(memory: np.ndarray) -> Sequence[tuple[str, Products, Sequence[np.ndarray]]]:
    contests: list[tuple[str, Products, Sequence[np.ndarray]]] = []
    for name, width in _WIDTHS.items():
        matrices = list(memory[: memory.size // width**2 * width**2].reshape(-1, width, width))
        by_rows, by_columns = _of_row(width)
        contests.append((f"row × {name}", by_rows, matrices))
        contests.append((f"row × {name}, transposed", by_columns, matrices))
    few, count = np.full((_HEADS, _ROWS, _LENGTH), 0.5, np.float32), _HEADS * _KEYS * _LENGTH
    keys = [memory[at : at + count].reshape(_HEADS, _KEYS, _LENGTH) for at in range(0, 4 * count, count)]
    turned: Products = {
        "turned": lambda b: np.matmul(b, few.swapaxes(1, 2).copy()),
        "matmul": lambda b: np.matmul(few, b.swapaxes(1, 2)),
    }
    return [*contests, ("few rows", turned, keys)]


def _of_row(width: int) -> tuple[Products, Products]:
    row, out = np.full(width, 0.5, np.float32), np.empty(width, np.float32)
    return (
        {"einsum": lambda b: np.einsum("k,kn->n", row, b, out=out), "matmul": lambda b: np.matmul(row[None], b)},
        {"vecdot": lambda b: np.vecdot(b, row, out=out), "matmul": lambda b: np.matmul(row[None], b.T)},
    )


def _in_turns(ways: Products, operands: Sequence[np.ndarray]) -> dict[str, float]:
    """Seconds of each way over all operands, the best of a few rounds: a disturbance only makes a round slower."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(_ROUNDS):
        for name, way in ways.items():
            begin = time.perf_counter()
            for operand in operands:
                way(operand)
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


FEW_ROWS = 32
# BLAS takes several times as long over a few rows times a large transposed matrix as over that matrix, not transposed,
# times a few columns; and longer over a very large product than over its parts.
_TURNED, _LARGE, _PART = 80_000, 1 << 20, 512
# A matrix of at least that many bytes is taken to come from memory, not from a cache of the processor.
_STREAMED = 1 << 18
# Bytes of a row: fewer are not worth a call each, and with more the sums do not stay in the first cache.
_SHORT, _LONG = 384, 12 << 10


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``numpy.matmul(a, b)`` for numbers of any dtype; the result may be in any order.

    One row times a matrix takes as long as the matrix takes to come from memory. BLAS reads four or eight rows of it
    side by side, each too short for some processors to see that it goes on. Read row by row the matrix is one long
    stream, which takes 0.5 to 0.8 of the time on one (NumPy 2.4 with OpenBLAS 0.3.31, Zen 4, rows of 0.4 to 12 kB) and
    more time on another: `kvviz.ops.matmul` measures which.
    """
    a, b = _readable(a), _readable(b)
    if a.ndim < 2 or b.ndim < 2 or a.dtype != b.dtype:
        return np.matmul(a, b)
    rows, size = a.shape[-2:]
    if b.ndim == 2:
        if b.nbytes >= _STREAMED and a.size == size == b.shape[0]:
            return _one_row(a, b)
        if a.ndim > 2 and a.shape[0] != 1 and a.size and a.flags.c_contiguous:
            # One product of tall matrices, where NumPy would make one small product an entry of the batch.
            return np.matmul(a.reshape(-1, size), b).reshape(*a.shape[:-1], b.shape[1])
    if 1 < rows <= FEW_ROWS and rows * size * b.shape[-1] >= _TURNED and b.strides[-2] == b.itemsize:
        return _few_rows(a, b) if fastest_ways().chosen["few rows"] == "turned" else np.matmul(a, b)
    return np.matmul(a, b)


def _readable(x: np.ndarray) -> np.ndarray:
    """An operand as BLAS can read it. Of reversed or spread out elements NumPy makes sums of its own, which are rounded
    in another way: then a policy that views what another copies would have other bits."""
    if not x.ndim or x.itemsize in x.strides[-2:]:
        return x
    return x.copy()


def _one_row(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    across, along = b.strides
    rows, columns = b.shape
    by_rows = along == b.itemsize and across == along * columns and _SHORT <= across <= _LONG
    by_columns = across == b.itemsize and along == across * rows and along >= _SHORT
    if by_rows and fastest_ways().of_row(across) == "einsum":
        y = np.empty((*a.shape[:-1], columns), a.dtype)
        np.einsum("k,kn->n", a.reshape(-1), b, out=y.reshape(-1))
        return y
    if by_columns and fastest_ways().of_row(along, transposed=True) == "vecdot":
        y = np.empty((*a.shape[:-1], columns), a.dtype)
        np.vecdot(b.T, a.reshape(-1), out=y.reshape(-1))
        return y
    return np.matmul(a, b)


def _few_rows(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The transpose of ``bᵀ aᵀ`` in C order, in parts where that is large."""
    turned, columns = b.swapaxes(-1, -2), a.swapaxes(-1, -2).copy()
    (rows, size), count = a.shape[-2:], b.shape[-1]
    step = count if rows * size * count < _LARGE else _PART
    y = None
    for at in range(0, count, step):
        part = np.matmul(turned[..., at : at + step, :], columns)
        if y is None:
            y = np.empty((*part.shape[:-2], rows, count), a.dtype)
        y[..., at : at + step] = part.swapaxes(-1, -2)
    assert y is not None
    return y


@op("MatMul")
def matmul(a, b):
    if a.dtype.char in "fd":
        y = product(a, b)
    elif is_narrow(a):
        return in_float32(matmul, a, b)
    else:
        y = np.matmul(a, b)
    return y if y.flags.c_contiguous else y.copy()


@op("Gemm")
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


@op("MatMulInteger", since=10)
def matmul_integer(a, b, a_zero_point=None, b_zero_point=None):
    """Product of 8-bit matrices in int32, less the zero points: one a tensor, a row of A or a column of B."""
    return np.matmul(centred(a, a_zero_point, -2), centred(b, b_zero_point, -1)).astype(np.int32)


def centred(x, zero_point, along):
    """``x - zero_point``, a vector of which lies along that axis; in float64, where BLAS is exact up to 2**53."""
    y = x.astype(FLOAT64)
    if zero_point is None:
        return y
    zero = zero_point.astype(FLOAT64)
    if zero.ndim == 1 and zero.size > 1 and along == -2:
        zero = zero[:, None]
    return np.subtract(y, zero, y)


@op("Einsum", since=12)
def einsum(*inputs, equation):
    equation = equation.replace(" ", "")
    if is_narrow(inputs[0]):
        return in_float32(einsum, *inputs, equation=equation)
    work = sum(x.size for x in inputs)
    y = np.einsum(equation, *inputs, optimize=len(inputs) > 1 and work > 4096)
    # A diagonal or a transposition comes back as a view of the input.
    return y.copy() if y.base is not None or not y.flags.c_contiguous else y
