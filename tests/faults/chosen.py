"""The pytest plugin of a trial: chosen tests in order, and the first that fails ends it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

# What a test may take of the processor: this many times as long as without a fault, and so many seconds on top.
_SLOWER, _MORE = 8.0, 10.0


def quick_examples() -> None:
    """Which example fails does not matter, so that no time is spent on a smaller one."""
    from hypothesis import Phase, settings

    settings.register_profile("faults", settings(), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("faults")


class Chosen:
    """A pytest plugin that runs the chosen tests in order and ends the process at the first that fails."""

    def __init__(self, tests: dict[str, float], out: Path) -> None:
        self.rank = {name: place for place, name in enumerate(tests)}
        self.tests, self.out = tests, out
        self.now = "collection"

    def pytest_configure(self) -> None:
        quick_examples()
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
