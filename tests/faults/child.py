"""pytest in a forked child: third-party modules are imported once, the project anew for every fault.

Of a trial the child runs chosen tests in order, and the first that fails ends it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.faults.table import ROOT

# What takes long to import and is not what is tested.
_WARM = "numpy ml_dtypes onnx.reference onnx_ir onnxruntime hypothesis matplotlib.pyplot anywidget"
_MEMORY = 10 << 30


def warm_up() -> None:
    for name in _WARM.split():
        importlib.import_module(name)


def run_pytest(root: Path, arguments: list[str], plugin: object, seconds: float, log: Path) -> int | None:
    """Run pytest over a copy of the project; gives its exit status, or None where the time was over.

    The child leads a group of processes, of which nothing is left.
    """
    child = os.fork()
    if not child:
        status = 70
        try:
            _become(root, log)
            status = int(pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[plugin]))
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    pid = status = 0
    while not pid and time.monotonic() < end:
        time.sleep(0.02)
        pid, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if pid:
        return os.waitstatus_to_exitcode(status)
    os.waitpid(child, 0)
    return None


def _become(root: Path, log: Path) -> None:
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


# What a test may take of the processor: this many times as long as without a fault, and so many seconds on top.
_SLOWER, _MORE = 8.0, 10.0


class Chosen:
    """A pytest plugin that runs the chosen tests in order and ends the process at the first that fails."""

    def __init__(self, tests: dict[str, float], out: Path) -> None:
        self.rank = {name: place for place, name in enumerate(tests)}
        self.tests, self.out = tests, out
        self.now = "collection"

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        # Which example fails does not matter, so that no time is spent on a smaller one.
        settings.register_profile("faults", settings(), phases=(Phase.explicit, Phase.generate))
        settings.load_profile("faults")
        signal.signal(signal.SIGPROF, self._over)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._end(report.nodeid, str(report.longrepr))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.rank), key=lambda item: self.rank[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.now = item.nodeid
        signal.setitimer(signal.ITIMER_PROF, _SLOWER * self.tests[item.nodeid] + _MORE)
        result = yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._end(report.nodeid, str(report.longrepr))

    def _over(self, number: int, frame: FrameType | None) -> None:
        self._end(self.now, "did not end in time")

    def _end(self, by: str, why: str) -> None:
        last = next((line for line in why.splitlines() if line.startswith("E ")), why.splitlines()[-1] if why else "")
        self.out.write_text(json.dumps([by, last[2:].strip() if last.startswith("E ") else last]), "utf-8")
        os._exit(1)
