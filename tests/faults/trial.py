"""One fault, put into a copy of the project: does a test that reaches it fail?"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from tests.faults import table
from tests.faults.child import run_pytest
from tests.faults.cover import Cover
from tests.faults.mutate import Fault, apply
from tests.faults.probes import Probes

# The first look: so many test files, and of each the quickest tests up to so many seconds.
_FILES, _SECONDS, _TESTS = 4, 0.6, 20
# How long a test may take: this many times as long as without a fault, and so many seconds on top.
_SLOWER, _MORE = 8.0, 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a fault.

    Attributes
    ----------
    noticed : bool
    by : str
        The test that failed first.
    why : str
        How it failed; where nothing was noticed, what was tried.
    seconds : float
    """

    noticed: bool
    by: str
    why: str
    seconds: float


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
        signal.signal(signal.SIGALRM, self._over)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._end(report.nodeid, str(report.longrepr))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.rank), key=lambda item: self.rank[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.now = item.nodeid
        signal.setitimer(signal.ITIMER_REAL, _SLOWER * self.tests[item.nodeid] + _MORE)
        result = yield
        signal.setitimer(signal.ITIMER_REAL, 0)
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


def tests_for(fault: Fault, cover: Cover, probes: Probes) -> tuple[list[str], list[str]]:
    """Tests that reach the changed statement, and others of the same test files, each with the quickest first.

    The others may read what a first test of the file had computed for all.
    """
    probe = probes.of.get((fault.path, fault.statement))
    if probe is not None:
        direct = {n for n, (_, bits) in cover.tests.items() if bits[probe >> 3] >> (7 - (probe & 7)) & 1}
    else:
        users = _users(fault.path)
        mask = np.packbits(np.array([path in users for path in probes.files], dtype=np.uint8))
        direct = {name for name, (_, bits) in cover.tests.items() if (bits & mask).any()}
    files = {_file(name) for name in direct}
    others = [name for name in cover.tests if name not in direct and _file(name) in files]

    def seconds(name: str) -> float:
        return cover.tests[name][0]

    return sorted(direct, key=seconds), sorted(others, key=seconds)


def try_fault(root: Path, fault: Fault, cover: Cover, probes: Probes, limit: float, log: Path) -> Outcome:
    """Put a fault into the copy, run tests until one fails or the time is over, and take it out again."""
    start = time.monotonic()
    path = root / fault.path
    source = path.read_text("utf-8")
    direct, others = tests_for(fault, cover, probes)
    first = _first_look(fault, direct, cover)
    later = [name for name in direct if name not in set(first)]
    compiled = list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))
    try:
        path.write_text(apply(source, fault), "utf-8")
        for one in compiled:
            one.unlink()
        for chosen in (first, _by_file(later), _by_file(others)):
            left = limit - (time.monotonic() - start)
            if chosen and left > 0:
                found = _look(root, {name: cover.tests[name][0] for name in chosen}, left, log)
                if found is not None and found[0]:
                    return Outcome(True, *found, time.monotonic() - start)
                if found is not None:
                    break
    finally:
        path.write_text(source, "utf-8")
    took = time.monotonic() - start
    said = "no test reaches it" if not direct else f"{len(direct)} tests reach it"
    return Outcome(False, "", said + (", not all were run in time" if took >= limit else ""), took)


def _look(root: Path, tests: dict[str, float], seconds: float, log: Path) -> tuple[str, str] | None:
    """The test that noticed and how, ("", "") where the time was over, or None."""
    out = log.with_suffix(".json")
    out.unlink(missing_ok=True)
    status = run_pytest(root, list(dict.fromkeys(map(_file, tests))), Chosen(tests, out), seconds, log)
    if out.exists():
        by, why = json.loads(out.read_text("utf-8"))
        return by or "collection", why
    if status is None:
        return "", ""
    # 5: nothing was collected.
    return None if status in (0, 5) else ("the process", f"ended with {status}")


def _first_look(fault: Fault, direct: list[str], cover: Cover) -> list[str]:
    by_file: dict[str, list[str]] = {}
    spent: dict[str, float] = {}
    for name in direct:
        file = _file(name)
        spent[file] = spent.get(file, 0.0) + cover.tests[name][0]
        chosen = by_file.setdefault(file, [])
        if not chosen or (spent[file] <= _SECONDS and len(chosen) < _TESTS):
            chosen.append(name)
    area = Path(fault.path).parts[1:]

    def rank(file: str) -> tuple[int, float]:
        same = sum(a == b for a, b in zip(area, Path(file).parts[1:]))
        return -same, min(spent[file], _SECONDS)

    return [name for file in sorted(by_file, key=rank)[:_FILES] for name in by_file[file]]


def _by_file(tests: list[str]) -> list[str]:
    """Tests of one file together, so that what they share is set up once."""
    files: dict[str, list[str]] = {}
    for name in tests:
        files.setdefault(_file(name), []).append(name)
    return [name for names in files.values() for name in names]


def _file(test: str) -> str:
    return test.split("::")[0]


def _users(path: str) -> set[str]:
    """A file and those that import from it."""
    module = path.removesuffix(".py").replace("/", ".")
    parent, _, name = module.rpartition(".")
    users = {path}
    for other in table.files(table.ROOT):
        text = (table.ROOT / other).read_text("utf-8")
        if f"{module} import" in text or any(
            f"from {parent} import" in line and name in line for line in text.splitlines()
        ):
            users.add(other)
    return users
