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

# The first look: so many test files, and of each the quickest tests up to so many seconds.
_FILES, _SECONDS, _TESTS = 4, 0.6, 20


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
    template: Template | None,
    noticed: list[str],
) -> Outcome:
    """Put a fault into the copy, run tests until one fails or the time is over, and take it out again.

    The test that noticed it is added to ``noticed``, as it may notice the next one as well.
    """
    start = time.monotonic()
    path = root / fault.path
    source = path.read_text("utf-8")
    direct, others = tests_for(fault, cover, probes)
    first = _first_look(fault, direct, cover)
    later = [name for name in direct if name not in set(first)]
    compiled = list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))
    faulty = apply(source, fault)
    looks = [first, _by_file(fault, later, cover), _by_file(fault, others, cover)]
    inside = (fault.path, fault.statement) in probes.of
    if inside and template is not None:
        looks = [[*_in_turn(fault, direct, cover, noticed), *_in_turn(fault, others, cover, [])]]
    try:
        path.write_text(faulty, "utf-8")
        for one in compiled:
            one.unlink()
        for chosen in looks:
            left = limit - (time.monotonic() - start)
            if not chosen or left <= 0:
                continue
            tests = {name: cover.tests[name][0] for name in chosen}
            out = log.with_suffix(".json")
            status: int | None = -1
            if inside and template is not None:
                status = template.look((fault.path, source, faulty, tests, left), out)
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


def _first_look(fault: Fault, direct: list[str], cover: Cover) -> list[str]:
    by_file: dict[str, list[str]] = {}
    spent: dict[str, float] = {}
    for name in direct:
        file = _file(name)
        spent[file] = spent.get(file, 0.0) + cover.tests[name][0]
        chosen = by_file.setdefault(file, [])
        if not chosen or (spent[file] <= _SECONDS and len(chosen) < _TESTS):
            chosen.append(name)
    ranked = sorted(by_file, key=lambda file: (_distance(fault, file), min(spent[file], _SECONDS)))
    return [name for file in ranked[:_FILES] for name in by_file[file]]


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


def _by_file(fault: Fault, tests: list[str], cover: Cover) -> list[str]:
    """Tests of one file together, so that what they share is set up once; the nearest and shortest files first."""
    files: dict[str, list[str]] = {}
    for name in tests:
        files.setdefault(_file(name), []).append(name)

    def rank(file: str) -> tuple[int, float]:
        return _distance(fault, file), sum(cover.tests[name][0] for name in files[file])

    return [name for file in sorted(files, key=rank) for name in files[file]]


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
