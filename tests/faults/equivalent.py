"""Faults that change nothing that anybody could see, each with the reason."""

from __future__ import annotations

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
    (
        "kvviz/engine/decide.py",
        "overwrite_mask",
        "if misfit:",
        "if True:",
    ): "no misfit adds no reason",
    (
        "kvviz/caches/path_search.py",
        "_Walk._sources",
        "if given:",
        "if True:",
    ): "a Concat has no input that is absent",
    (
        "kvviz/engine/plan.py",
        "PlannedNode.__init__",
        "self.lone_input = self.inputs[0] if len(self.inputs) == 1 else -1",
        "self.lone_input = self.inputs[0] if len(self.inputs) == 1 else (1)",
    ): "an op without inputs runs on the reference evaluator's kernel, which names its inputs and so gets none",
    (
        "kvviz/trace/records.py",
        "CacheRun",
        "stale: int = 0",
        "stale: int = 1",
    ): "every producer gives it",
    (
        "kvviz/trace/records.py",
        "Step",
        "foreign: bool = False",
        "foreign: bool = True",
    ): "every producer gives it",
    (
        "kvviz/trace/file/packed_file.py",
        "_write",
        "packs = len(data) <= _FREE or len(zlib.compress(data, level)) * _RATIO + _FREE > len(data)",
        "packs = len(data) <= _FREE or (len(zlib.compress(data, level)) * _RATIO - _FREE) > len(data)",
    ): "what is near the bound is not packed, and read all the same",
    (
        "kvviz/trace/records.py",
        "CacheRun",
        "reallocations: int = 0",
        "reallocations: int = 1",
    ): "every producer gives it",
}
