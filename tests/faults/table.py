"""Where faults are put, which tests may notice them, and those that change nothing that anybody could see.

Nothing else here knows what kvviz is made of.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Glob patterns from the root. What draws, words or reads model files is left to other means.
FILES = (
    "kvviz/memory/*.py",
    "kvviz/trace/**/*.py",
    "kvviz/engine/**/*.py",
    "kvviz/ops/transformer/attention_core.py",
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
    found = {path for pattern in FILES for path in root.glob(pattern)}
    return sorted(str(path.relative_to(root)) for path in found if path.name != "__init__.py")


def test_files(root: Path) -> list[str]:
    found = [str(path.relative_to(root)) for path in root.glob("tests/**/test_*.py")]
    wanted = [path for path in found if not path.startswith("tests/ops/") or path.startswith(OPS_TESTS)]
    return sorted(path for path in wanted if not path.startswith(NOT_TESTS))


# (file, function, line before, line after), so that an entry survives when lines move.
EQUIVALENT: dict[tuple[str, str, str, str], str] = {
    (
        "kvviz/memory/storage.py",
        "address",
        "if _SEEN_AT:",
        "if False:",
    ): "NumPy is asked for the address instead, which takes longer and says the same",
    (
        "kvviz/engine/sessions/replay.py",
        "Replayer.note",
        "if len(self.runs) - self._whole >= _STRIDE and Kept.size(feeds) <= self.left // 8:",
        "if (len(self.runs) - self._whole > _STRIDE) and Kept.size(feeds) <= self.left // 8:",
    ): "every 65th run is kept whole in place of every 64th; a replay begins elsewhere and gives the same",
    (
        "kvviz/engine/plan.py",
        "PlannedNode.__init__",
        "self.plain = lone and self.views in ((), (0,))",
        "self.plain = lone and self.views in ((), (1,))",
    ): "views go the long way, which writes down the same",
    (
        "kvviz/caches/row_writes.py",
        "replay",
        "if shape is None or axis >= len(shape):",
        "if shape is None or (axis > len(shape)):",
    ): "an axis that the output does not have was taken for none before",
    (
        "kvviz/graph/cache_pairs.py",
        "sequence_axis",
        "if axes and axis is not None and -len(axes) <= axis < len(axes) and axes[axis] is not None:",
        "if axes and axis is not None and (-len(axes) <= axis <= len(axes)) and axes[axis] is not None:",
    ): "the axis of an op lies inside of its output",
    ("kvviz/engine/decide.py", "overwrite_mask", "if misfit:", "if True:"): "no misfit adds no reason",
    ("kvviz/caches/path_search.py", "_Walk._sources", "if given:", "if True:"): "a Concat has no input that is absent",
    (
        "kvviz/engine/plan.py",
        "PlannedNode.__init__",
        "self.lone_input = self.inputs[0] if len(self.inputs) == 1 else -1",
        "self.lone_input = self.inputs[0] if len(self.inputs) == 1 else (1)",
    ): "an op without inputs runs on the reference evaluator's kernel, which names its inputs and so gets none",
    **{
        ("kvviz/trace/records.py", *change): "every producer gives it"
        for change in (
            ("CacheRun", "stale: int = 0", "stale: int = 1"),
            ("CacheRun", "reallocations: int = 0", "reallocations: int = 1"),
            ("Step", "foreign: bool = False", "foreign: bool = True"),
        )
    },
    (
        "kvviz/trace/file/packed_file.py",
        "_write",
        "packs = len(data) <= _FREE or len(zlib.compress(data, level)) * _RATIO + _FREE > len(data)",
        "packs = len(data) <= _FREE or (len(zlib.compress(data, level)) * _RATIO - _FREE) > len(data)",
    ): "what is near the bound is not packed, and read all the same",
}
