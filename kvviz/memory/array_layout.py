"""What a rule may look at of an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np


class ArrayLayout(Protocol):
    """An array as policies, planners, placement and view rules see it: its layout, and none of its numbers.

    An ndarray has all of this, and so has the array without contents that a dry run has in its place.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        ...

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an element."""
        ...

    @property
    def ndim(self) -> int:
        """Number of axes."""
        ...

    @property
    def size(self) -> int:
        """Number of elements."""
        ...

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        ...

    @property
    def flags(self) -> Any:
        """As of an ndarray: ``c_contiguous``, ``writeable`` and others."""
        ...

    @property
    def base(self) -> Any:
        """The array of which this one is a view; None where it owns its memory."""
        ...


def is_array(value: object) -> TypeGuard[ArrayLayout]:
    """Whether a value is an array, and no list and not absent."""
    return isinstance(value, np.ndarray)


Arguments = Sequence[ArrayLayout]
"""The inputs or outputs of an op as a rule sees them; an absent one is None, and a sequence is a list of arrays."""
