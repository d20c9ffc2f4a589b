"""Values that are no tensors: sequences of tensors, whose elements are shared and never copied; optionals; and maps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import counted, scalar
from kvviz.ops.registry import op


def _place(position: np.ndarray, length: int, last: int) -> int:
    """A position counted from 0; negative ones count from the end of the sequence."""
    place = int(scalar(position, "position"))
    if not -length <= place <= last:
        raise OpError(f"position {place} is out of range for a sequence of {length} tensors: use {-length} to {last}")
    return place + length if place < 0 else place


def _part(x: np.ndarray, axis: int, where: slice | int) -> np.ndarray:
    index = (*(slice(None),) * axis, where)
    return x[index]


@op("SequenceInsert", views=(0, 1))
def sequence_insert(sequence, tensor, position=None):
    """The sequence with a tensor put before ``position``; without one, or at its length, behind the last."""
    place = len(sequence) if position is None else _place(position, len(sequence), len(sequence))
    return [*sequence[:place], tensor, *sequence[place:]]


@op("SequenceErase", views=(0,))
def sequence_erase(sequence, position=None):
    """The sequence without the tensor at ``position``, or without its last."""
    if not sequence:
        raise OpError("an empty sequence has no tensor to erase")
    place = len(sequence) - 1 if position is None else _place(position, len(sequence), len(sequence) - 1)
    return [*sequence[:place], *sequence[place + 1 :]]


@op("SplitToSequence", views=(0,), moves=True)
def split_to_sequence(x, split=None, *, axis=0, keepdims=1):
    """Views of a tensor: of given lengths, of one length (the last may be shorter), or one an index. Only the last of
    these drops the axis, where ``keepdims`` is 0."""
    axis = counted(axis, x.ndim)
    total = x.shape[axis]
    if split is None:
        return [_part(x, axis, slice(i, i + 1) if keepdims else i) for i in range(total)]
    if split.ndim == 0:
        length = int(split)
        if length < 1:
            raise OpError(f"a split of {length} is no length: it must be 1 or more")
        bounds = [*range(0, total, length), total]
    else:
        lengths = split.tolist()
        if min(lengths, default=0) < 0 or sum(lengths) != total:
            raise OpError(f"lengths {lengths} do not add up to {total}, the length of axis {axis}")
        bounds = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
    return [_part(x, axis, slice(b, e)) for b, e in pairwise(bounds)]


@op("Optional", views=(0,))
def optional(x=None, *, type=None):
    """The value as an optional; an empty one where there is no input."""
    return x


@op("OptionalGetElement", views=(0,))
def optional_get_element(x):
    if x is None:
        raise OpError("the optional is empty, so there is no element to get")
    return x


@op("OptionalHasElement", unread=(0,))
def optional_has_element(x=None):
    return np.array(x is not None)


@op("ZipMap", domain="ai.onnx.ml")
def zip_map(x, *, classlabels_int64s=(), classlabels_strings=()):
    """One map a row, from class labels to scores; a vector is one row."""
    labels = list(classlabels_strings) or list(classlabels_int64s)
    if bool(classlabels_strings) == bool(classlabels_int64s):
        raise OpError("one of classlabels_strings and classlabels_int64s must be given, and not both")
    if x.ndim not in (1, 2) or x.shape[-1] != len(labels):
        raise OpError(f"scores of shape {x.shape} do not give one number to each of the {len(labels)} labels {labels}")
    return [dict(zip(labels, row)) for row in np.atleast_2d(x).tolist()]
