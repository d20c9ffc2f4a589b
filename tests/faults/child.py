"""pytest in a forked child: third-party modules are imported once, the project anew for every fault."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.faults.table import ROOT

# What takes long to import and is not what is tested.
_WARM = "numpy ml_dtypes onnx.reference onnx_ir onnxruntime hypothesis matplotlib.pyplot anywidget"
_MEMORY = 10 << 30


def warm_up() -> None:
    """Import what every child needs."""
    for name in _WARM.split():
        importlib.import_module(name)


def run_pytest(root: Path, arguments: list[str], plugin: object, seconds: float, log: Path) -> int | None:
    """Run pytest over a copy of the project; gives its exit status, or None where the time was over."""
    child = os.fork()
    if not child:
        status = 70
        try:
            become(root, log)
            status = int(pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[plugin]))
        finally:
            os._exit(status)
    return wait_for(child, seconds)


def wait_for(child: int, seconds: float) -> int | None:
    """The exit status of a child that leads a group, or None where the time was over; nothing of it is left."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            _end_group(child)
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    _end_group(child)
    os.waitpid(child, 0)
    return None


def become(root: Path, log: Path) -> None:
    """Make a forked process one that knows nothing of the project but the copy."""
    os.setsid()
    os.chdir(root)
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "kvviz")]:
        del sys.modules[name]
    sys.path[:] = [str(root), *(path for path in sys.path if path and Path(path) != ROOT)]
    os.environ["PYTHONPATH"] = str(root)
    # Two faults of one length, put in within a second, look alike to what reads compiled files.
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(written, 1)
    os.dup2(written, 2)


def _end_group(child: int) -> None:
    """End a child with what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
