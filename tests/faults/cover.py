"""Which test reaches which statement: measured once, and again only for test files that have changed.

A byte is set at the begin of every stretch of statements that run one after the other. An assignment costs some ten
nanoseconds, so that the whole suite can be measured test by test.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from tests.faults import table
from tests.faults.child import run_pytest
from tests.faults.mutate import Place

_AT_ONCE = 4  # test files for one child


@dataclass(slots=True)
class Cover:
    """What is known of the tests that passed: seconds, and the packed bits of the probes that each of them reached.

    ``digests``: by test file, what it was when it was measured; ``base``: the same for all else that matters.
    """

    tests: dict[str, tuple[float, np.ndarray]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    base: str = ""


class Meter:
    """A pytest plugin that notes what each test reaches."""

    def __init__(self, count: int, out: Path) -> None:
        self.count, self.out = count, out
        self.seen = bytearray()
        self.of_module: dict[str, bytes] = {}
        self.failed: set[str] = set()
        self.found: dict[str, tuple[float, np.ndarray]] = {}

    def pytest_configure(self) -> None:
        self.seen = switch_on(self.count)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        # What a test file does while it is read counts for all its tests.
        self.seen[:] = bytes(self.count)
        report = yield
        name = collector.nodeid.split("::")[0]
        old = np.frombuffer(self.of_module.get(name, bytes(self.count)), np.uint8)
        self.of_module[name] = (old | np.frombuffer(bytes(self.seen), np.uint8)).tobytes()
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.seen[:] = bytes(self.count)
        start = time.perf_counter()
        result = yield
        took = time.perf_counter() - start
        here = np.frombuffer(bytes(self.seen), np.uint8)
        common = self.of_module.get(item.nodeid.split("::")[0])
        bits = here | np.frombuffer(common, np.uint8) if common else here
        self.found[item.nodeid] = took, np.packbits(bits)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        kept = {name: both for name, both in self.found.items() if name not in self.failed}
        for name in self.failed:
            print("left out, fails without a fault:", name)
        _write(self.out, kept)


def measured(root: Path, probes: Probes, kept: Path, log: Path, among: str = "") -> Cover:
    """The cover of a copy of the project with probes in it, from a file where it still holds.

    Only of the test files whose path holds ``among``; what is known of others is kept for another time.
    """
    # The probes are numbered through all files.
    base = _digest([*table.ROOT.glob("kvviz/**/*.py")]) + hashlib.sha256(repr(probes.files).encode()).hexdigest()
    cover = _read(kept) if kept.exists() else Cover()
    if cover.base != base:
        cover = Cover(base=base)
    now = {path: _digest([table.ROOT / path]) for path in table.test_files(table.ROOT)}
    changed = [path for path, digest in now.items() if among in path and cover.digests.get(path) != digest]
    known = {path for path, digest in now.items() if cover.digests.get(path) == digest}
    cover.tests = {name: both for name, both in cover.tests.items() if _file(name) in known}
    for start in range(0, len(changed), _AT_ONCE):
        some = changed[start : start + _AT_ONCE]
        print(f"measuring {', '.join(some)} ({len(changed) - start} files to go)", flush=True)
        out = log.with_suffix(".npz")
        status = run_pytest(root, some, Meter(len(probes.files), out), 4 * 3600.0, log)
        if status not in (0, 1):
            raise SystemExit(f"{some} could not be measured ({status}): {log.read_text('utf-8', 'replace')[-2000:]}")
        told = log.read_text("utf-8", "replace").splitlines()
        print("\n".join(line for line in told if line.startswith("left out")), end="")
        cover.tests |= _tests(np.load(out))
        cover.digests |= {path: now[path] for path in some}
        # Saved each time, so that little is lost where it is stopped.
        kept.parent.mkdir(parents=True, exist_ok=True)
        _write(kept, cover.tests, cover)
    return replace(cover, tests={name: both for name, both in cover.tests.items() if among in _file(name)})


def _file(test: str) -> str:
    return test.split("::")[0]


def _digest(paths: list[Path]) -> str:
    made = hashlib.sha256()
    for path in sorted(paths):
        made.update(path.read_bytes())
    return made.hexdigest()


def _write(path: Path, tests: dict[str, tuple[float, np.ndarray]], cover: Cover | None = None) -> None:
    digests = cover.digests if cover else {}
    np.savez_compressed(
        path,
        names=np.array(list(tests), dtype=str),
        seconds=np.array([seconds for seconds, _ in tests.values()]),
        bits=np.array([bits for _, bits in tests.values()], dtype=np.uint8),
        files=np.array(list(digests), dtype=str),
        digests=np.array(list(digests.values()), dtype=str),
        base=np.array(cover.base if cover else ""),
    )


def _read(path: Path) -> Cover:
    data = np.load(path)
    digests = {str(name): str(digest) for name, digest in zip(data["files"], data["digests"])}
    return Cover(_tests(data), digests, str(data["base"]))


def _tests(data: np.lib.npyio.NpzFile) -> dict[str, tuple[float, np.ndarray]]:
    return {str(name): (float(s), bits) for name, s, bits in zip(data["names"], data["seconds"], data["bits"])}


SEEN = "_seen_by_tests"
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BLOCKS = ("body", "orelse", "finalbody")


class Probes:
    """The probes of all files: ``of`` a statement inside of a function, and the ``entry`` of one, by file and place."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, Place], int] = {}
        self.entry: dict[tuple[str, Place], int] = {}
        self.files: list[str] = []

    def put(self, path: str, source: str) -> str:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                number = len(self.files)
                node.body = self._block(path, node.body)
                if number < len(self.files):
                    self.entry[path, (node.lineno, node.col_offset)] = number
        head = f"import builtins as _builtins\n{SEEN} = getattr(_builtins, {SEEN!r}, None) or bytearray(1 << 20)"
        after = next((i for i, one in enumerate(tree.body) if not _opens_file(one)), len(tree.body))
        tree.body[after:after] = ast.parse(head).body
        return ast.unparse(ast.fix_missing_locations(tree))

    def _block(self, path: str, statements: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        number = -1
        for statement in statements:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                made.append(statement)
                continue
            if number < 0:
                number = len(self.files)
                self.files.append(path)
                made += ast.parse(f"{SEEN}[{number}] = 1").body
            self.of[path, (statement.lineno, statement.col_offset)] = number
            made.append(statement)
            if isinstance(statement, _NESTED):
                continue
            inner = [getattr(statement, name) for name in _BLOCKS if getattr(statement, name, None)]
            parts = [*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
            for part in parts:
                part.body = self._block(path, part.body)
            for name in _BLOCKS:
                if getattr(statement, name, None):
                    setattr(statement, name, self._block(path, getattr(statement, name)))
            if inner or parts:
                # What comes behind may be reached or not.
                number = -1
        return made or statements


def switch_on(count: int) -> bytearray:
    """Where the probes of this process write from now on; call it before the files are imported."""
    seen = bytearray(count)
    setattr(builtins, SEEN, seen)
    return seen


def _opens_file(statement: ast.stmt) -> bool:
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return text or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")
