"""One model, end to end: ``python -m tests.wheels.one_model MODEL.onnx PAGE.html`` prints what came of it as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kvviz
from tests.ort_session import session_of

RTOL, ATOL = 2e-4, 2e-4
"""As `tests.test_models.assert_close`, the absolute one in units of the output's largest number."""


def outcome(path: Path, page: Path) -> dict[str, Any]:
    """Seconds of each stage, what was seen there, and under ``failed`` the first stage that failed with its message."""
    told: dict[str, Any] = {"seconds": {}}

    def stage(name: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        told["failed"] = [name, ""]
        try:
            result = call()
        except Exception as error:
            told["failed"] = [name, f"{type(error).__name__}: {error}"]
            raise
        del told["failed"]
        told["seconds"][name] = round(time.perf_counter() - start, 2)
        return result

    try:
        graph = stage("load", lambda: kvviz.load(path))
        told["nodes"] = len(graph.nodes)
        feeds = stage("inputs", lambda: kvviz.inputs(graph))
        told["shapes"] = {name: list(np.shape(array)) for name, array in feeds.items()}
        trace = stage("run", lambda: kvviz.run(graph, feeds))
        told["largest"] = stage("equal", lambda: compare(path, feeds, trace.outputs))
        told["verdict"] = str(stage("explain", lambda: kvviz.explain(trace))).strip().partition("\n")[0]
        stage("show", lambda: trace.to_html(page))
        told["page"] = page.stat().st_size
    except Exception:
        if "failed" not in told:
            raise
    return told


def compare(path: Path, feeds: dict[str, Any], outputs: dict[str, Any]) -> float:
    """The largest difference from onnxruntime without its fusions; an error names the output that is not equal."""
    session = session_of(path)
    largest = 0.0
    names = [output.name for output in session.get_outputs()]
    for name, want in zip(names, session.run(names, feeds), strict=True):
        have = outputs[name]
        want, have = np.asarray(want), np.asarray(have)
        assert (have.dtype, have.shape) == (want.dtype, want.shape), (
            f"output {name!r} is {have.dtype} {have.shape}, not {want.dtype} {want.shape}"
        )
        if want.dtype.kind in "fc" and want.size:
            scale = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0)))
            np.testing.assert_allclose(have, want, rtol=RTOL, atol=ATOL * scale, err_msg=name)
            with np.errstate(invalid="ignore"):
                largest = max(largest, float(np.nanmax(np.abs(have - want), initial=0)) / scale)
        else:
            np.testing.assert_array_equal(have, want, err_msg=name)
    return largest


if __name__ == "__main__":
    print(json.dumps(outcome(Path(sys.argv[1]), Path(sys.argv[2]))))
