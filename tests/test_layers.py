"""Imports inside kvviz point only downwards."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# From the bottom up. A package may import from itself and from the rows before its own, not from its neighbours.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("kvviz.errors",),
    (
        "kvviz.atomic_write",
        "kvviz.collector",
        "kvviz.interrupts",
        "kvviz.other_names",
        "kvviz.public_trace",
        "kvviz.version",
    ),
    ("kvviz.text",),
    ("kvviz.decoders",),
    ("kvviz.smollm2",),
    ("kvviz.memory",),
    ("kvviz.graph",),
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
    ("kvviz", "kvviz.audit", "kvviz.cli", "kvviz.ext", "kvviz.plot", "kvviz.policies", "kvviz.__main__"),
)
TOP = len(LAYERS) - 1
LAYER = {package: number for number, row in enumerate(LAYERS) for package in row}
# The only file that looks upward: methods that data has from higher layers.
UPWARD = "kvviz.public_trace"


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
        if not below and target != own and LAYER.get(own, TOP) != TOP and module != UPWARD:
            found.append((line, name))
    return found


FILES = sorted((ROOT / "kvviz").rglob("*.py"))


def test_every_module_of_kvviz_has_a_layer() -> None:
    assert {package_of(module_of(path)) for path in FILES} <= LAYER.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    found = upward(path.read_text("utf-8"), module_of(path), path.name == "__init__.py")
    assert not found, f"{path.relative_to(ROOT)} imports from its own layer or above: {found}"


def test_an_import_that_points_up_or_sideways_is_found() -> None:
    for module, source in [
        ("kvviz.ops.add", "from ..engine import plan"),
        ("kvviz.ops.add", "def late():\n    from kvviz import view"),
        ("kvviz.ops.add", "import importlib\nimportlib.import_module('kvviz.view.html')"),
        ("kvviz.ops.add", "if TYPE_CHECKING:\n    from kvviz.engine.sessions.session import Session"),
        ("kvviz.errors", "from kvviz.graph.model import Node"),
    ]:
        assert upward(source, module)


def test_no_module_imports_itself_by_way_of_others() -> None:
    names = {module_of(path): path for path in FILES}
    graph = {}
    for module, path in names.items():
        found = (name for _, name in imported(ast.parse(path.read_text("utf-8")), module, path.name == "__init__.py"))
        graph[module] = {name for name in found if name in names and name != module and module != UPWARD}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_a_base_name_stands_once() -> None:
    count = Counter(path.stem for path in FILES if not path.stem.startswith("__"))
    assert [name for name, times in count.items() if times > 1] == []


def test_the_file_that_looks_upward_does_so_only_when_a_function_is_called() -> None:
    tree = ast.parse((ROOT / "kvviz/public_trace.py").read_text("utf-8"))
    on_import = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [name for node in on_import for _, name in imported(node, UPWARD, False) if name.startswith("kvviz")] == []


def climbing(source: str) -> list[tuple[int, str]]:
    """Ways to reach another module of kvviz that no import statement shows: names that are looked up when the code
    runs, and attributes that are put on a class of another module."""
    tree, found = ast.parse(source), []
    classes = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvviz")
        for alias in node.names
        if alias.name[:1].isupper()
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rsplit(".", 1)[-1]
            if called in ("import_module", "__import__", "late"):
                found.append((node.lineno, ast.unparse(node)))
            if called == "setattr" and ast.unparse(node.args[0]) in classes:
                found.append((node.lineno, ast.unparse(node)))
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("sys.modules"):
            found.append((node.lineno, ast.unparse(node)))
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) in classes:
                    found.append((node.lineno, ast.unparse(target)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            place = re.fullmatch(r"(?:kvviz\.)?((?:[a-z_0-9]+\.)*[a-z_0-9]+):\w+", node.value)
            if place and "." in node.value and is_module(f"kvviz.{place[1]}"):
                found.append((node.lineno, node.value))
    return found


# Public names, which are imported when they are first used; kernels, which register themselves; third-party packages.
LOOKS_UP = {"__init__.py", "ops/__init__.py", "text/__init__.py"}


def test_nothing_climbs_by_a_name_that_is_looked_up_at_run_time() -> None:
    found = {path.relative_to(ROOT / "kvviz").as_posix(): climbing(path.read_text("utf-8")) for path in FILES}
    assert {path: places for path, places in found.items() if places and path not in LOOKS_UP} == {}
    assert all(found[path] for path in LOOKS_UP)


def test_a_look_up_at_run_time_is_found() -> None:
    for source in [
        "late('view.cards:graph_card')",
        "import importlib\nimportlib.import_module('kvviz.' + name)",
        "import sys\nsys.modules['kvviz.view.cards'].graph_card",
        "PLACE = 'view.cards:graph_card'",
        "from kvviz.graph.model import Graph\nGraph.draw = lambda graph: None",
        "from kvviz.graph.model import Graph\nsetattr(Graph, 'draw', print)",
    ]:
        assert climbing(source)
