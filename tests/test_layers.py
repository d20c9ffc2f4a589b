"""Imports inside kvviz point only downwards."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from kvviz.late import late

ROOT = Path(__file__).resolve().parent.parent

# From the bottom up. A package may import from itself and from the rows before its own, not from its neighbours.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("kvviz.errors",),
    ("kvviz.atomic_write", "kvviz.collector", "kvviz.interrupts", "kvviz.late", "kvviz.other_names", "kvviz.version"),
    ("kvviz.text",),
    ("kvviz.decoders",),
    ("kvviz.smollm2",),
    ("kvviz.graph", "kvviz.memory"),
    ("kvviz.trace",),
    ("kvviz.ops",),
    ("kvviz.caches",),
    ("kvviz.query",),
    ("kvviz.engine",),
    ("kvviz.runtimes",),
    ("kvviz.decode", "kvviz.ggml", "kvviz.device", "kvviz.shapes"),
    ("kvviz.debugger",),
    ("kvviz.fixes",),
    ("kvviz.explain",),
    ("kvviz.report",),
    ("kvviz.view",),
    ("kvviz.widget", "kvviz.verification"),
    ("kvviz.lessons",),
    ("kvviz.demo",),
    ("kvviz", "kvviz.cli", "kvviz.ext", "kvviz.plot", "kvviz.policies", "kvviz.__main__"),
)
TOP = len(LAYERS) - 1
LAYER = {package: number for number, row in enumerate(LAYERS) for package in row}


def package_of(module: str) -> str:
    """The row entry that a module belongs to: its first two parts, or kvviz itself."""
    return ".".join(module.split(".")[:2])


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    base = ROOT.joinpath(*name.split("."))
    return base.is_dir() or base.with_suffix(".py").exists()


def imported(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that the code imports, at any depth and also for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                yield node.lineno, inner if is_module(inner) else source
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (
                (node.lineno, a.value) for a in node.args if isinstance(a, ast.Constant) and str(a.value) == a.value
            )


def upward(source: str, module: str, is_package: bool = False) -> list[tuple[int, str]]:
    """Imports of kvviz that do not point to a lower layer or into the module's own package."""
    own = package_of(module)
    found = []
    for line, name in imported(ast.parse(source), module, is_package):
        if name.split(".")[0] != "kvviz":
            continue
        target = package_of(name)
        below = LAYER.get(target, TOP) < LAYER.get(own, TOP)
        if not below and target != own and LAYER.get(own, TOP) != TOP:
            found.append((line, name))
    return found


FILES = sorted((ROOT / "kvviz").rglob("*.py"))


def test_every_module_of_kvviz_has_a_layer() -> None:
    assert {package_of(module_of(path)) for path in FILES} <= LAYER.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    found = upward(path.read_text("utf-8"), module_of(path), path.name == "__init__.py")
    assert not found, f"{path.relative_to(ROOT)} imports from its own layer or above: {found}"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kvviz.ops.add", "from kvviz.engine.plan import Plan"),
        ("kvviz.ops.add", "import kvviz.engine"),
        ("kvviz.ops.add", "from ..engine import plan"),
        ("kvviz.ops.add", "def late():\n    from kvviz import view"),
        ("kvviz.ops.add", "import kvviz"),
        ("kvviz.ops.add", "from kvviz import load"),
        ("kvviz.ops.add", "import importlib\nimportlib.import_module('kvviz.view.html')"),
        ("kvviz.ops.add", "if TYPE_CHECKING:\n    from kvviz.engine.session import Session"),
        ("kvviz.graph.model", "from kvviz.memory import storage"),
        ("kvviz.errors", "from kvviz.graph.model import Node"),
    ],
)
def test_an_import_that_points_up_or_sideways_is_found(module: str, source: str) -> None:
    assert upward(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kvviz.ops.add", "from kvviz.errors import GraphError\nfrom kvviz.graph.model import Node"),
        ("kvviz.ops.add", "from . import registry\nfrom .registry import op\nfrom ..memory import storage"),
        ("kvviz.widget.debugger_widget", "from kvviz.view import wire"),
        ("kvviz.cli.commands", "import kvviz\nfrom kvviz import plot"),
        ("kvviz.errors", "import numpy"),
    ],
)
def test_an_import_that_points_down_is_let_through(module: str, source: str) -> None:
    assert not upward(source, module)


def test_no_module_imports_itself_by_way_of_others() -> None:
    names = {module_of(path): path for path in FILES}
    graph = {}
    for module, path in names.items():
        found = (name for _, name in imported(ast.parse(path.read_text("utf-8")), module, path.name == "__init__.py"))
        graph[module] = {name for name in found if name in names and name != module}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_a_base_name_stands_once() -> None:
    count = Counter(path.stem for path in FILES if not path.stem.startswith("__"))
    assert [name for name, times in count.items() if times > 1] == []


# What holds data has methods that draw it, which are found by name when they are called.
HOLDERS = {
    "ggml/graph/compute_graph.py",
    "graph/model.py",
    "trace/recording.py",
    "trace/reasons.py",
    "trace/records.py",
    "trace/step_sequence.py",
    "query/found_steps.py",
    "ggml/kv_cache.py",
}


def test_only_what_holds_data_asks_for_functions_by_name_and_they_are_there() -> None:
    asked: dict[str, list[str]] = {}
    for path in FILES:
        for place in re.findall(r'\blate\("([^"]+)"\)', path.read_text("utf-8")):
            asked.setdefault(path.relative_to(ROOT / "kvviz").as_posix(), []).append(place)
    assert asked.keys() == HOLDERS
    for place in (place for places in asked.values() for place in places):
        assert callable(late(place))
