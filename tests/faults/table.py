"""Where faults are put, and which tests may notice them. Nothing else here knows what kvviz is made of."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Glob patterns from the root. What draws, words or reads model files is left to other means.
FILES = (
    "kvviz/memory/*.py",
    "kvviz/trace/**/*.py",
    "kvviz/engine/**/*.py",
    "kvviz/ops/transformer/attention_core.py",
    "kvviz/caches/row_contents.py",
    "kvviz/caches/control_values.py",
    "kvviz/caches/cache_meter.py",
    "kvviz/caches/row_contents.py",
    "kvviz/caches/visible_rows.py",
    "kvviz/caches/path_search.py",
    "kvviz/caches/cache_warnings.py",
    "kvviz/caches/row_writes.py",
    "kvviz/graph/cache_pairs.py",
    "kvviz/fixes/fix.py",
    "kvviz/fixes/changes.py",
)

# Of the kernels' tests only those of the masks: the others run the engine too, but look at numbers.
OPS_TESTS = (
    "tests/ops/test_attention.py",
    "tests/ops/test_invalid_caches.py",
    "tests/ops/test_random_attention.py",
    "tests/ops/test_random_gqa.py",
    "tests/ops/test_random_mha.py",
)

# Tests that need a browser, a kernel of Jupyter or a downloaded model, look at the text of the sources, or
# look at what is drawn: faults of the files above are to be noticed by tests of these files.
NOT_TESTS = (
    "tests/ui",
    "tests/notebooks",
    "tests/smollm2",
    "tests/bench",
    "tests/faults",
    "tests/graph/test_bad_models.py",
    "tests/graph/test_load.py",
    "tests/graph/test_scope.py",
    "tests/test_backend_suite.py",
    "tests/test_house_rules.py",
    "tests/test_layers.py",
    "tests/test_make.py",
    "tests/test_models.py",
    "tests/view",
    "tests/widget",
)


def files(root: Path) -> list[str]:
    """Paths of the files that get faults, from the root."""
    found = {path for pattern in FILES for path in root.glob(pattern)}
    return sorted(str(path.relative_to(root)) for path in found if path.name != "__init__.py")


def test_files(root: Path) -> list[str]:
    """Paths of the test files that may notice a fault, from the root."""
    found = [str(path.relative_to(root)) for path in root.glob("tests/**/test_*.py")]
    wanted = [path for path in found if not path.startswith("tests/ops/") or path.startswith(OPS_TESTS)]
    return sorted(path for path in wanted if not path.startswith(NOT_TESTS))
