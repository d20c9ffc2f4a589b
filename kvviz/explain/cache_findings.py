"""What happened to the caches of a decode that their meters do not say: buffers thrown away, copies, moves outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kvviz.caches.cache_facts import reserved_rows
from kvviz.caches.growths import growths
from kvviz.fixes.fix import Fix, fix_for
from kvviz.trace.blockers import NO_CAPACITY
from kvviz.trace.element_types import nbytes
from kvviz.trace.events import NEW, POOL
from kvviz.trace.kept_runs import keeps_all
from kvviz.trace.units import buffer, count, short, size
from kvviz.trace.value_index import Index, Place


@dataclass(frozen=True, slots=True)
class CacheFinding:
    """One thing to know about some caches; ``str()`` of it is the sentence.

    ``kind``: ``"thrown away"``, ``"copied"`` or ``"moved"``, the kind of a
      `kvviz.caches.cache_warnings.CacheWarning`, or ``"no cache"``.
    ``caches``: inputs of the caches; none where no cache is kept.
    ``run``: the run in which it happened, or began.
    ``bytes``: bytes of the blocks that were thrown away, or bytes copied or moved in all runs; 0 for a warning.
    ``find``: looks for the fix.
    """

    kind: str
    caches: tuple[str, ...]
    run: int
    bytes: int
    sentence: str
    find: Callable[[], Fix | None] | None = field(default=None, repr=False, compare=False)

    @property
    def fix(self) -> Fix | None:
        """The change after which it no longer happens, looked for when it is read; None where there is none."""
        return None if self.find is None else self.find()

    def __str__(self) -> str:
        return self.sentence


def cache_findings(index: Index) -> tuple[CacheFinding, ...]:
    """What is to be said about the caches of a trace, the gravest first."""
    thrown = [found for cache in index.trace.caches for found in _thrown(index, cache)]
    return (*_together(thrown), *_copied(index), *_moved(index))


def _thrown(index: Index, cache: Any) -> list[CacheFinding]:
    """Runs after which a reserved buffer was gone, although the next run could have appended to it."""
    found = []
    for run in index.mains:
        if run + 1 not in index.mains:
            continue
        before, after = (index.places.get((index.mains[run + i], cache.input)) for i in (0, 1))
        if before is None or after is None or cache.axis is None or cache.protocol != "growing":
            continue
        if any(cache.axis >= len(place.shape or ()) for place in (before, after)):
            # Where the model declares no shapes, a value may turn out to have fewer axes.
            continue
        rows, left = (reserved_rows(index.trace, run + i, cache) for i in (0, 1))
        had_room, has_room = rows > _length(before, cache.axis), left > _length(after, cache.axis)
        if had_room and not has_room and after.storage != before.storage:
            why = _why_thrown(index, run, cache)
            text = (
                f"the reserved buffer {buffer(before.storage)} of {short(cache.input)} ({count(rows, 'row')}) was "
                f"thrown away in run {run}: {why}"
            )
            find = partial(_fix, index, [(cache.input, range(run + 1, len(index.trace.runs)))])
            capacity = index.trace.storages[before.storage].capacity
            found.append(CacheFinding("thrown away", (cache.input,), run, capacity, text, find))
    return found


def _why_thrown(index: Index, run: int, cache: Any) -> str:
    main = index.mains[run]
    readers = list(index.readers(main, cache.input))
    if not readers:
        return "no op read it"
    for node, step in readers:
        bodies = index.bodies.get((main, node.index), ())
        if not index.rows[step].op.control or any((body, cache.input) in index.places for body in bodies):
            return f"{node.op_type} {short(node.name)} put the cache elsewhere"
    return "the branch that ran did not use it"


def _together(found: list[CacheFinding]) -> list[CacheFinding]:
    """One finding for all caches to which the same happened in the same run."""
    groups: dict[tuple[int, str], list[CacheFinding]] = {}
    for one in found:
        groups.setdefault((one.run, one.sentence.partition("thrown away")[2]), []).append(one)
    told = []
    for group in groups.values():
        more = len(group) - 1
        text = group[0].sentence + (f"; so were those of {count(more, 'other cache')}" if more else "")
        caches = tuple(name for one in group for name in one.caches)
        find = partial(_first, group)
        told.append(replace(group[0], caches=caches, bytes=sum(one.bytes for one in group), sentence=text, find=find))
    return told


def copying_steps(index: Index) -> list[tuple[int, int, tuple[str, ...]]]:
    """Run and step of every op that copied the past of growing caches to make them longer, with the caches' inputs."""
    growing = {cache.input for cache in index.trace.caches if cache.protocol == "growing"}
    found: dict[tuple[int, int], list[str]] = {}
    for run in index.trace.runs:
        for growth in growths(index, run.index):
            row = index.rows[growth.steps[-1]]
            if growth.input in growing and row.masks and row.copied:
                found.setdefault((run.index, growth.steps[-1]), []).append(growth.input)
    return [(run, step, tuple(names)) for (run, step), names in found.items()]


def _copied(index: Index) -> list[CacheFinding]:
    """Growing caches whose past was copied to make them longer."""
    runs: dict[str, list[int]] = {}
    total = 0
    no_room = False
    for run, step, of in copying_steps(index):
        for name in of:
            runs.setdefault(name, []).append(run)
        row = index.rows[step]
        total += row.copied
        no_room = no_room or any(mask & NO_CAPACITY for _, mask in row.masks)
    if not runs:
        return []
    names = tuple(runs)
    times = len({run for some in runs.values() for run in some})
    which = short(names[0]) + (f" and {count(len(names) - 1, 'other cache')}" if len(names) > 1 else "")
    why = "had no room for new rows" if no_room else "could not be appended to"
    told = "" if keeps_all(index.trace) else f" of the {len(index.mains):,} whose steps were kept"
    text = f"{which} {why}: {size(total)} of past rows were copied in {count(times, 'run')}{told}"
    find = partial(_fix, index, [(name, sorted(some, reverse=True)) for name, some in runs.items()])
    return [CacheFinding("copied", names, min(min(some) for some in runs.values()), total, text, find)]


def _moved(index: Index) -> list[CacheFinding]:
    """Bytes that the caller moved to give caches more room."""
    runs = [run for run in index.trace.runs if run.bytes_moved_outside]
    if not runs:
        return []
    total = sum(run.bytes_moved_outside for run in runs)
    names = tuple(c.input for c in index.trace.caches if any(run.bytes_moved_outside for run in c.runs))
    after = ", ".join(str(run.index) for run in runs[:4]) + (", …" if len(runs) > 4 else "")
    text = (
        f"the caller moved {size(total)} of {count(len(names), 'cache')} into larger buffers after "
        f"run{'s' * (len(runs) > 1)} {after}; no kernel copied that"
    )
    return [CacheFinding("moved", names, runs[0].index, total, text)]


def _first(group: Sequence[CacheFinding]) -> Fix | None:
    """The first fix among findings of the same kind."""
    return next((fix for one in group if (fix := one.fix) is not None), None)


def _fix(index: Index, where: Sequence[tuple[str, Iterable[int]]]) -> Fix | None:
    """The fix of the first op that copied one of these caches in one of its runs to make it longer."""
    for name, runs in where:
        for run in runs:
            for growth in growths(index, run):
                step = growth.steps[-1]
                if growth.input == name and index.rows[step].masks:
                    position = _held_input(index, step)
                    fix = None if position is None else fix_for(index, step, position)
                    if fix is not None:
                        return fix
    return None


def _held_input(index: Index, step: int) -> int | None:
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


def _length(place: Place, axis: int) -> int:
    assert place.shape is not None
    return place.shape[axis]
