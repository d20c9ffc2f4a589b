"""What happened to cells, in words."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.ggml.find_slot import Evicted, Slot

_LISTED = 6  # cells that are named one by one


def numbers(count: int, noun: str) -> str:
    """``1 token``, ``3 tokens``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def range_text(numbers_: Sequence[int], noun: str) -> str:
    """``cell 3``, ``cells 1, 2, 6``, ``cells 0 to 41``, ``cells 0 to 7, 9 and 30 more``."""
    told = sorted(numbers_)
    if not told:
        return f"no {noun}"
    spans: list[list[int]] = []
    for one in told:
        if spans and one == spans[-1][-1] + 1:
            spans[-1].append(one)
        else:
            spans.append([one])
    if len(told) <= 3:
        parts, left = [str(one) for one in told], 0
    else:
        shown = spans[:_LISTED]
        parts = [", ".join(map(str, s)) if len(s) < 3 else f"{s[0]} to {s[-1]}" for s in shown]
        left = len(told) - sum(map(len, shown))
    return f"{noun}{'s' * (len(told) != 1)} {', '.join(parts)}" + (f" and {left} more" if left else "")


def placed_text(slot: Slot, evicted: Sequence[Evicted]) -> str:
    """``find_slot 3 tokens → cells 1, 2, 6; head 7``."""
    count = sum(map(len, slot.cells))
    many = len(slot.streams) > 1
    places = []
    for stream, cells in zip(slot.streams, slot.cells):
        where = f"{range_text(cells, 'cell')}{f' of stream {stream}' if many else ''}"
        places.append(f"{where}; head {cells[-1] + 1}")
    text = f"find_slot {numbers(count, 'token')} → {'; '.join(places)}"
    for driven in evicted:
        if driven.cells:
            text += f"; takes over {range_text(driven.cells, 'cell')}, hidden by the window"
        for seq, first, last in driven.purged:
            text += f"; purges {range_text(range(first, last + 1), 'position')} of sequence {seq}"
    return text
