"""Which way of computing a product is the fastest on this processor: measured once a process, when it is first asked.

BLAS and NumPy's own loops are written for particular processors, so that no rule holds on all of them. A choice for
the whole process keeps results equal from run to run and from policy to policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

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
