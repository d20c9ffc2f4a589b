"""How the benchmark prints: the machine, rows of a table, figures against limits, goals and the last committed ones."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

COMMITTED = Path(__file__).with_name("figures.json")
LOSS = 1.1
"""A figure that has grown by more than this factor is shown as a loss."""

GOALS = {
    "o01_optimum_llama: trace on / onnx.reference": 0.2,
    "made: 2 layers, 64 wide: kvviz.run alone / onnx.reference": 0.25,
    "made: 8 layers, 512 wide: trace on / onnxruntime": 1.1,
    "concat, 64 tokens: trace on / onnxruntime": 1.0,
    "concat, behind 2,048 tokens: trace on / onnxruntime": 0.8,
    "attention, 64 tokens: trace on / onnxruntime": 0.9,
    "attention, behind 2,048 tokens: trace on / onnxruntime": 0.7,
    "models out of wheels, median: kvviz.run / onnxruntime": 2.0,
}
"""What is to be reached, by the names that figures have here: all are ratios, the smaller the better."""

_figures: dict[str, float] = {}


def machine() -> str:
    """The processor, and which kernels NumPy and its BLAS have chosen for it."""
    build = np.show_config(mode="dicts") or {}
    blas = build["Build Dependencies"]["blas"]
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    simd = [*build["SIMD Extensions"]["baseline"], *build["SIMD Extensions"].get("found", [])]
    return (
        f"{names[0] if names else 'unknown processor'}, {os.cpu_count()} cores; NumPy {np.__version__} ({simd[-1]}), "
        f"{blas['name']} {blas['version']} ({_blas_kernels()}), one thread"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).is_file() else []


def _blas_kernels() -> str:
    """The core that OpenBLAS took the processor for, asked of the library that NumPy's wheel brought."""
    for path in Path(np.__file__).parents[1].glob("numpy.libs/*openblas*"):
        name = getattr(ctypes.CDLL(str(path)), "scipy_openblas_get_corename64_", None)
        if name is not None:
            name.restype = ctypes.c_char_p
            return name().decode()
    return "kernels unknown"


def row(name: str, cells: Sequence[str]) -> None:
    """Print one row of a table."""
    print(f"{name:<28}" + "".join(f"{cell:>18}" for cell in cells))


def hold(name: str, figure: float, limit: float | None = None) -> bool:
    """Print a figure, and whether it is over its limit."""
    _figures[name] = round(figure, 3)
    over = limit is not None and figure > limit
    told = "" if limit is None else f"   limit {limit:.2f}: {'over limit' if over else 'within limit'}"
    print(f"{name:<56}{figure:>8.2f}{told}")
    return over


def summary(write: bool) -> None:
    """Print the figures that have a goal, and every loss since the last committed ones; ``write`` commits to these."""
    last: dict[str, Any] = json.loads(COMMITTED.read_text()) if COMMITTED.is_file() else {"machine": "", "figures": {}}
    was: dict[str, float] = last["figures"]
    print(f"\nratios, beside the last committed ones of {last['machine'] or 'nobody'}")
    print(f"{'':<62}{'now':>8}{'was':>8}{'goal':>8}")
    for name in [*GOALS, *sorted(set(_figures) - set(GOALS))]:
        now, old, goal = _figures.get(name), was.get(name), GOALS.get(name)
        lost = now is not None and old is not None and now > old * LOSS
        if goal is not None or lost:
            cells = "".join("       –" if x is None else f"{x:>8.2f}" for x in (now, old, goal))
            reached = "" if now is None or goal is None else "reached" if now <= goal else "not reached"
            print(f"{name:<62}{cells}  {'LOSS, ' * lost}{reached}".rstrip(" ,"))
    if write:
        kept = {**was, **_figures}
        COMMITTED.write_text(json.dumps({"machine": machine(), "figures": dict(sorted(kept.items()))}, indent=1) + "\n")
