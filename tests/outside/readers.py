"""What is asked of a trace afterwards: the report and its fixes, hazards, the file, and values of the past."""

from contextlib import suppress
from random import Random
from typing import Any

import numpy as np

import kvviz
from kvviz.errors import ReplayError
from tests.outside import pairs, told


def same(one: Any, two: Any) -> bool:
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two))
    one, two = np.asarray(one), np.asarray(two)
    return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()


def report(trace: Any, r: Random, most: int) -> list[str]:
    found = kvviz.explain(trace)
    wrong = []
    text = repr(found) + found._repr_html_()
    if not text:
        wrong.append("the report says nothing")
    if found.counts.missed_bytes != sum(entry.bytes for entry in found.missed):
        wrong.append(f"{found.counts.missed_bytes} bytes missed; the entries' sum differs")
    if sum(part.bytes for part in found.peak.parts) != found.peak.bytes or found.peak.bytes != trace.peak_bytes:
        wrong.append("the parts of the peak do not sum to it")
    steps = [index for entry in found.missed if not entry.clones for index in entry.steps]
    if len(steps) != len(set(steps)):
        wrong.append("a step is missed twice")
    offers = []
    for entry in found.missed:
        if not entry.blockers or any(not blocker.message for blocker in entry.blockers):
            wrong.append(f"{entry.node} is missed without a reason")
        if entry.clones:
            continue
        spent = sum(max(trace.steps[i].allocated, trace.steps[i].copied) for i in entry.steps)
        if spent != entry.bytes:
            wrong.append(f"{entry.node}: {entry.bytes} bytes missed, its steps spent {spent}")
        for index in entry.steps:
            blockers = trace.steps[index].decision.blockers
            if not blockers:
                wrong.append(f"step {index} is missed without a reason")
            offers += [(index, blocker) for blocker in blockers if blocker.fix is not None]
    for index, blocker in r.sample(offers, min(len(offers), most)):
        wrong += _apply(trace, index, blocker)
    return wrong


def _apply(trace: Any, index: int, blocker: Any) -> list[str]:
    fix = blocker.fix
    about = f"step {index} ({trace.steps[index].op_type}), {blocker.code}, fix {fix.label!r}"
    after = fix.apply()
    old, wrong = trace.steps[index], []
    place = (old.run, old.frame, old.node_index)
    step = next((s for s in after.steps if (s.run, s.frame, s.node_index) == place), None)
    if step is None:
        return [f"{about}: the step is not there any more"]
    # Of two inputs that a policy alone refused, the op takes over one.
    blocked = {b.input for b in step.decision.blockers}
    if step.decision.dispatch != "in_place" or blocker.input in blocked:
        codes = [b.code.value for b in step.decision.blockers]
        wrong.append(f"{about}: still {step.decision.dispatch}, taken {step.decision.taken}, blockers {codes}")
    for name, value in after.outputs.items():
        if name in trace.outputs and not same(value, trace.outputs[name]):
            wrong.append(f"{about}: {name} differs")
    return wrong


def hazard_pairs(trace: Any, feeds: dict[str, np.ndarray]) -> list[str]:
    found = kvviz.hazards(trace)
    if any(not hazard.sentence for hazard in found):
        return ["a hazard says nothing"]
    if any(hazard.broken for hazard in found):
        return [f"broken: {hazard.sentence}" for hazard in found if hazard.broken]
    if trace.policy.name not in ("ideal", "never"):
        return []
    wrong = []
    for level in ("exact", "range", "root"):
        for ordered in (False, True):
            want = pairs.expected(trace, feeds, level, ordered)
            have = pairs.told(kvviz.hazards(trace, level, ordered))
            if want is not None and have != want:
                more, less = sorted(have.items() - want.items()), sorted(want.items() - have.items())
                wrong.append(f"hazards at level {level}: {more} too many, {less} missing")
    return wrong


def file(trace: Any, pictures: bool) -> list[str]:
    return [f"from a file: {line}" for line in told.differences(trace, told.loaded(trace), pictures)]


def values(trace: Any, wanted: dict[str, Any], r: Random, close: Any) -> list[str]:
    wrong = []
    main = [step for step in trace.steps if not step.frame]
    for step in r.sample(main, min(3, len(main))):
        for name in step.outputs:
            if name in wanted and isinstance(wanted[name], np.ndarray):
                wrong += close(f"value({name!r}, {step.index})", trace.value(name, step.index), name)
        name = r.choice(list(wanted))
        with suppress(ReplayError):
            wrong += close(f"value({name!r}, {step.index})", trace.value(name, step.index), name)
    inner = [step for step in trace.steps if step.frame]
    for step in r.sample(inner, min(2, len(inner))):
        for out in step.outs:
            if out.shape is not None and trace.value(out.name, step.index).shape != out.shape:
                wrong.append(f"value({out.name!r}, {step.index}) has another shape than {out.shape}")
    return wrong
