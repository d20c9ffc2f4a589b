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
        "kvviz/engine/replay.py",
        "Replayer.note",
        "if len(self.runs) - self._whole >= _STRIDE and Kept.size(feeds) <= self.left // 8:",
        "if (len(self.runs) - self._whole > _STRIDE) and Kept.size(feeds) <= self.left // 8:",
    ): "every 65th run is kept whole in place of every 64th; a replay begins elsewhere and gives the same",
    (
        "kvviz/explain/index.py",
        "Index.outputs",
        "if named is None:",
        "if True:",
    ): "the names are looked up anew each time instead of once",
    (
        "kvviz/engine/plan.py",
        "PlannedNode.__init__",
        "self.plain = lone and self.views in ((), (0,))",
        "self.plain = lone and self.views in ((), (1,))",
    ): "views go the long way, which writes down the same",
    (
        "kvviz/decode/writes.py",
        "replay",
        "if shape is None or axis >= len(shape):",
        "if shape is None or (axis > len(shape)):",
    ): "an axis that the output does not have was taken for none before",
    (
        "kvviz/graph/cache_axis.py",
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
        "kvviz/engine/ort/places.py",
        "_dead",
        "return Home(POOL, -1, storage)",
        "return (Home(-1, POOL, storage))",
    ): "of a home that names a storage nothing else is read",
}
