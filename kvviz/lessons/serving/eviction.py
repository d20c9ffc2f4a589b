"""What is thrown away when a cache is full, and rows in fewer bits. Each is a change for `tell`.

Rows are stored with the rotation of their position in them, so a row that stays keeps its place in the text. (Xiao and
others, *Efficient Streaming Language Models with Attention Sinks*, 2024, number the rows anew by their place in the
cache; a model whose rows are cached before they are rotated can do that.)
"""

from __future__ import annotations

import numpy as np

from kvviz.errors import KvvizError
from kvviz.lessons.serving.forward_pass import Change, Rows, take


def recent(size: int) -> Change:
    """Keep the last ``size`` rows: a sliding window."""
    return sinks(size, 0)


def sinks(size: int, first: int = 4) -> Change:
    """Keep the first rows, and of the others the last ones: attention sinks with a window, or a pinned prefix.

    Parameters
    ----------
    size : int
        Rows in all.
    first : int
        Rows that are never thrown away.

    Raises
    ------
    KvvizError
        If no row is left for the window.
    """
    if not 0 <= first < size:
        raise KvvizError(f"{first} of {size} rows are pinned; at least one must be left for the newest token")

    def change(rows: Rows, positions: list[int]) -> tuple[Rows, list[int]]:
        excess = len(positions) - size
        if excess <= 0:
            return rows, positions
        places = [*range(first), *range(first + excess, len(positions))]
        return take(rows, places), [positions[place] for place in places]

    return change


def slot_of(position: int, size: int, first: int = 4) -> int:
    """The row of a fixed buffer that a position is written to: ``first + (position - first) % (size - first)``.

    A buffer of ``size`` rows that is written so holds just what `sinks` keeps.
    """
    if not 0 <= first < size:
        raise KvvizError(f"{first} of {size} rows are pinned; at least one must be left for the newest token")
    if position < 0:
        raise KvvizError(f"position is {position}; positions count from 0")
    return position if position < first else first + (position - first) % (size - first)


def in_bits(bits: int, scale_bits: int = 32) -> Change:
    """Store every row in so many bits an element, with one scale for each head's row: the largest magnitude.

    The next pass finds what is left of the numbers: ``round(x / scale) * scale``, with ``2**(bits-1) - 1`` steps on
    either side of 0.

    Parameters
    ----------
    bits : int
        Of an element, 2 or more.
    scale_bits : int
        Of a scale: 32 or 16, a floating-point number.

    Raises `KvvizError`: if there are no such numbers.
    """
    _check_bits(bits, scale_bits)
    steps = 2 ** (bits - 1) - 1
    kind = np.float32 if scale_bits == 32 else np.float16

    def change(rows: Rows, positions: list[int]) -> tuple[Rows, list[int]]:
        # Rows that were rounded before stay as they are: their largest magnitude is one of the steps.
        made: Rows = {}
        for name, array in rows.items():
            scale = (np.abs(array).max(-1, keepdims=True) / steps).astype(kind).astype(array.dtype)
            scale[scale == 0] = 1
            made[name] = (np.round(array / scale).clip(-steps, steps) * scale).astype(array.dtype)
        return made, positions

    return change


def bytes_in_bits(head_size: int, bits: int, scale_bits: int = 32) -> int:
    """Bytes of one head's row with its scale, as `in_bits` stores it."""
    _check_bits(bits, scale_bits)
    if head_size < 1:
        raise KvvizError(f"head_size is {head_size}; a row has one element at least")
    return -(-head_size * bits // 8) + scale_bits // 8


def _check_bits(bits: int, scale_bits: int) -> None:
    if not isinstance(bits, (int, np.integer)) or bits < 2:
        raise KvvizError(f"a signed number needs a whole number of bits, 2 or more, not {bits!r}")
    if scale_bits not in (16, 32):
        raise KvvizError(f"a scale has 16 or 32 bits, not {scale_bits!r}")
