"""How kernels read small integer arguments: axes, shapes and lengths that arrive as tensors or as attributes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kvviz.errors import OpError


def ints(tensor: np.ndarray | None, attribute: Iterable[int] | int | None = None) -> list[int] | None:
    """The integers of an argument that is an input in some opsets and an attribute in others.

    Parameters
    ----------
    tensor : ndarray or None
        The input form; a scalar counts as one integer.
    attribute : iterable of int, int or None
        The attribute form, used where the input is absent.

    Returns
    -------
    list of int or None
        None when both are absent.
    """
    if tensor is not None:
        values = tensor.tolist()
        return values if isinstance(values, list) else [values]
    if attribute is None:
        return None
    return [attribute] if isinstance(attribute, int) else list(attribute)


def scalar(tensor: np.ndarray, what: str) -> int | float:
    """The one number of a tensor of one element, of any rank."""
    if tensor.size != 1:
        raise OpError(f"{what} must hold one number, but has shape {tensor.shape}")
    return tensor.item()


def counted(axis: int, rank: int, what: str = "axis") -> int:
    """An axis counted from 0; negative ones count from the end.

    Raises
    ------
    OpError
        When the axis lies outside ``[-rank, rank - 1]``.
    """
    if not -rank <= axis < rank:
        raise OpError(f"{what} {axis} is out of range for a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def distinct(axes: Iterable[int], rank: int, what: str = "axes") -> list[int]:
    """Axes counted from 0, each once, in the order given.

    Raises
    ------
    OpError
        When one is out of range or named twice.
    """
    result = [counted(axis, rank, what) for axis in axes]
    if len(set(result)) != len(result):
        raise OpError(f"{what} {result} name one axis twice")
    return result


def same_batch(lengths: np.ndarray, batch: int, what: str) -> list[int]:
    """One integer a batch entry.

    Raises
    ------
    OpError
        When the tensor does not hold ``batch`` numbers.
    """
    if lengths.size != batch:
        raise OpError(f"{what} holds {lengths.size} numbers for a batch of {batch}: give one for each entry")
    return lengths.reshape(-1).tolist()
