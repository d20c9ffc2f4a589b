"""One fault, put into a copy of the project: does a test that reaches it fail?"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.faults import table
from tests.faults.child import run_pytest
from tests.faults.chosen import Chosen
from tests.faults.cover import Cover
from tests.faults.mutate import Fault, apply
from tests.faults.probes import Probes
from tests.faults.template import Template

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
        users = _users(fault.path)
        mask = np.packbits(np.array([path in users for path in probes.files], dtype=np.uint8))
        direct = {name for name, (_, bits) in cover.tests.items() if (bits & mask).any()}
    files = {_file(name) for name in direct}
    others = [name for name in cover.tests if name not in direct and _file(name) in files]

    def seconds(name: str) -> float:
        return cover.tests[name][0]

    return sorted(direct, key=seconds), sorted(others, key=seconds)


def try_fault(
    root: Path,
    fault: Fault,
    cover: Cover,
    probes: Probes,
    limit: float,
    log: Path,
    template: Template,
    noticed: list[str],
) -> Outcome:
    """Put a fault into the copy, run tests until one fails or the time is over, and take it out again.

    The test that noticed it is added to ``noticed``, as it may notice the next one as well.
    """
    start = time.monotonic()
    path = root / fault.path
    source = path.read_text("utf-8")
    direct, others = tests_for(fault, cover, probes)
    chosen = list(dict.fromkeys([*_in_turn(fault, direct, cover, noticed), *_in_turn(fault, others, cover, [])]))
    inside = (fault.path, fault.statement) in probes.of
    compiled = list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))
    faulty, out = apply(source, fault), log.with_suffix(".json")
    try:
        path.write_text(faulty, "utf-8")
        for one in compiled:
            one.unlink()
        # Where all has to be imported anew, first what a few files notice.
        for names in [chosen] if inside else [chosen[:_FIRST], chosen[_FIRST:]]:
            left = limit - (time.monotonic() - start)
            if not names or left <= 0:
                continue
            tests = {name: cover.tests[name][0] for name in names}
            status = template.look((fault.path, source, faulty, tests, left), out) if inside else -1
            if status == -1:
                out.unlink(missing_ok=True)
                status = run_pytest(root, list(dict.fromkeys(map(_file, tests))), Chosen(tests, out), left, log)
            found = _noticed(status, out)
            if found is not None:
                noticed.append(found[0])
                return Outcome(True, *found, time.monotonic() - start)
    finally:
        path.write_text(source, "utf-8")
    took = time.monotonic() - start
    said = "no test reaches it" if not direct else f"{len(direct)} tests reach it"
    return Outcome(False, "", said + (", not all were run in time" if took >= limit else ""), took)


def _noticed(status: int | None, out: Path) -> tuple[str, str] | None:
    """The test that noticed and how."""
    if out.exists():
        by, why = json.loads(out.read_text("utf-8"))
        return by or "collection", why
    # 5: nothing was collected.
    return None if status in (0, 5, None) else ("the process", f"ended with {status}")


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
