"""Where the arrays of a run lie: memory of their own, parts of larger arrays, memory that two of them share."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import kvviz
from tests.outside.scopes import Val

WAYS = ("own", "own", "own", "part", "step", "back", "fortran", "room", "bytes", "class")


@dataclass(frozen=True)
class Fed:
    """An input and the numbers that it is given."""

    value: Val
    numbers: np.ndarray


class Named(np.ndarray):
    """A class of arrays that is not NumPy's own."""


def lay(r: Random, inputs: dict[str, Fed], donate: Sequence[str]) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Arrays with these numbers, each in a way of its own, and guards: (what, array, copy, mask).

    Of a guard what the mask says (None: all) must be the same after the run. Borrowed arrays are read-only views.
    """
    feeds: dict[str, np.ndarray] = {}
    guards: list[Any] = []
    for name, fed in inputs.items():
        borrowed = name not in donate
        feeds[name] = _one(r, fed, borrowed, guards, name)
    _share(r, inputs, feeds, guards, donate)
    for name in inputs:
        if name not in donate:
            guards.append((f"borrowed {name}", feeds[name], feeds[name].copy(), None))
            feeds[name] = feeds[name].view()
            feeds[name].flags.writeable = False
    return feeds, guards


def _one(r: Random, fed: Fed, borrowed: bool, guards: list[Any], name: str) -> np.ndarray:
    numbers, way = fed.numbers, r.choice(WAYS)
    shape, axis = numbers.shape, r.randrange(max(numbers.ndim, 1))
    if way == "room" and shape:
        axis = fed.value.grows[1] if fed.value.grows and r.random() < 0.8 else axis
        return kvviz.reserve(numbers, axis, shape[axis] + r.choice((0, 1, 2, 5)))
    if way == "bytes" and numbers.size:
        return np.frombuffer(bytearray(numbers.tobytes()), numbers.dtype).reshape(shape)
    if way == "fortran" and shape:
        return np.array(numbers, order="F")
    if way == "class":
        return numbers.copy().view(Named)
    if way in ("part", "step", "back") and shape:
        whole = np.full((shape[0] * 2 + 3, *shape[1:]), 7, numbers.dtype)
        where = {"part": slice(2, 2 + shape[0]), "step": slice(1, 1 + 2 * shape[0], 2)}.get(way)
        where = where or slice(shape[0], 0, -1)
        view = whole[where]
        view[...] = numbers
        mask = np.ones(whole.shape, bool)
        mask[where] = False
        guards.append((f"around {name}", whole, whole.copy(), mask))
        return view
    if borrowed and r.random() < 0.1 and shape:
        return np.broadcast_to(numbers[:1], shape)
    return numbers.copy()


def _share(
    r: Random, inputs: dict[str, Fed], feeds: dict[str, np.ndarray], guards: list[Any], donate: Sequence[str]
) -> None:
    """Let two inputs of one type overlap, or be the same array."""
    names = [(a, b) for a in inputs for b in inputs if a < b and inputs[a].numbers.dtype == inputs[b].numbers.dtype]
    names = [(a, b) for a, b in names if feeds[a].size and feeds[b].size]
    if not names or r.random() < 0.6:
        return
    first, second = r.choice(names)
    a, b = inputs[first].numbers, inputs[second].numbers
    if a.shape == b.shape and r.random() < 0.5:
        feeds[second] = feeds[first]
    else:
        common = r.choice((0, 1, min(a.size, b.size)))
        block = np.concatenate([a.reshape(-1), b.reshape(-1)[common:]])
        feeds[first] = block[: a.size].reshape(a.shape)
        feeds[second] = block[a.size - common :][: b.size].reshape(b.shape)
    guards[:] = [g for g in guards if g[0] not in (f"around {first}", f"around {second}")]
