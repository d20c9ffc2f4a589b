"""Findings about the caches of a decode: buffers thrown away, copies, moves by the caller, and warnings.

Invariant: a warning that a finding with a fix covers is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kvviz.caches.cache_facts import reserved_rows
from kvviz.caches.cache_warnings import CacheWarning
from kvviz.caches.growths import growths
from kvviz.fixes.fix import Fix, fix_for
from kvviz.graph.cache_pairs import control_inputs
from kvviz.trace.blockers import NO_CAPACITY
from kvviz.trace.kept_runs import keeps_all
from kvviz.trace.records import Cache
from kvviz.trace.units import buffer, count, short, size
from kvviz.trace.value_index import Index, Place

WRONG = frozenset({"stale rows attended", "newest row not attended", "live rows overwritten"})
"""Kinds of warnings after which results may be wrong."""
# Kinds of warnings, and the kind of finding that covers each, with bytes and a fix.
_FINDING_OF = {"past copied": "copied", "reserve thrown away": "thrown away"}


@dataclass(frozen=True, slots=True)
class CacheFinding:
    """One thing to know about some caches; ``str()`` of it is the sentence.

    ``kind``: ``"thrown away"``, ``"copied"`` or ``"moved"``, the kind of a
      `kvviz.caches.cache_warnings.CacheWarning`, or ``"no cache"``.
    ``caches``: inputs of the caches; empty if no cache is kept.
    ``run``: the run in which it happened, or began.
    ``bytes``: bytes of the blocks that were thrown away, or bytes copied or moved in all runs; 0 for a warning.
    ``steps``: for copies, the steps that made them.
    ``find``: searches for the fix.
    """

    kind: str
    caches: tuple[str, ...]
    run: int
    bytes: int
    sentence: str
    steps: tuple[int, ...] = ()
    find: Callable[[], Fix | None] | None = field(default=None, repr=False, compare=False)

    @property
    def fix(self) -> Fix | None:
        """The change that prevents it, searched for when it is read; None if there is none."""
        return None if self.find is None else self.find()

    def __str__(self) -> str:
        return self.sentence


def cache_findings(index: Index, warnings: Sequence[CacheWarning]) -> tuple[CacheFinding, ...]:
    """Findings about the caches of a trace: first what may make results wrong, then what wastes memory.

    ``warnings``: the result of `kvviz.cache_warnings`.
    """
    thrown = [found for cache in index.trace.caches for found in _thrown(index, cache)]
    found = (*_together(thrown), *_copied(index), *_moved(index))
    covered = {(one.kind, name) for one in found for name in one.caches}
    warned = [w for w in warnings if (_FINDING_OF.get(w.kind), w.cache) not in covered]
    wrong = _warned(warning for warning in warned if warning.kind in WRONG)
    wasteful = _warned(warning for warning in warned if warning.kind not in WRONG)
    return (*_recomputed(index), *wrong, *found, *wasteful)


def _thrown(index: Index, cache: Cache) -> list[CacheFinding]:
    """Runs after which a reserved buffer was gone, although the next run could have appended to it."""
    found = []
    for run in index.mains:
        if run + 1 not in index.mains:
            continue
        before, after = (index.places.get((index.mains[run + i], cache.input)) for i in (0, 1))
        if before is None or after is None or cache.axis is None or cache.protocol != "growing":
            continue
        if any(cache.axis >= len(place.shape or ()) for place in (before, after)):
            # If the model declares no shapes, a value may turn out to have fewer axes.
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
            found.append(CacheFinding("thrown away", (cache.input,), run, capacity, text, find=find))
    return found


def _why_thrown(index: Index, run: int, cache: Cache) -> str:
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
    merged = []
    for group in groups.values():
        more = len(group) - 1
        text = group[0].sentence + (f"; so were those of {count(more, 'other cache')}" if more else "")
        caches = tuple(name for one in group for name in one.caches)
        find = partial(_first, group)
        merged.append(replace(group[0], caches=caches, bytes=sum(one.bytes for one in group), sentence=text, find=find))
    return merged


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
    found = copying_steps(index)
    if not found:
        return []
    runs: dict[str, list[int]] = {}
    for run, _, of in found:
        for name in of:
            runs.setdefault(name, []).append(run)
    steps = tuple(step for _, step, _ in found)
    total = sum(index.rows[step].copied for step in steps)
    no_room = any(mask & NO_CAPACITY for step in steps for _, mask in index.rows[step].masks)
    names = tuple(runs)
    times = len({run for some in runs.values() for run in some})
    which = short(names[0]) + (f" and {count(len(names) - 1, 'other cache')}" if len(names) > 1 else "")
    why = "had no room for new rows" if no_room else "could not be appended to"
    part = "" if keeps_all(index.trace) else f" of the {len(index.mains):,} whose steps were kept"
    text = f"{which} {why}: {size(total)} of past rows were copied in {count(times, 'run')}{part}"
    find = partial(_fix, index, [(name, sorted(some, reverse=True)) for name, some in runs.items()])
    return [CacheFinding("copied", names, min(min(some) for some in runs.values()), total, text, steps, find)]


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
    """The fix of the first op that copied one of these caches to extend it."""
    for name, runs in where:
        for run in runs:
            for step in (growth.steps[-1] for growth in growths(index, run) if growth.input == name):
                # The input with the fewest reasons against it was nearest to being taken over.
                for _, position in sorted((mask.bit_count(), position) for position, mask in index.rows[step].masks):
                    if (fix := fix_for(index, step, position)) is not None:
                        return fix
    return None


def _length(place: Place, axis: int) -> int:
    assert place.shape is not None
    return place.shape[axis]


def _warned(warnings: Iterable[CacheWarning]) -> list[CacheFinding]:
    """One finding for all caches with the same warning in the same runs."""
    groups: dict[tuple[str, int, int], list[CacheWarning]] = {}
    for warning in warnings:
        groups.setdefault((warning.kind, warning.run, warning.runs), []).append(warning)
    found = []
    for (kind, run, _), group in groups.items():
        caches = tuple(dict.fromkeys(warning.cache for warning in group))
        others = len(caches) - 1
        text = group[0].sentence + (f" (so with {count(others, 'other cache')})" if others else "")
        found.append(CacheFinding(kind, caches, run, 0, text))
    return found


def _recomputed(index: Index) -> tuple[CacheFinding, ...]:
    """The finding that no cache is kept, with the number of tokens computed; empty for other traces.

    With a cache the first run computes the prompt and each later one a single token, in every sequence.
    """
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
