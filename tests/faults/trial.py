"""One fault, put into a copy of the project: does a test that reaches it fail?"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.faults.child import Chosen, run_pytest
from tests.faults.cover import Cover, Probes
from tests.faults.mutate import Fault, apply

# Of a file, tests for so many seconds before those of the next one.
_SECONDS = 0.6
_FIRST = 40  # tests


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a fault: the test that failed first, and how; where nothing was noticed, what was tried."""

    noticed: bool
    by: str
    why: str
    seconds: float


def tests_for(fault: Fault, cover: Cover, probes: Probes) -> tuple[list[str], list[str]]:
    """Tests that reach the changed statement, and others of the same test files, each with the quickest first.

    The others may read what a first test of the file had computed for all.
    """
    place = fault.path, fault.statement
    probe = probes.of.get(place, probes.entry.get(place))
    if probe is not None:
        direct = {n for n, (_, bits) in cover.tests.items() if bits[probe >> 3] >> (7 - (probe & 7)) & 1}
    else:
        # What a module does when it is imported may matter to all.
        direct = set(cover.tests)
    files = {_file(name) for name in direct}
    others = [name for name in cover.tests if name not in direct and _file(name) in files]

    def seconds(name: str) -> float:
        return cover.tests[name][0]

    return sorted(direct, key=seconds), sorted(others, key=seconds)


def try_fault(
    root: Path, fault: Fault, cover: Cover, probes: Probes, limit: float, log: Path, noticed: list[str]
) -> Outcome:
    """Put a fault into the copy, run tests until one fails or the time is over, and take it out again.

    The test that noticed it is added to ``noticed``, as it may notice the next one as well.
    """
    start = time.monotonic()
    path = root / fault.path
    source = path.read_text("utf-8")
    direct, others = tests_for(fault, cover, probes)
    chosen = list(dict.fromkeys([*_in_turn(fault, direct, cover, noticed), *_in_turn(fault, others, cover, [])]))
    compiled = list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))
    out = log.with_suffix(".json")
    try:
        path.write_text(apply(source, fault), "utf-8")
        for one in compiled:
            one.unlink()
        # All has to be imported anew: first what a few files notice.
        for names in (chosen[:_FIRST], chosen[_FIRST:]):
            left = limit - (time.monotonic() - start)
            if not names or left <= 0:
                continue
            tests = {name: cover.tests[name][0] for name in names}
            out.unlink(missing_ok=True)
            status = run_pytest(root, list(dict.fromkeys(map(_file, tests))), Chosen(tests, out), left, log)
            if out.exists():
                by, why = json.loads(out.read_text("utf-8"))
            elif status in (0, 5, None):  # 5: nothing was collected
                continue
            else:
                by, why = "the process", f"ended with {status}"
            noticed.append(by)
            return Outcome(True, by or "collection", why, time.monotonic() - start)
    finally:
        path.write_text(source, "utf-8")
    took = time.monotonic() - start
    said = "no test reaches it" if not direct else f"{len(direct)} tests reach it"
    return Outcome(False, "", said + (", not all were run in time" if took >= limit else ""), took)


def _in_turn(fault: Fault, tests: list[str], cover: Cover, noticed: list[str]) -> list[str]:
    """First tests that noticed other faults. Then the quickest ones of every file, then its next ones, and so on.

    Of the files the nearest come first, and of these the ones of which the most tests reach the fault.
    """
    reach, count = (Counter(map(_file, names)) for names in (tests, cover.tests))
    spent: dict[str, float] = {}
    rank: dict[str, tuple[int, int, float, str]] = {}
    for name in tests:
        file = _file(name)
        turn = int(spent.get(file, 0.0) / _SECONDS)
        rank[name] = turn, _distance(fault, file), -reach[file] / count[file], file
        spent[file] = spent.get(file, 0.0) + cover.tests[name][0]
    among = set(tests)
    before = [name for name in dict.fromkeys(reversed(noticed)) if name in among]
    # The nearest first, the latest first.
    before.sort(key=lambda name: _distance(fault, _file(name)))
    return list(dict.fromkeys([*before, *sorted(tests, key=rank.__getitem__)]))


def _distance(fault: Fault, file: str) -> int:
    """How far a test file is from the file with the fault: their folders have the same names."""
    return -sum(a == b for a, b in zip(Path(fault.path).parts[1:], Path(file).parts[1:]))


def _file(test: str) -> str:
    return test.split("::")[0]
