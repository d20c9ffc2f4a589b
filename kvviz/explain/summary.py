"""A summary of a trace: how its ops ran, and where memory was spent without need.

Invariant: every step is counted once, and the bytes of the missed list are those of the missed steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from kvviz.fixes.fix import Fix
from kvviz.trace.blockers import Blocker, BlockerCode
from kvviz.trace.index.value_index import Index, index_of
from kvviz.trace.outcome import endings
from kvviz.trace.reasons import is_missed
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import VIEW, Op
from kvviz.trace.schema.log import Ints
from kvviz.trace.units import count, short

_KINDS = ("in_place", "views", "missed", "cannot", "bodies")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many steps ran in which way; the first five numbers sum to the number of steps.

    ``in_place``: wrote into, appended to, or took over the storage of an input.
    ``views``: made only views of an input.
    ``missed``: could have run in place, or have been a view, by kind, and spent memory instead; see
      `kvviz.trace.reasons.is_missed`.
    ``cannot``: all others: their kind never runs in place under the policy, or there was nothing to save.
    ``bodies``: control nodes (If, Loop, Scan, local functions), whose work is done by the steps of their bodies.
    ``missed_bytes``: bytes that the missed ones spent, see `spent`, and those of captured values that a Loop copied.
    ``cannot_bytes``: bytes that ``cannot`` spent: a runtime whose Concat never appends misses nothing, but still pays.
    ``elsewhere, elsewhere_copied``: steps of any kind that were called in place and wrote to other memory, and the
      bytes that they copied; see `kvviz.trace.outcome`.
    """

    in_place: int = 0
    views: int = 0
    missed: int = 0
    cannot: int = 0
    bodies: int = 0
    missed_bytes: int = 0
    cannot_bytes: int = 0
    elsewhere: int = 0
    elsewhere_copied: int = 0


@dataclass(frozen=True, slots=True)
class Clone:
    """A captured value, by its outer name, that a Loop copied at one of its steps. ``times``: iterations, each with a
    copy of its own. ``bytes``: of all these copies."""

    name: str
    times: int
    bytes: int


@dataclass(frozen=True)
class Missed:
    """A node that could have run in place and did not, over all runs and iterations; or a Loop that copied captured
    values for its iterations.

    Attributes
    ----------
    node, op_type : str
    frame : tuple of str
        Path of its frame without iteration numbers; ``()`` is the main graph.
    steps : tuple of int
        The steps at which it was missed.
    step : int
        The step that spent most, the first of them on ties.
    bytes : int
        Bytes spent in all these steps; see `spent`.
    allocated, copied : int
        Bytes of new capacity, and bytes that were only moved, in all these steps.
    clones : tuple of Clone
        What a Loop copied for its iterations at ``step``; empty for other ops.
    """

    node: str
    op_type: str
    frame: tuple[str, ...]
    steps: tuple[int, ...]
    step: int
    bytes: int
    allocated: int
    copied: int
    trace: Trace = field(repr=False, compare=False)
    clones: tuple[Clone, ...] = ()

    @cached_property
    def blockers(self) -> tuple[Blocker, ...]:
        """The reasons at ``step``, each with its fix, if there is one. All reasons of an input share one fix."""
        if self.clones:
            return _why_copied(self.trace, self.step, self.clones)
        return distinct(self.trace.steps[self.step].decision.blockers)

    @property
    def fix(self) -> Fix | None:
        """The first fix among the blockers that saves memory, else the first; None if there is none."""
        fixes = [fix for blocker in self.blockers if (fix := blocker.fix) is not None]
        return next((fix for fix in fixes if fix.saves > 0), fixes[0] if fixes else None)

    @property
    def peak_effect(self) -> int | None:
        """Bytes by which the fix lowers the peak of what it was tried on; None without a fix."""
        return None if self.fix is None else self.fix.peak


NOT_ASKED = "the recording does not say what else could have run in place"
"""Text that replaces the missed ops in a report on a trace whose runtime gave no reasons."""


def counts(trace: Trace, runs: int | None = None) -> Counts:
    """How the steps of a trace ran. ``runs``: count the steps of this many runs, from the first on; of all by
    default."""
    kinds = index_of(trace).kinds
    found = [endings(trace, row) for row in kinds.examples]
    named = [_kind(row, ends) for row, ends in zip(kinds.examples, found)]
    end = len(trace.log) if runs is None else trace.runs[runs - 1].last if runs else 0
    steps = {name: kinds.where((kind == name for kind in named), end) for name in _KINDS}
    steps["elsewhere"] = kinds.where(("elsewhere" in ends for ends in found), end)
    numbers = {name: len(some) for name, some in steps.items()}
    total, cannot = (int(kinds.spent[steps[name]].sum()) for name in ("missed", "cannot"))
    copied = int(kinds.copied[steps["elsewhere"]].sum())
    total += sum(clone.bytes for step, copied in clones(trace).items() if step < end for clone in copied)
    return Counts(**numbers, missed_bytes=total, cannot_bytes=cannot, elsewhere_copied=copied)


