"""Models that nobody prepared, out of wheels: a run that repeats, trace on, against onnxruntime and the reference.

``python -m tests.wheels --folder build/wheels`` fetches them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

import kvviz
from tests.bench.measure import ORT, REFERENCE, ratio, seconds
from tests.bench.tell import hold, row
from tests.ort_session import session_of

FOLDER = Path(__file__).resolve().parents[2] / "build" / "wheels"
_SECONDS, _LEAST, _MOST = 1.0, 3, 40
_RUN = "kvviz.run"


def real_models(folder: Path = FOLDER) -> None:
    """Measure and print each, and hold the median of the ratios."""
    models = sorted((folder / "models").rglob("*.onnx"))
    print("\nmodels out of wheels: ms of processor time a run, median")
    if not models:
        print(f"not measured: `python -m tests.wheels --folder {folder}` fetches them")
        return
    row("", ["ops", _RUN, REFERENCE, ORT, "ratio"])
    ratios = []
    for path in models:
        with np.errstate(all="ignore"):  # which the reference needs
            found, nodes = _measured(path)
        ratios.append(ratio(found, _RUN, ORT))
        cells = [f"{statistics.median(found[who]):.3f}" if who in found else "" for who in (_RUN, REFERENCE, ORT)]
        row(path.stem[-27:], [str(nodes), *cells, f"{ratios[-1]:.2f}"])
    hold("models out of wheels, median: kvviz.run / onnxruntime", statistics.median(ratios))


def _measured(path: Path) -> tuple[dict[str, list[float]], int]:
    """Milliseconds of each contestant, in turns; the reference is left out where it has no kernel or would take most of
    the time."""
    graph = kvviz.load(path)
    feeds, session = kvviz.inputs(graph), session_of(path, rewrite=True)
    turns: dict[str, Callable[[], Any]] = {_RUN: lambda: kvviz.run(graph, feeds), ORT: lambda: session.run(None, feeds)}
    for call in turns.values():
        call()
    if seconds(turns[ORT]) < _SECONDS / 100:
        try:
            evaluator = ReferenceEvaluator(str(path))
            if seconds(lambda: evaluator.run(None, feeds)) < _SECONDS / 2:
                turns[REFERENCE] = lambda: evaluator.run(None, feeds)
        except Exception:
            # It raises whatever NumPy raises where a kernel is missing or wrong.
            turns.pop(REFERENCE, None)
    times: dict[str, list[float]] = {name: [] for name in turns}
    begin = time.process_time()
    while len(times[ORT]) < _LEAST or (len(times[ORT]) < _MOST and time.process_time() - begin < _SECONDS):
        # One after the other, as a program that runs one model calls it: a collection between two calls would cool the
        # processor's caches, and cost small models more than they take.
        for name, call in turns.items():
            times[name].append(seconds(call) * 1e3)
    return times, len(graph.nodes)
