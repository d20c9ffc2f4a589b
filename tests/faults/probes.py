"""Where the tests go: a byte is set at the begin of every stretch of statements that run one after the other.

An assignment costs some ten nanoseconds, so that the whole suite can be measured test by test.
"""

from __future__ import annotations

import ast
import builtins

from tests.faults.mutate import Place

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
        """The source of a file with probes in it."""
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
