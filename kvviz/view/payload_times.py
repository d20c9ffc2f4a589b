"""When and on which lane steps ran, which frees were refused, how large arenas are, and what else happened, where a
producer declares it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from kvviz.view.packed_columns import Columns, Strings


def time_columns(declared: Any, kept: Sequence[int], strings: Strings, columns: Columns) -> None:
    """Add the columns ``time``, ``refused``, ``arena`` and ``mark``, each only where there is something to tell.

    ``declared``: of the log. ``kept``: numbers of the steps that are told, ascending; of others nothing is told.
    """
    place = {step: at for at, step in enumerate(kept)}
    times = [
        (place[step], strings(timing.lane), timing.start, timing.end)
        for step, timing in sorted(declared.times.items())
        if step in place
    ]
    if times:
        columns.rows("time", "step i, lane i, start d, end d", times)
    refused = [
        (bisect_left(kept, free.after), free.storage, strings(free.why)) for free in declared.frees if not free.done
    ]
    if refused:
        columns.rows("refused", "step i, storage i, why i", refused)
    arenas = [(strings(space), strings(name), size, banks) for space, name, size, banks in declared.arenas]
    if arenas:
        columns.rows("arena", "space i, name i, bytes d, banks i", arenas)
    marks = [
        (
            bisect_left(kept, mark.after) if mark.after >= 0 else -1,
            mark.time,
            strings(mark.kind),
            strings(mark.value),
            mark.storage,
            mark.nbytes,
            strings(mark.text),
            strings(mark.line),
        )
        for mark in declared.marks
    ]
    if marks:
        columns.rows("mark", "step i, time d, kind i, value i, storage i, bytes d, text i, line i", marks)
