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
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def flags(self) -> Any: ...
    @property
    def base(self) -> Any: ...


def is_array(value: object) -> TypeGuard[ArrayLayout]:
    """Whether a value is an array, and no list and not absent."""
    return isinstance(value, np.ndarray)


Arguments = Sequence[ArrayLayout]
"""The inputs or outputs of an op as a rule sees them; an absent one is None, and a sequence is a list of arrays."""
