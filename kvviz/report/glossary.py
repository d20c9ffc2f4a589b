"""The names of figures, the same in the page, in tables, texts and plots.

Invariant: figures with different meanings have different names, and each meaning has one name.
"""

from __future__ import annotations

FIGURES: dict[str, tuple[str, str]] = {
    "live": ("live while the op ran", "bytes alive while this op ran: what it reads, makes, and what others hold"),
    "held": ("held after", "bytes still alive when this op was over, and what it was the last to need was freed"),
    "peak": ("peak", "the largest number of bytes alive while any op ran"),
    "allocated": ("allocated", "bytes of new capacity"),
    "copied": ("copied", "the part of what was written that existed before and was only moved"),
    "written": ("written", "bytes that kernels stored"),
    "missed": ("missed", "bytes that ops spent which could have run in place, or have been views"),
}
"""By key: the name, and what it counts. Weights and arrays of the caller count as alive."""
