"""Findings about the caches of a decode: buffers thrown away, copies, moves by the caller, and warnings.

Invariant: a warning that a finding with a fix covers is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kvviz.caches.cache_facts import Scene
from kvviz.caches.cache_warnings import CacheWarning
from kvviz.caches.growths import growths
from kvviz.fixes.fix import Fix, fix_for
from kvviz.graph.cache_pairs import control_inputs
from kvviz.trace.blockers import NO_CAPACITY
from kvviz.trace.index.frame_values import RunFrames
from kvviz.trace.index.value_index import Index
from kvviz.trace.units import count, keeps_all, short, size

WRONG = frozenset({"stale rows attended", "newest row not attended", "live rows overwritten"})
"""Kinds of warnings after which results may be wrong."""
_THROWN, _COPIED = "reserve thrown away", "past copied"  # kinds of warnings


@dataclass(frozen=True, slots=True)
class CacheFinding:
    """One thing to know about some caches; ``str()`` of it is the sentence.

    ``kind``: ``"thrown away"``, ``"copied"`` or ``"moved"``, the kind of a
      `kvviz.caches.cache_warnings.CacheWarning`, or ``"no cache"``.
    ``caches``: inputs of the caches; empty if no cache is kept.
    ``run``: the run in which it happened, or began.
    ``bytes``: bytes of the blocks that were thrown away, or bytes copied or moved in all runs; 0 for a warning.
    ``steps``: for copies, the kept steps that made them; ``times``: the number of runs that made some.
    ``find``: searches for the fix.
    """

    kind: str
    caches: tuple[str, ...]
    run: int
    bytes: int
    sentence: str
    steps: tuple[int, ...] = ()
    times: int = 1
    find: Callable[[], Fix | None] | None = field(default=None, repr=False, compare=False)

    @property
    def fix(self) -> Fix | None:
        """The change that prevents it, searched for when it is read; None if there is none."""
        return None if self.find is None else self.find()

    def __str__(self) -> str:
        return self.sentence


def cache_findings(index: Index, warnings: Sequence[CacheWarning]) -> tuple[CacheFinding, ...]:
    """Findings about the caches of a trace: first possibly wrong results, then wasted memory. ``warnings``: from
    `kvviz.cache_warnings`."""
    found = (*_copied(index), *_moved(index))
    covered = {name for one in found if one.kind == "copied" for name in one.caches}
    warned = [w for w in warnings if w.kind != _COPIED or w.cache not in covered]
    wrong = _warned(index, [warning for warning in warned if warning.kind in WRONG])
    thrown = _warned(index, [warning for warning in warned if warning.kind == _THROWN])
    wasteful = _warned(index, [warning for warning in warned if warning.kind not in WRONG | {_THROWN}])
    return (*_recomputed(index), *wrong, *thrown, *found, *wasteful)


def copying_steps(index: Index) -> list[tuple[int, int, tuple[str, ...]]]:
    """Run and step of every op that copied the past of growing caches to make them longer, with the caches' inputs."""
    growing = {cache.input for cache in index.trace.caches if cache.protocol == "growing"}
    found: dict[tuple[int, int], list[str]] = {}
    for run in index.trace.runs:
        for growth in growths(index, run.index):
            step = growth.steps[-1]
            if growth.input in growing and index.rows.refused(step) and index.rows.moved(step)[0]:
                found.setdefault((run.index, step), []).append(growth.input)
    return [(run, step, tuple(names)) for (run, step), names in found.items()]


def _copied(index: Index) -> list[CacheFinding]:
    found = copying_steps(index)
    if not found:
        return []
    runs: dict[str, list[int]] = {}
    for run, _, of in found:
        for name in of:
            runs.setdefault(name, []).append(run)
    steps = tuple(step for _, step, _ in found)
    total = sum(index.rows.moved(step)[0] for step in steps)
    times = len({run for some in runs.values() for run in some})
    if not keeps_all(index.trace):
        # The meters of the caches have all runs.
        copied = [[run.bytes_copied for run in cache.runs] for cache in index.trace.caches if cache.input in runs]
        total, times = sum(map(sum, copied)), sum(any(of_run) for of_run in zip(*copied))
    no_room = any(mask & NO_CAPACITY for step in steps for _, mask in index.rows.refused(step))
    names = tuple(runs)
    which = short(names[0]) + (f" and {count(len(names) - 1, 'other cache')}" if len(names) > 1 else "")
    why = "had no room for new rows" if no_room else "could not be appended to"
    text = f"{which} {why}: {size(total)} of past rows were copied in {count(times, 'run')}"
    find = partial(_fix, index, [(name, sorted(some, reverse=True)) for name, some in runs.items()])
    return [CacheFinding("copied", names, min(min(some) for some in runs.values()), total, text, steps, times, find)]


