"""What running in place would do to the peak, from the lives of storages; nothing is run.

Had an op run in place, its output would live in its input's storage: from then until one of the two dies, one storage
takes the place of two. All steps of an op are looked at together, so a cache that is copied in every run becomes one
storage for all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvviz.trace.element_types import nbytes
from kvviz.trace.events import NEW, POOL
from kvviz.trace.lifetimes import Life
from kvviz.trace.value_index import Index

Curve = np.ndarray[Any, np.dtype[np.int64]]


def live_curve(index: Index) -> Curve:
    """Bytes alive at every moment: before each run, and while each step ran."""
    if "curve" not in index.notes:
        curve = np.zeros(index.moments + 1, np.int64)
        for life in index.lives:
            _add(curve, life, 1)
        index.notes["curve"] = np.cumsum(curve)[:-1]
    found: Curve = index.notes["curve"]
    return found


def peak_effect(index: Index, steps: Sequence[int], position: int | None = None) -> int:
    """Bytes by which the peak of a trace would be lower if these steps had run in place and nothing else had changed.

    Negative where the input's storage would have to be larger from its beginning, as for a past that needs room. An
    input of another shape or type could not hold the output; it changes nothing.

    ``steps``: the steps at which one op was missed.
    ``position``: the input that is to hold the output; by default the one with the fewest reasons against it.
    """
    groups = _groups(index, steps, position)
    if not groups:
        return 0
    change = np.zeros(index.moments + 1, np.int64)
    for members in groups:
        for life in members:
            _add(change, life, -1)
        size = max(life.bytes for life in members)
        change[min(life.first for life in members)] += size
        change[max(_end(index, life) for life in members) + 1] -= size
    live = live_curve(index)
    return int(live.max() - (live + np.cumsum(change)[:-1]).max())


def held_input(index: Index, step: int) -> int | None:
    """The input of a missed step whose storage would have held the output: the one with the fewest reasons against it;
    None where none could have held it."""
    row = index.rows[step]
    fitting = [(bin(mask).count("1"), position) for position, mask in row.masks if _homes(index, step, position)]
    if not row.masks and row.op.views and _homes(index, step, row.op.views[0]):
        return int(row.op.views[0])
    return min(fitting)[1] if fitting else None


def _homes(index: Index, step: int, position: int) -> list[int]:
    """Storages of the outputs that could have lived in an input's storage."""
    row = index.rows[step]
    node = row.op.node
    past = index.places.get((row.frame, node.inputs[position]))
    if past is None or past.shape is None or past.bound == "weight":
        return []
    fresh = [
        i for i, out in enumerate(row.outs) if out is not None and out.how in (NEW, POOL) and out.shape is not None
    ]
    grown = [grow.output for grow in row.op.grows if grow.input == position]
    if grown:
        return [row.outs[i].storage for i in grown if i in fresh]
    if not row.masks:
        # What was repeated without memory, as by Expand, does not fit where it came from.
        room = index.life(past.storage, index.moment(step)).bytes
        return [row.outs[i].storage for i in fresh if nbytes(row.outs[i].shape, row.outs[i].dtype) <= room]
    out = row.outs[0]
    fits = 0 in fresh and out.shape == past.shape and nbytes(out.shape, out.dtype) == nbytes(past.shape, past.dtype)
    return [out.storage] if fits else []


def _groups(index: Index, steps: Sequence[int], wanted: int | None) -> list[list[Life]]:
    """Lives that would have been one, a group each."""
    group_of: dict[Life, list[Life]] = {}
    for step in steps:
        position = wanted if wanted is not None and _homes(index, step, wanted) else held_input(index, step)
        if position is None:
            continue
        row, moment = index.rows[step], index.moment(step)
        place = index.places[row.frame, row.op.node.inputs[position]]
        for storage in (place.storage, *_homes(index, step, position)):
            life = index.life(storage, moment)
            group_of.setdefault(life, [life])
        one = group_of[index.life(place.storage, moment)]
        for storage in _homes(index, step, position):
            other = group_of[index.life(storage, moment)]
            if other is not one:
                one += other
                for life in other:
                    group_of[life] = one
    return list({id(group): group for group in group_of.values()}.values())


def _end(index: Index, life: Life) -> int:
    """The last moment of a storage that the run owns: what the caller lent and nobody hands out dies when it was read
    for the last time."""
    main = index.mains.get(index.run_at(life.last))
    if main is None:
        # It outlived the steps that were kept.
        return life.last
    frame = index.frames[main]
    lent = _lent(index, main).get(life.storage, ())
    if not lent or any(not frame.program.graph.consumers.get(name) for name in lent):
        return life.last
    handed_out = (index.places.get((main, name)) for name in index.outputs(main))
    if any(place is not None and place.storage == life.storage for place in handed_out):
        return life.last
    return index.moment(life.used) if life.used < len(index.rows) else life.last


def _lent(index: Index, main: int) -> dict[int, list[str]]:
    """Names of what a main frame borrows, by storage; looked up once."""
    known: dict[int, dict[int, list[str]]] = index.notes.setdefault("lent", {})
    if main not in known:
        found = known[main] = {}
        for bound in index.frames[main].bindings:
            if bound.how == "borrowed":
                found.setdefault(bound.storage, []).append(bound.name)
    return known[main]


def _add(curve: Curve, life: Life, sign: int) -> None:
    curve[life.first] += sign * (life.bytes - sum(more for _, more in life.grew))
    for moment, more in life.grew:
        curve[moment] += sign * more
    curve[life.last + 1] -= sign * life.bytes
