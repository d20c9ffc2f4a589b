"""Parameters of an op as ggml keeps them: 32-bit words, floats by their bits, zeros at the end cut."""

from __future__ import annotations

from struct import pack, unpack

from kvviz.ggml.tensor import Tensor


def words(*values: int | float) -> tuple[int, ...]:
    """Words of integers and floats (told apart by their Python type), one each."""
    each = [unpack("<i", pack("<f", v) if isinstance(v, float) else pack("<I", v & 0xFFFFFFFF))[0] for v in values]
    while each and not each[-1]:
        each.pop()
    return tuple(each)


def wide(value: int) -> tuple[int, ...]:
    """Words of one ``size_t``."""
    return words(value & 0xFFFFFFFF, value >> 32)


def word(node: Tensor, place: int) -> int:
    """An integer parameter."""
    return node.op_params[place] if place < len(node.op_params) else 0


def real(node: Tensor, place: int) -> float:
    """A float parameter."""
    return float(unpack("<f", pack("<i", word(node, place)))[0])
