"""What every offered fix must stand up to: it is applied, the op then runs in place, no bit of a result changes, and
what was said of bytes comes true."""

import random
from typing import Any

import numpy as np

from kvviz.fixes.changes import Change
from kvviz.fixes.fix import Fix, fix_for
from kvviz.trace.index.value_index import index_of
from kvviz.trace.reasons import is_missed
from kvviz.trace.units import size

Place = tuple[int, Any, int]


def place(trace: Any, row: Any) -> Place:
    """Run, frame and op of a step: what it has in common with a step of another trace."""
    frame = trace.frames[row.frame]
    return frame.run, frame.path, row.op.node.index


def steps_by_place(trace: Any) -> dict[Place, int]:
    found: dict[Place, int] = {}
    for step, row in enumerate(trace.log):
        found.setdefault(place(trace, row), step)
    return found


def step_like(trace: Any, other: Any, step: int) -> int | None:
    """The step of another trace at which the same op of the same run and frame ran."""
    return steps_by_place(other).get(place(trace, trace.log[step]))


def offered(trace: Any, most: int | None = None) -> list[tuple[int, int, Fix]]:
    """(step, position, fix) of every fix of every missed step, or of so many refused inputs at random."""
    index = index_of(trace)
    refused = [(step, at) for step in _missed(trace) for at, _ in trace.log[step].masks]
    if most is not None and len(refused) > most:
        refused = sorted(random.Random(0).sample(refused, most))
    return [(step, at, fix) for step, at in refused if (fix := fix_for(index, step, at)) is not None]


def _missed(trace: Any) -> list[int]:
    return [step for step, row in enumerate(trace.log) if is_missed(trace, row)]


def _has_reasons(trace: Any, step: int) -> bool:
    blockers = trace.steps[step].decision.blockers
    return bool(blockers) and all(blocker.message and blocker.culprit for blocker in blockers)


def same_results(before: Any, after: Any) -> bool:
    results = [(before.outputs[name], value) for name, value in after.outputs.items()]
    results += zip(before.logits, after.logits, strict=True)
    agree = all(_bits(first) == _bits(second) for first, second in results)
    return agree and before.batch_tokens == after.batch_tokens


def problems(trace: Any, most: int | None = None) -> list[str]:
    """What is wrong with the fixes of a trace; each set of changes is applied once, at most so many of them.

    Finding a fix takes a run, too: for so many, five times as many refused inputs are looked at.
    """
    found = offered(trace, most and 5 * most)
    changes = list({fix.changes: fix for _, _, fix in found}.values())
    if most is not None and len(changes) > most:
        changes = random.Random(0).sample(changes, most)
    applied: dict[tuple[Change, ...], Any] = {fix.changes: fix.apply() for fix in changes}
    wrong = [f"other results: {c}" for c, after in applied.items() if not same_results(trace, after)]
    wrong += [f"step {step} was refused for no reason" for step in _missed(trace) if not _has_reasons(trace, step)]
    steps = {changes: steps_by_place(after) for changes, after in applied.items()}
    for step, position, fix in found:
        after = applied.get(fix.changes)
        if after is not None:
            at = steps[fix.changes].get(place(trace, trace.log[step]))
            why = broken(trace, after, step, at, fix)
            wrong += [f"step {step}, input {position}: {one}: {fix.label}" for one in why]
            if not runs_in_place(after, at, position):
                wrong.append(f"step {step}, input {position}: refused after {fix.changes}")
    return wrong


def broken(trace: Any, after: Any, step: int, at: int | None, fix: Fix) -> list[str]:
    """What a fix said of bytes that did not come true: what its step saves, what all of it saves, and the peak."""
    found = []
    if at is not None:
        row, there = trace.log[step], after.log[at]
        saved = max(row.allocated - there.allocated, row.copied - there.copied)
        told = fix.sentence.partition(" at this step")[0].rpartition("which saves ")[2]
        if saved < fix.saves or told != (size(saved) if saved > 0 else "nothing"):
            found.append(f"its step saves {saved}, not {told}")
    moved = sum(run.bytes_moved_outside for run in after.runs) - sum(run.bytes_moved_outside for run in trace.runs)
    if moved > 0 and f"The caller moves {size(moved)} more" not in fix.sentence:
        found.append(f"the caller moves {moved} more")
    left = trace.bytes_allocated - after.bytes_allocated, trace.bytes_copied - after.bytes_copied - moved
    if max(left) < fix.saves:
        found.append(f"all of it saves {left}, not {fix.saves}")
    if after.peak_bytes - trace.peak_bytes > max(-fix.peak, 0):
        found.append(f"the peak is {after.peak_bytes - trace.peak_bytes} higher, not {-fix.peak}")
    if fix.peak < 0 and f"The peak is {size(-fix.peak)} higher" not in fix.sentence:
        found.append("the higher peak is not said")
    return found


def runs_in_place(trace: Any, step: int | None, position: int) -> bool:
    if step is None:
        return False
    row = trace.log[step]
    return bool(row.taken) and position not in dict(row.masks)


def _bits(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_bits(element) for element in value]
    array = np.asarray(value)
    return array.dtype, array.shape, array.tobytes()
