"""What ggml asks of a tensor's sizes and strides before it builds an op, and the one error if it is not so.

Source: the ``ggml_is_*`` and ``ggml_can_*`` functions of ggml (``src/ggml.c``, version 0.25.3).
"""

from __future__ import annotations

from kvviz.errors import KvvizError
from kvviz.ggml.tensor import Tensor, type_size


def need(holds: bool, op: str, rule: str, *tensors: Tensor) -> None:
    """Raise a `KvvizError` that names the op, its tensors with their sizes, and the rule that they break."""
    if not holds:
        raise KvvizError(f"{op} of {' and '.join(map(told, tensors))}: {rule}")


def told(tensor: Tensor) -> str:
    """A tensor in an error: its name, type and sizes, and its strides where they are no matter of course."""
    dims = max((axis + 1 for axis, n in enumerate(tensor.ne) if n != 1), default=1)
    strides = "" if is_contiguous(tensor) else f" with nb {list(tensor.nb[:dims])}"
    return f"{tensor.name or 'an unnamed tensor'!r} {tensor.type} {list(tensor.ne[:dims])}{strides}"


def is_contiguous(tensor: Tensor, free: int = 0) -> bool:
    """``ggml_is_contiguous``; the first ``free`` axes behind the rows may lie anywhere (``ggml_is_contiguous_1``)."""
    block, step = type_size(tensor.type)
    if tensor.ne[0] != block and tensor.nb[0] != step:
        return False
    step *= tensor.ne[0] // block
    for axis in range(1, 4):
        if axis <= free:
            step = tensor.nb[axis]
        elif tensor.ne[axis] != 1 and tensor.nb[axis] != step:
            return False
        step *= tensor.ne[axis]
    return True


def has_whole_rows(tensor: Tensor) -> bool:
    """``ggml_is_contiguous_rows``."""
    block, size = type_size(tensor.type)
    return tensor.ne[0] == block or tensor.nb[0] == size


def is_padded(tensor: Tensor) -> bool:
    """``ggml_is_padded_1d``: rows may be apart, all else is packed."""
    outer = all(tensor.nb[axis] == tensor.nb[axis - 1] * tensor.ne[axis - 1] for axis in (2, 3))
    return tensor.nb[0] == type_size(tensor.type)[1] and outer


def can_repeat(small: Tensor, large: Tensor) -> bool:
    """Whether a tensor, repeated along its axes, fills another one."""
    if 0 in small.ne:
        return 0 in large.ne
    return all(n % m == 0 for n, m in zip(large.ne, small.ne))
