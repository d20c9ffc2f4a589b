"""The part of an array that a rule may read: its layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np


class ArrayLayout(Protocol):
    """The layout of an array, without its numbers, as policies, planners, placement and view rules see it.

    An ndarray has all of this, and so has a ghost, which a dry run uses instead.
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
    """Whether a value is an array, not a list or None."""
    return isinstance(value, np.ndarray)


Arguments = Sequence[ArrayLayout]
"""The inputs or outputs of an op as a rule sees them; an absent one is None, and a sequence is a list of arrays."""
