"""Models for the tests of audits: good, grown, broken, slow, and one that kills what opens it."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.graph.build import graph, model, node

# In a process that is started with this on its path, opening killer.onnx is the end of the process.
_KILLS = """
import os, sys
def opened(event, given):
    if event == "open" and str(given[0]).endswith("killer.onnx"):
        os.kill(os.getpid(), 9)
sys.addaudithook(opened)
"""


def chain(path: Path, ops: int = 3, width: int = 64) -> Path:
    """``y = |…|x||``, each op of which could overwrite its input."""
    names = ["x", *(f"v{i}" for i in range(1, ops)), "y"]
    nodes = [node("Abs", a, b, name=f"op{i}") for i, (a, b) in enumerate(pairwise(names))]
    return _written(path, model(nodes, [f"x float {width}"], [f"y float {width}"]))


def slow(path: Path) -> Path:
    """A loop of a thousand million iterations."""
    body = graph(
        [node("Identity", "going", "on"), node("Abs", "a", "b")], ["i int64 -", "going bool -", "a float 4"],
        ["on bool -", "b float 4"], name="body",
    )  # fmt: skip
    nodes = [node("Loop", "trips - x", "y", body=body)]
    return _written(path, model(nodes, ["x float 4"], ["y float 4"], trips=np.array(10**9)))


def killer(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that kills every worker process that opens it, as the system does with one that takes too much memory."""
    hook = path.parent / "hook"
    hook.mkdir(parents=True)
    (hook / "sitecustomize.py").write_text(_KILLS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(hook), os.environ.get("PYTHONPATH")))))
    return chain(path)


def _written(path: Path, made: onnx.ModelProto) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(made, path)
    return path
