"""A process in which all tests are collected; for each fault a fork of it changes the functions and runs the tests.

Only what is inside of functions can be changed so: what a module does when it is imported is done. It saves the two
seconds that importing and collecting take.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.faults.child import become, wait_for
from tests.faults.chosen import Chosen, quick_examples

# (file, its text, its text with the fault, tests with their seconds, seconds in all)
Request = tuple[str, str, str, dict[str, float], float]


class Template:
    """The process, seen from outside."""

    def __init__(self, root: Path, test_files: list[str], log: Path) -> None:
        self.log = log
        self.ours, theirs = Pipe()
        self.child = os.fork()
        if not self.child:
            try:
                become(root, log)
                pytest.main(["-q", "-p", "no:cacheprovider", *test_files], plugins=[_Server(root, theirs)])
            finally:
                os._exit(70)
        theirs.close()
        try:
            self.ours.recv()
        except EOFError:
            raise SystemExit(f"the tests could not be collected: {log.read_text('utf-8')[-2000:]}") from None

    def look(self, request: Request, out: Path) -> int | None:
        """Run tests with a fault; gives the exit status, None where the time was over, and -1 where it cannot."""
        out.unlink(missing_ok=True)
        self.ours.send((*request, out))
        answer: int | None = self.ours.recv()
        return answer

    def end(self) -> None:
        """End the process."""
        self.ours.send(None)
        wait_for(self.child, 10)


class _Server:
    """The pytest plugin that answers in place of running what was collected."""

    def __init__(self, root: Path, pipe: Connection[Any, Any]) -> None:
        self.root, self.pipe = root, pipe

    def pytest_configure(self) -> None:
        quick_examples()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        functions: dict[str, list[FunctionType]] = {}
        gc.collect()
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                functions.setdefault(one.__code__.co_filename, []).append(one)
        gc.freeze()
        self.pipe.send("ready")
        while (request := self.pipe.recv()) is not None:
            path, old, new, tests, seconds, out = request
            changed = _changed(old, new)
            if changed is None:
                self.pipe.send(-1)
                continue
            child = os.fork()
            if not child:
                status = 70
                try:
                    os.setsid()
                    status = _run(session, items, tests, functions.get(str(self.root / path), []), changed, out)
                finally:
                    os._exit(status)
            self.pipe.send(wait_for(child, seconds))
        os._exit(0)


def _run(
    session: pytest.Session,
    items: dict[str, pytest.Item],
    tests: dict[str, float],
    functions: list[FunctionType],
    changed: dict[CodeType, CodeType],
    out: Path,
) -> int:
    for function in functions:
        code = changed.get(function.__code__)
        if code is not None:
            function.__code__ = code
    session.config.pluginmanager.register(Chosen(tests, out))
    chosen = [items[name] for name in tests if name in items]
    for item, following in zip(chosen, [*chosen[1:], None]):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return 0


def _changed(old: str, new: str) -> dict[CodeType, CodeType] | None:
    """From the code of every function to its code with the fault; None where the functions are not the same ones."""
    before, after = (list(_codes(compile(text, "x", "exec", dont_inherit=True))) for text in (old, new))
    shapes = [[(code.co_name, code.co_freevars) for code in codes] for codes in (before, after)]
    return dict(zip(before, after)) if shapes[0] == shapes[1] else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