def _moved(index: Index) -> list[CacheFinding]:
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


def _fix(index: Index, where: Sequence[tuple[str, Iterable[int]]]) -> Fix | None:
    """The fix of the first op that copied one of these caches to extend it."""
    for name, runs in where:
        for run in runs:
            for step in (growth.steps[-1] for growth in growths(index, run) if growth.input == name):
                # The input with the fewest reasons against it was nearest to being taken over.
                for _, position in sorted((mask.bit_count(), position) for position, mask in index.rows[step].masks):
                    if (fix := fix_for(index, step, position)) is not None:
                        return fix
    return None


def _warned(index: Index, warnings: Iterable[CacheWarning]) -> list[CacheFinding]:
    """One finding for all caches with the same warning in the same runs. For reserved buffers that were thrown away,
    their bytes and the fix of the first copy that this caused."""
    groups: dict[tuple[str, int, int], list[CacheWarning]] = {}
    for warning in warnings:
        groups.setdefault((warning.kind, warning.run, warning.runs), []).append(warning)
    found = []
    for (kind, run, _), group in groups.items():
        caches = tuple(dict.fromkeys(warning.cache for warning in group))
        others = len(caches) - 1
        text = group[0].sentence + (f" (so with {count(others, 'other cache')})" if others else "")
        if kind != _THROWN:
            found.append(CacheFinding(kind, caches, run, 0, text, _steps_of(index, caches) if kind == _COPIED else ()))
            continue
        blocks = {index.places[index.mains[run], name].storage for name in caches}
        nbytes = sum(index.trace.log.storages[block].capacity for block in blocks)
        find = partial(_fix, index, [(name, range(run + 1, len(index.trace.runs))) for name in caches])
        found.append(CacheFinding("thrown away", caches, run, nbytes, text, find=find))
    return found


def _steps_of(index: Index, caches: Collection[str]) -> tuple[int, ...]:
    """The kept steps that copied rows of these caches, including ops that the policy never lets append, and moves of a
    cache of fixed length."""
    trace, found = index.trace, set()
    for run in trace.runs:
        found |= {growth.steps[-1] for growth in growths(index, run.index) if growth.input in caches}
        frames = RunFrames(trace, run.index)
        for cache in trace.caches if frames.rows else ():
            known = run.index < len(cache.runs)  # a run that was stopped has no row of the cache yet
            if known and cache.input in caches and cache.protocol not in ("growing", "state", "cross"):
                found |= {step for step, _ in Scene(trace, frames, cache, cache.runs[run.index]).writers}
    return tuple(sorted(step for step in found if index.rows[step].copied))


def _recomputed(index: Index) -> tuple[CacheFinding, ...]:
    """The finding that no cache is kept, with the number of tokens computed; empty for other traces. With a cache the
    first run computes the prompt and each later one a single token, in every sequence."""
    trace = index.trace
    if trace.options.kind != "decode" or 0 not in index.mains or any(c.protocol != "cross" for c in trace.caches):
        return ()
    name = control_inputs(trace.graph)["tokens"]
    fed = index.places.get((index.mains[0], name))
    if fed is None or not fed.shape:
        return ()
    runs, size = len(trace.runs), fed.shape[-1]
    sequences = fed.shape[0] if len(fed.shape) > 1 else 1
    fixed = next(value.shape and isinstance(value.shape[-1], int) for value in trace.graph.inputs if value.name == name)
    computed = sequences * sum(size if fixed else size + run for run in range(runs))
    longest = trace.options.rows - (trace.options.max_new_tokens or 0) + runs  # with all but the last new token
    text = f"no cache: every run computes all tokens again, {computed:,} in {count(runs, 'run')}"
    # A sequence that drops its first tokens has its tokens at other positions in every run, so no cache would be valid.
    if runs > 1 and not (fixed and longest > size):
        text += f"; a cache would leave {sequences * longest:,}"
    return (CacheFinding("no cache", (), 0, 0, text),)