def missed(trace: Trace) -> tuple[Missed, ...]:
    """Every node that could have run in place and did not, the one that spent most first; a node in different runs, or
    in iterations of a loop, is one entry."""
    index, copied = index_of(trace), clones(trace)
    kinds = index.kinds
    entries = []
    steps = kinds.where(is_missed(trace, row) for row in kinds.examples)
    for path, alike in _by_node(index, steps.tolist()):
        spent, allocated, moved = (column[alike] for column in (kinds.spent, kinds.allocated, kinds.copied))
        entries.append(_entry(trace, path, alike, spent, int(allocated.sum()), int(moved.sum())))
    # Loops that copied captured values for their iterations.
    for path, alike in _by_node(index, sorted(copied)):
        sizes = [sum(clone.bytes for clone in copied[step]) for step in alike]
        entry = _entry(trace, path, alike, np.array(sizes), sum(sizes), sum(sizes))
        entries.append(replace(entry, clones=copied[entry.step]))
    return tuple(sorted(entries, key=lambda entry: (-entry.bytes, entry.steps[0])))


def _by_node(index: Index, steps: Iterable[int]) -> Iterator[tuple[tuple[str, ...], list[int]]]:
    paths = _paths(index.trace.frames)
    found: dict[tuple[tuple[str, ...], int], list[int]] = {}
    for step in steps:
        frame, op, _ = index.rows.called(step)
        found.setdefault((paths[frame], op.node.index), []).append(step)
    return ((path, alike) for (path, _), alike in found.items())


def _entry(trace: Trace, path: tuple[str, ...], steps: list[int], spent: Ints, allocated: int, copied: int) -> Missed:
    worst = steps[int(np.argmax(spent))]
    node = trace.log[worst].op.node
    return Missed(node.name, node.op_type, path, tuple(steps), worst, int(spent.sum()), allocated, copied, trace)


def distinct(blockers: Iterable[Blocker]) -> tuple[Blocker, ...]:
    """Each reason once: an op that reads a value at two inputs is refused at both for the same reason."""
    return tuple({(b.code, b.input, b.message): b for b in reversed(tuple(blockers))}.values())[::-1]


def _kind(row: Op, found: set[str]) -> str:
    if row.op.control:
        return "bodies"
    if "missed" in found:
        return "missed"
    if "in_place" in found:
        return "in_place"
    return "views" if {where.how for where in row.outs if where is not None} == {VIEW} else "cannot"


def _paths(frames: list[Any]) -> list[tuple[str, ...]]:
    """Path of each frame, the same for all iterations of a loop."""
    paths: list[tuple[str, ...]] = []
    for frame in frames:
        above = () if frame.parent is None else (*paths[frame.parent], f"{frame.node.name}[{frame.attribute}]")
        paths.append(above)
    return paths


def clones(trace: Trace) -> dict[int, tuple[Clone, ...]]:
    """What every complete Loop copied for its iterations, by its step; most Loops copy nothing."""
    storages = trace.log.storages
    found: dict[int, dict[str, list[int]]] = {}
    for frame in trace.log.frames:
        if frame.parent is None or frame.iteration is None:
            continue
        step = None if frame.caller is None else trace.step_of(frame.parent, frame.caller.node.index)
        if step is None:
            continue
        for name, storage, _, how, *_ in frame.bindings:
            if how == "captured by value":
                found.setdefault(step, {}).setdefault(name, []).append(storages[storage].capacity)
    return {
        step: tuple(Clone(name, len(sizes), sum(sizes)) for name, sizes in names.items())
        for step, names in found.items()
    }


def _why_copied(trace: Trace, step: int, copied: tuple[Clone, ...]) -> tuple[Blocker, ...]:
    """The policy's rule by which a Loop copied these values, as one reason for each value."""
    node, policy = trace.log[step].op.node, trace.policy.name
    return tuple(
        Blocker(
            BlockerCode.POLICY,
            clone.name,
            -1,
            policy,
            f"{node.op_type} copied {short(clone.name)} for {count(clone.times, 'iteration')}: the policy {policy!r} "
            f"gives every iteration a copy of what it captures by value",
            clone.bytes,
        )
        for clone in copied
    )
